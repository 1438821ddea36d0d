"""The runs of figure 5: closures of the block flow, stages, paths, the homotopy, and SGD."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.theory.saddle import BlockNetwork, block_escape, block_path, escape_homotopy
from dynagram.theory.saddle._blocks import Quantity
from dynagram.theory.saddle._flow import Coordinates
from dynagram_experiments import Settings
from dynagram_experiments.saddle._sgd import (
    coordinate_loss,
    crossing,
    descend,
    population_descent,
    stacked,
    widened,
)

BETAS, EPSILON, THRESHOLD = (1.0, 0.3, 0.08), 0.05, 0.3
BLOCK, INPUTS, BATCH = 20, 16, 4096
CLOSURES: list[tuple[int, ...]] = [
    c for n in range(4) for c in itertools.combinations((1, 2, 3), n)
]
# Parts of the loss at its start, and modes of which half of the cubic part is learned.
LOSS_STAGES, CUBIC_STAGES = (0.9, 0.5, 0.1, 0.02, 0.01), (1, 2)
RECORDS = 1200
PATHS = {"exact block flow": (1, 2, 3), "decoupled flow": ()}


def block_network(spacing: float) -> BlockNetwork:
    return BlockNetwork("tanh", depth=4, betas=BETAS, block_size=BLOCK, spacing=spacing)


def fine_network(full: bool) -> BlockNetwork:
    return block_network(0.33 if full else 0.42)


def makers(settings: Settings) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is computed, part by part."""
    fine, coarse = fine_network(settings.full), block_network(0.6)
    start = fine.aligned(EPSILON)

    def closure(layers: tuple[int, ...]) -> dict[str, Any]:
        return {"time": float(block_escape(fine.closed(layers), start, THRESHOLD).time)}

    def path(layers: tuple[int, ...]) -> dict[str, Any]:
        moments = np.linspace(0.0, 300.0, 601)
        network = coarse if layers == (1, 2, 3) else coarse.closed(layers)
        line = block_path(network, start, moments, rtol=1e-8)
        return {"times": line.times, "loss": line.loss, "linear": line.linear, "cubic": line.cubic}

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        closure_name(layers): lambda layers=layers: closure(layers) for layers in CLOSURES
    }
    parts["stages"] = lambda: stages(fine)
    parts["homotopy"] = lambda: homotopy(fine if settings.full else coarse, settings.full)
    parts |= {name: lambda layers=layers: path(layers) for name, layers in PATHS.items()}
    parts["SGD"] = lambda: sgd(settings, coarse)
    return parts


def closure_name(layers: tuple[int, ...]) -> str:
    """W1+W3 where the off-block entries of these layers move; "decoupled" where none does."""
    return "+".join(f"W{layer}" for layer in layers) or "decoupled"


def stages(network: BlockNetwork) -> dict[str, Any]:
    """When parts of the loss are left, and when halves of the modes are learned."""
    start = network.aligned(EPSILON)

    def escapes(quantity: Quantity, level: float, modes: tuple[int, ...]) -> list[float]:
        found = (block_escape(network, start, level, quantity=quantity, mode=m) for m in modes)
        return [float(escape.time) for escape in found]

    # For an odd activation the decoupled flow is one single-mode flow per block.
    alone = [
        BlockNetwork("tanh", depth=4, betas=(beta,), block_size=BLOCK, spacing=0.33)
        for beta in BETAS
    ]
    return {
        "halves": escapes("linear", 0.5, (1, 2, 3)),
        "cubic": escapes("cubic", 0.5, CUBIC_STAGES),
        "loss": [
            float(block_escape(network, start, part, quantity="loss").time) for part in LOSS_STAGES
        ],
        "decoupled_halves": [
            float(block_escape(one, one.aligned(EPSILON), 0.5, quantity="linear").time)
            for one in alone
        ],
    }


def homotopy(network: BlockNetwork, full: bool) -> dict[str, Any]:
    """The shift of the escape time from the decoupled to the exact flow, channel by channel."""
    start = fine_network(full).aligned(EPSILON)
    line = escape_homotopy(network, start, THRESHOLD, nodes=6 if full else 4)
    return {
        "start": line.start,
        "end": line.end,
        "shift": line.shift,
        "channels": list(line.channels.values()),
        "normalisation": line.normalisation,
        "nodes": line.nodes.size,
    }


def sgd(settings: Settings, network: BlockNetwork) -> dict[str, Any]:
    """SGD on the 30 coordinates with all input components, and the same steps without noise."""
    eta, seeds = (0.1, 5) if settings.full else (0.4, 4)
    step = eta / BLOCK
    steps = round((750.0 if settings.full else 120.0) / step)
    between = steps // RECORDS
    loss = coordinate_loss(network.activation, BETAS, BLOCK)
    start = stacked([widened(network.aligned(EPSILON), INPUTS)])
    rates = jax.tree.map(lambda part: jnp.full_like(part, step), start)
    x = jax.random.normal(jax.random.key(321), (8_192, INPUTS))

    def observe(state: Coordinates) -> dict[str, Array]:
        return {"X": jnp.diagonal(state.A1[:, :3]), "loss": loss(state, x)}

    recorded = descend(
        loss, observe, start, rates,
        seeds=[settings.seed + index for index in range(seeds)],
        batch=BATCH, inputs=INPUTS, between=between, records=RECORDS,
    )  # fmt: skip
    times = recorded.steps * step
    still = math.ceil(60.0 / step / between)  # without noise, until after the escape
    quiet = population_descent(
        network.activation, network.problem(), network.aligned(EPSILON), step, between, still
    )
    along = np.asarray(quiet.A1)[:, :1, 0]
    return {
        "eta": eta,
        "steps": steps,
        "times": times,
        "X": recorded.values["X"][:, :, 0],
        "loss": recorded.values["loss"][:, :, 0],
        "expected": float(crossing(times[: still + 1], along, THRESHOLD)[0]),
    }
