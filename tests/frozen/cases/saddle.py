"""Saddle escape: laws, exact times, blocks, homotopies, one network's forecast."""

import numpy as np

from dynagram import Data, Model, forecast
from dynagram.theory.saddle import (
    BlockNetwork,
    SymmetricNetwork,
    block_escape,
    block_path,
    classify,
    escape_homotopy,
    escape_ratio,
    escape_times,
    fastest_growth,
    reduced_path,
)
from dynagram.theory.saddle._blocks import block_loss
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._surrogate import surrogate_escape
from dynagram.theory.saddle._tasks import LinearTask
from dynagram.training import GradientDescent, Training
from frozen.registry import SUMMED, case

BETAS = (1.0, 0.3)
# Recorded for half the mean over samples of |f − y|², which is half the mean for one output.
HALF_MEAN = Training(GradientDescent(0.025), loss="mean")


@case(["tanh", "relu"], [2, 4], rtol=SUMMED)
def escape(activation, depth):
    network = SymmetricNetwork.balanced(activation, depth=depth, width=100, scale=0.05)
    found = escape_times(network)
    return {"times": [found.leading, found.next_to_leading, found.ode], "K": found.K}


@case(["tanh"], rtol=SUMMED)
def unbalanced_escape(activation):
    network = SymmetricNetwork.balanced(
        activation, depth=4, width=100, scale=0.05, bottleneck=2, rest=0.2
    )
    found = escape_times(network, 0.3)
    path = reduced_path(network, [1.0, 30.0])
    times = [found.leading, found.next_to_leading, found.ode]
    return {"times": times, "path": path.X, "loss": path.loss}


@case(["tanh", "gelu", "relu", "sin", "swish"])
def classes(activation):
    found = classify(activation)
    names = ("offset", "slopes", "q", "a_q", "h", "h_q", "deficit_order")
    numbers = {name: getattr(found, name) for name in names}
    return numbers | {"ratio": escape_ratio(activation, "linear", 4)}


@case(rtol=SUMMED)
def blocks():
    network = BlockNetwork("tanh", depth=3, betas=BETAS, block_size=4, spacing=0.42)
    state = network.aligned(0.05)
    path = block_path(network, state, [5.0, 50.0])
    return {
        "loss": block_loss(network, state),
        "escape": block_escape(network, state, 0.3).time,
        "growth": fastest_growth(network, state).eigenvalue,
        "path": path.loss,
    }


@case(rtol=SUMMED)
def homotopy():
    network = BlockNetwork("tanh", depth=3, betas=BETAS, block_size=4, spacing=0.42)
    found = escape_homotopy(network, network.aligned(0.05), 0.3, nodes=2)
    return {"times": [found.start, found.end], "channels": list(found.channels.values())}


def drawn():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8))
    sizes = (16, 8), (16, 16), (16, 16), (1, 16)
    weights = [0.1 * rng.normal(size=size) * np.sqrt(2 / size[1]) for size in sizes]
    return weights, x, np.tanh(x[:, :1])


@case(["tanh", "relu"], rtol=SUMMED)
def one_forecast(activation):
    weights, x, y = drawn()
    found = forecast(Model.of_matrices(weights, activation), Data(x, y), HALF_MEAN)
    return {
        "step": found.escape_step,
        "interval": found.interval,
        "loss": [0.5 * found.loss, 0.5 * found.escape_loss],
        "layers": [found.r, *found.bottleneck, found.stages],
        "scales": found.scales,
        "nonlinearity": found.nonlinearity,
        "counterfactuals": [c.escape_step for c in found.counterfactuals],
    }


@case(rtol=SUMMED)
def surrogate():
    weights, x, y = drawn()
    found = surrogate_escape(LinearTask.of(x, y), Chain.linear(weights), [0.2, 0.1])
    return {"times": found.times, "growth": found.velocity_growth}
