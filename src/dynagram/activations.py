"""Activation functions: value, derivatives, kinks, Taylor data, parity, homogeneity (book §2.2).

An `Activation` wraps a JAX-traceable scalar function and knows what the theory needs of it. The
registry holds the usual ones by name; a user's own callable becomes one through `activation(f)`,
which finds its kinks, parity, homogeneity and growth numerically.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.precision import float64

ScalarFunction = Callable[[jax.Array], jax.Array]

# Derivatives the Gaussian engine may ask for: the 1/n metric needs up to the fourth.
MAX_ORDER = 4
_BULK = 8.0  # a standard normal leaves |z| <= 8 with probability 1e-15
_NEAR_ZERO = 1e-300  # where one-sided derivatives at the origin are read off
_PROBES = np.array([0.1, 0.35, 0.8, 1.3, 2.1, 3.7, 5.9, 11.3, 31.0])


@dataclass(frozen=True)
class Kink:
    """A point where σ or one of its derivatives jumps.

    `jumps[p]` is σ^(p)(location⁺) − σ^(p)(location⁻); ReLU has `Kink(0.0, (0.0, 1.0))`.
    """

    location: float
    jumps: tuple[float, ...]


@dataclass(frozen=True)
class Homogeneity:
    """σ(z) = plus·z^degree for z > 0 and minus·|z|^degree for z < 0."""

    degree: int
    plus: float
    minus: float


@dataclass(frozen=True, eq=False)
class Activation:
    """A scalar activation and what the effective theory needs to know of it.

    `closed_form` names the family whose Gaussian expectations are known exactly, with its
    parameters. `growth` is the rate c of an exponential growth e^{c|z|}; 0 for polynomial growth.
    `anonymous` marks a callable that `activation(name)` cannot find again.

    >>> relu = activation("relu")
    >>> relu.kinks
    (Kink(location=0.0, jumps=(0.0, 1.0)),)
    >>> [float(d) for d in activation("tanh").taylor(3)]
    [0.0, 1.0, 0.0, -2.0]
    """

    name: str
    function: ScalarFunction
    kinks: tuple[Kink, ...] = ()
    parity: Literal["odd", "even", "none"] = "none"
    homogeneity: Homogeneity | None = None
    growth: float = 0.0
    closed_form: tuple[Any, ...] | None = None
    anonymous: bool = False

    def __repr__(self) -> str:
        return f"activation({self.name!r})"

    def __call__(self, z: jax.typing.ArrayLike) -> jax.Array:
        """σ(z) elementwise, in the precision of `z`; traceable and differentiable."""
        return _elementwise(self.function)(jnp.asarray(z))

    def derivative(self, order: int) -> ScalarFunction:
        """σ^(order) elementwise as a JAX function, away from kinks (deltas are in `kinks`)."""
        return _elementwise(_nth_derivative(self.function, _checked_order(order)))

    def values(self, z: Float[np.ndarray, "*shape"], order: int = 0) -> Float[np.ndarray, "*shape"]:
        """σ^(order)(z) in float64 NumPy, away from kinks."""
        return _evaluate(self, np.asarray(z, dtype=np.float64), _checked_order(order))

    def taylor(self, order: int = 5) -> Float[np.ndarray, " derivatives"]:
        """σ, σ', …, σ^(order) at 0 (5.80); one-sided from the right where σ is kinked there."""
        return self.one_sided(order)[1]

    def one_sided(self, order: int = 2) -> Float[np.ndarray, "2 derivatives"]:
        """σ^(p)(0⁻) in row 0 and σ^(p)(0⁺) in row 1, p = 0..order."""
        smooth_at_origin = all(kink.location != 0.0 for kink in self.kinks)
        points = np.zeros(2) if smooth_at_origin else both_sides(0.0)
        data = np.stack([self.values(points, p) for p in range(order + 1)], axis=1)
        return np.where(np.abs(data) < 1e-280, 0.0, data)

    @property
    def is_smooth(self) -> bool:
        """No kink or jump up to the third derivative."""
        return not self.kinks

    @property
    def jumps(self) -> bool:
        """σ itself is discontinuous: σ' holds a delta, so gradients and the NTK do not exist."""
        return any(kink.jumps[0] != 0.0 for kink in self.kinks)

    @property
    def is_scale_invariant(self) -> bool:
        """σ(λz) = λσ(z) for λ > 0 (2.13): linear, ReLU, leaky ReLU, abs."""
        return self.homogeneity is not None and self.homogeneity.degree == 1


