"""Where the saddle-escape paper and the numbers disagree: each line is one of docs/errata.md."""

import math

import jax
import jax.numpy as jnp

from dynagram.networks import MLP, Model
from dynagram.observables import (
    homogeneity_deficit,
    imbalance_matrix,
    imbalance_matrix_drift,
)
from dynagram.theory.saddle import (
    BlockNetwork,
    SymmetricNetwork,
    balance_drift,
    balanced_escape_time,
    block_escape,
    block_velocity,
    chain_moment,
    escape_shells,
    fastest_growth,
    normal_form,
    profile_escape_times,
    reduced_escape_time,
    row_moments,
    stage_functions,
    universal_time,
)


def line(equation, quantity, printed, found):
    print(f"{equation:10} {quantity:46} printed {printed:>8}   found {found:>8}")


def matrix_forms():
    """Largest errors of the printed and the corrected Corollary 12, against the flow itself."""
    network = MLP([3, 4, 1], "tanh", C_b=0.0, C_W=2.0, lambda_b=0.0, lambda_W=[3.0, 4.0])
    keys = jax.random.split(jax.random.key(0), 3)
    params = network.draw(keys[0])
    x, y = jax.random.normal(keys[1], (20, 3)), jax.random.normal(keys[2], (20, 1))

    def loss(theta):
        return 0.5 * jnp.mean(jnp.sum((network.apply(theta, x) - y) ** 2, axis=1))

    ways = jax.tree.map(lambda g: -g, jax.grad(loss)(params))
    ways = tuple(layer._replace(b=0 * layer.b) for layer in ways)
    _, (true,) = jax.jvp(lambda theta: imbalance_matrix(Model(network, theta)), (params,), (ways,))
    (corrected,) = imbalance_matrix_drift(Model(network, params), x, y)
    z, f = network.preactivations(params, x)
    back = (f - y) / len(x) @ params[1].W
    product = back.T @ homogeneity_deficit(network.activation, z)
    published = product + product.T
    scale = jnp.max(jnp.abs(true))
    return [float(jnp.max(jnp.abs(form - true)) / scale) for form in (published, corrected)]


with jax.enable_x64(True):
    wrong, right = matrix_forms()
# The corrected form is exact: its error is rounding, of a digit that differs between machines.
line("Cor. 12", "error of the matrix form, over its size", f"{wrong:.3f}", f"{right:.3f}")

network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
misread = balanced_escape_time(network.K / network.width, 4, 0.02, 0.3)
time = reduced_escape_time(network, 0.3)
line("(7), (11)", "escape time with the constant of another clock", f"{misread:.1f}", f"{time:.1f}")

gelu = SymmetricNetwork.balanced("gelu", depth=4, width=64, scale=0.003)
kind = gelu.activation_class
gamma = 3 * (2 * kind.a_q) ** 2 / (2 * kind.alpha * kind.h)
slope = (universal_time(gelu, 0.5, reduced_escape_time(gelu, 0.5)) - 1) / 0.003
line("(38)", "first correction of gelu, times 1/ε", f"{-2 * gamma:.2f}", f"{slope:.2f}")

sigmoid = SymmetricNetwork.balanced("sigmoid", depth=4, width=64, scale=0.05)
law = balanced_escape_time(sigmoid.K, 4, 0.05, 0.3)
time = reduced_escape_time(sigmoid, 0.3)
line("C.4", "escape time of class D, sigmoid", f"{law:.1f}", f"{time:.1f}")

moments = [chain_moment("tanh", 4, 0.05, weighted=weighted) for weighted in (False, True)]
line("(52)", "chain moment at scale 0.05", *(f"{m:.5f}" for m in moments))

one = BlockNetwork("tanh", depth=4, betas=(1.0,), block_size=20)
balanced = SymmetricNetwork.balanced("tanh", depth=4, width=20, scale=0.05)
ratio = profile_escape_times(one, 0.05, 2.0)[0] / reduced_escape_time(balanced, 0.1)
line("(53)", "profile law over flow, balanced start", "1.00", f"{ratio:.2f}")

blocks = BlockNetwork("tanh", depth=4, betas=(1, 0.3, 0.08), block_size=20, spacing=0.42)
times = [
    float(block_escape(closure, blocks.aligned(0.05), 0.3).time)
    for closure in (blocks.closed(()), blocks)
]
line("App. E", "escape of three modes, decoupled and exact", *(f"{t:.3f}" for t in times))

# On the block-diagonal state, in units of the drive K ε³ of the diagonal entries (β = 1).
state, unit = blocks.aligned(0.05), blocks.K * 0.05**2
speed = block_velocity(blocks, state)
line(
    "(62)",
    "drive of C_21, over that of the diagonal",
    "0.000",
    f"{speed.A[0][1, 0] / unit / 0.05:.3f}",
)
line(
    "(64)",
    "drive of η_21, over that of the diagonal",
    "0.000",
    f"{speed.A1[1, 0] / unit / 0.05:.3f}",
)
diagonal, whole = (fastest_growth(part, state).eigenvalue for part in (blocks.closed(()), blocks))
line("(54)", "growth of the diagonal part alone, over K ε²", "< 0", f"{diagonal / unit:.3f}")
law = math.log(1 / 0.05) / whole
line(
    "Cor. 26",
    "log(1/ε)/λ and the escape, times K ε²",
    f"{law * unit:.3f}",
    f"{times[1] * unit:.3f}",
)

drift = balance_drift(SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.05), 1, 4)
line("(28)", "sign of d(X_1² − X_4²)/dt, tanh", "+1", f"{math.copysign(1, drift.rate):+.0f}")
degree = normal_form(gelu, 4).logarithms[0]
line("Thm 16", "first degree of gelu that is no power", "none", f"{degree}")
worst = float(abs(escape_shells([1e-8, 1e-8, 1e-4, 1.0]).edge_errors).max())
line("Lemma 19", "error within a shell, scales 10⁴ apart", "< 1e-07", f"{worst:.3f}")
pair = BlockNetwork("gelu", depth=4, betas=(1, 0.3), block_size=20)
found = stage_functions(pair, pair.aligned(0.05), mode=2)
printed = (math.sqrt(20) * 0.5**3 * 0.05**3) ** 2
line("(68)", "drag of a silent mode, gelu", f"{printed:.1e}", f"{found.drag:.1e}")
hierarchy = row_moments("tanh", 6)
ratio = hierarchy.root(6) / hierarchy.root(1)
line("Thm 25", "Perron root of degree 6 over that of degree 1", "bounded", f"{ratio:.3f}")
