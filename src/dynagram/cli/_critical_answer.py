"""What `dynagram critical` finds out about an activation, before anything is printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.activations import Activation, activation
from dynagram.cli._options import DEEPEST
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.report.prose._initialisation import FRAMEWORK_NOTES
from dynagram.theory._regime import tensor_regime
from dynagram.theory.criticality import (
    CriticalPoint,
    FixedPoint,
    Phase,
    critical_initialisation,
    critical_line,
    critical_points,
    fixed_points,
    line_through,
    phase,
    renormalised_weight_variance,
    single_input,
)

_LINE_KERNELS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Answer:
    """Everything the command found out, before it is printed."""

    sigma: Activation
    points: tuple[CriticalPoint, ...]
    reason: str  # why there is no critical point; empty when there is one
    notes: tuple[str, ...]
    given: tuple[float, float] | None  # (C_b, C_W) of the user
    fixed_points: tuple[FixedPoint, ...]
    phase: Phase | None
    at_depth: dict[str, Any] | None
    line: tuple[CriticalPoint, ...] = ()  # some points of a line of critical points
    nearest: CriticalPoint | None = None  # the one of that line with the user's C_W

    @property
    def critical(self) -> tuple[float, float] | None:
        """(C_b, C_W) of the preferred critical point."""
        return (self.points[0].C_b, self.points[0].C_W) if self.points else None


def find_out(
    name: str, cb: float | None, cw: float | None, depth: int | None, width: int | None
) -> Answer:
    """The critical points of the activation `name` and whatever else the options ask for."""
    sigma = activation(name)
    points, reason = critical_points(sigma), ""
    if not points:
        try:
            critical_initialisation(sigma)
        except InvalidValueError as error:
            reason = str(error).partition("no critical initialisation: ")[2]
    given = None
    if cb is not None or cw is not None:
        given = _completed(points, cb, cw)
    variances = given or ((points[0].C_b, points[0].C_W) if points else None)
    at_depth = None
    if depth is not None or width is not None:
        if variances is None:
            raise InvalidValueError(
                "--cb, --cw", None, f"{sigma.name} has no critical point: give both variances"
            )
        at_depth = _at_depth(sigma, points, variances, depth, width, given is None)
    notes = points[0].notes if points else ()
    if sigma.name in FRAMEWORK_NOTES:
        notes = (*notes, FRAMEWORK_NOTES[sigma.name])
    return Answer(
        sigma,
        points,
        reason,
        notes,
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


def _completed(
    points: tuple[CriticalPoint, ...], cb: float | None, cw: float | None
) -> tuple[float, float]:
    """The user's (C_b, C_W); one of them alone takes the other from the critical point."""
    if (cb is None or cw is None) and not points:
        raise InvalidValueError(
            "--cb, --cw", cb if cw is None else cw, "no critical point to take the other from"
        )
    C_b = points[0].C_b if cb is None else cb
    C_W = points[0].C_W if cw is None else cw
    if C_W <= 0:
        raise InvalidValueError("--cw", C_W, "must be > 0")
    return C_b, C_W


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
        raise InvalidValueError("--width", width, "a width must be at least 1")
    found: dict[str, Any] = {"depth": depth, "width": width}
    if depth is not None:
        if not 1 <= depth <= DEEPEST:
            raise InvalidValueError("--depth", depth, f"expected 1 to {DEEPEST}")
        C_b, C_W = variances
        network = MLP([1, *[width or 1] * (depth - 1), 1], sigma, C_b, C_W)
        flow = single_input(network, C_b + C_W)
        K, V, squares = float(flow.K[-1]), float(flow.V[-1]), flow.perpendicular_gain
        found |= {
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
            found |= {
                "depth_over_width": depth / width,
                "relative_fluctuation": V / (width * K**2) if K > 0 else None,
                "relative_shift_of_the_mean": float(flow.G1[-1]) / (width * K) if K > 0 else None,
                "relative_size_of_the_next_order": regime.numbers.get("next_order_of_V"),
                "verdict": regime.verdict,
                "reasons": regime.reasons,
            }
    if width is not None and at_criticality and points[0].exponents.c_W1 is not None:
        found["renormalised_C_W"] = renormalised_weight_variance(points[0], width)
    return found
