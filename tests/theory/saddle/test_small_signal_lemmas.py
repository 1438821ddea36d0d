"""Appendix D on one network: the orders of Lemmas 10 and 20, and Lemma 21, layers that stay."""

import math

import numpy as np
import pytest

from dynagram.networks import Model
from dynagram.observables import small_signal
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._surrogate import surrogate_escape
from dynagram.theory.saddle._tasks import LinearTask
from dynagram_experiments.saddle._plateaus import whitened_inputs

SMALL, DEPTH = 3, 5  # the first r of L layers are times ε
SCALES = (0.04, 0.02, 0.01)


def task_and_weights():
    rng = np.random.default_rng(3)
    x = whitened_inputs(rng, 400, 6)
    shapes = [(16, 6), (16, 16), (16, 16), (16, 16), (1, 16)]
    weights = [rng.normal(size=s) * math.sqrt(2 / s[1]) for s in shapes]
    return x, np.tanh(x[:, :1]), weights


def scaled(weights, eps):
    return [eps * W if index < SMALL else W for index, W in enumerate(weights)]


def orders(values):
    """Powers of ε between neighbouring scales."""
    return np.diff(np.log(values)) / np.diff(np.log(SCALES))


@pytest.fixture(scope="module")
def states():
    x, y, weights = task_and_weights()
    return [small_signal(Model.of_matrices(scaled(weights, e), "tanh"), x, y) for e in SCALES]


def test_the_output_and_the_signal_are_of_order_r(states):
    assert orders([np.sqrt(np.mean(s.outputs**2)) for s in states]) == pytest.approx(
        SMALL, abs=0.02
    )
    assert orders([abs(s.gamma) for s in states]) == pytest.approx(SMALL, abs=0.02)


@pytest.mark.parametrize("layer", range(1, DEPTH + 1))
def test_gradients_of_the_signal_lose_the_factor_of_their_own_layer(states, layer):
    sizes = [np.linalg.norm(s.gradients[layer - 1]) for s in states]
    expected = SMALL - 1 if layer <= SMALL else SMALL
    assert orders(sizes) == pytest.approx(expected, abs=0.02)


def test_the_energy_is_that_of_the_small_layers(states):
    # (46): what the other layers add is smaller by ε².
    rest = [sum(np.sum(G**2) for G in s.gradients[SMALL:]) / s.gradient_energy for s in states]
    assert orders(rest) == pytest.approx(2.0, abs=0.02)


def test_the_linear_path_gives_the_gradients_up_to_the_square_of_the_scale(states):
    # (45): G_l = B_l A_{l-1}ᵀ + R_l with A, B the chains from the direction of g and the output.
    x, y, weights = task_and_weights()
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    v = solution[:, 0] / np.linalg.norm(x @ solution) * math.sqrt(len(x))
    off = []
    for eps, state in zip(SCALES, states, strict=True):
        layers, ahead, worst = scaled(weights, eps), x.T @ (x @ v) / len(x), 0.0
        for index, G in enumerate(state.gradients):
            back = np.ones(1)
            for W in reversed(layers[index + 1 :]):
                back = W.T @ back
            path = np.outer(back, ahead)
            worst = max(worst, np.linalg.norm(G - path) / np.linalg.norm(path))
            ahead = layers[index] @ ahead
        off.append(worst)
    assert orders(off) == pytest.approx(2.0, abs=0.05)


def test_the_self_interaction_is_bounded_by_signal_times_energy(states):
    # Lemma 10: |S| ≤ C γ T with a C that does not depend on ε.
    ratios = [s.self_interaction / (s.gamma * s.gradient_energy) for s in states]
    assert np.ptp(ratios) < 0.01 * abs(ratios[-1])
    # (42): and the teacher drives by β h T, up to ε².
    x, y, _ = task_and_weights()
    size = math.sqrt(np.mean((x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2))
    driven = [(s.rate + s.self_interaction) / (size * s.gradient_energy) - 1.0 for s in states]
    assert orders(np.abs(driven)) == pytest.approx(2.0, abs=0.05)


def test_large_layers_move_by_the_square_of_the_size_of_the_small_ones():
    # Lemma 21: until the small layers reach m_0 the others move by at most C m_0² (43).
    x, y, weights = task_and_weights()
    task, layers = LinearTask.of(x, y), scaled(weights, 0.01)

    def size(chain):
        return -max(float(np.linalg.norm(W, 2)) for W in chain.weights[:SMALL])

    moved = []
    for m_0 in (0.4, 0.2, 0.1):
        end = surrogate_escape(task, Chain.linear(layers), [-m_0], measure=size)
        assert math.isfinite(end.times[0])
        pairs = zip(end.chain.weights[SMALL:], layers[SMALL:], strict=True)
        moved.append(max(float(np.linalg.norm(new - old)) for new, old in pairs) / m_0**2)
    assert max(moved) < 1.5 * min(moved)
    assert max(moved) < 1.0
