"""Feature learning made faster and slower: does steering it help on digits?

The part of every step that changes WᵀW is multiplied by a factor (0: features frozen to first
order, 1: plain), or the Gram is anchored at its start by a penalty. MLP 64–128–128–10, GELU, SGD
with momentum 0.85, batches of 64, 20 epochs; all variants share split, start and batches.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import optax

from dynagram._precision import float64
from dynagram.data import digits
from dynagram.integrations.optax import anchor_gram, modulate_features
from dynagram.networks import MLP, Params
from dynagram.observables.gram._linearity import held_out_linearity, one_hot
from dynagram.results import Estimate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram._training import Split, accuracy, features, record_epochs, split

NAME = "gram-regularisers"
WIDTH, BATCH, RATE, MOMENTUM = 96, 64, 0.02, 0.85
EPOCHS = (0, 1, 3, 10, 20)
SEEDS = 6
FACTORS = (0.0, 0.5, 2.0, 4.0)
STRENGTHS = (0.01, 0.1)
PLAIN = "plain"
FASTER = "rate 2"  # the plain optimiser at twice the rate: a larger factor is a larger step, too
VARIANTS = (
    PLAIN, FASTER, *(f"factor {f:g}" for f in FACTORS), *(f"anchor {s:g}" for s in STRENGTHS),
)  # fmt: skip


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(10 if settings.full else SEEDS)]
    makers = {
        f"{variant}, seed {seed}": functools.partial(_trained, variant, seed)
        for variant in VARIANTS
        for seed in seeds
    }
    table = Table.joined(finish_parts(settings, NAME, makers, {"epochs": EPOCHS}).values())
    return Result(
        _statements(table),
        {"regularisers": table.columns()},
        draw_if_possible(lambda: _figures(table)),
        (
            f"Digits, two hidden layers of {WIDTH}, momentum {MOMENTUM:g} at rate {RATE:g}, "
            f"batches of {BATCH}, {EPOCHS[-1]} epochs; {len(seeds)} seeds from {seeds[0]}, paired.",
            "Gram change is ‖WᵀW − W₀ᵀW₀‖/‖W₀ᵀW₀‖ of the two hidden layers, averaged; linearity "
            "that of the second hidden layer, held out.",
            "Test accuracy against plain: " + _against_plain(table),
        ),
    )


@functools.cache  # one compiled program for all seeds
def _optimiser(variant: str) -> optax.GradientTransformation:
    plain = optax.sgd(RATE, momentum=MOMENTUM)
    kind, _, number = variant.partition(" ")
    if variant == FASTER:
        return optax.sgd(2 * RATE, momentum=MOMENTUM)
    if kind == "factor":
        return modulate_features(plain, float(number))
    return optax.chain(anchor_gram(float(number)), plain) if kind == "anchor" else plain


@float64
def _trained(variant: str, seed: int) -> Table:
    network = MLP([64, WIDTH, WIDTH, 10], "gelu", C_b=0.0, C_W=2.0)
    parts = split(digits(), seed)
    start = network.draw(jax.random.key(seed), np.float64)
    recorded, _ = record_epochs(
        network, _optimiser(variant), start, parts, batch=BATCH, epochs=EPOCHS, seed=seed
    )
    return Table.of_rows(
        {"variant": variant, "seed": seed, "epoch": epoch} | _scores(network, params, start, parts)
        for epoch, params in zip(EPOCHS, recorded, strict=True)
    )


def _scores(network: MLP, params: Params, start: Params, parts: Split) -> dict[str, float]:
    h, h_test = (features(network, params, x) for x in (parts.x, parts.x_test))
    y, y_test = one_hot(parts.labels, 10), one_hot(parts.labels_test, 10)
    moved = []
    for new, old in zip(params[:2], start[:2], strict=True):
        W, W0 = np.asarray(new.W), np.asarray(old.W)
        before = W0.T @ W0
        moved.append(np.linalg.norm(W.T @ W - before) / np.linalg.norm(before))
    return {
        "test_accuracy": accuracy(h_test[-1], parts.labels_test),
        "train_accuracy": accuracy(h[-1], parts.labels),
        "linearity": held_out_linearity(h[2], y, h_test[2], y_test).score,
        "gram_change": float(np.mean(moved)),
    }


def _paired(table: Table, variant: str, name: str, base: str = PLAIN) -> Estimate:
    """Variant minus plain (or another base) at the end, seed by seed."""
    values, plain = (table.each(name, variant=v, epoch=EPOCHS[-1]) for v in (variant, base))
    return Estimate.of_samples(values - plain)


def _signed(difference: Estimate) -> str:
    return f"{float(difference.value):+.4f} ± {float(difference.standard_error):.4f}"


def _against_plain(table: Table) -> str:
    base = table.mean("test_accuracy", variant=PLAIN, epoch=EPOCHS[-1])
    told = ", ".join(
        f"{variant} {_signed(_paired(table, variant, 'test_accuracy'))}" for variant in VARIANTS[1:]
    )
    return f"{told}; plain {base:.4f}."


def _statements(table: Table) -> tuple[Statement, ...]:
    def end(variant: str, name: str) -> Estimate:
        return table.mean(name, variant=variant, epoch=EPOCHS[-1])

    ladder = ["factor 0", "factor 0.5", PLAIN, "factor 2", "factor 4"]
    moves = [float(end(variant, "gram_change").value) for variant in ladder]
    anchors = [float(end(f"anchor {s:g}", "gram_change").value) for s in STRENGTHS]
    plain = float(end(PLAIN, "gram_change").value)
    frozen = _paired(table, "factor 0", "linearity")
    faster = _paired(table, "factor 2", "test_accuracy")
    beyond = _paired(table, "factor 2", "test_accuracy", FASTER)
    worst = min(float(_paired(table, v, "test_accuracy").value) for v in VARIANTS[1:])
    return (
        Statement(
            "The factor steers what it should: the Gram moves more the larger it is",
            moves == sorted(moves),
            "factors 0, 0.5, 1, 2, 4: " + ", ".join(f"{value:.3f}" for value in moves),
        ),
        Statement(
            "The anchor holds: the Gram moves less the stronger it is",
            anchors[1] < anchors[0] < plain,
            f"strengths 0.01, 0.1: {anchors[0]:.3f}, {anchors[1]:.3f}; plain {plain:.3f}",
        ),
        Statement(
            "Frozen Grams linearise less: linearity of the second layer falls, by 2 s.e.",
            bool(frozen.value < -2 * frozen.standard_error),
            f"factor 0 minus plain: {_signed(frozen)}; plain {end(PLAIN, 'linearity'):.3f}",
        ),
        Statement(
            "Feature learning at twice the speed improves test accuracy, by 2 standard errors",
            bool(faster.value > 2 * faster.standard_error),
            f"factor 2 minus plain: {_signed(faster)}",
        ),
        Statement(
            "And not only because its steps are larger: it also improves on twice the rate",
            bool(beyond.value > 2 * beyond.standard_error),
            f"factor 2 minus plain at twice the rate: {_signed(beyond)}",
        ),
        Statement(
            "No variant costs more than two points of test accuracy",
            worst > -0.02,
            f"the worst mean difference is {worst:+.4f}",
        ),
    )


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    lines = {
        variant: Line.through(
            {e: table.mean("test_accuracy", variant=variant, epoch=e) for e in EPOCHS[1:]}
        )
        for variant in VARIANTS
    }
    return {"regularisers": line_chart(lines, Axis("epoch", "log"), Axis("test accuracy"))}


EXPERIMENT = Experiment(
    name=NAME,
    summary="feature learning made faster and slower on digits: what it changes",
    source="Cha et al., arXiv:2605.06258 (regularisers, proposed)",
    run=_run,
)
