"""Infinite width, as ensembles need it: the one place of this package that asks the theory.

Measured corrections are differences from the infinite-width kernels, and control variates are what
the frozen NTK makes of a network: neither can be measured without them. Theory is imported inside
the functions, so that importing an ensemble does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.networks import Network
from dynagram.training import GradientDescent, Training

if TYPE_CHECKING:
    from dynagram.data import Data
    from dynagram.theory._kernels import FrozenKernels
else:
    Data = FrozenKernels = object  # imported when they are needed


class InfiniteWidth(NamedTuple):
    """Training at infinite width: what every network is compared with, at every moment.

    `kernel` is Θ of all samples (distinct training ones, then test ones) with those of training.
    `rows` turn samples into eigendirections and bracketed tests, `back` these into test outputs;
    `slopes` D[r, h] say what Ĥ − Θ does to a row of rate r in direction h; `bracket` is [−R 1].
    `largest_eta` is the step size at which gradient descent diverges, `steps` those it may take.
    """

    kernel: Float[np.ndarray, "sample train"]
    rows: Float[np.ndarray, "row sample"]
    back: Float[np.ndarray, "test row"]
    slopes: Float[np.ndarray, "time row direction"]
    bracket: Float[np.ndarray, "time test sample"]
    mean: Float[np.ndarray, "time test outputs"]
    largest_eta: float
    steps: int


@float64
def infinite_width(network: Network, data: Data, how: Training, tolerance: float) -> InfiniteWidth:
    """The infinite-width training that pairs of networks are compared with.

    `steps` are three times those that gradient descent needs to bring errors below a tenth of the
    `tolerance`. Refuses a step size that diverges and a training NTK that is rank deficient.
    """
    from dynagram.theory.training._infinite import InfiniteTraining

    limit = InfiniteTraining.of(network, data, how)
    n = limit.weights.size
    if limit.rank < n:
        allowed = "the training NTK is rank deficient: networks would not reach zero error"
        raise InvalidValueError("x", f"rank {limit.rank}", allowed)
    frame, tests = limit.basis, data.test_x.shape[0]
    rates = np.append(frame.h, np.zeros(tests))[:, None]
    moments = [limit.at(moment) for moment in how.recorded]
    steps = 0
    if isinstance(how.algorithm, GradientDescent):
        needed = limit.step_sizes.steps_to(0.1 * tolerance, how.algorithm.eta)
        steps = 50 + 3 * int(min(needed, 1e6))
    return InfiniteWidth(
        kernel=limit.Theta[:, :n],
        rows=frame.rows,
        back=frame.back[n:],
        slopes=np.stack([at.decay(rates, frame.h[None, :]) for at in moments]),
        bracket=np.stack([at.kept[n:] for at in moments]),
        mean=np.stack([at.mean[n:] for at in moments]),
        largest_eta=limit.step_sizes.largest,
        steps=steps,
    )


def frozen_ntk(
    network: Network, x: Float[np.ndarray, "samples n_0"]
) -> Float[np.ndarray, "samples samples"]:
    """Θ^(L) on the rows of `x`."""
    from dynagram.theory._kernels import frozen_kernels

    return frozen_kernels(network, x, layers="last").Theta[-1]


def infinite_kernels(network: Network, x: Float[np.ndarray, "samples n_0"]) -> FrozenKernels:
    """K and Θ of every layer at infinite width, for the samples in the rows of `x`."""
    from dynagram.theory._kernels import frozen_kernels

    return frozen_kernels(network, x)
