"""Figure 5: three teacher modes and one output: one joint escape, no cascade, and its drivers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.activations import activation
from dynagram.theory.saddle import (
    BlockNetwork,
    BlockPath,
    Homotopy,
    SymmetricNetwork,
    block_escape,
    block_path,
    escape_homotopy,
    leading_escape_time,
    next_to_leading_escape_time,
)
from dynagram.theory.saddle._flow import Coordinates, gaussian_nodes
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._saddle_sgd import (
    Recorded,
    coordinate_loss,
    crossing,
    descend,
    mean_and_error,
    population_descent,
    stacked,
    widened,
)

BETAS, EPSILON, THRESHOLD = (1.0, 0.3, 0.08), 0.05, 0.3
BLOCK, INPUTS, BATCH = 20, 16, 4096
CLOSURES: list[tuple[int, ...]] = [
    c for n in range(4) for c in itertools.combinations((1, 2, 3), n)
]
# X_1,1 = 0.3 in every closure, and the stages of the exact flow, from an independent solver
# (scipy's DOP853 at a tolerance of 1e-12 on 24 586 nodes).
RECORDED = {
    (): 72.816800, (1,): 71.335241, (2,): 69.142059, (3,): 62.444513,
    (1, 2): 65.539627, (1, 3): 60.410324, (2, 3): 57.443440, (1, 2, 3): 53.386497,
}  # fmt: skip
LOSS_STAGES = {0.9: 52.6102, 0.5: 54.0872, 0.1: 54.8168, 0.02: 69.9706, 0.01: 92.2023}
CUBIC_STAGES = {1: 56.0428, 2: 187.273}
DECOUPLED_HALVES = (74.7756, 247.964, 921.808)
NAMES = {1: "rotations of W_1 (η)", 2: "off-block W_2 (C)", 3: "off-block W_3"}


def _network(spacing: float) -> BlockNetwork:
    return BlockNetwork("tanh", depth=4, betas=BETAS, block_size=BLOCK, spacing=spacing)


def _run(settings: Settings) -> Result:
    fine, coarse = _network(0.33 if settings.full else 0.42), _network(0.6)
    start = fine.aligned(EPSILON)
    times = {
        layers: float(block_escape(fine.closed(layers), start, THRESHOLD).time)
        for layers in CLOSURES
    }
    exact, decoupled = times[1, 2, 3], times[()]
    single = SymmetricNetwork.balanced("tanh", depth=4, width=BLOCK, scale=EPSILON)
    laws = {
        "leading law of mode 1": leading_escape_time(single, THRESHOLD),
        "next-to-leading law": next_to_leading_escape_time(single, THRESHOLD),
    }
    halves = [
        float(block_escape(fine, start, 0.5, quantity="linear", mode=mode).time)
        for mode in (1, 2, 3)
    ]
    # For an odd activation the decoupled flow is one single-mode flow per block.
    alone = [
        BlockNetwork("tanh", depth=4, betas=(beta,), block_size=BLOCK, spacing=0.33)
        for beta in BETAS
    ]
    apart = [
        float(block_escape(one, one.aligned(EPSILON), 0.5, quantity="linear").time) for one in alone
    ]
    target = fine if settings.full else coarse
    found = escape_homotopy(target, start, THRESHOLD, nodes=6 if settings.full else 4)
    moments = np.linspace(0.0, 300.0, 601)
    paths = {
        "exact block flow": block_path(coarse, start, moments, rtol=1e-8),
        "decoupled flow": block_path(coarse.closed(()), start, moments, rtol=1e-8),
    }
    sgd = _Sgd(settings, coarse)
    statements = (
        Statement(
            "the exact block flow escapes long before the leading law of its first mode",
            abs(exact - 53.386497) < 2e-6 and abs(laws["leading law of mode 1"] - 71.782572) < 1e-6,
            f"X_1,1 = {THRESHOLD} at t = {exact:.6f}; leading law "
            f"{laws['leading law of mode 1']:.6f}, decoupled flow {decoupled:.6f}, augmented "
            f"closure {times[1, 2]:.6f}",
        ),
        sgd.statement(exact),
        Statement(
            "all modes escape together: the figure shows no cascade",
            max(halves) - min(halves) < 0.01 * exact,
            "half of the linear part of modes 1, 2, 3 is learned at "
            + ", ".join(f"{t:.3f}" for t in halves)
            + "; in the decoupled flow at "
            + ", ".join(f"{t:.3f}" for t in apart),
        ),
        _recorded(times, fine, apart),
        _afterwards(paths),
        *_attribution(found, times),
    )
    rows = {
        "closure": ["+".join(f"W{i}" for i in layers) or "decoupled" for layers in CLOSURES],
        "coordinates": [fine.closed(layers).coordinates for layers in CLOSURES],
        "time": [times[layers] for layers in CLOSURES],
    }
    predicted = {**laws, "decoupled flow and homotopy": found.start + found.shift}
    rows["closure"] += list(predicted)
    rows["coordinates"] += [1, 1, fine.coordinates]
    rows["time"] += list(predicted.values())
    tables: dict[str, Mapping[str, Any]] = {
        "escape_times": rows,
        "sgd": sgd.table(),
        **_table(paths),
    }
    notes = (
        "The teacher's linear part is one vector, Σ β_k v_k: at leading order there is one escape, "
        "along it. Off-block entries are driven as hard as the diagonal ones, in every layer.",
        f"SGD: {sgd.steps} steps, batch {BATCH}, η = {sgd.eta:g} and η/N_B, {sgd.seeds} runs, on "
        "block coordinates, which is SGD on the full network.",
    )
    return Result(statements, tables, _figures(paths, sgd, _shown(times, laws, found)), notes)


class _Sgd:
    """SGD on the 30 coordinates with all input components, and the same steps without noise."""

    def __init__(self, settings: Settings, network: BlockNetwork):
        self.eta, self.seeds = (0.1, 5) if settings.full else (0.4, 4)
        step = self.eta / BLOCK
        end = 750.0 if settings.full else 120.0
        self.steps = round(end / step)
        between = self.steps // 1200
        loss = coordinate_loss(network.activation, BETAS, BLOCK)
        start = stacked([widened(network.aligned(EPSILON), INPUTS)])
        rates = jax.tree.map(lambda part: jnp.full_like(part, step), start)
        x = jax.random.normal(jax.random.key(321), (8_192, INPUTS))

        def observe(state: Coordinates) -> dict[str, Array]:
            return {"X": jnp.diagonal(state.A1[:, :3]), "loss": loss(state, x)}

        recorded: Recorded = descend(
            loss, observe, start, rates,
            seeds=[settings.seed + index for index in range(self.seeds)],
            batch=BATCH, inputs=INPUTS, between=between, records=1200,
        )  # fmt: skip
        self.times = recorded.steps * step
        self.X, self.loss = recorded.values["X"][:, :, 0], recorded.values["loss"][:, :, 0]
        still = math.ceil(60.0 / step / between)  # without noise, until after the escape
        quiet = population_descent(
            network.activation, network.problem(), network.aligned(EPSILON), step, between, still
        )
        along = np.asarray(quiet.A1)[:, :1, 0]
        self.expected = float(crossing(self.times[: still + 1], along, THRESHOLD)[0])

    def statement(self, exact: float) -> Statement:
        mean, error = mean_and_error(crossing(self.times, self.X[:, :, 0], THRESHOLD))
        return Statement(
            "SGD escapes when the exact block flow says",
            bool(abs(mean - self.expected) < 4 * error and abs(mean / exact - 1) < 5e-3),
            f"t = {mean:.3f} ± {error:.3f}; the flow in the same steps {self.expected:.3f}, in "
            f"continuous time {exact:.3f}",
        )

    def table(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"t": self.times, "loss": self.loss.mean(axis=1)}
        for mode in range(3):
            mean, error = mean_and_error(self.X[:, :, mode].T)
            columns[f"X1{mode + 1}"], columns[f"X1{mode + 1}_error"] = mean, error
        return columns


def _recorded(
    times: dict[tuple[int, ...], float], network: BlockNetwork, apart: list[float]
) -> Statement:
    start = network.aligned(EPSILON)
    losses = {
        part: float(block_escape(network, start, part, quantity="loss").time)
        for part in LOSS_STAGES
    }
    cubics = {
        mode: float(block_escape(network, start, 0.5, quantity="cubic", mode=mode).time)
        for mode in CUBIC_STAGES
    }
    worst = max(abs(times[layers] - time) for layers, time in RECORDED.items())
    pairs = [
        *((losses[part], time) for part, time in LOSS_STAGES.items()),
        *((cubics[mode], time) for mode, time in CUBIC_STAGES.items()),
        *zip(apart, DECOUPLED_HALVES, strict=True),
    ]
    off = max(abs(found / time - 1.0) for found, time in pairs)
    return Statement(
        "every closure and every stage comes when another solver says, to its printed digits",
        worst < 1.1e-6 and off < 3e-6,
        f"eight closures within {worst:.0e}; the loss is at "
        + ", ".join(f"{part:.0%}" for part in losses)
        + " of its start at "
        + ", ".join(f"{t:.4f}" for t in losses.values())
        + "; half of the cubic part of modes 1 and 2 is learned at "
        + ", ".join(f"{t:.3f}" for t in cubics.values()),
    )


def _afterwards(paths: dict[str, BlockPath]) -> Statement:
    exact, decoupled = paths["exact block flow"], paths["decoupled flow"]

    def at(path: BlockPath, time: float) -> float:
        return float(path.loss[np.searchsorted(path.times, time)])

    # Once the escape is over: the smallest logarithmic slope of the loss, against a plateau's.
    slopes = {
        name: -np.diff(np.log(p.loss[p.times >= 80])) / np.diff(np.log(p.times[p.times >= 80]))
        for name, p in paths.items()
    }
    steady, resting = (float(slopes[name].min()) for name in ("exact block flow", "decoupled flow"))
    g, w = gaussian_nodes(activation("tanh"), 1)
    level = 0.5 * float(w @ np.tanh(g[:, 0]) ** 2) * sum(beta**2 for beta in BETAS[1:])
    return Statement(
        "after the escape the loss falls steadily; the decoupled flow would rest on a plateau",
        steady > 0.5 and resting < 0.05 and abs(at(decoupled, 150.0) / level - 1.0) < 0.01,
        f"loss {at(exact, 60.0):.2e} at t = 60, {at(exact, 120.0):.2e} at 120, "
        f"{at(exact, 300.0):.2e} at 300, everywhere at least as fast as t^-{steady:.2f}; decoupled "
        f"{at(decoupled, 150.0):.5f} at 150, as slow as t^-{resting:.3f}, where "
        f"½E[σ²]Σβ² of the modes left is {level:.5f}",
    )


def _attribution(found: Homotopy, times: dict[tuple[int, ...], float]) -> list[Statement]:
    direct = found.end - found.start
    shapley = dict.fromkeys((1, 2, 3), 0.0)
    for order in itertools.permutations((1, 2, 3)):
        for position, layer in enumerate(order):
            before = tuple(sorted(order[:position]))
            after = tuple(sorted(order[: position + 1]))
            shapley[layer] += (times[after] - times[before]) / 6.0
    parts = dict(zip((1, 2, 3), found.channels.values(), strict=True))
    return [
        Statement(
            "the adjoint's integral is the shift of the escape time",
            abs(found.shift / direct - 1) < 1e-3 and found.normalisation < 1e-6,
            f"{found.shift:.5f} with {found.nodes.size} nodes, directly {direct:.5f}; p·f = 1 to "
            f"{found.normalisation:.0e}",
        ),
        Statement(
            "the last hidden layer's off-block entries shift the escape most, rotations least",
            parts[3] < parts[2] < parts[1] < 0 and shapley[3] < shapley[2] < shapley[1] < 0,
            "; ".join(
                f"{NAMES[layer]} {parts[layer]:.3f} (Shapley {shapley[layer]:.3f})"
                for layer in (1, 2, 3)
            ),
        ),
    ]


def _shown(
    times: dict[tuple[int, ...], float], laws: dict[str, float], found: Homotopy
) -> dict[str, float]:
    return {
        "homotopy": found.start + found.shift,
        "augmented": times[1, 2],
        "leading law": laws["leading law of mode 1"],
        "decoupled": times[()],
    }


def _table(paths: dict[str, BlockPath]) -> dict[str, dict[str, Any]]:
    tables = {}
    for name, path in paths.items():
        columns: dict[str, Any] = {"t": path.times, "loss": path.loss}
        for mode in range(3):
            columns[f"s{mode + 1}"] = path.linear[:, mode]
            columns[f"cubic{mode + 1}"] = path.cubic[:, mode]
        tables[name.replace(" ", "_")] = columns
    return tables


def _figures(
    paths: dict[str, BlockPath], sgd: _Sgd, predictions: dict[str, float]
) -> dict[str, Any]:
    from dynagram.report._charts import xy_chart

    shown = slice(None, None, 30)
    lines = {name: (path.times, path.loss) for name, path in paths.items()}
    points = {"exact block flow": (sgd.times[shown], sgd.loss.mean(axis=1)[shown])}
    marks = {
        f"{name} {time:.1f}": ([time, time], [0.0, 0.22]) for name, time in predictions.items()
    }
    exact = paths["exact block flow"]
    kept = exact.times <= 120
    early = exact.times[kept], exact.loss[kept]
    fractions = {f"s_{k + 1}, linear": (exact.times[kept], exact.linear[kept, k]) for k in range(3)}
    fractions |= {f"s_{k + 1}, cubic": (exact.times[kept], exact.cubic[kept, k]) for k in range(3)}
    x_title = "reduced time t = s/N_B"
    return {
        "figure5_loss": xy_chart(
            points, lines, x_title=x_title, y_title="loss (lines: flows; points: SGD)", log_y=True
        ),
        "figure5_predictions": xy_chart(
            None,
            {"exact flow": early, **marks},
            x_title=x_title,
            y_title="loss, and predictions of X_1,1 = 0.3",
        ),
        "figure5_fractions": xy_chart(
            None, fractions, x_title=x_title, y_title="learned fraction of each mode, exact flow"
        ),
    }


EXPERIMENT = Experiment(
    name="saddle-fig5",
    summary="three modes escape together, at the time of the exact block flow",
    source="Rawal & DeWeese, figure 5",
    run=_run,
)
