"""Linear interpolation: are straight lines between inputs straight in features, and do they decode?

A classifier (64–128×3–10, ReLU) and an autoencoder (64–96–8–96–64, tanh) on digits. The bend of a
layer is the distance of the features of the middle of two inputs from the middle of their features,
over half of their distance. An interpolated code is decoded and compared with the mean of the
two images: which is nearer to images that were not trained on?
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from dynagram.data import digits
from dynagram.networks import MLP, Params
from dynagram.results import Estimate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._descent import follow
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram._training import Split, features, record_epochs, split

NAME = "gram-interpolation"
WIDTH, HIDDEN, BATCH, EPOCHS = 128, 3, 64, 30
CODE, STEPS, PAIRS = 8, 3000, 400
SEEDS = 3


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(10 if settings.full else SEEDS)]
    makers: dict[str, Any] = {
        f"classifier, seed {seed}": functools.partial(_classifier, seed) for seed in seeds
    }
    makers |= {f"autoencoder, seed {s}": functools.partial(_autoencoder, s) for s in seeds}
    parts = finish_parts(settings, NAME, makers, {"epochs": EPOCHS, "steps": STEPS})
    bends = Table.joined(part for key, part in parts.items() if key.startswith("classifier"))
    codes = Table.joined(part for key, part in parts.items() if key.startswith("autoencoder"))
    judged = _code_statements(codes)
    beyond = [statement.passed for statement in judged if "decoder alone" in statement.claim]
    return Result(
        (*_bend_statements(bends), *judged),
        {"bends": bends.columns(), "codes": codes.columns()},
        draw_if_possible(lambda: _figures(bends)),
        (
            f"Digits. Classifier: {HIDDEN} hidden layers of {WIDTH}, {EPOCHS} epochs; autoencoder: "
            f"codes of {CODE} numbers, {STEPS} steps.",
            f"{len(seeds)} seeds, {PAIRS} pairs of test images of the same class and as many of "
            "different ones. A bend of 0 is a straight line; of untrained layers it is what random "
            "features make of it.",
            *(
                []
                if any(beyond)
                else [
                    "In short: what brings a middle nearer to images is the decoder; the mean of "
                    "two images, sent through the autoencoder, is at least as near."
                ]
            ),
        ),
    )


def _pairs(parts: Split, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs of test images of one class and of two."""
    rng = np.random.default_rng(seed)
    labels = parts.labels_test
    first, second = rng.integers(len(labels), size=(2, 20 * PAIRS))
    kinds = {"same": labels[first] == labels[second], "different": labels[first] != labels[second]}
    chosen = {}
    for name, where in kinds.items():
        rows = np.flatnonzero(where & (first != second))[:PAIRS]
        chosen[name] = (first[rows], second[rows])
    return chosen


def _classifier(seed: int) -> Table:
    widths = [64, *[WIDTH] * HIDDEN, 10]
    network = MLP(widths, "relu", C_b=0.0, C_W=2.0)
    parts = split(digits(), seed)
    start = network.draw(jax.random.key(seed), np.float32)
    recorded, _ = record_epochs(
        network, _adam(), start, parts, batch=BATCH, epochs=(0, EPOCHS), seed=seed
    )
    rows = []
    for epoch, params in zip((0, EPOCHS), recorded, strict=True):
        for kind, (a, b) in _pairs(parts, seed).items():
            ends = [parts.x_test[index] for index in (a, b)]
            left, right, middle = (
                features(network, params, x) for x in (*ends, 0.5 * (ends[0] + ends[1]))
            )
            for layer in range(1, HIDDEN + 2):
                gap = middle[layer] - 0.5 * (left[layer] + right[layer])
                half = 0.5 * np.linalg.norm(left[layer] - right[layer], axis=1)
                bend = float(np.median(np.linalg.norm(gap, axis=1) / half))
                row = {"seed": seed, "epoch": epoch, "pairs": kind, "layer": layer, "bend": bend}
                rows.append(row)
    return Table.of_rows(rows)


@functools.cache
def _adam() -> optax.GradientTransformation:
    return optax.adam(1e-3)


def _autoencoder(seed: int) -> dict[str, Any]:
    """Nearness of decoded middles and of mean images to unseen images, trained and untrained."""
    widths = [64, 96, CODE, 96, 64]
    network = MLP(widths, "tanh", C_b=0.0, C_W=1.0)
    parts = split(digits(), seed)
    start = network.draw(jax.random.key(seed), np.float32)
    x = jnp.asarray(parts.x, jnp.float32)
    state = (start, _adam().init(start), x)
    (params, *_), _ = follow(_autoencoder_step(network), _no_look, state, between=STEPS, records=1)
    test = parts.x_test
    found: dict[str, Any] = {"seed": seed}
    outputs = np.asarray(network.apply(params, jnp.asarray(test, jnp.float32)), dtype=np.float64)
    found["explained"] = 1.0 - float(np.mean((outputs - test) ** 2) / np.var(test))
    for kind, (a, b) in _pairs(parts, seed).items():
        others = [np.delete(np.arange(len(test)), [i, j]) for i, j in zip(a, b, strict=True)]
        mean = 0.5 * (test[a] + test[b])
        codes = [_encoded(network, params, test[index]) for index in (a, b)]
        decoded = _decoded(params, 0.5 * (codes[0] + codes[1]))
        through = np.asarray(network.apply(params, jnp.asarray(mean, jnp.float32)))
        for name, images in (("mean", mean), ("decoded", decoded), ("passed", through)):
            found[f"{kind}, {name}"] = _nearness(np.asarray(images, np.float64), test, others)
    return found


