"""fields-closure: gradient descent rewritten as a dynamics of fields, checked against itself.

Nordio, arXiv:2606.09744v3: one hidden layer closes on its preactivations (47), (50), (62); deeper
networks obey first-order laws for r, u and b (150)-(187) with the kernel (172), while masks stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagram.results import Estimate
from dynagram.theory.fields import AnchoredRun
from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._parts import (
    Part,
    Table,
    finish_parts,
    stack_records,
    unstack_records,
)
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.fields._tasks import zero_or_one
from dynagram_experiments.fields.closure.runs import (
    DEPTHS,
    DISTANCES,
    STEP_SIZES,
    OneLayer,
    OneStep,
    activations_only,
    all_anchored,
    all_one_layer,
    one_layer,
    one_step,
    unreachable_targets,
)
from dynagram_experiments.fields.closure.statements import Anchored, mean_at, statements

NAME = "fields-closure"
STEPS = 1000
ETAS_OF_ACTIVATIONS = (0.3, 30.0)


def _run(settings: Settings) -> Result:
    seed = 1000 * settings.seed
    size = (
        {"width": 256, "samples": 200, "steps": 1000}
        if settings.full
        else {"width": 128, "samples": 100, "steps": 500}
    )
    depths = (1, 2, 3, 4) if settings.full else (2, 3)
    parts = finish_parts(settings, NAME, _makers(seed, depths, size), {"size": size})
    closed = unstack_records(OneLayer, parts["one layer"])
    (single,) = unstack_records(OneLayer, parts["one layer, float32"])
    laws = unstack_records(OneStep, parts["one step"])
    frozen = _grouped(depths, parts)
    return Result(
        statements=statements(
            closed, single, parts["activations only"], laws, frozen, parts["stuck"]
        ),
        tables={
            "one-layer": _one_layer_table(closed),
            "one-step": _one_step_table(laws),
            "anchored": _anchored_table(frozen),
        },
        figures=draw_if_possible(lambda: _figures(closed, laws, frozen)),
        notes=(
            "Digits 0 and 1. One hidden layer: 256 units, 200 images to train on, 160 unseen; "
            "one step: 32 units, 8 images; "
            f"frozen masks: {size['width']} units, {size['samples']} images, two seeds, an anchor "
            "every 100 steps.",
        ),
    )


def _makers(seed: int, depths: Sequence[int], size: dict[str, int]) -> dict[str, Any]:
    task = zero_or_one(200, seed)

    def without_weights() -> Part:
        runs = [activations_only(task, "mean", eta, seed, STEPS) for eta in ETAS_OF_ACTIVATIONS]
        residuals, losses = zip(*runs, strict=True)
        etas = np.array(ETAS_OF_ACTIVATIONS)
        return {"eta": etas, "residual": np.stack(residuals), "loss": np.array(losses)}

    makers: dict[str, Any] = {
        "one layer": lambda: stack_records(all_one_layer(task, seed, STEPS)),
        "one layer, float32": lambda: stack_records(
            [one_layer(task, "mean", 3.0, seed, STEPS, "<f4")]
        ),
        "activations only": without_weights,
        "one step": lambda: stack_records([one_step(task, L, seed) for L in DEPTHS]),
    }
    for L in depths:
        makers[f"anchored, L = {L}"] = lambda L=L: stack_records(
            all_anchored(L, [seed, seed + 1], **size)
        )
    makers["stuck"] = lambda: unreachable_targets(100, seed, STEPS)
    return makers


def _grouped(depths: Sequence[int], parts: dict[str, Part]) -> Anchored:
    """The runs by depth and by what is carried along."""
    grouped: dict[tuple[int, str], list[AnchoredRun]] = {}
    for L in depths:
        for run in unstack_records(AnchoredRun, parts[f"anchored, L = {L}"]):
            grouped.setdefault((L, run.carried), []).append(run)
    return grouped


def _figures(
    closed: Sequence[OneLayer], laws: Sequence[OneStep], frozen: Anchored
) -> dict[str, Any]:
    from dynagram_experiments.fields.closure.figures import figures

    return figures(closed, laws, frozen)


def _one_layer_table(closed: Sequence[OneLayer]) -> dict[str, list[Any]]:
    names = ("readout", "eta", "difference", "unseen_difference", "loss_difference",
             "masks_apart", "flips")  # fmt: skip
    table = {name: [getattr(run, name) for run in closed] for name in names}
    return table | {"final_loss": [float(run.losses[-1]) for run in closed]}


def _one_step_table(laws: Sequence[OneStep]) -> dict[str, list[Any]]:
    return Table.of_rows(
        {"hidden_layers": step.L, "law": name, "eta": eta, "relative_error": float(error)}
        for step in laws
        for name, errors in step.errors.items()
        for eta, error in zip(STEP_SIZES, errors, strict=True)
        if np.isfinite(error)
    ).columns()


def _anchored_table(frozen: Anchored) -> dict[str, list[Any]]:
    names = ("residual_change", "unseen_error", "unseen_change", "u_error", "u_change", "b_error",
             "b_change", "flipped")  # fmt: skip
    rows = []
    for (L, carried), runs in frozen.items():
        for k in DISTANCES:
            error = Estimate.of_samples(
                np.concatenate([run.residual_error[run.at(k)] for run in runs])
            )
            row: dict[str, Any] = {
                "hidden_layers": L,
                "carried": carried,
                "steps_from_anchor": k,
                "residual_error": float(error.value),
                "standard_error": float(error.standard_error),
            }
            for name in names:
                # one hidden layer has no b that moves
                there = getattr(runs[0], name).size > 0
                row[name] = mean_at(runs, name, k) if there else 0.0
            rows.append(row)
    return Table.of_rows(rows).columns()


EXPERIMENT = Experiment(
    name=NAME,
    summary="training without weights (one layer) and the laws of deeper fields, against descent",
    source="arXiv:2606.09744v3, §3-§7",
    run=_run,
)
