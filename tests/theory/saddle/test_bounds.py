"""Bounds of Theorem 11 and Proposition 22 with constants: the surrogate's escape lies between."""

import itertools
import math

import numpy as np
import pytest

from dynagram.theory.saddle._bounds import escape_bounds
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._stages import find_stages
from dynagram.theory.saddle._surrogate import surrogate_escape
from dynagram.theory.saddle._tasks import make_task


def small(depth, small_layers, scale, seed, outputs=1):
    rng = np.random.default_rng(seed)
    sizes = [5, *[12] * (depth - 1), outputs]
    weights = [
        (scale if layer in small_layers else 1.0) * rng.normal(size=(b, a)) * math.sqrt(1 / a)
        for layer, (a, b) in enumerate(itertools.pairwise(sizes), start=1)
    ]
    x = rng.normal(size=(400, 5))
    y = np.tanh(x[:, :outputs]) * np.arange(1, outputs + 1)
    rates = [float(rate) for rate in rng.uniform(0.3, 2.0, depth)]
    return make_task("mean", x, y), Chain.linear(weights, gain=0.8, rates=rates)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("depth", "layers"), [(2, (1, 2)), (3, (1, 3)), (4, (1, 2, 3, 4))])
def test_the_escape_of_the_surrogate_lies_between_its_bounds(depth, layers, seed):
    task, chain = small(depth, layers, 0.05, seed, outputs=1 + seed % 2)
    stages = find_stages(task, np.zeros(1 + seed % 2), is_free=False, count=1)
    fall = 0.5 * stages.falls[0]
    bounds = escape_bounds(chain, stages.drive, fall, layers)
    time = surrogate_escape(task, chain, [stages.loss - fall]).times[0]
    assert 0.0 < bounds.lower < time < bounds.upper
    signal = np.sum(chain.affine_map[0] * stages.drive)
    assert math.isinf(bounds.upper) == (signal <= 0.0)

    def size(chain):
        return -max(np.linalg.norm(chain.weights[layer - 1], 2) for layer in layers)

    # Below m_0 the loss cannot have escaped (50).
    reached = surrogate_escape(task, chain, [-bounds.scale], measure=size).times[0]
    assert reached < time


@pytest.mark.parametrize(("depth", "power"), [(2, 0), (3, 1), (4, 2)])
def test_both_bounds_have_the_exponent_of_the_theorem(depth, power):
    layers = tuple(range(1, depth + 1))
    times = []
    for scale in (1e-3, 1e-4):
        task, chain = small(depth, layers, scale, seed=2)
        stages = find_stages(task, np.zeros(1), is_free=False, count=1)
        if np.sum(chain.affine_map[0] * stages.drive) < 0.0:  # no upper bound: turn it round
            chain = chain.with_layers([*chain.joined[:-1], -chain.joined[-1]])
        bounds = escape_bounds(chain, stages.drive, 0.5 * stages.falls[0], layers)
        times.append(np.array([bounds.lower, bounds.upper]))
    ratio = times[1] / times[0]
    if power:
        assert np.allclose(np.log10(ratio), power, atol=0.01)
    else:  # Θ(log 1/ε): equal steps for equal factors
        assert np.all((ratio > 1.2) & (ratio < 1.6))


def test_aligned_scalar_layers_escape_near_the_lower_bound():
    # One neuron each: norms are the weights, and the drive alone is the whole of it at first.
    chain = Chain.linear([np.full((1, 1), 0.01)] * 3)
    x = np.array([[1.0], [-1.0]])
    task = make_task("mean", x, x)
    bounds = escape_bounds(chain, np.eye(1), 0.25, (1, 2, 3))
    time = surrogate_escape(task, chain, [0.25]).times[0]
    assert bounds.lower == pytest.approx(time, rel=0.02)
    assert bounds.upper == pytest.approx(2 * time, rel=0.02)
    frozen = Chain.linear([np.full((1, 1), 0.01)] * 3, rates=[1.0, 1.0, 0.0])
    assert escape_bounds(frozen, np.eye(1), 0.25, (1, 2)).lower > bounds.lower
