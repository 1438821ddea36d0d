"""Infinite width: entropy (A.26) and information between inputs (A.28), (A.29), trained or not.

Neurons of a layer are independent Gaussians over the draws, so a covariance over inputs says
everything. Different neurons share no information (A.27); different inputs do. For a trained
network or a posterior the covariance is that of (10.41) or (6.57); means do not matter. In nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.data._data import check_inputs
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.training import GradientFlow, Posterior, Training

# Below this share of the variance an input is a linear function of others, to rounding.
_SINGULAR = 1e-13


def gaussian_entropy(K: Float[np.ndarray, "a a"], *, neurons: int = 1) -> float:
    """S = (m/2) log|2πeK| of m = `neurons` neurons on all inputs (A.26); may be negative.

    **Arguments:**

    - `K`: the covariance over inputs, regular.
    - `neurons`: m.

    **Returns:** S in nats.

    >>> round(gaussian_entropy(np.array([[1.0]]), neurons=2), 12)     # log 2πe
    2.837877066409
    """
    samples = K.shape[0]
    return 0.5 * neurons * (samples * math.log(2.0 * math.pi * math.e) + _log_determinant(K, "K"))


def gaussian_information(
    K: Float[np.ndarray, "a a"],
    first: Sequence[int],
    second: Sequence[int],
    *,
    neurons: int = 1,
) -> float:
    """I between the outputs on two groups of inputs, (m/2) log(|K_AA||K_BB|/|K_A∪B|) (A.28).

    **Arguments:**

    - `K`: the covariance over inputs.
    - `first`, `second`: the two groups, as numbers of rows of `K`, without overlap.
    - `neurons`: m.

    **Returns:** I in nats; infinite when an input of one group is a linear function of the other's.

    >>> K = np.array([[1.5, 1.1], [1.1, 1.5]])
    >>> round(gaussian_information(K, [0], [1]), 12)
    0.385854751532
    """
    groups = [
        _checked_group(K, name, group) for name, group in (("first", first), ("second", second))
    ]
    if set(groups[0]) & set(groups[1]):
        raise InvalidValueError("second", list(second), "shares inputs with first")
    parts = [_log_determinant(K[np.ix_(g, g)], "K of one group") for g in groups]
    both = groups[0] + groups[1]
    try:
        together = _log_determinant(K[np.ix_(both, both)], "K")
    except InvalidValueError:
        return math.inf
    return 0.5 * neurons * (sum(parts) - together)


def equal_norm_information(K_0: float, K_2: float) -> float:
    """I of two inputs of equal norm, from K_[0] and K_[2] (A.29): no cancellation for near ones.

    **Arguments:**

    - `K_0`: K_[0] = (K_++ + K_+-)/2 > 0.
    - `K_2`: K_[2] = (K_++ − K_+-)/2 ≥ 0.

    **Returns:** I in nats. Zero when K_[2] = K_[0], infinite as K_[2] → 0; at criticality the ratio
    runs with depth only as a power.

    >>> round(equal_norm_information(1.3, 0.2), 12)
    0.385854751532
    """
    if not (K_0 > 0.0 and K_2 >= 0.0):
        raise InvalidValueError("K_0, K_2", (K_0, K_2), "expected K_0 > 0 and K_2 ≥ 0")
    if K_2 == 0.0:
        return math.inf
    ratio = K_2 / K_0
    return math.log1p(ratio) - 0.5 * math.log(4.0 * ratio)


def trained_information(
    network: MLP,
    train_x: object,
    test_x: object,
    first: Sequence[int],
    second: Sequence[int],
    *,
    state: str = "posterior",
    noise: float = 0.0,
    neurons: int = 1,
) -> float:
    """I between outputs on two groups of `test_x` once the network knows `train_x`, order "∞".

    Targets do not enter. It may rise or fall: two outputs lose what a known input told about both,
    and what is left may vary together.

    **Arguments:**

    - `network`: an `MLP`.
    - `train_x`: the known inputs, (samples, n_0).
    - `test_x`: the inputs of the two groups, (samples, n_0).
    - `first`, `second`: the two groups, as numbers of rows of `test_x`, without overlap.
    - `state`: "posterior" (Bayesian, covariance (6.57)), "trained" (end of gradient descent,
        (10.41)) or "untrained".
    - `noise`: variance of the observation noise; for the posterior only.
    - `neurons`: how many outputs count.

    **Returns:** I in nats.

    >>> net = MLP([2, 50, 50, 1], "tanh", C_b=0.1, C_W=1.5)
    >>> tests, known = [[1.0, 0.2], [0.5, 0.9]], [[1.1, 0.1], [-1.0, 0.5]]
    >>> [round(trained_information(net, known, tests, [0], [1], state=s), 3)
    ...  for s in ("untrained", "posterior", "trained")]
    [0.41, 0.553, 0.571]
    """
    covariance = _covariance(network, train_x, test_x, state, noise)
    return gaussian_information(covariance, first, second, neurons=neurons)


def _covariance(
    network: MLP, train_x: object, test_x: object, state: str, noise: float
) -> np.ndarray:
    tests = check_inputs(test_x, network.input_size, "test_x")
    if state == "untrained":
        from dynagram.theory._kernels import frozen_kernels

        return frozen_kernels(network, tests, layers="last").K[0]
    # Imported here: outputs import recursions that this module does not need.
    from dynagram.theory._predict_outputs import predict_outputs

    known = check_inputs(train_x, network.input_size, "train_x")
    data = Data(known, np.zeros((known.shape[0], network.output_size)), tests)
    if state in ("posterior", "trained"):
        how = Posterior(noise) if state == "posterior" else Training(GradientFlow())
        return predict_outputs(network, data, how, order="infinite").kernel_infinite
    raise InvalidValueError("state", state, "expected untrained, posterior or trained")


def _log_determinant(K: np.ndarray, name: str) -> float:
    variance = np.diagonal(K)
    if not np.all(np.isfinite(K)) or np.any(variance <= 0.0):
        raise InvalidValueError(name, K.tolist(), "expected a finite covariance, variances > 0")
    root = np.sqrt(variance)
    sign, value = np.linalg.slogdet(K / np.outer(root, root))
    if sign <= 0 or np.linalg.eigvalsh(K / np.outer(root, root))[0] < _SINGULAR:
        raise InvalidValueError(
            name, "singular", "inputs are repeated or collinear: the entropy is −∞; drop some"
        )
    return float(value + np.sum(np.log(variance)))


def _checked_group(K: np.ndarray, name: str, group: Sequence[int]) -> list[int]:
    rows = [int(index) for index in group]
    if not rows or len(set(rows)) < len(rows) or not all(0 <= i < K.shape[0] for i in rows):
        allowed = f"expected different row numbers below {K.shape[0]}"
        raise InvalidValueError(name, list(group), allowed)
    return rows
