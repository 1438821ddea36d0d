"""Section ∞.1: after a step of gradient descent the NTK of ReLU networks moves by 1/√n, not 1/n.

One training input, one step at half the inverse NTK. A neuron that fires and is pushed below zero
stops to count, none begins to: in layer k a fraction 1/√n of the neurons crosses, and each takes
its share J²Θ_k of the NTK along. At critical initialisation with rates 1/L, where Θ_k = kΘ/L, the
mean change is −ηΘ²|ε|C_W^{3/2}/(π√(nK)) Σ_{k<L} (k/L)², in the end linear in depth. Smooth
activations move by 1/n, and so does what else there is in a ReLU network: √n E[ΔH]/Θ = a + b/√n is
fitted for a.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.networks import MLP
from dynagram.observables.tangents._ntk import network_ntk
from dynagram.results import Estimate
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.criticality import critical_initialisation
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.book.relu_anomaly.figures import draw

NAME = "book-relu-anomaly"
ACTIVATIONS = ("relu", "gelu", "linear")
INPUTS, TARGET, STEP = 16, 2.0, 0.5
DEPTH, WIDTHS, SMOOTH_WIDTHS = 3, (32, 64, 128, 256, 512), (32, 64, 128, 256)
# Against depth two widths are enough for a, larger ones for deeper networks.
OF_DEPTH = {2: (128, 512), 3: (128, 512), 4: (128, 512)}
OF_DEPTH_FULL = OF_DEPTH | {6: (512, 2048), 8: (512, 2048)}
MEMBERS, MEMBERS_FULL = 2_000, 20_000


def _run(settings: Settings) -> Result:
    members = MEMBERS_FULL if settings.full else MEMBERS
    of_depth = OF_DEPTH_FULL if settings.full else OF_DEPTH
    cases = [("relu", width, depth) for depth in (2, DEPTH) for width in WIDTHS]
    cases += [(name, width, DEPTH) for name in ("gelu", "linear") for width in SMOOTH_WIDTHS]
    cases += [("relu", width, depth) for depth, widths in of_depth.items() for width in widths]
    makers = {
        f"{name} {width} {depth}": functools.partial(_moved, settings, members, name, width, depth)
        for name, width, depth in dict.fromkeys(cases)
    }
    parts = finish_parts(settings, NAME, makers, {"members": members})
    table = Table.joined(parts.values())
    depths = {
        depth: leading_coefficient(table, "relu", depth, widths)
        for depth, widths in of_depth.items()
    }
    laws = {depth: _law(table, depth, widths[-1]) for depth, widths in of_depth.items()}
    return Result(
        tuple(_statements(table, depths, laws)),
        {"relu_anomaly": table.columns()},
        draw_if_possible(lambda: draw(table, ACTIVATIONS, DEPTH, depths, laws)),
        (
            f"{members} networks of each width and depth, one input of {INPUTS} components.",
            "The law is ours: the probability that 0 < z < ηΘ_k|Jε| for a push downwards, weighted "
            "with J², layer by layer. The book gives the powers only.",
        ),
    )


def critical_network(name: str, width: int, depth: int) -> MLP:
    """A critical network with the rates 1/L, so that Θ does not grow with depth (9.94)."""
    point = critical_initialisation(name)
    widths = [INPUTS, *[width] * (depth - 1), 1]
    return MLP(widths, name, point.C_b, point.C_W, 1.0 / depth, 1.0 / depth)


def _moved(
    settings: Settings, members: int, name: str, width: int, depth: int
) -> dict[str, list[Any]]:
    """Mean and root mean square of ΔH/Θ after one step, over networks, and the mean of |ε|."""
    network = critical_network(name, width, depth)
    x = np.ones((1, INPUTS))
    Theta = float(frozen_kernels(network, x, layers="last").Theta[-1, 0, 0])

    @jax.jit
    def change(keys: Array) -> tuple[Array, Array]:
        return jax.vmap(lambda key: _one_step(network, jnp.asarray(x, "float32"), Theta, key))(keys)

    keys = jax.random.split(jax.random.key(settings.seed), members)
    batch = max(1, 2**24 // (width * width * depth))
    parts = [change(keys[i : i + batch]) for i in range(0, members, batch)]
    shift, error = (np.concatenate([np.asarray(p[i], np.float64) for p in parts]) for i in (0, 1))
    mean, square = Estimate.of_samples(shift / Theta), Estimate.of_samples((shift / Theta) ** 2)
    root = math.sqrt(float(square.value))
    row: dict[str, Any] = {
        "activation": name, "width": width, "depth": depth, "mean": float(mean.value),
        "mean_error": float(mean.standard_error), "rms": root,
        "rms_error": float(square.standard_error) / (2.0 * root),
        "epsilon": float(np.mean(np.abs(error))), "Theta": Theta,
    }  # fmt: skip
    return {key: [value] for key, value in row.items()}


def _one_step(network: MLP, x: Array, Theta: float, key: Array) -> tuple[Array, Array]:
    """The change of the NTK of the training input, and the error before the step."""
    params = network.draw(key, "float32")
    outputs, pull = jax.vjp(lambda p: network.apply(p, x), params)
    error = outputs - TARGET
    (gradient,) = pull(error)
    eta = STEP / Theta
    moved = tuple(
        type(layer)(
            layer.b - eta * network.lambda_b[i] * slope.b,
            layer.W - eta * network.lambda_W[i] / network.widths[i] * slope.W,
        )
        for i, (layer, slope) in enumerate(zip(params, gradient, strict=True))
    )
    change = network_ntk(network, moved, x) - network_ntk(network, params, x)
    return change[0, 0, 0, 0], error[0, 0]


def crossing_law(depth: int, epsilon: float) -> float:
    """√n E[ΔH]/Θ of critical ReLU networks with L = `depth` layers at leading order in 1/√n."""
    network = critical_network("relu", 1, depth)
    K = float(frozen_kernels(network, np.ones((1, INPUTS)), layers="last").K[-1, 0, 0])
    layers = (depth - 1) * (2 * depth - 1) / (6.0 * depth)  # Σ_{k<L} (k/L)²
    return -STEP * epsilon * network.C_W[-1] ** 1.5 / (math.pi * math.sqrt(K)) * layers


def _law(table: Table, depth: int, width: int) -> float:
    """The law with the mean error |ε| of the widest networks."""
    where = {"activation": "relu", "width": width, "depth": depth}
    return crossing_law(depth, float(table.each("epsilon", **where)[0]))


def leading_coefficient(table: Table, name: str, depth: int, widths: Sequence[int]) -> Estimate:
    """a of √n E[ΔH]/Θ = a + b/√n, by weighted least squares, with its standard error."""
    rows, values, errors = [], [], []
    for width in widths:
        where = {"activation": name, "width": width, "depth": depth}
        rows.append([1.0, width**-0.5])
        values.append(math.sqrt(width) * float(table.each("mean", **where)[0]))
        errors.append(math.sqrt(width) * float(table.each("mean_error", **where)[0]))
    design = np.array(rows) / np.array(errors)[:, None]
    covariance = np.linalg.inv(design.T @ design)
    fit = covariance @ design.T @ (np.array(values) / np.array(errors))
    return Estimate(np.asarray(fit[0]), np.asarray(math.sqrt(covariance[0, 0])), len(values))


def fitted_power(x: Sequence[float | int], estimates: Sequence[Estimate]) -> Estimate:
    """The slope of log|estimate| against log x, with its standard error."""
    places = np.log(np.array(x, dtype=float))
    values = np.array([float(estimate.value) for estimate in estimates])
    errors = np.array([float(estimate.standard_error) for estimate in estimates])
    weights = (values / errors) ** 2
    centred = places - np.sum(weights * places) / np.sum(weights)
    scale = np.sum(weights * centred**2)
    slope = np.sum(weights * centred * np.log(np.abs(values))) / scale
    return Estimate(np.asarray(slope), np.asarray(scale**-0.5), len(values))


def _statements(
    table: Table, depths: Mapping[int, Estimate], laws: Mapping[int, float]
) -> list[Statement]:
    a = leading_coefficient(table, "relu", DEPTH, WIDTHS)
    statements = [
        Statement(
            f"relu: the NTK of {DEPTH} layers falls by 1/√n in a step",
            float(a.value) < -5.0 * float(a.standard_error),
            f"√n E[ΔH]/Θ → {_words(a)}, widths {WIDTHS[0]} to {WIDTHS[-1]}",
        )
    ]
    for name in ("gelu", "linear"):
        a = leading_coefficient(table, name, DEPTH, SMOOTH_WIDTHS)
        sizes = []
        for width in SMOOTH_WIDTHS:
            where = {"activation": name, "width": width, "depth": DEPTH}
            rms, error = (table.each(column, **where)[0] for column in ("rms", "rms_error"))
            sizes.append(Estimate(np.asarray(rms), np.asarray(error), 1))
        power = fitted_power(SMOOTH_WIDTHS, sizes)
        statements.append(
            Statement(
                f"{name}: it moves by 1/n, with nothing of order 1/√n",
                abs(float(a.value)) < 3.0 * float(a.standard_error)
                and abs(float(power.value) + 1.0) < 0.1,
                f"√n E[ΔH]/Θ → {_words(a)}; root mean square ∝ n^({_words(power)})",
            )
        )
    a, law = leading_coefficient(table, "relu", 2, WIDTHS), laws[2]
    statements.append(
        Statement(
            "relu, one hidden layer: it falls by the share of the neurons that stop to fire",
            _agrees(a, law),
            f"√n E[ΔH]/Θ → {_words(a)}, the law says {law:.4f}",
        )
    )
    statements.append(
        Statement(
            "relu: it grows with depth as the law says, in the end linearly",
            all(_agrees(value, laws[depth]) for depth, value in depths.items()),
            "; ".join(
                f"L = {depth}: {_words(value)}, law {laws[depth]:.3f}"
                for depth, value in depths.items()
            ),
        )
    )
    return statements


def _agrees(a: Estimate, law: float) -> bool:
    """Within three standard errors, which are small against the law."""
    error = float(a.standard_error)
    return abs(float(a.value) - law) < 3.0 * error and error < 0.12 * abs(law)


def _words(estimate: Estimate) -> str:
    return f"{float(estimate.value):.3f} ± {float(estimate.standard_error):.3f}"


EXPERIMENT = Experiment(
    name=NAME,
    summary="a step moves the NTK of ReLU networks by 1/√n, of smooth ones by 1/n",
    source="The Principles of Deep Learning Theory, section ∞.1, below (∞.44)",
    run=_run,
)
