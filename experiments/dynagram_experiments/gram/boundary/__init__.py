"""Where kernel learning ends and feature learning begins: a map over width and scale.

tanh networks with two hidden layers, He-normal weights times ε, trained by full-batch descent until
the loss is a fifth of its start. How much their own tangent kernel turns on the way, 1 − the cosine
of the two kernels, says how far they are from a kernel method.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram._precision import float64
from dynagram.networks import Model
from dynagram.observables.tangents import ntk
from dynagram.results import Estimate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible

NAME = "gram-boundary"
WIDTHS = (16, 64, 256)
SCALES = (0.05, 0.1, 0.2, 0.4, 0.8, 2.4)
SATURATED = 2.4  # units of tanh leave their linear part: another reason for a kernel to turn
SEEDS, SAMPLES, INPUTS = 3, 48, 8
FALL, MOST = 0.2, 40_000
LEVEL = 0.1  # the kernel has turned by so much: the boundary of the map


def _run(settings: Settings) -> Result:
    seeds = 4 * SEEDS if settings.full else SEEDS
    makers = {
        f"width {width}, scale {scale:g}": functools.partial(
            _cell, width, scale, settings.seed, seeds
        )
        for width in WIDTHS
        for scale in SCALES
    }
    table = Table.joined(finish_parts(settings, NAME, makers, {"fall": FALL}).values())
    return Result(
        _statements(table),
        {"boundary": table.columns()},
        draw_if_possible(lambda: _figures(table)),
        (
            f"{seeds} networks a cell; {SAMPLES} inputs in {INPUTS} dimensions, target "
            "tanh(x_1) + x_2 x_3/2; loss down to a fifth of its start. Turn of the kernel: "
            + "; ".join(f"width {n}: {_told(table, n)}" for n in WIDTHS)
            + f" at scales {', '.join(f'{s:g}' for s in SCALES)}.",
        ),
    )


@float64
def _cell(width: int, scale: float, seed: int, seeds: int) -> Table:
    rows = []
    for index in range(seeds):
        rng = np.random.default_rng([seed, width, round(100 * scale), index])
        sizes = [INPUTS, width, width, 1]
        weights = [
            scale * rng.normal(size=(n, m)) * math.sqrt(2.0 / m)
            for m, n in itertools.pairwise(sizes)
        ]
        x = rng.normal(size=(SAMPLES, INPUTS))
        y = np.tanh(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
        before = _kernel(weights, x)
        # Half of the largest stable step of the kernel at the start, and not above 0.05: a small
        # network's kernel grows as it leaves its plateau.
        rate = min(0.05, SAMPLES / float(np.linalg.eigvalsh(before)[-1]))
        ended, steps, loss = _train(weights, x, y, rate)
        after = _kernel(ended, x)
        cosine = np.sum(before * after) / np.linalg.norm(before) / np.linalg.norm(after)
        rows.append(
            {
                "width": width,
                "scale": scale,
                "seed": index,
                "turn": 1.0 - float(cosine),
                "growth": float(np.trace(after) / np.trace(before)),
                "steps": steps,
                "loss": loss,
            }
        )
    return Table.of_rows(rows)


def _kernel(weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    return np.asarray(ntk(Model.of_matrices(weights, "tanh"), x))[:, :, 0, 0]


def _train(
    weights: list[np.ndarray], x: np.ndarray, y: np.ndarray, rate: float
) -> tuple[list[np.ndarray], int, float]:
    """Descent on ½ mean (f − y)² until it has fallen to FALL of its start."""
    arrays = [jnp.asarray(W) for W in weights]
    inputs, targets = jnp.asarray(x), jnp.asarray(y)
    level = FALL * float(_loss(arrays, inputs, targets))
    ended, steps, loss = _descend(arrays, inputs, targets, rate, level)
    return [np.asarray(W) for W in ended], int(steps), float(loss) / level * FALL


def _loss(weights: list[Array], x: Array, y: Array) -> Array:
    h = x
    for W in weights[:-1]:
        h = jnp.tanh(h @ W.T)
    return 0.5 * jnp.mean((h @ weights[-1].T - y) ** 2)


@jax.jit
def _descend(weights: list[Array], x: Array, y: Array, rate: Array, level: Array) -> Any:
    def goes_on(carry: Any) -> Array:
        return (carry[2] > level) & (carry[1] < MOST)

    def advance(carry: Any) -> Any:
        loss, slopes = jax.value_and_grad(_loss)(carry[0], x, y)
        return [W - rate * g for W, g in zip(carry[0], slopes, strict=True)], carry[1] + 1, loss

    return jax.lax.while_loop(goes_on, advance, (weights, 0, jnp.asarray(jnp.inf)))


def _mean(table: Table, width: int, scale: float, name: str = "turn") -> Estimate:
    return table.mean(name, width=width, scale=scale)


def _told(table: Table, width: int) -> str:
    return ", ".join(f"{_mean(table, width, scale):.3f}" for scale in SCALES)


def _boundary(table: Table, width: int) -> float:
    """The scale at which the turn falls to LEVEL; 0 where it is below it on the whole map."""
    turns = [float(_mean(table, width, scale).value) for scale in SCALES[:-1]]
    if max(turns) < LEVEL:
        return 0.0
    pairs = zip(itertools.pairwise(SCALES[:-1]), itertools.pairwise(turns), strict=True)
    for (low, high), (above, below) in pairs:
        if above >= LEVEL > below:
            share = math.log(above / LEVEL) / math.log(above / below)
            return low * (high / low) ** share
    return math.inf


def _statements(table: Table) -> tuple[Statement, ...]:
    by_width = [
        all(
            _mean(table, wide, scale).value < _mean(table, narrow, scale).value
            for narrow, wide in itertools.pairwise(WIDTHS)
        )
        for scale in SCALES
    ]
    falls = [
        Estimate.of_samples(
            table.each("turn", width=width, scale=SCALES[0])
            - table.each("turn", width=width, scale=SCALES[-2])
        )
        for width in WIDTHS
    ]
    saturated = [
        Estimate.of_samples(
            table.each("turn", width=width, scale=SATURATED)
            - table.each("turn", width=width, scale=SCALES[-2])
        )
        for width in WIDTHS
    ]
    edges = [_boundary(table, width) for width in WIDTHS]
    losses = table["loss"]
    return (
        Statement(
            "All networks were trained as far: loss at most a fifth of its start",
            bool(losses.max() <= FALL),
            f"largest {losses.max():.3f} of the start, {table['steps'].max():.0f} steps at most",
        ),
        Statement(
            "At every scale the kernel turns less the wider the network",
            all(by_width),
            f"at {sum(by_width)} of {len(SCALES)} scales; narrowest to widest at ε = "
            f"{SCALES[0]:g}: " + ", ".join(f"{_mean(table, n, SCALES[0]):.3f}" for n in WIDTHS),
        ),
        Statement(
            "At every width the kernel turns less for large weights than for small ones: at "
            f"ε = {SCALES[-2]:g} below ε = {SCALES[0]:g}, by 2 standard errors",
            all(bool(fall.value > 2 * fall.standard_error) for fall in falls),
            "differences " + ", ".join(f"{fall:.3f}" for fall in falls),
        ),
        Statement(
            f"Beyond, units saturate and it turns more again: at ε = {SATURATED:g} above "
            f"{SCALES[-2]:g}, at every width",
            all(difference.value > 0 for difference in saturated),
            "differences " + ", ".join(f"{difference:.4f}" for difference in saturated),
        ),
        Statement(
            f"The boundary, a turn of {LEVEL:g}, moves to smaller scales with width",
            bool(np.all(np.diff(edges) < 0)),
            ", ".join(
                f"width {n}: ε {f'= {e:.2f}' if e else f'below {SCALES[0]:g}'}"
                for n, e in zip(WIDTHS, edges, strict=True)
            ),
        ),
    )


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    lines = {
        f"width {width}": Line.through({s: _mean(table, width, s) for s in SCALES})
        for width in WIDTHS
    }
    y = Axis("turn of the kernel, 1 − cosine", "log")
    return {"boundary": line_chart(lines, Axis("scale ε of the weights", "log"), y)}


EXPERIMENT = Experiment(
    name=NAME,
    summary="the boundary of kernel and feature learning, over width and scale",
    source="Cha et al., arXiv:2605.06258 (future work)",
    run=_run,
)
