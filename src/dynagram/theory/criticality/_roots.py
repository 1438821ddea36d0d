"""Roots of a function of one positive variable: sign changes on a grid, then Chandrupatla's method.

SciPy's Brent does the same, but importing it takes longer than the whole classification.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

ScalarFunction = Callable[[float], float]


def brackets(
    x: Float[np.ndarray, " n"], values: Float[np.ndarray, " n"], noise: Float[np.ndarray, " n"]
) -> list[tuple[float, float]]:
    """Neighbouring points between which `values` changes sign; those within `noise` of 0 count not.

    >>> brackets(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 1e-20, 2.0]), np.full(3, 1e-16))
    [(1.0, 3.0)]
    """
    sure = np.abs(values) > noise
    x, signs = x[sure], np.sign(values[sure])
    changes = np.flatnonzero(signs[1:] != signs[:-1])
    return [(float(x[i]), float(x[i + 1])) for i in changes]


def polish(f: ScalarFunction, a: float, b: float, *, rounds: int = 100) -> float:
    """The root of `f` in [a, b], where it changes sign, to rounding.

    Inverse quadratic interpolation where the last three points allow it, bisection elsewhere.

    >>> round(polish(lambda x: x * x - 2.0, 1.0, 2.0), 12)
    1.414213562373
    """
    fa, fb = f(a), f(b)
    c, fc = a, fa
    best, fraction = a, 0.5
    for _ in range(rounds):
        x = a + fraction * (b - a)
        fx = f(x)
        if (fx > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, b, fc, fb = b, a, fb, fa
        a, fa = x, fx
        best, smallest = (a, fa) if abs(fa) < abs(fb) else (b, fb)
        tolerance = 2.0 * sys.float_info.epsilon * abs(best) / abs(b - a) if b != a else 1.0
        if smallest == 0.0 or tolerance > 0.5:
            return best
        fraction = min(max(_fraction(a, b, c, fa, fb, fc), tolerance), 1.0 - tolerance)
    return best


def _fraction(a: float, b: float, c: float, fa: float, fb: float, fc: float) -> float:
    """Where between a and b to look next: by inverse quadratic interpolation, or halfway."""
    if fc in (fa, fb):
        return 0.5
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    if phi**2 >= xi or (1 - phi) ** 2 >= 1 - xi:
        return 0.5
    secant = fa / (fb - fa) * fc / (fb - fc)
    return secant + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