def _checked_order(order: int) -> int:
    if not 0 <= order <= 2 * MAX_ORDER:
        raise InvalidValueError("order", order, f"expected 0 to {2 * MAX_ORDER}")
    return order


def _elementwise(function: ScalarFunction) -> ScalarFunction:
    def apply(z: jax.Array) -> jax.Array:
        flat = jax.vmap(function)(z.reshape(-1))
        return flat.reshape(z.shape)

    return apply


def _nth_derivative(function: ScalarFunction, order: int) -> ScalarFunction:
    """Forward-mode derivative: stays cheap when nested, unlike reverse mode."""
    if order == 0:
        return function
    inner = _nth_derivative(function, order - 1)
    return lambda z: jax.jvp(inner, (z,), (jnp.ones_like(z),))[1]


@functools.lru_cache(maxsize=512)
def _compiled(function: ScalarFunction, order: int) -> ScalarFunction:
    return jax.jit(jax.vmap(_nth_derivative(function, order)))


def padded_size(size: int) -> int:
    """The next power of two, at least 4096: few compiled shapes, and 4096 cost nothing."""
    return max(4096, 1 << max(size - 1, 0).bit_length())


@float64
def _evaluate(sigma: Activation, z: np.ndarray, order: int) -> np.ndarray:
    flat = np.ascontiguousarray(z).reshape(-1)
    padded = np.zeros(padded_size(flat.size))
    padded[: flat.size] = flat
    values = np.asarray(_compiled(sigma.function, order)(jnp.asarray(padded)))
    return values[: flat.size].reshape(z.shape)


# --- analysis of a user's callable -----------------------------------------------------------


def analyse(
    function: Callable[..., Any],
    name: str,
    *,
    kinks: tuple[Kink, ...] | None = None,
    anonymous: bool = True,
) -> Activation:
    """Make an `Activation` of a callable, finding kinks, parity, homogeneity and growth.

    Pass `kinks` to declare them instead of searching. Raises one line when the callable is not
    a traceable scalar function or not finite, with its first three derivatives, on |z| ≤ 8.
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
    return tuple(Kink(z, _trim(jumps[z])) for z in sorted(jumps))


def both_sides(z: float) -> Float[np.ndarray, " 2"]:
    """Points just left and just right of `z`, where one-sided values of a kinked σ are read."""
    nudge = _NEAR_ZERO if z == 0.0 else 1e-13 * max(1.0, abs(z))
    return np.array([z - nudge, z + nudge])


def _discrepancy(sigma: Activation, order: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|σ^(p)(b) − σ^(p)(a) − ∫σ^(p+1)| by two-point Gauss, which never touches the ends."""
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    nodes = np.stack([middle - half / math.sqrt(3.0), middle + half / math.sqrt(3.0)])
    integral = half * sigma.values(nodes, order + 1).sum(axis=0)
    return np.abs(sigma.values(b, order) - sigma.values(a, order) - integral)


def _trim(jumps: list[float]) -> tuple[float, ...]:
    while jumps and jumps[-1] == 0.0:
        jumps = jumps[:-1]
    return tuple(jumps)


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


