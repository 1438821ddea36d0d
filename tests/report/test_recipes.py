"""The code that `dynagram advise` prints does what the advice says."""

import math

import jax
import numpy as np
import optax
import pytest

from dynagram.report.prose._recipes import in_words, optax_recipe, per_layer_text, pytorch_recipe
from dynagram.theory._advice import advise


@pytest.fixture(scope="module", params=["tanh", "gelu"])
def advice(request):
    return advise(request.param, width=200, depth=4, outputs=3, inputs=50)


def test_optax_recipe_draws_and_steps_as_advised(advice):
    space = {}
    exec(optax_recipe(advice), space)
    params = space["init"](jax.random.key(0), (50, 200, 200, 200, 3))
    network = advice.network
    for index, (W, b) in enumerate(params):
        n_in, n_out = network.widths[index], network.widths[index + 1]
        assert W.shape == (n_in, n_out)
        expected = network.C_W[index] / n_in
        # The variance of M normal numbers has the relative standard error √(2/M).
        assert float(np.mean(np.square(W))) == pytest.approx(
            expected, rel=4 * math.sqrt(2 / W.size)
        )
        C_b = network.C_b[index]
        assert float(np.mean(np.square(b))) == pytest.approx(C_b, rel=4 * math.sqrt(2 / b.size))
    optimizer = space["optimizer"]
    gradients = jax.tree.map(np.ones_like, params)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    moved = optax.apply_updates(params, updates)
    for index, ((W, b), (W_new, b_new)) in enumerate(zip(params, moved, strict=True)):
        steps = advice.pytorch.rate_W[index], advice.pytorch.rate_b[index]
        assert np.asarray(W - W_new) == pytest.approx(steps[0], rel=1e-3)
        assert np.asarray(b - b_new) == pytest.approx(steps[1], rel=1e-3)


def test_pytorch_recipe_carries_the_numbers(advice):
    text = pytorch_recipe(advice)
    compile(text, "recipe", "exec")
    start, end = text.index("eta = "), text.index("layers = [")
    space = {}
    exec(text[start:end], space)
    for name in ("C_b", "C_W", "lambda_b", "lambda_W"):
        assert space[name] == pytest.approx(getattr(advice.network, name), rel=1e-9)
    assert space["eta"] * space["lambda_b"][0] == pytest.approx(advice.pytorch.rate_b[0], rel=1e-5)


def test_long_lists_are_written_out():
    advice = advise("tanh", width=64, depth=40)
    space = {}
    text = pytorch_recipe(advice)
    assert max(len(line) for line in text.splitlines()) <= 100
    exec(text[text.index("eta = ") : text.index("layers = [")], space)
    assert space["lambda_b"] == pytest.approx([1 / k for k in range(1, 41)], rel=1e-9)


def test_words_mention_step_and_verdict(advice):
    text = in_words(advice)
    assert advice.sweet_spot in text
    assert f"{advice.number('step'):.4g}" in text


def test_values_per_layer_in_short():
    assert per_layer_text((2.0,) * 5) == "2"
    assert per_layer_text((3.0, 2.0, 2.0)) == "3, 2 × 2"
    assert per_layer_text((3.0, 2.0, 1.0)) == "3, …, 1"
