"""The forcing F_k and the drag H_k of a mode that has not escaped, (65)-(68), exactly.

At a state of the block flow with U_k = X_{1,k} set to 0, F_k = −∂𝓛/∂U_k and H_k = ∂²𝓛/∂U_k². To
leading order F_k = √N_B h_σ α^{L−1} β_k ρ^{L−1} with the other layers of block k at ρ (67), where
nothing has escaped, and H_k = N_B α^{2(L−1)} ρ^{2(L−1)} for odd σ (68). Where a_2 ≠ 0 the residual
drives H_k, too, by −2 √N_B α^{L−2} a_2 E[y g_k²] ρ^{L−1}: of the order of F_k, not of ρ^{2(L−1)}.
Against (65), the speed between U = 0 and U ≫ ρ is not F − H U + K U^{L−1}: to leading order it is
K (ρ² + U²)^{(L−1)/2}, which has the same two ends.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._blocks import BlockNetwork
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._flow import Coordinates, Problem, velocity


@dataclass(frozen=True, eq=False)
class Stage:
    """One mode at a state of the block flow, in reduced time.

    **Arguments:**

    - `mode`: k, from 1.
    - `forcing`: F_k = dU_k/dt at U_k = 0.
    - `drag`: H_k = −∂(dU_k/dt)/∂U_k at U_k = 0.
    - `leading_forcing`, `leading_drag`: (67) and (68) with their constants, from the diagonal
        scales of block k and, for the drag of the residual, a student that is still silent.
    - `self_drive`: K β_k, the coefficient of U^{L−1} once U_k leads its block.
    """

    mode: int
    forcing: float
    drag: float
    leading_forcing: float
    leading_drag: float
    self_drive: float

    def printed_speed(self, U: float, depth: int) -> float:
        """F − H U + K U^{L−1} (65)."""
        return self.forcing - self.drag * U + self.self_drive * U ** (depth - 1)


@float64
def stage_functions(network: BlockNetwork, state: Coordinates, mode: int) -> Stage:
    """F_k and H_k of a mode at a state, by automatic differentiation, with their leading forms.

    **Arguments:**

    - `network`: a `BlockNetwork` with blocks of equal sizes and one output for all modes.
    - `state`: its `Coordinates`; A_1[k, k] is taken as 0, everything else as it stands.
    - `mode`: k, from 1.

    **Returns:** a `Stage`. Cost: two gradients of the loss.

    >>> network = BlockNetwork("tanh", depth=4, betas=(1, 0.3), block_size=20)
    >>> found = stage_functions(network, network.aligned(0.05), mode=2)
    >>> round(found.forcing / found.leading_forcing, 3), round(found.drag / found.leading_drag, 3)
    (1.0, 1.0)
    """
    if not 1 <= mode <= network.modes:
        raise InvalidValueError("mode", mode, f"modes are counted from 1 to {network.modes}")
    if isinstance(network.block_size, tuple) or network.outputs != "sum":
        raise InvalidValueError("network", "unequal blocks or several outputs", "one output needed")
    k, problem = mode - 1, network.problem()
    A1 = np.array(state.A1, dtype=np.float64)
    A1[k, k] = 0.0
    silent = Coordinates(*(jnp.asarray(part) for part in (A1, state.A, state.a)))
    forcing, slope = _forcing(network.activation, k, problem, silent)
    kind, L = classify(network.activation), network.depth
    scales = [*(float(layer[k, k]) for layer in state.A), float(state.a[0, k])]
    rho, root = float(np.prod(scales)), float(np.sqrt(network.N_B))
    second = 0.0
    if kind.q == 2 and kind.a_q is not None:
        square = float(np.sum(problem.w * problem.y[:, 0] * problem.g[:, k] ** 2))
        second = 2.0 * root * kind.alpha ** (L - 2) * kind.a_q * square * rho
    rate = float(network.metric().A1[k, k])
    return Stage(
        mode=mode,
        forcing=float(forcing),
        drag=-float(slope),
        leading_forcing=rate * network.K * network.betas[k] * rho,
        leading_drag=rate * ((root * kind.alpha ** (L - 1) * rho) ** 2 - second),
        self_drive=rate * network.K * network.betas[k],
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _forcing(
    sigma: Activation, k: int, problem: Problem, state: Coordinates
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """dU_k/dt and its derivative in U_k."""

    def speed(U: Array) -> Array:
        point = state._replace(A1=jnp.asarray(state.A1).at[k, k].set(U))
        return jnp.asarray(velocity(sigma, problem, point).A1)[k, k]

    return jax.jvp(speed, (jnp.zeros(()),), (jnp.ones(()),))
