"""The class of an activation at K* = 0 from its one-sided Taylor data (book §5.3.3).

With s, t, u, v, w = σ', σ'', …, σ^(5) at 0± and means over the two sides,
C_W g = K + c K^{3/2} + a₁K² + a₂K³, χ⊥ = 1 + c K^{1/2} + b₁K + b₂K² at C_W = 1/A₂, C_b = 0.
For a smooth σ this is (5.83)-(5.88), with c = 0; kinks are beyond the book:
docs/derivations/depth-laws.md (D9.3), (D9.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dynagram.activations import Activation
from dynagram.gaussian._one_input import even_slope, power_average, slopes
from dynagram.theory.criticality._point import Constants, CriticalPoint, Exponents, Kind, Stability

_PROBE_KERNELS = np.array([1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0])
_AROUND_ZERO = np.linspace(-1.0, 1.0, 65)
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # σ(0) beside |σ| nearby
_REPELS = "the fixed point repels: K grows, first as a power of the depth, then exponentially"


@dataclass(frozen=True)
class _Expansion:
    """Coefficients of C_W g and χ⊥ at small K; exactly 0.0 where rounding cannot tell from 0."""

    A2: float
    A4: float
    rho: float
    c: float
    a1: float
    a2: float
    b1: float
    b2: float
    smooth: bool

    @property
    def S(self) -> float:
        """Var(C_W σ²)/K² as K → 0; 2 for a smooth σ."""
        return 3 * self.A4 / self.A2**2 - 1

    def constants(self) -> Constants:
        """Those that mean something: a₂, b₂, r only without, c only with a kink."""
        if self.c != 0.0:
            return Constants(A2=self.A2, A4=self.A4, S=self.S, rho=self.rho, c=self.c)
        return Constants(
            A2=self.A2,
            A4=self.A4,
            S=self.S,
            rho=self.rho,
            a1=self.a1,
            a2=self.a2 if self.smooth else None,
            b1=self.b1,
            b2=self.b2 if self.smooth else None,
            r=(self.a2 - self.a1**2) / self.a1**2 if self.smooth and self.a1 else None,
        )


def scale_invariant_point(sigma: Activation) -> CriticalPoint | None:
    """(C_b, C_W) = (0, 1/A₂), a line of fixed points (5.67); None unless σ is scale-invariant.

    >>> from dynagram.activations import activation
    >>> point = scale_invariant_point(activation("relu"))
    >>> point.C_W, point.constants.S
    (2.0, 5.0)
    """
    pair = slopes(sigma)
    if pair is None:
        return None
    A2, A4, rho = even_slope(pair, 2), even_slope(pair, 4), angle_constant(*pair)
    S = 3 * A4 / A2**2 - 1
    notes = ("every K is a fixed point, so K keeps the size of the input at all depths",)
    if rho:
        notes += (
            "p_perpendicular = 2, p_psi = 1 hold beyond the crossover depth 3/(rho·psi) (5.169), "
            "before which angles stay",
        )
    return CriticalPoint(
        activation=sigma.name,
        kind="scale-invariant",
        K_star=None,
        C_b=0.0,
        C_W=1.0 / A2,
        stability="marginal",
        constants=Constants(A2=A2, A4=A4, S=S, rho=rho),
        exponents=Exponents(
            p_0=0.0,
            p_parallel=0.0,
            p_perpendicular=2.0 if rho else 0.0,
            p_psi=1.0 if rho else 0.0,
            p_V=-1.0,
            vertex_slope=S,
            c_W1=0.0,
        ),
        notes=notes,
    )


def origin_point(sigma: Activation) -> CriticalPoint | str:
    """The critical point at K* = 0, or the sentence that says why there is none.

    >>> from dynagram.activations import activation
    >>> point = origin_point(activation("tanh"))
    >>> point.kind, point.constants.a1, round(point.constants.a2, 12)
    ('K*=0', -2.0, 5.666666666667)
    >>> origin_point(activation("sigmoid"))
    "K* = 0 needs C_b = -(σ(0)/σ'(0))² = -4 < 0"
    """
    sides = sigma.one_sided(5)
    value, A2 = float(np.mean(sides[:, 0] ** 2)), float(np.mean(sides[:, 1] ** 2))
    if math.sqrt(value) <= _ROUNDING * np.abs(sigma.values(_AROUND_ZERO)).max():
        value = 0.0  # the far tail of a bump elsewhere, or what a difference leaves
    if A2 == 0.0:
        return "K* = 0 needs C_W = ∞, since σ'(0) = 0"
    if value != 0.0:
        return f"K* = 0 needs C_b = -(σ(0)/σ'(0))² = {-value / A2:.6g} < 0"
    expansion = _expand(sides)
    if expansion.c != 0.0:
        return _kinked(sigma, expansion)
    if expansion.a1 != 0.0:
        return _quadratic(sigma, expansion)
    if expansion.smooth and expansion.a2 != 0.0:
        return _tuned(sigma, expansion)
    return _undetermined(sigma, expansion)


def angle_constant(plus: float, minus: float) -> float:
    """ρ = (a₊ − a₋)²/(π(a₊² + a₋²)), which bends angles (5.163); 1/π for ReLU.

    >>> round(angle_constant(1.0, 0.0), 12)
    0.318309886184
    """
    return (plus - minus) ** 2 / (math.pi * (plus**2 + minus**2))


def _expand(sides: np.ndarray) -> _Expansion:
    s, t, u, v, w = sides[:, 1:].T
    A2 = float(np.mean(s**2))
    side = np.array([-1.0, 1.0])

    def over_A2(*terms: np.ndarray) -> float:
        total = float(sum(np.mean(term) for term in terms))
        size = float(sum(np.mean(np.abs(term)) for term in terms))
        return total / A2 if abs(total) > 1e-12 * size else 0.0

    return _Expansion(
        A2=A2,
        A4=float(np.mean(s**4)),
        rho=angle_constant(float(s[1]), float(s[0])),
        c=over_A2(2.0 * math.sqrt(2.0 / math.pi) * side * s * t),
        a1=over_A2(0.75 * t * t, s * u),
        a2=over_A2(s * w / 4, 5 * t * v / 8, 5 * u * u / 12),
        b1=over_A2(t * t, s * u),
        b2=over_A2(s * w / 4, t * v, 0.75 * u * u),
        smooth=bool(np.all(sides[0] == sides[1])),
    )


def _at_origin(
    sigma: Activation,
    expansion: _Expansion,
    kind: Kind,
    stability: Stability,
    exponents: Exponents,
    notes: tuple[str, ...],
) -> CriticalPoint:
    """A point at K* = 0; the exponents hold only where the fixed point attracts."""
    if stability == "unstable":
        exponents, notes = Exponents(), (*notes, _REPELS)
    elif expansion.rho:
        notes += ("the slopes at 0± differ: the angle law (5.166) multiplies p_perpendicular",)
    return CriticalPoint(
        activation=sigma.name,
        kind=kind,
        K_star=0.0,
        C_b=0.0,
        C_W=1.0 / expansion.A2,
        stability=stability,
        constants=expansion.constants(),
        exponents=exponents,
        notes=notes,
    )


def _kinked(sigma: Activation, expansion: _Expansion) -> CriticalPoint:
    """Curvature or slope kink at 0: half-integer powers of K, p_0 = 2 (beyond the book)."""
    exponents = Exponents(
        p_0=2.0,
        p_parallel=3.0,
        p_perpendicular=2.0,
        p_V=3.0,
        vertex_slope=expansion.S / 3,
        p_1_bare=1.0,
        p_1_renormalised=2.0,
        c_W1=expansion.S / 4 / expansion.A2,
    )
    stability = "stable" if expansion.c < 0 else "unstable"
    return _at_origin(
        sigma,
        expansion,
        "K*=0 kinked",
        stability,
        exponents,
        ("σ is kinked at 0: the K^{3/2} term decides, Taylor constants do not",),
    )


def _quadratic(sigma: Activation, expansion: _Expansion) -> CriticalPoint:
    """a₁ ≠ 0: the K* = 0 class proper when a₁ < 0 (5.89)-(5.99)."""
    a1, b1 = expansion.a1, expansion.b1
    exponents = Exponents(
        p_0=1.0,
        p_parallel=2.0,
        p_perpendicular=b1 / a1,
        p_V=1.0,
        vertex_slope=expansion.S / 3,
        p_1_bare=0.0,
        p_1_renormalised=1.0,
        c_W1=expansion.S / 3 / expansion.A2,
    )
    notes = ()
    if b1 > 0 > a1:
        notes = ("b1 > 0 > a1: distances at equal norm grow with depth, as a power",)
    if a1 < 0:
        return _at_origin(sigma, expansion, "K*=0", "stable", exponents, notes)
    return _at_origin(sigma, expansion, "K*=0 unstable", "unstable", exponents, notes)


def _tuned(sigma: Activation, expansion: _Expansion) -> CriticalPoint:
    """a₁ = 0, smooth: p_0 = ½ when a₂ < 0; distances follow a power only if b₁ = 0."""
    benign = expansion.b1 == 0.0
    notes = ("a1 = 0: the cubic term of the kernel map decides",)
    if not benign:
        notes += ("b1 ≠ 0: distances at equal norm go like exp(√ℓ), not as a power",)
    exponents = Exponents(
        p_0=0.5,
        p_parallel=1.5,
        p_perpendicular=0.5 if benign else None,
        p_V=0.0,
        vertex_slope=expansion.S / 3,
    )
    stability = "stable" if expansion.a2 < 0 else "unstable"
    return _at_origin(sigma, expansion, "K*=0 tuned", stability, exponents, notes)


def _undetermined(sigma: Activation, expansion: _Expansion) -> CriticalPoint:
    """Flat Taylor data (hardtanh): only the sign of C_W g(K) − K at small K can be told."""
    drift = power_average(sigma, _PROBE_KERNELS, 2) / (expansion.A2 * _PROBE_KERNELS) - 1.0
    resolved = drift[np.abs(drift) > 1e-12]
    stability: Stability = "marginal"
    if resolved.size:
        stability = "stable" if resolved[0] < 0 else "unstable"
    return _at_origin(
        sigma,
        expansion,
        "K*=0 undetermined",
        stability,
        Exponents(),
        (
            "class undetermined by Taylor data: c, a1 and a2 vanish at 0, so no power law follows",
            "stability read off the sign of C_W g(K) − K at the smallest K where it shows",
        ),
    )
