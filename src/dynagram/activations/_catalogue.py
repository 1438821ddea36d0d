"""The registered activations. A new one is a factory here, and nothing else."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dynagram.activations._core import Activation, Homogeneity, Kink
from dynagram.activations._registry import register
from dynagram.errors import InvalidValueError


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
        return jnp.where(z > 0, scale * z, slope * jnp.expm1(jnp.where(z > 0, 0.0, z)))

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
