"""The tensors of a network of blocks, from the chain of its derivative fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._four_point import MODES
from dynagram.gaussian._rounding import is_steep, other_rules, scatter
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Blocks, Residual, every_block
from dynagram.networks.blocks._nonlinear import Activate, Gated
from dynagram.results._letters import INFINITE, LETTERS, RECURSIVE, check_letters
from dynagram.results._next_order import entry_share, judge_entries, left_out
from dynagram.results._regime import Judge, Regime
from dynagram.results._tensors import Tensors
from dynagram.theory.chain._attention import require_room
from dynagram.theory.chain._fields import LETTER_FIELDS, keys_of
from dynagram.theory.chain._kernels import chain_kernels
from dynagram.theory.chain._linear import kernel_sizes
from dynagram.theory.chain._run import Runner, first_signal
from dynagram.theory.chain._state import State

TENSORS = (*INFINITE, *RECURSIVE)
HEAD_SAMPLES = 2**14
REPLICAS = 4  # runs with other samples of the heads, whose spread is the numerical error
_MAX_BYTES = 8 * 1024**3


@dataclass(frozen=True)
class ChainTensors:
    """Letters of the output, and their numerical errors."""

    values: dict[str, Float[np.ndarray, "..."]]
    errors: dict[str, Float[np.ndarray, "..."]]


def predict_chain(
    network: Chain,
    inputs: Float[np.ndarray, "samples n_0"],
    tensors: Sequence[str],
    *,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> Tensors:
    """`dynagram.predict` for a network of blocks: the tensors of its output."""
    letters = check_letters(tensors, TENSORS)
    check_smooth(network, letters)
    wanted = tuple(dict.fromkeys((*letters, "K")))
    order = "1/n" if set(letters) - set(INFINITE) else "∞"
    if order == "∞":
        found = _infinite_tensors(network, inputs, seed)
    else:
        found = chain_tensors(network, inputs, wanted, accuracy=accuracy, seed=seed)
    regime = _regime(network, found, order)
    layers = dict.fromkeys(letters, (network.depth,))
    values = {name: found.values[name][None] for name in letters}
    errors = {name: found.errors[name][None] for name in letters if name in found.errors}
    about = {"accuracy": accuracy, "nodes_seed": seed}
    return Tensors(network, inputs, order, values, errors, layers, regime, about=about)


def _infinite_tensors(network: Chain, x: np.ndarray, seed: int) -> ChainTensors:
    made = chain_kernels(network, x, seed=seed)
    errors = {"K": made.K_error, "Theta": made.Theta_error}
    known = {letter: error for letter, error in errors.items() if error is not None}
    others = [chain_kernels(*way, seed=seed) for way in _other_ways(network, x)]
    for letter in INFINITE if others else ():
        modes = scatter(getattr(made, letter), [getattr(other, letter) for other in others])
        if letter in known:  # of sampled heads
            modes.append(known[letter])
        known[letter] = np.sqrt(np.sum(np.square(modes), axis=0))
    return ChainTensors({"K": made.K, "Theta": made.Theta}, known)


def chain_tensors(
    network: Chain,
    x: Float[np.ndarray, "samples n_0"],
    letters: Sequence[str],
    *,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> ChainTensors:
    """The letters of the output for all (sample, position); those of order 1/n multiply 1/width.

    Cost per block: the entries of the vertex that the letters need, each T⁴ numbers for T =
    samples × positions, times the terms of its recursion; four-sample averages as in `FourPoint`.
    Attention: 2¹⁴ to 2¹⁷ sampled heads, four times, T⁵ operations each: V of 12 tokens takes a
    minute.
    """
    modes = chain_modes(network, x, letters, accuracy=accuracy, seed=seed)
    inexact = has_attention(network.blocks) or _has_steep(network)
    exact = () if inexact else INFINITE
    return ChainTensors(
        {letter: made[0] for letter, made in modes.items()},
        {
            letter: np.sqrt((made[1:] ** 2).sum(axis=0))
            for letter, made in modes.items()
            if letter not in exact
        },
    )


def chain_modes(
    network: Chain,
    x: Float[np.ndarray, "samples n_0"],
    letters: Sequence[str],
    *,
    accuracy: float = 1e-4,
    seed: int = 0,
    samples: int = HEAD_SAMPLES,
    replicas: int = REPLICAS,
) -> dict[str, Float[np.ndarray, "mode ..."]]:
    """The letters with their modes: the value, then deviations whose squares add up to its error.

    Of steep activations two more, from runs by other rules (D7.21). With attention the chain is run
    `replicas` times with `samples` other heads, and the deviations are those of the runs from their
    mean.
    """
    require_memory(network, x.shape[0], letters)
    if not has_attention(network.blocks):
        made = _run(network, x, letters, accuracy, seed, samples)
        others = [_run(*way, letters, accuracy, seed, samples) for way in _other_ways(network, x)]
        if not others:
            return made
        return {
            letter: np.concatenate(
                [modes, *scatter(modes[:1], [other[letter][:1] for other in others])]
            )
            for letter, modes in made.items()
        }
    runs = [_run(network, x, letters, accuracy, seed + 7919 * r, samples) for r in range(replicas)]
    modes = {}
    for letter in letters:
        every = np.stack([run[letter] for run in runs])
        mean = every.mean(axis=0)
        spread = (every[:, 0] - mean[0]) / np.sqrt(replicas * (replicas - 1))
        modes[letter] = np.concatenate([mean, spread])
    return modes


def _other_ways(network: Chain, x: np.ndarray) -> list[tuple[Chain, np.ndarray]]:
    """The same network with its steep activations averaged by other rules; none without any.

    Inputs are moved a little, so that K of the first layer is rounded differently.
    """
    if not _has_steep(network):
        return []
    eps = float(np.finfo(np.float64).eps)
    return [
        (replace(network, blocks=_by_other_rule(network.blocks, rule)), x * (1.0 + move * eps))
        for rule, move in enumerate((1.0, -1.0))
    ]


def _has_steep(network: Chain) -> bool:
    return any(
        is_steep(block.activation)
        for block in every_block(network.blocks)
        if isinstance(block, Activate | Gated)
    )


def _by_other_rule(blocks: Blocks, rule: int) -> Blocks:
    changed: list[Block] = []
    for block in blocks:
        if isinstance(block, Residual):
            branches = [_by_other_rule(branch, rule) for branch in block.branches]
            block = replace(block, branches=branches)
        elif isinstance(block, Activate | Gated) and is_steep(block.activation):
            block = replace(block, activation=other_rules(block.activation)[rule])
        changed.append(block)
    return tuple(changed)


def _run(
    network: Chain,
    x: np.ndarray,
    letters: Sequence[str],
    accuracy: float,
    seed: int,
    samples: int,
) -> dict[str, np.ndarray]:
    """The letters of one run through the blocks, modes first."""
    keys = keys_of(letters)
    shifts = (0, 1) if "H1" in letters else (0,) if "G1" in letters else ()
    sizes = kernel_sizes(keys, 2 if {"Theta", "H1"} & set(letters) else 1)
    state = State(keys, MODES)
    runner = Runner(state, x.shape[0], sizes, shifts, accuracy, seed, samples)
    signal, blocks = first_signal(runner, network, x)
    output = runner.run(blocks, signal)
    register, width = state.registers[output.number], network.width
    indices = register.indices
    found: dict[str, np.ndarray] = {}
    for letter in letters:
        if letter in INFINITE:
            found[letter] = np.zeros((MODES, indices, indices))
            found[letter][0] = register.K[INFINITE.index(letter)]
        elif letter in ("G1", "H1"):
            found[letter] = width * register.shift[int(letter == "H1")]
        else:
            key, axes = LETTER_FIELDS[letter]
            entry = state.entry(output.number, output.number, key)
            if entry is None:
                entry = np.zeros((MODES, *[indices] * 4))
            order = (0, *(1 + axes.index(str(i)) for i in range(4)))
            found[letter] = width * np.transpose(entry, order)
    return found


def has_attention(blocks: Blocks) -> bool:
    """Whether heads must be sampled."""
    return any(isinstance(block, Attention) for block in every_block(blocks))


def check_smooth(network: Chain, letters: Sequence[str]) -> None:
    """Refuse letters that need derivatives which an activation does not have."""
    rough = [name for name in letters if LETTERS[name].derivatives > 1]
    for sigma in network.activations():
        if sigma.jumps and set(letters) - {"K"}:
            allowed = f"{sigma.name} jumps, so σ' is a delta: K alone is known here"
            raise InvalidValueError("tensors", ",".join(letters), allowed)
        if rough and not sigma.is_smooth:
            what = "σ'' is a delta" if sigma.derivatives < 2 else "σ'' jumps, which only MLPs take"
            allowed = f"{sigma.name} has a kink: {what}; use a smooth activation"
            raise InvalidValueError("tensors", ",".join(rough), allowed)


def require_memory(network: Chain, samples: int, letters: Sequence[str]) -> None:
    """Refuse what would not fit: T⁴ numbers for every entry, nine modes, a few registers.

    Heads take T⁵ for each of their samples: more tokens than that allows are refused too.
    """
    positions, shape = 1, network.in_shape
    for block in network.blocks:
        positions = max(positions, shape.positions)
        if has_attention((block,)):
            require_room(samples * shape.positions)
        shape = block.out_shape(shape)
    entries = len(keys_of(letters))
    T = samples * positions
    needed = 8.0 * (6 * MODES * entries * T**4 if entries else 12 * T**2)
    if needed > _MAX_BYTES:
        most = (_MAX_BYTES / 96) ** 0.5
        if entries:
            most = (_MAX_BYTES / (48 * MODES * entries)) ** 0.25
        allowed = (
            f"{','.join(letters)} would need {needed / 1024**3:.0f} GiB; at most {int(most)} "
            f"samples times positions, and this network has {positions} positions"
        )
        raise InvalidValueError("number of samples", samples, allowed)


def _regime(network: Chain, found: ChainTensors, order: str) -> Regime:
    judge = Judge()
    K = np.diagonal(found.values["K"])
    for name, error in found.errors.items():
        scale = float(np.max(np.abs(found.values[name]), initial=0.0))
        relative = float(np.max(error, initial=0.0)) / scale if scale > 0 else 0.0
        judge.measure(
            f"numerical_error_of_{name}", relative, 1e-2, 0.3,
            f"the averages behind {name} carry an error of {{value:.1g}} of its largest entry",
        )  # fmt: skip
    if "V" in found.values:
        alive = K > 0
        variance = np.einsum("aaaa->a", found.values["V"])[alive] / (network.width * K[alive] ** 2)
        largest = float(np.max(variance, initial=0.0))
        judge.numbers["relative_variance"] = largest
        # Exactly scale-invariant networks have (e^{x} − 1): the next order is x/2 of this one.
        judge.measure(
            "next_order_of_V", 0.5 * largest, 0.1, 0.5,
            "the next order changes V by about {value:.2g} of itself at the output: the network is "
            "too deep for its width; simulate, or widen it",
        )  # fmt: skip
        V = found.values["V"]
        judge.numbers["entry_share_of_V"] = entry_share(V, found.values["K"], network.width)
        judge_entries(judge, "V", V, left_out("V", V, None, network.width, judge.numbers))
    good = {
        "∞": "infinite-width result; ask for V to see the size of the 1/n corrections",
        "1/n": "the next order in 1/n is small against the order kept",
    }[order]
    return judge.regime(order, good)