@functools.lru_cache(maxsize=256)
def product_activation(sigma: Activation, orders: tuple[int, ...]) -> Activation:
    """Π_i σ^(p_i)(z) as an activation of its own, with the kinks it inherits.

    >>> square = product_activation(activation("relu"), (0, 0))
    >>> square.kinks                                  # the second derivative jumps from 0 to 2
    (Kink(location=0.0, jumps=(0.0, 0.0, 2.0)),)
    """
    if orders == (0,):
        return sigma
    factors = [_nth_derivative(sigma.function, order) for order in orders]

    def function(z: jax.Array) -> jax.Array:
        return math.prod(factor(z) for factor in factors)  # type: ignore[return-value]

    name = "·".join(f"{sigma.name}^({order})" for order in orders)
    bare = Activation(name, function, anonymous=True)
    kinks = []
    for kink in sigma.kinks:
        sides = [bare.values(both_sides(kink.location), order) for order in range(MAX_ORDER)]
        rounding = [1e-12 * (1.0 + abs(before) + abs(after)) for before, after in sides]
        jumps = [float(after - before) for before, after in sides]
        clean = [j if abs(j) > r else 0.0 for j, r in zip(jumps, rounding, strict=True)]
        if any(clean):
            kinks.append(Kink(kink.location, _trim(clean)))
    return replace(bare, kinks=tuple(kinks), growth=len(orders) * sigma.growth)


# --- the registry ----------------------------------------------------------------------------

_REGISTRY: dict[str, Callable[..., Activation]] = {}


def register(name: str, *aliases: str):
    """Decorator: register a factory of activations under `name` and `aliases`."""

    def add(factory: Callable[..., Activation]) -> Callable[..., Activation]:
        made: dict[str, Activation] = {}

        @functools.cache
        def cached(*parameters: float) -> Activation:
            # By name: `elu`, `elu(1)` and `elu(1.0)` are one object, equal and cached as one.
            sigma = factory(*parameters)
            return made.setdefault(sigma.name, sigma)

        for key in (name, *aliases):
            _REGISTRY[key] = cached
        return cached

    return add


def registered() -> list[str]:
    """The names `activation` knows, sorted."""
    return sorted(_REGISTRY)


def activation(spec: str | Callable[..., Any] | Activation) -> Activation:
    """The activation meant by a name, `name(parameters)`, `package.module:function` or callable.

    >>> activation("leaky_relu(0.2)").homogeneity
    Homogeneity(degree=1, plus=1.0, minus=-0.2)
    >>> import jax.numpy as jnp
    >>> activation(lambda z: jnp.maximum(z, 0)).kinks
    (Kink(location=0.0, jumps=(0.0, 1.0)),)
    """
    if isinstance(spec, Activation):
        return spec
    if not isinstance(spec, str):
        return _from_callable(spec)
    if ":" in spec:
        return _from_callable(_import_callable(spec), spec)
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*", spec)
    if match is None:
        raise InvalidValueError(
            "activation", spec, "expected a name, name(number, …) or package.module:function"
        )
    name, text = match.group(1), match.group(2)
    if name not in _REGISTRY:
        near = get_close_matches(name.lower(), registered(), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(registered())}"
        raise InvalidValueError("activation", spec, f"unknown activation; {hint}")
    try:
        parameters = [float(part) for part in text.split(",")] if text and text.strip() else []
    except ValueError as error:
        raise InvalidValueError("activation", spec, "parameters must be numbers") from error
    if not all(math.isfinite(value) for value in parameters):
        raise InvalidValueError("activation", spec, "parameters must be finite")
    try:
        return _REGISTRY[name](*parameters)
    except TypeError as error:
        raise InvalidValueError(
            "activation", spec, f"{name} does not take these numbers"
        ) from error


def _from_callable(function: Any, name: str | None = None) -> Activation:
    if not callable(function):
        raise InvalidTypeError("activation", function, "expected a name or a callable")
    label = name or getattr(function, "__qualname__", type(function).__name__)
    try:
        hash(function)
    except TypeError:  # caches are keyed by the function: give it one that can be a key
        return analyse(lambda z: function(z), label, anonymous=name is None)
    return _analysed(function, label, name is None)


@functools.lru_cache(maxsize=128)
def _analysed(function: Callable[..., Any], name: str, anonymous: bool) -> Activation:
    return analyse(function, name, anonymous=anonymous)


