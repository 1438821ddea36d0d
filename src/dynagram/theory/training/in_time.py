"""The mean output at every time of training, to order 1/n (∞.81)-(∞.130).

The mean follows m(t) = R(t) y + (1/n)(…): the end-of-training contractions with time-dependent
projectors. A test output is its bracket, moved by all forces up to t, plus Θ_β Θ̃⁻¹ times what the
training outputs have moved. Forces are products of up to three free errors, so that their time
sums are divided differences of one function, `Decay`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import checked_number
from dynagram.theory.training.algorithms import Algorithm, checked_steps
from dynagram.theory.training.contraction import Slots, cubic_coefficients, linear_coefficients
from dynagram.theory.training.decay import Decay
from dynagram.theory.training.frame import Frame
from dynagram.theory.training.mean import Means, mean_parts
from dynagram.theory.training.problem import Problem
from dynagram.theory.training.projectors import Projectors
from dynagram.theory.training.tensors import OutputTensors


@dataclass(frozen=True, eq=False)
class MeanInTime:
    """The mean output at time τ = η·steps: infinite width, and the coefficient of 1/n_{L−1}."""

    time: float
    width: int
    infinite: Float[np.ndarray, "test outputs"]
    parts: Means
    train_infinite: Float[np.ndarray, "train outputs"]
    train_parts: Means

    @property
    def correction(self) -> Float[np.ndarray, "test outputs"]:
        """Everything at order 1/n."""
        return np.sum(list(self.parts.values()), axis=0)

    @property
    def train_correction(self) -> Float[np.ndarray, "train outputs"]:
        """The same for the training outputs; zero at the end."""
        return np.sum(list(self.train_parts.values()), axis=0)

    @property
    def mean(self) -> Float[np.ndarray, "test outputs"]:
        """At the actual width."""
        return self.infinite + self.correction / self.width


def mean_in_time(
    problem: Problem,
    tensors: OutputTensors,
    algorithm: Algorithm,
    *,
    steps: float | int | None = None,
    time: float | int | None = None,
) -> MeanInTime:
    """The mean after `steps` of gradient descent or at `time` τ of gradient flow, to order 1/n.

    `tensors` from `finite.training_tensors`. Cost: N_A⁴ scalars of the projectors, 2×2 matrices
    each, and contractions as at the end.

    >>> from dynagram.networks import MLP
    >>> from dynagram.theory.training.finite import training_tensors
    >>> net = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> problem = Problem.checked(net, [[1.0, 0.0]], [[1.0]], [[0.8, 0.6]])
    >>> tensors = training_tensors(problem)
    >>> for t in (0.5, 2.0, 50.0):
    ...     now = mean_in_time(problem, tensors, Algorithm("flow"), time=t)
    ...     print(now.infinite.round(4), now.correction.round(4), now.train_correction.round(4))
    [[0.6136]] [[-0.0634]] [[-0.0639]]
    [[0.9163]] [[-0.0404]] [[-0.0566]]
    [[0.9286]] [[0.0146]] [[-0.]]
    """
    decay = checked_decay(algorithm, steps, time)
    Theta, K = tensors.frozen.Theta[-1], tensors.frozen.K[-1]
    frame = Frame.of(Theta, problem.weights)
    h, n = frame.h, frame.directions
    algorithm.check_stable(float(h[-1]))
    y, K_frame = frame.basis @ problem.train_y, frame.turn(K)[:n, :n]
    slots = Slots.of(tensors.mode(0), frame)
    found = []
    for row, start in (("t", np.zeros(1)), ("a", h)):
        z = finite_time_projectors(h, decay, start)
        block = Slots(slots.tensors, frame, row)
        linear = linear_coefficients(block, z, y.shape[1])
        found.append(mean_parts(block, z, y, K_frame, linear, cubic_coefficients(block, z)))
    bracketed, train = found
    # Back from directions to samples, and Θ_β Θ̃⁻¹ of what the training outputs moved.
    back = np.linalg.inv(frame.basis)
    carried = Theta[n:, :n] @ frame.basis.T / h
    gains = -decay(np.zeros_like(h), h)
    infinite = (carried * (h * gains)) @ y
    return MeanInTime(
        decay.time,
        problem.network.widths[-2],
        infinite,
        {name: part + carried @ train[name] for name, part in bracketed.items()},
        back @ ((h * gains)[:, None] * y),
        {name: back @ part for name, part in train.items()},
    )


def checked_decay(
    algorithm: Algorithm, steps: float | int | None, time: float | int | None
) -> Decay:
    """The decay of errors after `steps` of gradient descent or at `time` of gradient flow."""
    if algorithm.name == "gd" and algorithm.eta is not None and time is None:
        count = checked_steps(steps)
        if math.isfinite(count):
            return Decay.descent(algorithm.eta, int(count))
        raise InvalidValueError("steps", steps, "finite here; `trained` gives the end")
    if algorithm.name == "flow" and steps is None:
        if time is None or math.isinf(time):
            raise InvalidValueError("time", time, "finite here; `trained` gives the end")
        return Decay.flow(checked_number("time", time, "a time must be ≥ 0"))
    raise InvalidValueError(
        "algorithm", algorithm.name, "gradient descent takes `steps`, gradient flow a `time`"
    )


def finite_time_projectors(
    h: Float[np.ndarray, " a"], decay: Decay, start: Float[np.ndarray, " row"]
) -> Projectors:
    """The projectors at a finite time, for rows whose own rate is `start`.

    Bracketed test outputs have the rate 0: nothing pulls them back. Training directions have
    their h, and forces on them decay (∞.121), (∞.124). With e(s) the free error of a direction,
    a = (1 − e)/h (∞.92) and b_ab = x₂(a, b)(1 − e_a e_b), forces are the products in (∞.102),
    (∞.117) and (∞.119).
    """
    eta = decay.eta
    a, b, c = h[:, None, None], h[None, :, None], h[None, None, :]
    rates = {"a": a, "b": b, "c": c}

    def rate(errors: str) -> np.ndarray:
        """σ of a product of errors: 1 − ησ = Π(1 − ηh)."""
        total = np.zeros((1, 1, 1))
        for letter in errors:
            total = total + rates[letter] - eta * total * rates[letter]
        return total

    def summed(*terms: tuple[str, np.ndarray | float]) -> np.ndarray:
        """η Σ_s of products of errors times their coefficients, as felt by every row."""
        own = start[:, None, None, None]
        return sum(
            (-decay(own, rate(errors)[None]) * factor for errors, factor in terms),
            start=np.zeros((1, 1, 1, 1)),
        )

    x = 1.0 / rate("bc")
    pull = summed(("a", 1.0 / b), ("ab", -1.0 / b))  # a_b e_a
    both = summed(("ab", 1.0))  # e_a e_b
    drift = summed(("a", (1.0 / b - x) / c), ("ab", -1.0 / (b * c)), ("abc", x / c))
    square = summed(("a", x), ("abc", -x))  # b_bc e_a; drift is (a_b − b_bc) e_a/h_c
    late = summed(("ab", 1.0 / c), ("abc", -1.0 / c))  # a_c e_a e_b
    every = summed(("abc", 1.0))  # e_a e_b e_c
    Z_IA = -drift - 0.5 * eta * square
    Z_IB = Z_IA - 0.5 * eta * late - eta**2 / 6.0 * every
    # The second ddNTK also meets the drift of e_b along a and c, and of e_a along c and b.
    Z_IIB = -drift - drift.transpose(0, 2, 1, 3) - drift.transpose(0, 1, 3, 2)
    Z_IIB = Z_IIB - eta * (square + late)
    return Projectors(
        response=-decay(start[:, None], h[None, :]),
        variance=decay(start[:, None, None], h[None, :, None], h[None, None, :]),
        Z_A=pull[..., 0],
        Z_B=_symmetric((pull + 0.5 * eta * both)[..., 0]),
        Z_IA=Z_IA,
        Z_IB=_symmetric(Z_IB),
        Z_IIA=-drift,
        Z_IIB=Z_IIB,
    )


def _symmetric(values: np.ndarray) -> np.ndarray:
    """The mean over all orders of the axes behind the first."""
    orders = list(itertools.permutations(range(1, values.ndim)))
    return sum((values.transpose(0, *order) for order in orders), start=0.0 * values) / len(orders)
