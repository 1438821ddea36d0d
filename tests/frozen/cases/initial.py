"""Tensors of networks at initialisation: K, Θ, V, G1, H1, A to U, next order, with skips."""

import numpy as np

from dynagram import MLP, predict
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._next_order import next_order
from dynagram.theory.skips import residual_critical, residual_flow, vertex_slope
from frozen.cases.samples import X, plain
from frozen.registry import case

INFINITE = ("K", "Theta")
SMOOTH = ("V", "G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
KINKED = ("V", "G1", "H1", "A", "B", "D", "F")
SKIPS = [0.5, 0.8]


def residual(activation):
    return MLP(
        [4, 16, 16, 16, 2],
        activation,
        [0.11, 0.07, 0.05, 0.13],
        [1.3, 0.8, 0.6, 0.9],
        skip=SKIPS,
        lambda_b=[0.8, 1.2, 0.6, 0.9],
        lambda_W=[1.1, 0.7, 1.3, 1.0],
    )


@case(["tanh", "gelu", "relu", "swish", "sin", "erf", "leaky_relu"])
def kernels(activation):
    result = frozen_kernels(plain(activation), X)
    return {"K": result.K, "Theta": result.Theta}


@case(["tanh", "gelu", "relu"], [1, 2, 3])
def tensors(activation, samples):
    letters = KINKED if activation == "relu" else SMOOTH
    result = predict(plain(activation), X[:samples], (*INFINITE, *letters))
    return {name: result[name][-1] for name in (*INFINITE, *letters)}


@case(["tanh", "relu"])
def errors_and_regime(activation):
    result = predict(plain(activation), X, ("V", "G1", "A"))
    errors = {f"error of {name}": result.errors[name][-1] for name in ("V", "G1", "A")}
    return errors | {f"regime {name}": value for name, value in result.regime.numbers.items()}


@case()
def next_orders():
    result = next_order(plain("tanh"), X[:2])
    numbers = {name: getattr(result, name)[-1] for name in ("K", "G1", "G2", "V", "V1")}
    return numbers | {"U": result.six_point[-1]}


@case(["tanh", "gelu", "relu"])
def skip_kernels(activation):
    result = frozen_kernels(residual(activation), X)
    return {"K": result.K, "Theta": result.Theta}


@case(["tanh", "relu"], ["corrected", "published"], [1, 2])
def skip_tensors(activation, vertex, samples):
    letters = ("K", "V", "G1") if vertex == "corrected" else ("K", "V")
    result = predict(residual(activation), X[:samples], letters, vertex=vertex)
    return {name: result[name][-1] for name in letters}


@case(["tanh", "gelu", "relu"])
def skip_critical(activation):
    point = residual_critical(activation, 0.6)
    slopes = [vertex_slope(activation, 0.6, vertex=v) for v in ("corrected", "published")]
    return {"point": [point.C_b, point.C_W, point.K_star], "vertex slope": slopes}


@case(["tanh", "relu"], ["corrected", "published"])
def skip_flow(activation, vertex):
    C_W = 2 * 0.64 if activation == "relu" else 0.64
    # The blocks alone: the recorded flow had a skip in its last step too.
    net = MLP([1, *[1] * 8, 1], activation, 0.0, C_W, skip=0.6)
    flow = residual_flow(net, 0.9, vertex=vertex)
    names = ("K", "V", "chi_parallel", "chi_perpendicular", "G1", "W")
    values = {name: getattr(flow, name) for name in names}
    numbers = {
        name: None if value is None else value[: 7 if name.startswith("chi") else 8]
        for name, value in values.items()
    }
    return numbers | {"T": flow.odd[:8] if vertex == "corrected" else np.nan}
