"""Networks as hypotheses about data: evidences, Bayes factors, probabilities (6.29)-(6.31)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import Network
from dynagram.theory.bayes._evidence import LogEvidence, log_evidence
from dynagram.training import Posterior


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Networks and their evidences on one data set, all equally probable beforehand."""

    networks: tuple[Network, ...]
    evidences: tuple[LogEvidence, ...]

    @property
    def log_bayes_factors(self) -> Float[np.ndarray, " network"]:
        """log p(y | network) − log p(y | the best of them) (6.30)."""
        values = np.array([evidence.value for evidence in self.evidences])
        return values - values.max()

    @property
    def probabilities(self) -> Float[np.ndarray, " network"]:
        """p(network | y) with a flat prior over these networks (6.29), (6.31)."""
        weights = np.exp(self.log_bayes_factors)
        return weights / weights.sum()


def compare_hypotheses(
    networks: Sequence[Network],
    data: Data,
    posterior: Posterior,
    *,
    order: str = "1/n",
    accuracy: float | None = None,
    seed: int = 0,
) -> Hypotheses:
    """Which of some networks the training targets make most probable (6.29).

    **Arguments:**

    - `networks`: `MLP`s or `Chain`s that fit the data.
    - `data`, `posterior`, `order`, `accuracy`, `seed`: as in `log_evidence`.

    **Returns:** `Hypotheses`. Cost: one `log_evidence` for each.

    >>> from dynagram.networks import MLP
    >>> data = Data([[1.0, 0.4], [-0.3, 0.9]], [1.0, -0.6])
    >>> nets = [MLP([2, *[50] * n, 1], "relu", C_b=0.0, C_W=2.0) for n in (1, 6)]
    >>> compare_hypotheses(nets, data, Posterior(), order="infinite").probabilities.round(4)
    array([0.8098, 0.1902])
    """
    if not networks:
        raise InvalidValueError("networks", [], "at least one needed")
    evidences = [
        log_evidence(network, data, posterior, order=order, accuracy=accuracy, seed=seed)
        for network in networks
    ]
    return Hypotheses(tuple(networks), tuple(evidences))
