"""`Activation`: value, derivatives, kinks, Taylor data, parity, homogeneity (book §2.2)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64, on_host
from dynagram.activations._panels import Panels
from dynagram.errors import InvalidValueError

ScalarFunction = Callable[[jax.Array], jax.Array]

# Jumps are recorded up to the third derivative: what the recursions meet in kinked activations.
MAX_ORDER = 4
_PIECES = (2**12, 2**15)
_NEAR_ZERO = 1e-300  # where one-sided derivatives at the origin are read off


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

    **Arguments:**

    - `name`: what the activation is called.
    - `function`: σ, a callable that JAX can trace, scalar to scalar.
    - `kinks`: where σ or one of its derivatives jumps.
    - `parity`: "odd", "even" or "none".
    - `homogeneity`: degree and slopes of a homogeneous σ, else None.
    - `growth`: the rate c of an exponential growth e^{c|z|}; 0 for polynomial growth.
    - `closed_form`: the name of the family whose Gaussian expectations are known exactly, with its
        parameters; else None.
    - `anonymous`: marks a callable that `activation(name)` cannot find again.
    - `known`: vouches that σ varies over one length around 0 and that all of the above is proved,
        as for those that come with dynagram; whatever is not known is looked at closely once.
    - `panels`: what that look has found.

    >>> from dynagram.activations import activation
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
    known: bool = False
    panels: Panels | None = None

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
    def derivatives(self) -> int:
        """The highest p ≤ 3 whose σ^(p) is a function: below a jump all are, above it deltas.

        >>> from dynagram.activations import activation
        >>> [activation(name).derivatives for name in ("step", "relu", "elu", "tanh")]
        [0, 1, 2, 3]
        """
        first = (
            next(order for order, jump in enumerate(kink.jumps) if jump) for kink in self.kinks
        )
        return min(first, default=3)

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
    """The next power of two, at least 4096: few compiled shapes, and 4096 cost nothing.

    **Arguments:**

    - `size`: the number of values to hold.

    **Returns:** the size to pad to.
    """
    return max(4096, 1 << max(size - 1, 0).bit_length())


@float64
def _evaluate(sigma: Activation, z: np.ndarray, order: int) -> np.ndarray:
    """In pieces of two sizes, so that every order is compiled for two shapes at most."""
    flat = np.ascontiguousarray(z).reshape(-1)
    piece = _PIECES[0] if flat.size <= _PIECES[1] else _PIECES[1]
    padded = np.zeros(max(-(-flat.size // piece), 1) * piece)
    padded[: flat.size] = flat
    compiled: Any = _compiled(sigma.function, order)
    with on_host():
        # NumPy goes in as it is: making a JAX array of it first would compile a copy.
        values = [np.asarray(compiled(part)) for part in padded.reshape(-1, piece)]
    return np.concatenate(values)[: flat.size].reshape(z.shape)


def both_sides(z: float) -> Float[np.ndarray, " 2"]:
    """Points just left and just right of `z`, where one-sided values of a kinked σ are read.

    **Arguments:**

    - `z`: the place of the kink.

    **Returns:** the two points, left and right.
    """
    nudge = _NEAR_ZERO if z == 0.0 else 1e-13 * max(1.0, abs(z))
    return np.array([z - nudge, z + nudge])


def trimmed(jumps: list[float]) -> tuple[float, ...]:
    """Without the zeros at the end."""
    while jumps and jumps[-1] == 0.0:
        jumps = jumps[:-1]
    return tuple(jumps)


@functools.lru_cache(maxsize=256)
def product_activation(sigma: Activation, orders: tuple[int, ...], power: int = 0) -> Activation:
    """z^power Π_i σ^(p_i)(z) as an activation of its own, with the kinks it inherits.

    **Arguments:**

    - `sigma`: an `Activation`.
    - `orders`: (p_1, p_2, …), the orders of the derivatives, one per factor.
    - `power`: of a factor z.

    **Returns:** an `Activation`; `sigma` itself for the orders (0,).

    >>> from dynagram.activations import activation
    >>> square = product_activation(activation("relu"), (0, 0))
    >>> square.kinks                                  # the second derivative jumps from 0 to 2
    (Kink(location=0.0, jumps=(0.0, 0.0, 2.0)),)
    """
    if orders == (0,) and power == 0:
        return sigma
    factors = [_nth_derivative(sigma.function, order) for order in orders]

    def function(z: jax.Array) -> jax.Array:
        product: Any = math.prod(factor(z) for factor in factors)
        return product * z**power if power else product

    name = "·".join([*["z"] * power, *(f"{sigma.name}^({order})" for order in orders)])
    bare = Activation(name, function, anonymous=True)
    kinks = []
    for kink in sigma.kinks:
        sides = [bare.values(both_sides(kink.location), order) for order in range(MAX_ORDER)]
        rounding = [1e-12 * (1.0 + abs(before) + abs(after)) for before, after in sides]
        jumps = [float(after - before) for before, after in sides]
        clean = [j if abs(j) > r else 0.0 for j, r in zip(jumps, rounding, strict=True)]
        if any(clean):
            kinks.append(Kink(kink.location, trimmed(clean)))
    return replace(
        bare,
        kinks=tuple(kinks),
        growth=len(orders) * sigma.growth,
        known=sigma.known,
        panels=sigma.panels,
    )
