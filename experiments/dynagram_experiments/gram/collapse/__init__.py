"""Neural collapse on digits: NC1 to NC4 of every hidden layer, long after zero training error.

MLP 64–128×3–10, ReLU, SGD with momentum 0.9 and weight decay, batches of 64. Beside every number
that of shuffled labels on the same features; a second run without weight decay.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import numpy as np
import optax

from dynagram.data import digits
from dynagram.networks import MLP
from dynagram.observables._collapse import CollapseTracker, collapse
from dynagram.results import Estimate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram._training import accuracy, features, record_epochs, split

NAME = "gram-collapse"
WIDTH, HIDDEN, BATCH, RATE = 128, 3, 64, 0.1
DECAYS = (2e-3, 0.0)
EPOCHS = (0, 5, 20, 100, 300)
SEEDS = 3
MEASURES = ("within", "norms", "angles", "duality", "disagreement")


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(4 * SEEDS if settings.full else SEEDS)]
    makers = {
        f"decay {decay:g}, seed {seed}": functools.partial(_trained, decay, seed)
        for decay in DECAYS
        for seed in seeds
    }
    table = Table.joined(finish_parts(settings, NAME, makers, {"epochs": EPOCHS}).values())
    return Result(
        _statements(table),
        {"collapse": table.columns()},
        draw_if_possible(lambda: _figures(table)),
        (
            f"Digits, {HIDDEN} hidden layers of {WIDTH}, ReLU, momentum 0.9 at rate {RATE:g}, "
            f"batches of {BATCH}, {EPOCHS[-1]} epochs; {len(seeds)} seeds from {seeds[0]}: split, "
            "weights, batches.",
            f"NC3 and NC4 belong to the last hidden layer; weight decay {DECAYS[0]:g} unless said "
            "otherwise.",
            _least(table),
        ),
    )


@functools.cache  # one compiled program for all seeds
def _optimiser(decay: float) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(decay), optax.sgd(RATE, momentum=0.9))


def _trained(decay: float, seed: int) -> Table:
    widths = [64, *[WIDTH] * HIDDEN, 10]
    network = MLP(widths, "relu", C_b=0.0, C_W=2.0)
    parts = split(digits(), seed)
    start = network.draw(jax.random.key(seed), np.float32)
    recorded, _ = record_epochs(
        network, _optimiser(decay), start, parts, batch=BATCH, epochs=EPOCHS, seed=seed
    )
    rows = []
    for epoch, params in zip(EPOCHS, recorded, strict=True):
        h = features(network, params, parts.x)
        test = features(network, params, parts.x_test)[-1]
        scores = {
            "train_accuracy": accuracy(h[-1], parts.labels),
            "test_accuracy": accuracy(test, parts.labels_test),
        }
        for layer in range(1, HIDDEN + 1):
            if layer == HIDDEN:
                W, b = (np.asarray(part, dtype=np.float64) for part in (params[-1].W, params[-1].b))
                found = collapse(h[layer], parts.labels, W, b, seed=seed)
            else:
                tracker = CollapseTracker(10, WIDTH, seed=seed)
                tracker.add(h[layer], parts.labels)
                found = tracker.measures()
            row = {"decay": decay, "seed": seed, "epoch": epoch, "layer": layer} | scores
            for name in MEASURES:
                value, null = getattr(found, name), getattr(found, f"{name}_null")
                row[name] = np.nan if value is None else value
                row[f"{name}_null"] = np.nan if null is None else null.mean
            rows.append(row)
    return Table.of_rows(rows)


def _statements(table: Table) -> tuple[Statement, ...]:
    end, first = EPOCHS[-1], DECAYS[0]

    def at(name: str, epoch: int = end, layer: int = HIDDEN, decay: float = first) -> Estimate:
        return table.mean(name, epoch=epoch, layer=layer, decay=decay)

    falls = {
        name: (at(name, 0), at(name), at(f"{name}_null")) for name in ("within", "norms", "angles")
    }
    by_layer = [at("within", layer=layer) for layer in range(1, HIDDEN + 1)]
    ratio = Estimate.of_samples(
        table.each("within", epoch=end, layer=HIDDEN, decay=first)
        / table.each("within", epoch=end, layer=HIDDEN, decay=0.0)
    )
    accurate = at("train_accuracy")
    return (
        Statement(
            "The training set is learned: accuracy 1 to three digits in the mean",
            bool(accurate.value > 0.999),
            f"train {accurate:.4f}, test {at('test_accuracy'):.4f}",
        ),
        Statement(
            "NC1: variability within classes falls to less than a twentieth of its start",
            bool(falls["within"][1].value < falls["within"][0].value / 20),
            f"{falls['within'][0]:.3f} → {falls['within'][1]:.4f} (shuffled labels "
            f"{falls['within'][2]:.1f})",
        ),
        Statement(
            "NC2: class means come nearer to equal norms and equal angles",
            all(new.value < old.value for old, new, _ in (falls["norms"], falls["angles"])),
            f"norms {falls['norms'][0]:.3f} → {falls['norms'][1]:.3f}, angles "
            f"{falls['angles'][0]:.3f} → {falls['angles'][1]:.3f}",
        ),
        Statement(
            "NC3: classifier and class means come nearer to each other",
            bool(at("duality").value < 0.5 * at("duality", 0).value),
            f"{at('duality', 0):.3f} → {at('duality'):.3f} (0: the same up to scale)",
        ),
        Statement(
            "NC4: the nearest class mean decides as the network does, for 99 % of the samples",
            bool(at("disagreement").value < 0.01),
            f"disagreement {at('disagreement', 0):.3f} → {at('disagreement'):.4f}",
        ),
        Statement(
            "The deeper the layer the further the collapse: NC1 falls from layer to layer",
            all(b.value < a.value for a, b in itertools.pairwise(by_layer)),
            "layers 1–3: " + ", ".join(f"{value:.4f}" for value in by_layer),
        ),
        Statement(
            "Weight decay furthers it: NC1 is smaller than without, by 2 standard errors",
            bool(1.0 - ratio.value > 2 * ratio.standard_error),
            f"ratio {ratio:.3f}; without decay {at('within', decay=0.0):.4f}",
        ),
    )


def _least(table: Table) -> str:
    """When the last hidden layer was nearest to collapse."""
    within = {
        epoch: table.mean("within", epoch=epoch, layer=HIDDEN, decay=DECAYS[0]) for epoch in EPOCHS
    }
    epoch = min(within, key=lambda e: float(within[e].value))
    return (
        f"NC1 of the last hidden layer is smallest at epoch {epoch} of those looked at, "
        f"{within[epoch]:.4f}; at the end, {EPOCHS[-1]}, it is {within[EPOCHS[-1]]:.4f}."
    )


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    lines = {
        f"layer {layer}": Line.through(
            {
                max(epoch, 1): table.mean("within", epoch=epoch, layer=layer, decay=DECAYS[0])
                for epoch in EPOCHS
            }
        )
        for layer in range(1, HIDDEN + 1)
    }
    x = Axis("epoch (the start at 1)", "log")
    return {"collapse": line_chart(lines, x, Axis("NC1 tr(Σ_W Σ_B⁺)/C", "log"))}


EXPERIMENT = Experiment(
    name=NAME,
    summary="neural collapse NC1 to NC4 on digits, layer by layer",
    source="Cha et al., arXiv:2605.06258 (neural collapse as linearisation)",
    run=_run,
)
