"""Critical points, flows of one and two inputs, laws, advice, information."""

import numpy as np

from dynagram import MLP, critical_points, predict
from dynagram.activations import registered
from dynagram.theory._critical_setup import critical_setup
from dynagram.theory.criticality import (
    angle_flow,
    fixed_points,
    pair_kernel_flow,
    separation_vertex,
    single_input,
    small_separation,
)
from dynagram.theory.criticality._one_input_tangents import single_input_tangents
from dynagram.theory.criticality._rates import depth_scaled_rates, ntk_shares
from dynagram.theory.criticality._tangent_laws import tangent_laws
from dynagram.theory.criticality._two_input_tangents import (
    angle_ntk,
    gamma_ntk,
    small_separation_ntk,
)
from dynagram.theory.information import (
    ScaleMixture,
    gaussian_information,
    mutual_information,
    optimal_aspect_ratio,
    several_inputs_information,
    trained_information,
)
from dynagram.theory.statistics._correlators import connected_correlator, metric_cumulants
from dynagram.theory.statistics._couplings import next_action
from dynagram.theory.statistics._exact import double_scaling, exact_metric
from frozen.cases.samples import TEST_X, X, plain
from frozen.registry import CANCELLING, case


def deep(activation, depth, C_b=0.05, C_W=1.1):
    return MLP([1] * (depth + 1), activation, C_b, C_W)


def fields_of(record, names=None):
    names = names or [name for name in vars(record) if not name.startswith("_")]
    return {name: getattr(record, name) for name in names}


@case(registered(), rtol=CANCELLING)
def points(activation):
    numbers = {}
    for i, point in enumerate(critical_points(activation)):
        numbers[f"{i}"] = [point.K_star, point.C_b, point.C_W]
        numbers[f"{i} constants"] = list(fields_of(point.constants).values())
        numbers[f"{i} exponents"] = list(fields_of(point.exponents).values())
    return numbers


@case(["tanh", "gelu", "relu"])
def advice(activation):
    found = critical_setup(activation, 200, 12, outputs=10, inputs=64, residual=True)
    numbers = {s.name: s.value for s in found.statements}
    numbers |= {f"regime {name}": value for name, value in found.regime.numbers.items()}
    if found.residual is not None:
        skip = found.residual
        numbers["skip"] = [skip.skip, skip.published_skip, skip.C_b, skip.C_W, skip.nu, skip.r_star]
        numbers["fluctuations"] = [skip.fluctuation, skip.plain_fluctuation]
    return numbers


@case()
def advice_for_inputs():
    found = critical_setup("tanh", 200, 12, outputs=3, x=X, loss="cross-entropy")
    return {s.name: s.value for s in found.statements}


@case(["tanh", "gelu", "relu"])
def one_input(activation):
    flow = single_input(deep(activation, 8), 0.9, next_order=True)
    names = ("K", "V", "G1", "parallel_gain", "perpendicular_gain", "V1", "G2")
    return fields_of(flow, names) | {"U": flow.six_point}


@case(["tanh", "gelu", "relu"])
def one_input_tangents(activation):
    flow = single_input_tangents(plain(activation), np.mean(X**2, axis=1))
    letters = ("K", "Theta", "G1", "H1", "V", "D", "F", "B", "A", "P", "Q", "R", "S", "T", "U")
    return fields_of(flow, letters)


@case(["tanh", "gelu", "relu"])
def two_inputs(activation):
    kernel = np.array([[0.9, 0.5], [0.5, 0.8]])
    if activation == "relu":
        return {"pair": pair_kernel_flow(deep(activation, 6), kernel)}
    near = small_separation(deep(activation, 6), 0.9, delta_1=0.1, delta_2=0.02, delta_0=0.01)
    vertex = separation_vertex(deep(activation, 6), 0.9, distance=0.3)
    return fields_of(near) | {f"vertex {k}": v for k, v in fields_of(vertex).items()}


@case(["tanh", "gelu", "relu"])
def two_input_tangents(activation):
    numbers = fields_of(gamma_ntk(plain(activation), X[:2]))
    gram = np.array([[0.9, 0.5], [0.5, 0.9]])
    if activation == "relu":
        flow = angle_ntk(deep(activation, 6, 0.0, 2.0), gram)
        numbers |= {f"angle {k}": v for k, v in fields_of(flow, ("K", "Theta", "psi")).items()}
        return numbers | {"angles": angle_flow(activation, 0.7, 6)}
    near = small_separation_ntk(deep(activation, 6), 0.9, along=0.1, distance=0.05)
    return numbers | {f"near {k}": v for k, v in fields_of(near).items()}


@case(["tanh", "relu"])
def rates(activation):
    scaled = depth_scaled_rates(activation, 8, 0.7, 1.1)
    shares = ntk_shares(plain(activation), np.mean(X**2, axis=1))
    laws = tangent_laws(activation, K=0.9) if activation == "relu" else tangent_laws(activation)
    numbers = {"lambda_b": scaled.lambda_b, "lambda_W": scaled.lambda_W, **fields_of(shares)}
    return numbers | {f"law {k}": [law.coefficient, law.exponent] for k, law in laws.items()}


@case(["tanh", "gelu"])
def fixed(activation):
    found = fixed_points(activation, 0.1, 1.5)
    return {str(i): [p.K, p.chi_parallel, p.chi_perpendicular] for i, p in enumerate(found)}


@case(["tanh", "gelu", "relu"], [0.0, 0.7])
def aspect_ratio(activation, skip):
    found = optimal_aspect_ratio(activation, 10, skip=skip)
    names = ("nu", "x_star", "r_star", "information", "resummed")
    return {name: value for name in names if not isinstance(value := getattr(found, name), str)}


@case()
def information():
    K = np.array([[1.0, 0.4, 0.2], [0.4, 0.9, 0.1], [0.2, 0.1, 1.2]])
    result = predict(plain("tanh"), X[:2], ("K", "V", "G1"))
    mixture = ScaleMixture.lognormal(0.2)
    return {
        "Gaussian": gaussian_information(K, [0], [1, 2]),
        "finite": mutual_information(0.05, first=2, second=3),
        "several inputs": several_inputs_information(
            result["K"][-1], result["V"][-1], fan_in=16, first=1, second=1
        ),
        "trained": trained_information(plain("tanh"), X, TEST_X, [0], [1], noise=0.05),
        "mixture": [mixture.entropy(2), mixture.mutual_information(1, 2)],
    }


@case(["linear", "relu"])
def exact(activation):
    net = plain(activation)
    found = exact_metric(_biasless(net), X, 4)
    limit = double_scaling(activation, 0.3, 4)
    return {
        "moments": found.moments,
        "cumulants": found.cumulants,
        "double scaling": limit.moments,
        "logarithm": [limit.log_mean, limit.log_variance],
    }


def _biasless(net):
    return type(net)(list(net.widths), net.activation, C_b=0.0, C_W=list(net.C_W))


@case(["tanh", "relu"])
def distribution(activation):
    result = predict(plain(activation), X[:2], ("K", "V", "G1"))
    cumulants = metric_cumulants(result, 3)
    action = next_action(result["K"][2], result["V"][2], result["G1"][2], fan_in=20, neurons=16)
    return {
        "correlator": connected_correlator(cumulants, [0, 0, 1, 1], [0, 1, 0, 1]),
        "quadratic": action.quadratic,
        "quartic": action.quartic,
    }
