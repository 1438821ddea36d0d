"""What a user's callable is: kinks, parity, homogeneity and growth, found numerically."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.activations._core import Activation, Homogeneity, Kink
from dynagram.activations._kinks import find_kinks, with_kinks_at
from dynagram.activations._panels import Panels
from dynagram.activations._resolution import false_slope, find_panels
from dynagram.errors import InvalidTypeError, InvalidValueError

_BULK = 8.0  # a standard normal leaves |z| <= 8 with probability 1e-15
_FAR = 200.0
_SEARCHES = 3


def analyse(
    function: Callable[..., Any],
    name: str,
    *,
    kinks: tuple[Kink, ...] | None = None,
    anonymous: bool = True,
) -> Activation:
    """Make an `Activation` of a callable, finding kinks, parity, homogeneity and growth.

    Raises one line when the callable is not a traceable scalar function, not finite with its
    first three derivatives, singular on |z| ≤ 8, computes in float32, or has derivatives that are
    not its own. Every feature wider than 3.1·10⁻⁵ for |z| ≤ 8, 1.3·10⁻⁴ for |z| ≤ 20 and |z|/30000
    beyond is seen; narrower ones may be missed. Cost: a second, most of it compilation.

    **Arguments:**

    - `function`: a callable that JAX can trace, scalar to scalar.
    - `name`: what the activation is called.
    - `kinks`: declares the kinks instead of searching for them.
    - `anonymous`: whether `activation(name)` cannot find the callable again.

    **Returns:** an `Activation`.
    """
    _require_scalar_function(function, name)
    _require_derivatives(function, name)
    _require_one_function(function, name)
    bare = Activation(name, function)
    _require_finite_on_bulk(bare)
    growth = _growth(bare)  # before the search for kinks, which an overflow would slow down
    sigma = replace(bare, kinks=find_kinks(bare) if kinks is None else tuple(kinks))
    panels = find_panels(sigma)
    for _ in range(_SEARCHES):  # a kink beside another may show once that one is known
        if not panels.singular or kinks is not None:
            break
        sigma = replace(bare, kinks=with_kinks_at(sigma, panels.singular))
        panels = find_panels(sigma)
    _require_resolved_bulk(sigma, panels)
    _require_own_slope(sigma, panels)
    return replace(
        sigma,
        kinks=tuple(kink for kink in sigma.kinks if abs(kink.location) <= panels.reach),
        parity=_parity(sigma, panels),
        homogeneity=_homogeneity(sigma, panels),
        growth=growth,
        anonymous=anonymous,
        panels=panels,
    )


@float64
def _require_scalar_function(function: Callable[..., Any], name: str) -> None:
    if not callable(function):
        raise InvalidTypeError("activation", function, "expected a name or a callable")
    argument = jax.ShapeDtypeStruct((), jnp.float64)
    try:
        result = jax.eval_shape(function, argument)
    except (Exception, SystemExit) as error:  # a user's function may do anything
        allowed = f"not traceable by JAX as scalar -> scalar ({_first_line(error)})"
        raise InvalidTypeError("activation", name, allowed) from error
    if not isinstance(result, jax.ShapeDtypeStruct) or result.shape != ():
        got = getattr(result, "shape", type(result).__name__)
        raise InvalidTypeError("activation", name, f"must map a scalar to a scalar, returned {got}")
    if not jnp.issubdtype(result.dtype, jnp.floating):
        raise InvalidTypeError("activation", name, f"must return a real float, got {result.dtype}")


@float64
def _require_derivatives(function: Callable[..., Any], name: str) -> None:
    """Refuse what JAX cannot differentiate forwards, as callbacks and `custom_vjp`."""

    def slope(z: jax.Array) -> jax.Array:
        return jax.jvp(function, (z,), (jnp.ones_like(z),))[1]

    try:
        jax.jit(slope).lower(jax.ShapeDtypeStruct((), jnp.float64))
    except (Exception, SystemExit) as error:
        allowed = f"JAX has no derivatives of it ({_first_line(error)})"
        raise InvalidTypeError("activation", name, allowed) from error


@float64
def _require_one_function(function: Callable[..., Any], name: str) -> None:
    """Refuse what gives other values when it is traced again, or where other values stand beside.

    Random numbers of NumPy and counters in the first case, means over a layer in the second.
    """
    z = np.linspace(-_BULK, _BULK, 41)
    first, second = (np.asarray(jax.vmap(lambda v: function(v))(z)) for _ in range(2))
    if not np.array_equal(first, second, equal_nan=True):
        allowed = "gives other values when called again: it must depend on nothing but z"
        raise InvalidValueError("activation", name, allowed)
    try:
        together = np.asarray(function(jnp.asarray(z)))
    except (Exception, SystemExit):  # of numbers alone: all that is asked for
        return
    if together.shape != first.shape:
        return
    alone, beside = (np.where(np.isfinite(first + together), v, 0.0) for v in (first, together))
    if np.any(np.abs(beside - alone) > 1e-9 * np.abs(alone).max(initial=1.0)):
        allowed = "is no function of one number: of several it gives other values than of each"
        raise InvalidValueError("activation", name, allowed)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


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


def _require_resolved_bulk(sigma: Activation, panels: Panels) -> None:
    if panels.reach < _BULK:
        narrow = _narrow_type(sigma.function)
        if narrow is not None:
            raise InvalidValueError(
                "activation", sigma.name,
                f"it computes in {narrow}, where σ is a staircase without slopes: write it with "
                f"jax.numpy and without casts to {narrow}, so that float64 stays float64",
            )  # fmt: skip
        raise InvalidValueError(
            "activation", sigma.name,
            "σ, σ' or σ'' is singular, or varies too fast for quadrature, near "
            f"z = {panels.obstacle:.6g}; |z| ≤ 8 needed: declare its kinks or rescale its argument",
        )  # fmt: skip


@float64
def _narrow_type(function: Callable[..., Any]) -> str | None:
    """The name of a type to which `function` rounds a float64, or None."""
    return _rounds_to(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((), jnp.float64)).jaxpr)


def _rounds_to(jaxpr: Any) -> str | None:
    for equation in jaxpr.eqns:
        given: list[Any] = [getattr(value.aval, "dtype", int) for value in equation.invars]
        made: list[Any] = [getattr(value.aval, "dtype", int) for value in equation.outvars]
        if jnp.dtype("float64") in given:
            for dtype in made:
                if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 8:
                    return str(dtype)
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")
        ):
            found = _rounds_to(inner) if hasattr(inner, "eqns") else None
            if found is not None:
                return found
    return None


def _require_own_slope(sigma: Activation, panels: Panels) -> None:
    place = false_slope(sigma, panels)
    if place is not None:
        raise InvalidValueError(
            "activation", sigma.name,
            f"near z = {place:.3g} its derivatives in JAX are not those of σ; give it without "
            "stop_gradient and without a derivative of its own (custom_jvp)",
        )  # fmt: skip


def _parity(sigma: Activation, panels: Panels) -> Literal["odd", "even", "none"]:
    """Whether σ(−z) = ∓σ(z) at the nodes of the panels of σ and between them.

    There σ shows all it does, and where it and its mirror image agree no average tells them apart.
    """
    z = panels.places()
    z = z[np.abs(z) <= panels.reach]
    plus, minus = sigma.values(z), sigma.values(-z)
    tolerance = 1e-14 * panels.scale(z)[0] + 1e-300
    if np.all(np.abs(plus + minus) <= tolerance):
        return "odd"
    if np.all(np.abs(plus - minus) <= tolerance):
        return "even"
    return "none"


def _homogeneity(sigma: Activation, panels: Panels) -> Homogeneity | None:
    """σ = c₊z^d for z > 0 and c₋|z|^d for z < 0, at every place of the panels."""
    plus, minus = sigma.values(np.array([1.0, -1.0])).tolist()
    if (plus, minus) == (0.0, 0.0) or any(kink.location != 0.0 for kink in sigma.kinks):
        return None
    z = panels.places()
    z = z[np.abs(z) <= panels.reach]
    values = sigma.values(z)
    for degree in range(1, 7):
        expected = np.where(z > 0, plus, minus) * np.abs(z) ** degree
        if np.allclose(values, expected, rtol=1e-13, atol=0.0):
            return Homogeneity(degree, plus, minus)
    return None


def _growth(sigma: Activation) -> float:
    """The rate c of σ ~ z^d e^{c|z|}, from the envelope at three distances; 0 for c < 0.001."""
    rates = []
    for sign in (-1.0, 1.0):
        distances = _FAR * 2.0 ** -np.arange(5)  # 200, 100, … 12.5
        sizes = [_envelope(sigma, sign, distance) for distance in distances]
        _require_finite_far_out(sigma, sign, distances, sizes)
        last = next(i for i, size in enumerate(sizes) if math.isfinite(size))
        far, middle, near = sizes[last : last + 3]
        if min(far, middle, near) > 0.0:
            # With r the last distance: c r/2 + d log 2, and before that c r/4 + d log 2.
            outer, inner = math.log(far / middle), math.log(middle / near)
            rates.append((outer - inner) / (distances[last] / 4.0))
    rate = max(rates, default=0.0)
    return rate if rate > 1e-3 else 0.0


def _envelope(sigma: Activation, sign: float, distance: float) -> float:
    """The largest |σ| from 0.9 `distance` to `distance`; nan or inf when there is one."""
    return float(np.abs(sigma.values(sign * np.linspace(0.9, 1.0, 257) * distance)).max())


def _require_finite_far_out(
    sigma: Activation, sign: float, distances: np.ndarray, sizes: list[float]
) -> None:
    """nan is refused anywhere, inf up to |z| = 50."""
    for distance, size in zip(distances, sizes, strict=True):
        if math.isnan(size):
            z = sign * np.linspace(0.0, distance, 4001)
            where = float(z[np.argmax(np.isnan(sigma.values(z)))])
            raise InvalidValueError(
                "activation", sigma.name,
                f"σ is not a number at z = {where:.4g}, and a Gaussian reaches every z",
            )  # fmt: skip
        if math.isinf(size) and distance <= 50.0:
            raise InvalidValueError(
                "activation", sigma.name,
                f"σ overflows before |z| = {distance:g}: it grows faster than e^(14|z|), or has a "
                "pole, and its Gaussian averages diverge",
            )  # fmt: skip
