"""What initialisation does to an activation: critical points, a choice of (C_b, C_W), a size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, ActivationLike, checked_activation
from dynagram.theory._regime import tensor_regime
from dynagram.theory.criticality._laws import renormalised_weight_variance
from dynagram.theory.criticality._offcritical import FixedPoint, Phase, fixed_points, phase
from dynagram.theory.criticality._one_input import single_input
from dynagram.theory.criticality._point import CriticalPoint
from dynagram.theory.criticality._points import (
    critical_initialisation,
    critical_line,
    critical_points,
    line_through,
)

_LINE_KERNELS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Initialisation:
    """An activation, its critical points, and what was asked of it besides.

    `reason` says why there is no critical point; `given` is the (C_b, C_W) asked about, with its
    `phase` and `fixed_points`; `at_depth` the signal at a depth and width; `line` some points of a
    line of critical points, and `nearest` the one of it with the given C_W.
    """

    sigma: Activation
    points: tuple[CriticalPoint, ...]
    reason: str
    given: tuple[float, float] | None
    fixed_points: tuple[FixedPoint, ...]
    phase: Phase | None
    at_depth: dict[str, Any] | None
    line: tuple[CriticalPoint, ...] = ()
    nearest: CriticalPoint | None = None

    @property
    def critical(self) -> tuple[float, float] | None:
        """(C_b, C_W) of the preferred critical point."""
        return (self.points[0].C_b, self.points[0].C_W) if self.points else None


def examine_initialisation(
    activation: ActivationLike,
    C_b: float | None = None,
    C_W: float | None = None,
    *,
    depth: int | None = None,
    width: int | None = None,
) -> Initialisation:
    """The critical points of an activation, and what else is asked about its initialisation.

    **Arguments:**

    - `activation`: a name, a function or an `Activation`.
    - `C_b`, `C_W`: variances to judge; one alone takes the other from the critical point.
    - `depth`, `width`: of a network whose signal is wanted, for inputs with Σx²/n_0 = 1.

    **Returns:** an `Initialisation`.

    >>> examine_initialisation("relu", C_W=2.5).phase.verdict
    'explodes'
    """
    sigma = checked_activation(activation)
    points, reason = critical_points(sigma), ""
    if not points:
        try:
            critical_initialisation(sigma)
        except InvalidValueError as error:
            reason = str(error).partition("no critical initialisation: ")[2]
    given = None
    if C_b is not None or C_W is not None:
        given = _complete(points, C_b, C_W)
    variances = given or ((points[0].C_b, points[0].C_W) if points else None)
    at_depth = None
    if depth is not None or width is not None:
        if variances is None:
            allowed = f"{sigma.name} has no critical point: give both variances"
            raise InvalidValueError("C_b, C_W", None, allowed)
        at_depth = _at_depth(sigma, points, variances, depth, width, given is None)
    return Initialisation(
        sigma,
        points,
        reason,
        given,
        fixed_points(sigma, *given) if given else (),
        phase(sigma, *given, K1=sum(given)) if given else None,
        at_depth,
        _along_line(sigma, points),
        line_through(sigma, given[1]) if given else None,
    )


def _along_line(sigma: Activation, points: tuple[CriticalPoint, ...]) -> tuple[CriticalPoint, ...]:
    """Points of the line of critical points at a few K*, none without a line."""
    span = next((point.line for point in points if point.line is not None), None)
    if span is None:
        return ()
    return tuple(critical_line(sigma, K) for K in _LINE_KERNELS if span[0] <= K <= span[1])


def _complete(
    points: tuple[CriticalPoint, ...], C_b: float | None, C_W: float | None
) -> tuple[float, float]:
    """The given (C_b, C_W); one of them alone takes the other from the critical point."""
    if (C_b is None or C_W is None) and not points:
        allowed = "no critical point to take the other variance from"
        name, value = ("C_b", C_b) if C_W is None else ("C_W", C_W)
        raise InvalidValueError(name, value, allowed)
    bias = points[0].C_b if C_b is None else C_b
    weight = points[0].C_W if C_W is None else C_W
    if weight <= 0:
        raise InvalidValueError("C_W", weight, "must be > 0")
    return bias, weight


def _at_depth(
    sigma: Activation,
    points: tuple[CriticalPoint, ...],
    variances: tuple[float, float],
    depth: int | None,
    width: int | None,
    at_criticality: bool,
) -> dict[str, Any]:
    """Size and fluctuation of the signal for inputs with Σx²/n_0 = 1, so K^(1) = C_b + C_W."""
    if width is not None and width < 1:
        raise InvalidValueError("width", width, "a width must be at least 1")
    numbers: dict[str, Any] = {"depth": depth, "width": width}
    if depth is not None:
        if depth < 1:
            raise InvalidValueError("depth", depth, "a depth must be at least 1")
        C_b, C_W = variances
        network = MLP([1, *[width or 1] * (depth - 1), 1], sigma, C_b, C_W)
        flow = single_input(network, C_b + C_W)
        K, V, squares = float(flow.K[-1]), float(flow.V[-1]), flow.perpendicular_gain
        numbers |= {
            "K": K,
            "relative_fluctuation_times_width": V / K**2 if K > 0 else None,
            "parallel_gain": float(flow.parallel_gain[-1]),
            "perpendicular_gain": None if squares is None else float(squares[-1]),
        }
        if width is not None:
            kernel, vertex = flow.K[:, None, None], flow.V[:, None, None, None, None]
            # The second kernel stands for Θ, which is looked at only when its tensors are there.
            regime = tensor_regime(
                network, kernel, kernel, {"V": vertex}, {"V": np.zeros_like(vertex)}
            )
            numbers |= {
                "depth_over_width": depth / width,
                "relative_fluctuation": V / (width * K**2) if K > 0 else None,
                "relative_shift_of_the_mean": float(flow.G1[-1]) / (width * K) if K > 0 else None,
                "relative_size_of_the_next_order": regime.numbers.get("next_order_of_V"),
                "verdict": regime.verdict,
                "reasons": regime.reasons,
            }
    if width is not None and at_criticality and points[0].exponents.c_W1 is not None:
        numbers["renormalised_C_W"] = renormalised_weight_variance(points[0], width)
    return numbers