def _import_callable(spec: str) -> Callable[..., Any]:
    module_name, _, attribute = spec.partition(":")
    here = os.getcwd()  # a script's own folder is on the path, the folder of a command is not
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        target: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValueError("activation", spec, f"cannot be imported: {error}") from error
    finally:
        if added:
            sys.path.remove(here)
    if not callable(target):
        raise InvalidTypeError("activation", spec, "is not callable")
    return target


def _piecewise_linear(name: str, plus: float, minus: float) -> Activation:
    """σ(z) = plus·z for z ≥ 0, minus·z for z < 0 (2.14)."""
    kinks = () if plus == minus else (Kink(0.0, (0.0, plus - minus)),)
    parity = "odd" if plus == minus else "even" if plus == -minus else "none"
    return Activation(
        name,
        lambda z: jnp.where(z > 0, plus * z, minus * z),
        kinks=kinks,
        parity=parity,
        homogeneity=Homogeneity(1, plus, -minus),
        closed_form=("piecewise_linear", plus, minus),
    )


@register("linear", "identity")
def _linear() -> Activation:
    return _piecewise_linear("linear", 1.0, 1.0)


@register("relu")
def _relu() -> Activation:
    return _piecewise_linear("relu", 1.0, 0.0)


@register("leaky_relu")
def _leaky_relu(slope: float = 0.01) -> Activation:
    return _piecewise_linear(f"leaky_relu({slope!r})", 1.0, slope)


@register("abs")
def _abs() -> Activation:
    return _piecewise_linear("abs", 1.0, -1.0)


@register("relu2", "relu_squared")
def _relu2() -> Activation:
    return Activation(
        "relu2",
        lambda z: jnp.where(z > 0, z * z, 0.0 * z),
        kinks=(Kink(0.0, (0.0, 0.0, 2.0)),),
        homogeneity=Homogeneity(2, 1.0, 0.0),
        closed_form=("relu2",),
    )


@register("monomial")
def _monomial(degree: float = 3.0) -> Activation:
    """z^degree, an integer from 1 to 6."""
    power = int(degree)
    if power != degree or not 1 <= power <= 6:
        raise InvalidValueError("degree", degree, "expected an integer from 1 to 6")
    return Activation(
        f"monomial({power})",
        lambda z: z**power,
        parity="odd" if power % 2 else "even",
        homogeneity=Homogeneity(power, 1.0, (-1.0) ** power),
    )


@register("cube")
def _cube() -> Activation:
    return _monomial(3.0)


@register("square")
def _square() -> Activation:
    return _monomial(2.0)


@register("perturbed_identity")
def _perturbed_identity(quadratic: float = 0.0, cubic: float = -0.1) -> Activation:
    """z + quadratic·z²/2 + cubic·z³/6: the smallest member of each class near the identity."""
    return Activation(
        f"perturbed_identity({quadratic!r},{cubic!r})",
        lambda z: z + quadratic * z * z / 2 + cubic * z**3 / 6,
        parity="odd" if quadratic == 0.0 else "none",
    )


@register("tanh")
def _tanh() -> Activation:
    return Activation("tanh", jnp.tanh, parity="odd")


@register("sin")
def _sin() -> Activation:
    return Activation("sin", jnp.sin, parity="odd", closed_form=("sine", 0))


@register("cos")
def _cos() -> Activation:
    return Activation("cos", jnp.cos, parity="even", closed_form=("sine", 1))


@register("erf")
def _erf(scale: float = 1.0) -> Activation:
    """erf(scale·z); `erf(0.7071067811865476)` is 2Φ(z) − 1."""
    name = "erf" if scale == 1.0 else f"erf({scale!r})"
    return Activation(
        name,
        lambda z: jax.scipy.special.erf(scale * z),
        parity="odd",
        closed_form=("erf", scale),
    )


@register("arctan")
def _arctan() -> Activation:
    return Activation("arctan", jnp.arctan, parity="odd")


@register("arcsinh")
def _arcsinh() -> Activation:
    return Activation("arcsinh", jnp.arcsinh, parity="odd")


