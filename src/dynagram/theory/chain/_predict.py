"""All tensors of a network of blocks, from the chain of its derivative fields."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynagram.gaussian._four_point import MODES
from dynagram.networks._chain import Chain
from dynagram.theory.chain._fields import LETTER_FIELDS, keys_of
from dynagram.theory.chain._linear import kernel_sizes
from dynagram.theory.chain._run import Runner, first_signal
from dynagram.theory.chain._state import State


def chain_tensors(
    network: Chain, x: np.ndarray, letters: Sequence[str], *, accuracy: float = 1e-4, seed: int = 0
) -> dict[str, np.ndarray]:
    """The letters of the output, modes first; tensors of order 1/n multiply 1/width."""
    keys = keys_of(letters)
    shifts = (0, 1) if "H1" in letters else (0,) if "G1" in letters else ()
    least = 2 if {"Theta", "H1"} & set(letters) else 1
    sizes = kernel_sizes(keys, least)
    state = State(keys, MODES)
    runner = Runner(state, x.shape[0], sizes, shifts, accuracy, seed)
    signal, blocks = first_signal(runner, network, x)
    output = runner.run(blocks, signal)
    register, width = state.registers[output.number], network.width
    indices = register.indices
    found: dict[str, np.ndarray] = {}
    for letter in letters:
        if letter in ("K", "Theta"):
            found[letter] = np.zeros((MODES, indices, indices))
            found[letter][0] = register.K[int(letter == "Theta")]
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
