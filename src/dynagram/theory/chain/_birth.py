"""A network at birth, stage by stage: the size of its signals and gradients, how alike tokens are.

What one draw of the weights should show, with the spread between draws: the mean square of the
signal is K + G1/n ± √(V/n), token similarity likewise by the derivative of G_ab/√(G_aa G_bb), the
squared gradient of a block Θ ± √((A + 2B)/n) with the rates of that block alone. A measured value
outside the band is not a matter of chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.data._data import check_inputs
from dynagram.errors import InvalidTypeError
from dynagram.gaussian._four_point import MODES
from dynagram.networks._chain import Chain
from dynagram.networks._checks import checked_integer
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Residual
from dynagram.results._table import Grid, short
from dynagram.theory.chain._backward import squared_gradients
from dynagram.theory.chain._fields import PLAIN, keys_of
from dynagram.theory.chain._gradient_bands import ROUNDING, gradient_band
from dynagram.theory.chain._linear import draw_register
from dynagram.theory.chain._predict import check_smooth, has_attention, require_memory
from dynagram.theory.chain._run import Runner, Signal, first_signal
from dynagram.theory.chain._state import State

Gram = Float[np.ndarray, "_ _"]
RUNS = 2  # with other samples of the heads: bands need no more digits


@dataclass(frozen=True)
class Stage:
    """The signal after a block and the gradient in it: expected values, with spreads.

    Gradients are those of f = Σ_a ε_a z_a, one output z at every (input, position) a of the end.

    **Arguments:**

    - `name`: the block, and for a residual block what its branches end with.
    - `width`: channels.
    - `mean_square`, `mean_square_std`: of the channels, averaged over tokens and inputs, and its
        standard deviation between networks.
    - `similarity`, `similarity_std`: the mean of x_a·x_b/|x_a||x_b| over tokens of the same input,
        None where inputs have one token.
    - `error`: the numerical error of the mean square.
    - `backward`: |∂f/∂x_a|² of the signal, averaged over tokens and inputs, at infinite width.
    - `weights`: ‖∂f/∂W‖² of the arrays of parameters of the block by name, at infinite width; W1,
        W2, … are the matrices of a branch in order.
    - `gradient`: the sum of `weights`, ‖∂f/∂θ‖² over all parameters θ of the block.
    - `gradient_std`: its standard deviation between networks, None where it was not asked for.
    """

    name: str
    width: int
    mean_square: float
    mean_square_std: float
    similarity: float | None
    similarity_std: float | None
    error: float
    backward: float
    weights: dict[str, float]
    gradient: float
    gradient_std: float | None = None


@dataclass(frozen=True)
class Birth:
    """The stages of a network at initialisation, in order; made by `trace_birth`."""

    network: Chain
    stages: tuple[Stage, ...]

    def summary(self) -> Grid:
        """A row for every stage."""
        rows = []
        for number, stage in enumerate(self.stages, start=1):
            square = f"{stage.mean_square:.4g} ± {short(stage.mean_square_std, 2)}"
            alike = "–"
            if stage.similarity is not None and stage.similarity_std is not None:
                alike = f"{stage.similarity:.4f} ± {short(stage.similarity_std, 2)}"
            spread = "" if stage.gradient_std is None else f" ± {short(stage.gradient_std, 2)}"
            gradient = f"{stage.gradient:.4g}{spread}" if stage.weights else "–"
            rows.append((str(number), stage.name, str(stage.width), square, alike, gradient))
        headings = (
            "", "after", "channels", "mean square", "token similarity", "squared gradient",
        )  # fmt: skip
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
    network: Chain,
    x: Any,
    *,
    signals: Any = None,
    bands: Sequence[int] = (),
    accuracy: float = 1e-3,
    seed: int = 0,
    samples: int = 2**10,
) -> Birth:
    """What signals and gradients of a network should look like before it has learned anything.

    **Arguments:**

    - `network`: a `Chain`.
    - `x`: inputs, a row each; one or two are enough.
    - `signals`: ε of f = Σ_a ε_a z_a, whose gradients are meant, one for every (input, position) of
        the output; by default f is the mean of one output over them.
    - `bands`: numbers of the blocks, from 0, whose gradients get their spread between networks.
    - `accuracy`: relative error allowed in four-sample averages.
    - `seed`: of quasi-random nodes and sampled heads.
    - `samples`: heads sampled for each attention block, twice.

    **Returns:** `Birth`. Cost as that of `predict` with the letters V and G1, and for every block
    in `bands` once more that of A and B: a second a block and layer with attention, else a tenth.

    >>> from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
    >>> block = Residual([RMSNorm(), Dense(64, C_W=2.0), Activate("relu"), Dense(32)])
    >>> net = Chain([Dense(32), block, block, RMSNorm(), Dense(1)], inputs=3)
    >>> birth = trace_birth(net, np.ones((1, 3)))
    >>> [round(stage.mean_square, 3) for stage in birth.stages]
    [1.0, 2.0, 3.0, 1.0, 1.0]
    >>> {name: round(square, 3) for name, square in birth.stages[1].weights.items()}
    {'W2': 32.0, 'W1': 8.0}
    """
    if not isinstance(network, Chain):
        raise InvalidTypeError("network", type(network).__name__, "expected a Chain")
    inputs = check_inputs(x, network.input_size)
    check_smooth(network, ("V",))
    require_memory(network, inputs.shape[0], ("V", "G1"))
    error_signals = _checked_signals(signals, inputs.shape[0] * network.positions)
    for index in bands:
        checked_integer("bands", index, 0, len(network.blocks) - 1)
    runs = RUNS if has_attention(network.blocks) else 1
    traces = [_trace(network, inputs, accuracy, seed + 7919 * r, samples) for r in range(runs)]
    back = squared_gradients(network, inputs, error_signals, seed=seed, samples=runs * samples)
    spreads = {
        index: gradient_band(
            network, inputs, error_signals, index, accuracy=accuracy, seed=seed, samples=samples
        ).std
        for index in bands
    }
    stages = []
    for index, together in enumerate(zip(*traces, strict=True)):
        name, width, _ = together[0]
        numbers = np.array([values for _, _, values in together])
        square, spread, alike, alike_spread = numbers.mean(axis=0)
        error = float(numbers[:, 0].std(ddof=1) / np.sqrt(runs)) if runs > 1 else 0.0
        known, weights = np.isfinite(alike), back.weights[index]
        stages.append(
            Stage(
                name, width, float(square), float(spread), float(alike) if known else None,
                float(alike_spread) if known else None, error, back.signals[index], weights,
                float(sum(weights.values())), spreads.get(index),
            )
        )  # fmt: skip
    return Birth(network, tuple(stages))


def _checked_signals(signals: Any, count: int) -> Float[np.ndarray, " a"]:
    """ε for every index of the output; by default those of the mean."""
    if signals is None:
        return np.full(count, 1.0 / count)
    checked = check_inputs(np.reshape(np.asarray(signals, dtype=np.float64), (1, -1)), count)
    return checked[0]


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
    same_input = np.kron(np.eye(x.shape[0]), np.ones((signal.shape.positions,) * 2))
    results: list[float] = []
    for statistic in (_mean_square, _similarity):
        value, _ = statistic(mean, same_input)
        _, slope = statistic(register.K[0], same_input)
        spread = np.sqrt(max(slope.reshape(-1) @ vertex @ slope.reshape(-1), 0.0))
        results += [value, 0.0 if spread < ROUNDING * abs(value) else float(spread)]
    return tuple(results)


def similarity_of(G: Gram, inputs: int) -> float:
    """The mean of G_ab/√(G_aa G_bb) over tokens a ≠ b of one input; nan where there is one token.

    >>> similarity_of(np.array([[4.0, 1.0], [1.0, 1.0]]), 1)
    0.5
    """
    positions = G.shape[0] // inputs
    value, _ = _similarity(G, np.kron(np.eye(inputs), np.ones((positions, positions))))
    return value


def _mean_square(G: Gram, same_input: Gram) -> tuple[float, Gram]:
    """The mean of the diagonal, and its derivative in G."""
    del same_input
    return float(np.mean(np.diagonal(G))), np.eye(G.shape[0]) / G.shape[0]


def _similarity(G: Gram, same_input: Gram) -> tuple[float, Gram]:
    """The mean of G_ab/√(G_aa G_bb) over tokens a ≠ b of one input, and its derivative in G."""
    pairs = same_input * (1.0 - np.eye(G.shape[0]))
    if not np.any(pairs):
        return float("nan"), np.zeros_like(G)
    length = np.sqrt(np.diagonal(G))
    share = pairs / (pairs.sum() * np.outer(length, length))
    slope = share - np.diag(np.sum(share * G, axis=1) / np.diagonal(G))
    return float(np.sum(share * G)), slope
