"""NTK, dNTK and ddNTK tensors against ensembles of real networks with exact autodiff.

Two layers: the theory is exact at any width. Deeper: measurements at widths n and 2n are
extrapolated, 2·M(2n) − M(n), which removes the next order. Tolerance: |z| < 4 for every entry.
"""

import functools

import numpy as np
import pytest

from dynagram.ensembles import simulate
from dynagram.networks import MLP
from dynagram.results._comparison import compare
from dynagram.results._estimate import Estimate
from dynagram.theory._predict import predict

INPUTS = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.8, -0.9]])
NTK = ("H1", "A", "B", "D", "F")
ALL = (*NTK, "P", "Q", "R", "S", "T", "U")
# What exists where σ' is continuous and σ'' jumps.
BENT = ("P", "Q", "S", "T", "U")
RATES = {"lambda_b": (0.3, 0.5, 0.2, 0.4), "lambda_W": (0.7, 0.6, 0.9, 0.8)}
WITH_BIASES = {"C_b": (0.1, 0.2, 0.15, 0.05), "C_W": (1.1, 1.3, 0.9, 1.2)}
WITHOUT = {"C_b": (0.0, 0.0, 0.0, 0.0), "C_W": (1.6, 1.9, 1.7, 1.5)}
# name: activation, hidden widths, inputs, variances, tensors, members
CASES = {
    "tanh, 2 layers, 3 inputs": ("tanh", (9,), 3, WITH_BIASES, ALL, 15_000),
    "gelu, 2 layers, 2 inputs": ("gelu", (7,), 2, WITHOUT, ALL, 15_000),
    "relu, 2 layers, 3 inputs": ("relu", (8,), 3, WITH_BIASES, NTK, 30_000),
    "gelu, 3 layers, 2 inputs": ("gelu", (20, 14), 2, WITHOUT, ALL, 15_000),
    "relu, 3 layers, 2 inputs": ("relu", (30, 20), 2, WITHOUT, NTK, 60_000),
    "elu, 2 layers, 3 inputs": ("elu", (8,), 3, WITH_BIASES, BENT, 15_000),
    "softsign, 3 layers, 2 inputs": ("softsign", (20, 14), 2, WITHOUT, BENT, 20_000),
    "tanh, 4 layers, 3 inputs": ("tanh", (24, 32, 20), 3, WITHOUT, NTK, 40_000),
    "tanh, 4 layers, 2 inputs": ("tanh", (20, 28, 16), 2, WITH_BIASES, ALL, 10_000),
}


def network(activation, hidden, variances, outputs=3):
    depth = len(hidden) + 1
    settings = {key: values[:depth] for key, values in (variances | RATES).items()}
    return MLP([3, *hidden, outputs], activation, **settings)


def predicted(case):
    activation, hidden, inputs, variances, tensors, _ = CASES[case]
    return predict(network(activation, hidden, variances), INPUTS[:inputs], tensors)


@functools.cache
def measured(case):
    """Estimates at leading order: directly for two layers, extrapolated for more."""
    activation, hidden, inputs, variances, tensors, members = CASES[case]
    factors = (1,) if len(hidden) == 1 else (1, 2)
    found = [
        simulate(
            network(activation, [factor * n for n in hidden], variances),
            INPUTS[:inputs],
            tensors,
            members=members,
            seed=40 + factor,
        )
        for factor in factors
    ]
    result = {}
    for name in tensors:
        one = found[0].estimate(name)
        if len(found) == 1:
            result[name] = one
            continue
        two = found[1].estimate(name)
        error = np.hypot(one.standard_error, 2 * two.standard_error)
        result[name] = Estimate(2 * two.value - one.value, error, one.count)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_tensors_agree_with_networks(case):
    theory, estimates = predicted(case), measured(case)
    failed = []
    for name in estimates:
        prediction, error = theory[name][-1:], theory.errors[name][-1:]
        result = compare(prediction, estimates[name], prediction_error=error, name=name)
        if not result.ok(4.0):
            failed.append(str(result))
        # Power: twice the prediction would be rejected at its largest entry.
        if name != "H1":
            place = np.unravel_index(np.argmax(np.abs(prediction)), prediction.shape)
            assert abs(prediction[place]) > 4 * estimates[name].standard_error[place], name
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_a_swapped_index_is_caught():
    """B with A's transport pattern and F with two indices exchanged are rejected."""
    case = "relu, 2 layers, 3 inputs"
    theory, found = predicted(case), measured(case)
    assert compare(theory["B"][-1:], found["B"], prediction_error=theory.errors["B"][-1:]).ok(4.0)
    assert not compare(np.einsum("labcd->lacbd", theory["B"][-1:]), found["B"]).ok(4.5)
    assert not compare(np.einsum("labcd->lbacd", theory["F"][-1:]), found["F"]).ok(4.5)
