"""A network at birth, stage by stage: the size of its signals and how alike its tokens are.

What one draw of the weights should show, with the spread between draws: the mean square of the
signal is K + G1/n ± √(V/n), token similarity likewise by the derivative of G_ab/√(G_aa G_bb).
A measured value outside the band is not a matter of chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.data._data import check_inputs
from dynagram.errors import InvalidTypeError
from dynagram.gaussian._four_point import MODES
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Residual
from dynagram.results._table import Grid
from dynagram.theory.chain._fields import PLAIN, keys_of
from dynagram.theory.chain._linear import draw_register
from dynagram.theory.chain._predict import REPLICAS, check_smooth, has_attention, require_memory
from dynagram.theory.chain._run import Runner, Signal, first_signal
from dynagram.theory.chain._state import State


@dataclass(frozen=True)
class Stage:
    """The signal after a block: expected mean square and token similarity, with spreads.

    **Arguments:**

    - `name`: the block, and for a residual block what its branches end with.
    - `width`: channels.
    - `mean_square`, `mean_square_std`: of the channels, averaged over tokens and inputs, and its
        standard deviation between networks.
    - `similarity`, `similarity_std`: the mean of x_a·x_b/|x_a||x_b| over tokens of the same input,
        None where inputs have one token.
    - `error`: the numerical error of the mean square.
    """

    name: str
    width: int
    mean_square: float
    mean_square_std: float
    similarity: float | None
    similarity_std: float | None
    error: float


@dataclass(frozen=True)
class Birth:
    """The stages of a network at initialisation, in order; made by `trace_birth`."""

    network: Chain
    stages: tuple[Stage, ...]

    def summary(self) -> Grid:
        """A row for every stage."""
        rows = []
        for number, stage in enumerate(self.stages, start=1):
            square = f"{stage.mean_square:.4g} ± {stage.mean_square_std:.1g}"
            alike = "–"
            if stage.similarity is not None and stage.similarity_std is not None:
                alike = f"{stage.similarity:.4f} ± {stage.similarity_std:.1g}"
            rows.append((str(number), stage.name, str(stage.width), square, alike))
        headings = ("", "after", "channels", "mean square", "token similarity")
        return Grid(headings, tuple(rows), ("±: standard deviation between networks.",), keys=2)

    def table(self) -> Any:
        """A rich table."""
        return self.summary().rich()

    def to_dict(self) -> dict[str, Any]:
        """The network and its stages, for JSON."""
        stages = [vars(stage).copy() for stage in self.stages]
        return {"network": self.network.to_toml(), "stages": stages}

    def __repr__(self) -> str:
        first, last = self.stages[0].mean_square, self.stages[-1].mean_square
        return f"Birth({len(self.stages)} stages; mean square {first:.4g} → {last:.4g})"

    def _repr_html_(self) -> str:
        return self.summary().html(repr(self))


@float64
def trace_birth(
    network: Chain, x: Any, *, accuracy: float = 1e-3, seed: int = 0, samples: int = 2**12
) -> Birth:
    """What the signals of a network should look like before it has learned anything.

    **Arguments:**

    - `network`: a `Chain`.
    - `x`: inputs, a row each; one or two are enough.
    - `accuracy`: relative error allowed in four-sample averages.
    - `seed`: of quasi-random nodes and sampled heads.
    - `samples`: heads sampled for each attention block, four times.

    **Returns:** `Birth`. Cost as that of `predict` with the letters V and G1.

    >>> from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
    >>> block = Residual([RMSNorm(), Dense(64, C_W=2.0), Activate("relu"), Dense(32)])
    >>> net = Chain([Dense(32), block, block, RMSNorm(), Dense(1)], inputs=3)
    >>> birth = trace_birth(net, np.ones((1, 3)))
    >>> [round(stage.mean_square, 3) for stage in birth.stages]
    [1.0, 2.0, 3.0, 1.0, 1.0]
    """
    if not isinstance(network, Chain):
        raise InvalidTypeError("network", type(network).__name__, "expected a Chain")
    inputs = check_inputs(x, network.input_size)
    check_smooth(network, ("V",))
    require_memory(network, inputs.shape[0], ("V", "G1"))
    runs = REPLICAS if has_attention(network.blocks) else 1
    traces = [_trace(network, inputs, accuracy, seed + 7919 * r, samples) for r in range(runs)]
    stages = []
    for together in zip(*traces, strict=True):
        name, width, _ = together[0]
        numbers = np.array([values for _, _, values in together])
        square, spread, alike, alike_spread = numbers.mean(axis=0)
        error = float(numbers[:, 0].std(ddof=1) / np.sqrt(runs)) if runs > 1 else 0.0
        known = np.isfinite(alike)
        stages.append(
            Stage(
                name, width, float(square), float(spread), float(alike) if known else None,
                float(alike_spread) if known else None, error,
            )
        )  # fmt: skip
    return Birth(network, tuple(stages))


def _trace(
    network: Chain, x: np.ndarray, accuracy: float, seed: int, samples: int
) -> list[tuple[str, int, tuple[float, ...]]]:
    state = State(keys_of(("V", "G1")), MODES)
    runner = Runner(state, x.shape[0], 1, (0,), accuracy, seed, samples)
    signal, blocks = first_signal(runner, network, x)
    rows = []
    if len(blocks) < len(network.blocks):  # an embedding is not a step of the runner
        rows.append((network.blocks[0].kind, signal.shape.channels, _statistics(state, signal, x)))

    def note(block: Block, reached: Signal) -> None:
        rows.append((_name(block), reached.shape.channels, _statistics(state, reached, x)))

    runner.note = note
    runner.run(blocks, signal)
    return rows


def _name(block: Block) -> str:
    if not isinstance(block, Residual):
        return block.kind
    inner = []
    for branch in block.branches:
        kinds = {part.kind for part in branch}
        inner.append(
            "attention" if "attention" in kinds else "gated" if "gated" in kinds else "mlp"
        )
    return f"residual ({' + '.join(inner)})"


def _statistics(state: State, signal: Signal, x: np.ndarray) -> tuple[float, ...]:
    """Mean square and similarity with their standard deviations between networks."""
    number, made = signal.number, None
    if signal.fresh:
        made = draw_register(state, number, signal.shape.channels, centred=False)
        number = made
    register = state.registers[number]
    mean = register.K[0] + register.shift[0][0]
    entry = state.entry(number, number, (PLAIN, PLAIN))
    T = register.indices
    vertex = np.zeros((T * T, T * T)) if entry is None else entry[0].reshape(T * T, T * T)
    if made is not None:
        state.drop(made)
    results: list[float] = []
    for statistic in (_mean_square, _similarity(x.shape[0], signal.shape.positions)):
        value = float(statistic(jnp.asarray(mean)))
        slope = np.asarray(jax.grad(statistic)(jnp.asarray(register.K[0]))).reshape(-1)
        results += [value, float(np.sqrt(max(slope @ vertex @ slope, 0.0)))]
    return tuple(results)


def _mean_square(G: Float[jax.Array, "a a"]) -> jax.Array:
    return jnp.mean(jnp.diagonal(G))


def _similarity(inputs: int, positions: int) -> Any:
    owner = np.repeat(np.arange(inputs), positions)
    pairs = (owner[:, None] == owner[None, :]) & ~np.eye(inputs * positions, dtype=bool)
    count = int(pairs.sum())

    def similarity(G: Float[jax.Array, "a a"]) -> jax.Array:
        if count == 0:
            return jnp.nan * G[0, 0]
        scale = jnp.sqrt(jnp.diagonal(G))
        return jnp.sum(jnp.where(pairs, G / (scale[:, None] * scale[None, :]), 0.0)) / count

    return similarity