@register("softsign")
def _softsign() -> Activation:
    return Activation(
        "softsign",
        lambda z: jnp.where(z > 0, z / (1 + z), z / (1 - z)),
        kinks=(Kink(0.0, (0.0, 0.0, -4.0)),),
        parity="odd",
    )


@register("sigmoid")
def _sigmoid(shift: float = 0.0) -> Activation:
    """1/(1 + e^{-z}) − shift; `sigmoid(0.5)` is tanh(z/2)/2."""
    if shift == 0.5:
        return Activation("sigmoid(0.5)", lambda z: 0.5 * jnp.tanh(0.5 * z), parity="odd")
    name = "sigmoid" if shift == 0.0 else f"sigmoid({shift!r})"
    return Activation(name, lambda z: jax.nn.sigmoid(z) - shift)


@register("softplus")
def _softplus(shift: float = 0.0) -> Activation:
    """log(1 + e^z) − shift; `softplus(0.6931471805599453)` passes through the origin."""
    name = "softplus" if shift == 0.0 else f"softplus({shift!r})"
    return Activation(name, lambda z: jax.nn.softplus(z) - shift)


@register("swish", "silu")
def _swish() -> Activation:
    return Activation("swish", lambda z: z * jax.nn.sigmoid(z))


@register("gelu")
def _gelu() -> Activation:
    """z Φ(z), the exact form (2.17)."""
    return Activation(
        "gelu",
        lambda z: 0.5 * z * jax.lax.erfc(-z * math.sqrt(0.5)),
        closed_form=("gelu",),
    )


@register("gelu_tanh")
def _gelu_tanh() -> Activation:
    """The tanh approximation of GELU, the default of JAX."""
    slope = math.sqrt(2.0 / math.pi)
    return Activation(
        "gelu_tanh", lambda z: 0.5 * z * (1.0 + jnp.tanh(slope * (z + 0.044715 * z**3)))
    )


@register("mish")
def _mish() -> Activation:
    return Activation("mish", lambda z: z * jnp.tanh(jax.nn.softplus(z)))


@register("elu")
def _elu(alpha: float = 1.0) -> Activation:
    name = "elu" if alpha == 1.0 else f"elu({alpha!r})"
    return _scaled_elu(name, 1.0, alpha)


@register("selu")
def _selu() -> Activation:
    return _scaled_elu("selu", 1.0507009873554805, 1.6732632423543772)


def _scaled_elu(name: str, scale: float, alpha: float) -> Activation:
    """scale·z for z > 0 and scale·alpha·(e^z − 1) for z < 0."""
    slope, curvature = scale * alpha, scale * alpha

    def function(z: jax.Array) -> jax.Array:
        return jnp.where(z > 0, scale * z, slope * jnp.expm1(jnp.minimum(z, 0.0)))

    jumps = (0.0, scale - slope, -curvature, -curvature)
    return Activation(name, function, kinks=(Kink(0.0, jumps),))


@register("exp")
def _exp() -> Activation:
    return Activation("exp", jnp.exp, growth=1.0, closed_form=("exp",))


@register("expm1")
def _expm1() -> Activation:
    return Activation("expm1", jnp.expm1, growth=1.0)


@register("sinh")
def _sinh() -> Activation:
    return Activation("sinh", jnp.sinh, parity="odd", growth=1.0)


@register("hardtanh")
def _hardtanh() -> Activation:
    return Activation(
        "hardtanh",
        lambda z: jnp.where(jnp.abs(z) < 1, z, jnp.sign(z)),
        kinks=(Kink(-1.0, (0.0, 1.0)), Kink(1.0, (0.0, -1.0))),
        parity="odd",
    )


@register("step", "perceptron")
def _step() -> Activation:
    """1 for z > 0, else 0 (2.9): σ' is a delta, so no criticality and no gradient."""
    return Activation(
        "step", lambda z: jnp.where(z > 0, 1.0 + 0 * z, 0.0 * z), kinks=(Kink(0.0, (1.0,)),)
    )