@functools.cache  # one compiled program for all seeds
def _autoencoder_step(network: MLP) -> Any:
    def step(state: tuple[Params, Any, Array]) -> tuple[Params, Any, Array]:
        params, memory, x = state
        slopes = jax.grad(lambda p: jnp.mean((network.apply(p, x) - x) ** 2))(params)
        updates, memory = _adam().update(slopes, memory, params)
        return optax.apply_updates(params, updates), memory, x  # pyright: ignore[reportReturnType]

    return step


def _no_look(_: Any) -> Array:
    return jnp.zeros(())


def _encoded(network: MLP, params: Params, x: np.ndarray) -> np.ndarray:
    z = network.preactivations(params, jnp.asarray(x, jnp.float32))
    return np.asarray(z[1], dtype=np.float64)


def _decoded(params: Params, code: np.ndarray) -> np.ndarray:
    h = np.tanh(code)
    h = np.tanh(h @ np.asarray(params[2].W).T + np.asarray(params[2].b))
    return h @ np.asarray(params[3].W).T + np.asarray(params[3].b)


def _nearness(images: np.ndarray, test: np.ndarray, others: Sequence[np.ndarray]) -> float:
    """Median distance to the nearest image that is neither end."""
    pairs = zip(images, others, strict=True)
    return float(
        np.median([np.linalg.norm(test[rows] - image, axis=1).min() for image, rows in pairs])
    )


def _bend(table: Table, layer: int, epoch: int, pairs: str) -> Estimate:
    return table.mean("bend", layer=layer, epoch=epoch, pairs=pairs)


def _bend_statements(table: Table) -> list[Statement]:
    layers = range(1, HIDDEN + 1)

    def told(epoch: int, pairs: str) -> str:
        return ", ".join(f"{_bend(table, layer, epoch, pairs):.3f}" for layer in layers)

    rising = all(
        _bend(table, b, 0, "different").value > _bend(table, a, 0, "different").value
        for a, b in itertools.pairwise(layers)
    )
    change = Estimate.of_samples(
        table.each("bend", layer=HIDDEN, epoch=EPOCHS, pairs="different")
        - table.each("bend", layer=HIDDEN, epoch=0, pairs="different")
    )
    return [
        Statement(
            "Untrained layers bend a straight line the more the deeper they are",
            rising,
            f"hidden layers, different classes: {told(0, 'different')}",
        ),
        Statement(
            "Training straightens lines between classes in the last hidden layer, by 2 s.e.",
            bool(change.value < -2 * change.standard_error),
            f"change {_signed(change)}; trained: {told(EPOCHS, 'different')}, same class "
            f"{told(EPOCHS, 'same')}",
        ),
    ]


def _signed(difference: Estimate) -> str:
    return f"{float(difference.value):+.3f} ± {float(difference.standard_error):.3f}"


def _code_statements(table: Table) -> list[Statement]:
    statements = [
        Statement(
            "The autoencoder explains more than half of the variance of unseen images",
            bool(table.mean("explained").value > 0.5),
            f"{table.mean('explained'):.3f}",
        )
    ]
    for kind in ("same", "different"):
        gain = Estimate.of_samples(table[f"{kind}, decoded"] - table[f"{kind}, mean"])
        statements.append(
            Statement(
                f"{kind} class: the decoded middle of two codes is nearer to unseen images than "
                "the mean of the two images, by 2 standard errors",
                bool(gain.value < -2 * gain.standard_error),
                f"distance {table.mean(f'{kind}, decoded'):.3f} against "
                f"{table.mean(f'{kind}, mean'):.3f}",
            )
        )
        beyond = Estimate.of_samples(table[f"{kind}, decoded"] - table[f"{kind}, passed"])
        statements.append(
            Statement(
                f"{kind} class: it is also nearer than the mean image passed through the network: "
                "the straight line of codes matters, not the decoder alone",
                bool(beyond.value < -2 * beyond.standard_error),
                f"difference {_signed(beyond)} of {table.mean(f'{kind}, passed'):.3f}",
            )
        )
    return statements


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    lines = {
        f"{pairs}, {'trained' if epoch else 'untrained'}": Line.through(
            {layer: _bend(table, layer, epoch, pairs) for layer in range(1, HIDDEN + 1)}
        )
        for epoch in (0, EPOCHS)
        for pairs in ("same", "different")
    }
    return {"bends": line_chart(lines, Axis("hidden layer"), Axis("bend of a straight line"))}


EXPERIMENT = Experiment(
    name=NAME,
    summary="straight lines between inputs, in features and through an autoencoder",
    source="Cha et al., arXiv:2605.06258 (linear interpolation)",
    run=_run,
)
