"""What a user's callable is: kinks, parity, homogeneity and growth, found numerically."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.activations._core import (
    MAX_ORDER,
    Activation,
    Homogeneity,
    Kink,
    both_sides,
    trimmed,
)
from dynagram.errors import InvalidTypeError, InvalidValueError

_BULK = 8.0  # a standard normal leaves |z| <= 8 with probability 1e-15
_PROBES = np.array([0.1, 0.35, 0.8, 1.3, 2.1, 3.7, 5.9, 11.3, 31.0])


def analyse(
    function: Callable[..., Any],
    name: str,
    *,
    kinks: tuple[Kink, ...] | None = None,
    anonymous: bool = True,
) -> Activation:
    """Make an `Activation` of a callable, finding kinks, parity, homogeneity and growth.

    Raises one line when the callable is not a traceable scalar function or not finite, with its
    first three derivatives, on |z| ≤ 8.

    **Arguments:**

    - `function`: a callable that JAX can trace, scalar to scalar.
    - `name`: what the activation is called.
    - `kinks`: declares the kinks instead of searching for them.
    - `anonymous`: whether `activation(name)` cannot find the callable again.

    **Returns:** an `Activation`.
    """
    _require_scalar_function(function, name)
    bare = Activation(name, function)
    _require_finite_on_bulk(bare)
    growth = _growth(bare)  # before the search for kinks, which an overflow would slow down
    found = _find_kinks(bare) if kinks is None else tuple(kinks)
    return Activation(
        name,
        function,
        kinks=found,
        parity=_parity(bare),
        homogeneity=_homogeneity(bare),
        growth=growth,
        anonymous=anonymous,
    )


@float64
def _require_scalar_function(function: Callable[..., Any], name: str) -> None:
    if not callable(function):
        raise InvalidTypeError("activation", function, "expected a name or a callable")
    argument = jax.ShapeDtypeStruct((), jnp.float64)
    try:
        result = jax.eval_shape(function, argument)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidTypeError(
            "activation", name, f"not traceable by JAX as scalar -> scalar ({reason})"
        ) from error
    if not isinstance(result, jax.ShapeDtypeStruct) or result.shape != ():
        got = getattr(result, "shape", type(result).__name__)
        raise InvalidTypeError("activation", name, f"must map a scalar to a scalar, returned {got}")
    if not jnp.issubdtype(result.dtype, jnp.floating):
        raise InvalidTypeError("activation", name, f"must return a real float, got {result.dtype}")


def _require_finite_on_bulk(sigma: Activation) -> None:
    grid = np.linspace(-_BULK, _BULK, 321)
    for order in range(4):
        values = sigma.values(grid, order)
        if not np.all(np.isfinite(values)):
            where = float(grid[np.argmin(np.isfinite(values))])
            label = "σ" + "'" * order
            raise InvalidValueError(
                "activation", sigma.name, f"{label} is not finite at z = {where:g}; |z| ≤ 8 needed"
            )


def _find_kinks(sigma: Activation, reach: float = 20.0, spacing: float = 0.01) -> tuple[Kink, ...]:
    """Jumps of σ, σ', σ'', σ''' by the fundamental theorem, located by bisection.

    Automatic differentiation gives σ^(p+1) almost everywhere; where the increment of σ^(p) over a
    cell is not the integral of σ^(p+1), the cell holds a jump. A steep but smooth stretch loses
    its discrepancy as the cell shrinks; a jump keeps it.
    """
    # An irrational offset keeps grid points off the places where people put kinks.
    edges = np.arange(-reach, reach, spacing) + spacing / math.pi
    jumps: dict[float, list[float]] = {}
    for order in range(MAX_ORDER):
        size = np.abs(sigma.values(edges, order))
        left, right = edges[:-1].copy(), edges[1:].copy()
        alive = _discrepancy(sigma, order, left, right) > 1e-4 * spacing ** max(0, 3 - order)
        left, right = left[alive], right[alive]
        for _ in range(60):
            if left.size == 0 or np.all(right - left < 1e-13):
                break
            middle = 0.5 * (left + right)
            lower = _discrepancy(sigma, order, left, middle)
            upper = _discrepancy(sigma, order, middle, right)
            in_lower = lower >= upper
            left, right = np.where(in_lower, left, middle), np.where(in_lower, middle, right)
        for a, b in zip(left, right, strict=True):
            where = round(float(0.5 * (a + b)), 11) + 0.0
            where = next((z for z in jumps if abs(z - where) < 1e-9), where)
            before, after = sigma.values(both_sides(where), order)
            nearby = np.abs(sigma.values(where + np.linspace(-spacing, spacing, 64), order))
            # A smooth σ^(p) also changes from one side to the other, by its slope, and is
            # rounded on the scale of its peak in the neighbourhood, not of its value here.
            slope = np.abs(sigma.values(both_sides(where), order + 1)).max()
            smooth = 1e-12 * max(1.0, abs(where)) * float(slope)
            rounding = 1e-13 * float(size[np.abs(edges - where) < 1.0].max())
            if abs(after - before) > 1e-9 * (1.0 + float(nearby.max())) + smooth + rounding:
                jumps.setdefault(where, [0.0] * MAX_ORDER)[order] = float(after - before)
    return tuple(Kink(z, trimmed(jumps[z])) for z in sorted(jumps))


def _discrepancy(sigma: Activation, order: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|σ^(p)(b) − σ^(p)(a) − ∫σ^(p+1)| by two-point Gauss, which never touches the ends."""
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    nodes = np.stack([middle - half / math.sqrt(3.0), middle + half / math.sqrt(3.0)])
    integral = half * sigma.values(nodes, order + 1).sum(axis=0)
    return np.abs(sigma.values(b, order) - sigma.values(a, order) - integral)


def _parity(sigma: Activation) -> Literal["odd", "even", "none"]:
    plus, minus = sigma.values(_PROBES), sigma.values(-_PROBES)
    tolerance = 1e-14 * (np.abs(plus) + np.abs(minus)) + 1e-300
    if np.all(np.abs(plus + minus) <= tolerance):
        return "odd"
    if np.all(np.abs(plus - minus) <= tolerance):
        return "even"
    return "none"


def _homogeneity(sigma: Activation) -> Homogeneity | None:
    plus, minus = float(sigma.values(np.array(1.0))), float(sigma.values(np.array(-1.0)))
    for degree in range(1, 7):
        power = _PROBES**degree
        right = np.allclose(sigma.values(_PROBES), plus * power, rtol=1e-13, atol=0.0)
        left = np.allclose(sigma.values(-_PROBES), minus * power, rtol=1e-13, atol=0.0)
        if right and left and (plus, minus) != (0.0, 0.0):
            return Homogeneity(degree, plus, minus)
    return None


def _growth(sigma: Activation) -> float:
    """Rate of exponential growth, from the logarithm at two far points; 0 when polynomial."""
    rates = []
    for sign in (-1.0, 1.0):
        near, far = np.abs(sigma.values(sign * np.array([20.0, 40.0])))
        if not np.isfinite(far):
            rates.append(math.inf)
        elif near > 0 and far > 0:
            rates.append(math.log(far / near) / 20.0)
    rate = max(rates, default=0.0)
    if math.isinf(rate):
        raise InvalidValueError(
            "activation", sigma.name, "grows faster than e^(17|z|): its Gaussian averages diverge"
        )
    # z^6 over [20, 40] has log(64)/20 = 0.21: below that it is a polynomial.
    return rate if rate > 0.25 else 0.0
