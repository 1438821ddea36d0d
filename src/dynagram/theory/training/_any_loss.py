"""Training at infinite width with any loss: the kernel ODE dz_δ/dτ = −Θ_δA ε, ε = ∂L/∂z (10.3).

With I = ∫ε dτ all outputs are z_δ(τ) = z_δ(0) − Θ_δA I(τ), and dI/dτ = ε(z_A(0) − Θ_AA I): as many
unknowns as training outputs, whatever the test set. Cross-entropy, a mean over N samples:
ε = [softmax(z) − p]/N (10.6). It conserves Σ_i z_i of every sample; compare softmaxes, not raw
outputs (10.36)-(10.38).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.networks._checks import checked_number
from dynagram.training import loss_gradient
from dynagram.training._losses import check_loss, check_loss_targets

_RTOL, _ATOL, _MOST_STEPS = 1e-10, 1e-12, 100_000

# z, y ↦ L. Checked by use.
LossFunction = Callable[[Array, Array], Array]
if TYPE_CHECKING:
    Loss = str | LossFunction
else:
    Loss = object


def error_factor(loss: Loss) -> Callable[[Array, Array], Array]:
    """ε(z, y) = ∂L/∂z of a named loss or of any JAX function L(z, y).

    >>> error_factor("cross-entropy")(jnp.zeros((1, 2)), jnp.array([[1.0, 0.0]])).tolist()
    [[-0.5, 0.5]]
    """
    if callable(loss):
        return jax.grad(loss)
    return functools.partial(loss_gradient, check_loss(loss))


@float64
def kernel_flow(
    Theta: Float[np.ndarray, "sample sample"],
    initial: Float[np.ndarray, "rows outputs"],
    targets: Float[np.ndarray, "train outputs"],
    times: Sequence[float | int],
    *,
    loss: Loss = "cross-entropy",
) -> Float[np.ndarray, "time sample outputs"]:
    """Outputs of all samples, training ones first, at `times` τ of gradient flow on `loss`.

    **Arguments:**

    - `Theta`: the NTK on all samples.
    - `initial`: outputs before training: of one network, one draw of N(0, K), or zeros.
    - `targets`: of the training samples; probabilities for "cross-entropy".
    - `times`: increasing.
    - `loss`: "half-sum", "mean", "cross-entropy" (a mean over samples), or a function L(z, y).

    **Returns:** (time, sample, outputs), integrated to 1e-10 per unit of output by an 8th-order
    Runge-Kutta method. Cost: N_A² per evaluation.

    >>> Theta = np.array([[1.0, 0.3], [0.3, 1.0]])
    >>> z = kernel_flow(Theta, np.zeros((2, 2)), np.array([[0.9, 0.1]]), [0.0, 1.0, 1e3])
    >>> (np.exp(z[:, 0]) / np.exp(z[:, 0]).sum(axis=1, keepdims=True)).round(6)
    array([[0.5     , 0.5     ],
           [0.652989, 0.347011],
           [0.9     , 0.1     ]])
    """
    import diffrax

    moments = np.array([checked_number("time", time, "a time must be ≥ 0") for time in times])
    theta, z, y = _checked(Theta, initial, targets, loss)
    if moments.size == 0 or np.any(np.diff(moments) < 0):
        raise InvalidValueError("times", moments.tolist(), "expected increasing times")
    epsilon, n = error_factor(loss), y.shape[0]

    def velocity(_: Any, impulse: Array, __: Any) -> Array:
        return epsilon(z[:n] - theta[:n, :n] @ impulse, y)

    end = float(moments[-1])
    if end == 0.0:
        return np.stack([np.asarray(z)] * moments.size)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Dopri8(),
        t0=0.0,
        t1=end,
        dt0=None,
        y0=jnp.zeros_like(y),
        saveat=diffrax.SaveAt(ts=jnp.asarray(moments)),
        stepsize_controller=diffrax.PIDController(rtol=_RTOL, atol=_ATOL),
        max_steps=_MOST_STEPS,
        throw=False,
    )
    if solution.result != diffrax.RESULTS.successful:
        raise AccuracyError(
            f"the kernel ODE needs more than {_MOST_STEPS} steps up to τ = {end:g}: it is stiff; "
            "ask for an earlier time (the largest NTK eigenvalue sets the step)"
        )
    assert solution.ys is not None
    return np.asarray(z[None] - jnp.einsum("da,tai->tdi", theta[:, :n], solution.ys))


@float64
def kernel_descent(
    Theta: Float[np.ndarray, "sample sample"],
    initial: Float[np.ndarray, "rows outputs"],
    targets: Float[np.ndarray, "train outputs"],
    *,
    eta: float,
    steps: int,
    loss: Loss = "cross-entropy",
) -> Float[np.ndarray, "sample outputs"]:
    """Outputs after `steps` steps of gradient descent at `eta` on any loss, frozen NTK.

    **Arguments:**

    - `Theta`, `initial`, `targets`, `loss`: as in `kernel_flow`.
    - `eta`, `steps`: step size and number of steps.

    **Returns:** (sample, outputs).

    >>> Theta, y = np.array([[1.0, 0.3], [0.3, 1.0]]), np.array([[1.0]])
    >>> kernel_descent(Theta, np.zeros((2, 1)), y, eta=0.5, steps=2, loss="half-sum").ravel()
    array([0.75 , 0.225])
    """
    theta, z, y = _checked(Theta, initial, targets, loss)
    rate = checked_number("eta", eta, "the step size must be > 0", positive=True)
    epsilon, n = error_factor(loss), y.shape[0]

    def step(impulse: Array, _: None) -> tuple[Array, None]:
        return impulse + rate * epsilon(z[:n] - theta[:n, :n] @ impulse, y), None

    impulse, _ = jax.lax.scan(step, jnp.zeros_like(y), None, length=steps)
    outputs = np.asarray(z - theta[:, :n] @ impulse)
    if not np.all(np.isfinite(outputs)):
        raise InvalidValueError("eta", eta, "training diverges at this step size; lower it")
    return outputs


def _checked(
    Theta: np.ndarray, initial: np.ndarray, targets: np.ndarray, loss: object
) -> tuple[Array, Array, Array]:
    if initial.shape[0] != Theta.shape[0] or targets.shape[0] > Theta.shape[0]:
        allowed = f"expected {Theta.shape[0]} rows, the samples of Theta"
        raise InvalidValueError("shape of initial", initial.shape, allowed)
    if isinstance(loss, str):
        check_loss_targets(loss, targets)
    return jnp.asarray(Theta), jnp.asarray(initial), jnp.asarray(targets)
