"""How steep and how curved the loss of one network is, along the directions optimizers step in.

With outputs z(θ) and loss L(z) the Gauss-Newton matrix G = Jᵀ (∂²L/∂z²) J, J = ∂z/∂θ, is what the
Hessian is while the network is nearly linear in its parameters; its nonzero eigenvalues are those
of the NTK weighted by the loss. Descent is linearly stable below 2/λ_max(G); a step of size ε
along a direction s lowers the loss by ε gᵀs − ½ε² sᵀGs. Nothing of the size of J is formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.observables._linearisation import Change, Linearisation
from dynagram.training._losses import loss_curvature, loss_gradient, loss_value

_ITERATIONS = 40


@dataclass(frozen=True)
class Curvature:
    """Numbers of the loss at one point: g its gradient, G its Gauss-Newton matrix.

    `loss`; `largest` λ_max(G); `gradient_square` gᵀg and `gradient_curvature` gᵀGg;
    `gradient_sum` Σ|g| and `sign_curvature` sᵀGs for s = sign g, the first step of Adam.
    """

    loss: float
    largest: float
    gradient_square: float
    gradient_curvature: float
    gradient_sum: float
    sign_curvature: float

    @property
    def stable_step(self) -> float:
        """2/λ_max: gradient descent grows along the sharpest direction above it."""
        return 2.0 / self.largest

    @property
    def line_step(self) -> float:
        """gᵀg/gᵀGg: the minimum of the loss along the gradient."""
        return self.gradient_square / self.gradient_curvature

    @property
    def sign_step(self) -> float:
        """Σ|g|/sᵀGs: the minimum of the loss along the signs of the gradient."""
        return self.gradient_sum / self.sign_curvature


def measure_curvature(
    here: Linearisation, loss: str, y: Float[np.ndarray, "samples n_L"], *, seed: int = 0
) -> Curvature:
    """Gradient and curvature of a loss at the parameters of a network, matrix-free.

    **Arguments:**

    - `here`: the network at its parameters, as `linearise` makes it.
    - `loss`: a name of `dynagram.training.LOSSES`, or module:function.
    - `y`: targets, a row per sample.
    - `seed`: of the first vector of the power iteration.

    **Returns:** `Curvature`. λ_max comes from 40 iterations of the power method, from below, to a
    few per cent if two eigenvalues nearly meet. Cost: about 45 times that of a gradient.

    >>> from dynagram.networks import MLP
    >>> from dynagram.observables._linearisation import linearise
    >>> x = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> here = linearise(MLP([2, 1], "linear", C_b=0.0, C_W=1.0).init(0), x)
    >>> J = np.column_stack([np.ones(2), x])    # of the bias and of the two weights
    >>> largest = measure_curvature(here, "half-sum", np.ones((2, 1))).largest
    >>> bool(np.isclose(largest, np.linalg.norm(J, 2) ** 2, rtol=1e-6))
    True
    """
    z = jnp.asarray(here.outputs)
    targets = jnp.asarray(y, z.dtype)

    def gauss_newton(v: Change) -> Change:
        bent = loss_curvature(loss, z, targets, jnp.asarray(here.push(v)))
        return here.pull(np.asarray(bent))

    rng = np.random.default_rng(seed)
    g = here.pull(np.asarray(loss_gradient(loss, z, targets)))
    v = [(rng.normal(size=b.shape), rng.normal(size=W.shape)) for b, W in g]
    v = [(b.astype(z.dtype), W.astype(z.dtype)) for b, W in v]
    size = 0.0
    for _ in range(_ITERATIONS):
        image = gauss_newton(v)
        size = math.sqrt(_dot(image, image))
        if not 0.0 < size < math.inf:
            break
        v = [(b / size, W / size) for b, W in image]
    signs = [(np.sign(b), np.sign(W)) for b, W in g]
    values = {
        "loss": float(loss_value(loss, z, targets)),
        "largest": size,
        "gradient_square": _dot(g, g),
        "gradient_curvature": _dot(g, gauss_newton(g)),
        "gradient_sum": _dot(g, signs),
        "sign_curvature": _dot(signs, gauss_newton(signs)),
    }
    if strange := [name for name, value in values.items() if not math.isfinite(value)]:
        raise NonFiniteError(
            f"{', '.join(strange)} of the loss is not finite at these parameters: signals or "
            "gradients grow with depth, see dynagram critical"
        )
    if not values["largest"] > 0.0 or not values["gradient_sum"] > 0.0:
        raise InvalidValueError("model", "…", "the loss does not change with its parameters")
    return Curvature(**values)


def _dot(a: Change, b: Change) -> float:
    parts = [
        (x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True)
    ]
    return sum(float(np.vdot(x, y)) for x, y in parts)
