"""Figure 5: three teacher modes and one output: one joint escape, no cascade, and its drivers."""

from __future__ import annotations

from typing import Any

from dynagram.results import Estimate
from dynagram.theory.saddle import (
    SymmetricNetwork,
    leading_escape_time,
    next_to_leading_escape_time,
)
from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._parts import Part, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.saddle.fig5.runs import (
    BATCH,
    BLOCK,
    CLOSURES,
    EPSILON,
    PATHS,
    THRESHOLD,
    closure_name,
    fine_network,
    makers,
)
from dynagram_experiments.saddle.fig5.statements import statements

NAME = "saddle-fig5"


def _run(settings: Settings) -> Result:
    parts = finish_parts(settings, NAME, makers(settings))
    single = SymmetricNetwork.balanced("tanh", depth=4, width=BLOCK, scale=EPSILON)
    laws = {
        "leading law of mode 1": leading_escape_time(single, THRESHOLD),
        "next-to-leading law": next_to_leading_escape_time(single, THRESHOLD),
    }
    sgd = parts["SGD"]
    notes = (
        "The teacher's linear part is one vector, Σ β_k v_k: at leading order there is one escape, "
        "along it. Off-block entries are driven as hard as the diagonal ones, in every layer.",
        f"SGD: {int(sgd['steps'])} steps, batch {BATCH}, η = {float(sgd['eta']):g} and η/N_B, "
        f"{sgd['X'].shape[1]} runs, on block coordinates, which is SGD on the full network.",
    )
    return Result(
        statements(parts, laws),
        {
            "escape_times": _escape_times(settings, parts, laws),
            "sgd": _sgd_table(sgd),
            **{name.replace(" ", "_"): _path_table(parts[name]) for name in PATHS},
        },
        draw_if_possible(lambda: _figures(parts, laws)),
        notes,
    )


def _escape_times(
    settings: Settings, parts: dict[str, Part], laws: dict[str, float]
) -> dict[str, list[Any]]:
    fine = fine_network(settings.full)
    names = [closure_name(layers) for layers in CLOSURES]
    shifted = float(parts["homotopy"]["start"] + parts["homotopy"]["shift"])
    return {
        "closure": [*names, *laws, "decoupled flow and homotopy"],
        "coordinates": [
            *(fine.closed(layers).coordinates for layers in CLOSURES), 1, 1, fine.coordinates,
        ],
        "time": [*(float(parts[name]["time"]) for name in names), *laws.values(), shifted],
    }  # fmt: skip


def _sgd_table(sgd: Part) -> dict[str, Any]:
    columns: dict[str, Any] = {"t": sgd["times"], "loss": sgd["loss"].mean(axis=1)}
    for mode in range(3):
        mean = Estimate.of_samples(sgd["X"][:, :, mode].T)
        columns[f"X1{mode + 1}"] = mean.value
        columns[f"X1{mode + 1}_error"] = mean.standard_error
    return columns


def _path_table(path: Part) -> dict[str, Any]:
    columns: dict[str, Any] = {"t": path["times"], "loss": path["loss"]}
    for mode in range(3):
        columns[f"s{mode + 1}"] = path["linear"][:, mode]
        columns[f"cubic{mode + 1}"] = path["cubic"][:, mode]
    return columns


def _figures(parts: dict[str, Part], laws: dict[str, float]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    sgd, exact = parts["SGD"], parts["exact block flow"]
    predictions = {
        "homotopy": float(parts["homotopy"]["start"] + parts["homotopy"]["shift"]),
        "augmented": float(parts[closure_name((1, 2))]["time"]),
        "leading law": laws["leading law of mode 1"],
        "decoupled": float(parts["decoupled"]["time"]),
    }
    shown = slice(None, None, 30)
    early = exact["times"] <= 120
    marks = {
        f"{name} {time:.1f}": Line([time, time], [0.0, 0.22]) for name, time in predictions.items()
    }
    fractions = {
        f"s_{mode + 1}, {part}": Line(exact["times"][early], exact[part][early, mode])
        for part in ("linear", "cubic")
        for mode in range(3)
    }
    time = Axis("reduced time t = s/N_B")
    return {
        "figure5_loss": line_chart(
            {name: Line(parts[name]["times"], parts[name]["loss"]) for name in PATHS},
            time,
            Axis("loss (lines: flows; points: SGD)", "log"),
            points={"exact block flow": Line(sgd["times"][shown], sgd["loss"].mean(axis=1)[shown])},
        ),
        "figure5_predictions": line_chart(
            {"exact flow": Line(exact["times"][early], exact["loss"][early]), **marks},
            time,
            Axis("loss, and predictions of X_1,1 = 0.3"),
        ),
        "figure5_fractions": line_chart(
            fractions, time, Axis("learned fraction of each mode, exact flow")
        ),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="three modes escape together, at the time of the exact block flow",
    source="Rawal & DeWeese, figure 5",
    run=_run,
)
