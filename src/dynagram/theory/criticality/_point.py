"""A critical point: its class, hyperparameters, stability, constants and exponents (book §5.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "scale-invariant",
    "K*=0",
    "K*=0 kinked",
    "K*=0 tuned",
    "K*=0 undetermined",
    "K*=0 unstable",
    "half-stable",
]
Stability = Literal[
    "stable",
    "unstable",
    "marginal",
    "half-stable: attracts from above",
    "half-stable: attracts from below",
]


@dataclass(frozen=True)
class Constants:
    """The numbers that fix a class's depth laws; None where a class does not have one.

    `A2`, `A4` are the even moments of the slopes at 0 (5.61), (5.114); `S` = 3A4/A2² − 1 at
    K* = 0 (for half-stable points Var(C_W σ²)/K*²); `rho` the angle constant (5.163).
    `a1`, `a2`, `b1`, `b2` expand C_W g and χ⊥ in K (5.86)-(5.88), `r` = (a2 − a1²)/a1²; `c` is the
    coefficient of K^{3/2} at a kink. `a1_tilde`, `b1_tilde` expand around K* > 0 (5.102).
    """

    A2: float | None = None
    A4: float | None = None
    S: float | None = None
    rho: float | None = None
    a1: float | None = None
    a2: float | None = None
    b1: float | None = None
    b2: float | None = None
    r: float | None = None
    c: float | None = None
    a1_tilde: float | None = None
    b1_tilde: float | None = None


@dataclass(frozen=True)
class Exponents:
    """Powers O ~ ℓ^{-p} of the depth laws; None where there is no power law.

    `p_0`: K (for a half-stable point K − K*); `p_parallel`: δK_[1]; `p_perpendicular`: K_[2];
    `p_psi`: a finite angle; `p_V`: V; `p_1_bare`, `p_1_renormalised`: G^{1} without and with the
    O(1/n) weight variance `c_W1` (5.142). `vertex_slope` is s in V/(nK²) → s·ℓ/n (5.130), (5.131).
    """

    p_0: float | None = None
    p_parallel: float | None = None
    p_perpendicular: float | None = None
    p_psi: float | None = None
    p_V: float | None = None
    vertex_slope: float | None = None
    p_1_bare: float | None = None
    p_1_renormalised: float | None = None
    c_W1: float | None = None

    @property
    def p_V_minus_2p_0(self) -> float | None:
        """−1 in every class where K itself is a power (5.128), (5.129)."""
        return None if self.p_V is None or self.p_0 is None else self.p_V - 2.0 * self.p_0


@dataclass(frozen=True)
class CriticalPoint:
    """One solution of χ∥ = χ⊥ = 1, K* = C_b + C_W g(K*) (5.55), (5.56), and how depth acts near it.

    `activation` is the name of σ, `kind` the class of the point and `stability` what depth does to
    a kernel near it. `K_star` is None when every K is a fixed point (scale-invariant activations).
    `constants` and `exponents` are those of the depth laws; `notes` says how far these hold.
    `line` is the range of K* of a whole line of critical points, each with variances of its own,
    on which this one lies (`critical_line` gives the others); None for a lone point.
    """

    activation: str
    kind: Kind
    K_star: float | None
    C_b: float
    C_W: float
    stability: Stability
    constants: Constants
    exponents: Exponents
    notes: tuple[str, ...] = ()
    line: tuple[float, float] | None = None

    @property
    def line_range(self) -> str:
        """The K* of the line of critical points in words, empty for a lone point."""
        if self.line is None:
            return ""
        low, high = self.line
        if high == math.inf:
            return "> 0" if low == 0.0 else f"≥ {low:.6g}"
        return f"from {low:.6g} to {high:.6g}"
