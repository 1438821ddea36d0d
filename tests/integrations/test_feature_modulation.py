"""Steps split into what moves the Gram and what rotates; the anchor; torch and JAX agree."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dynagram.errors import InvalidValueError
from dynagram.integrations._feature_part import feature_part
from dynagram.integrations.optax import anchor_gram, modulate_features

rng = np.random.default_rng(5)
SHAPES = [(7, 4), (5, 5), (3, 8)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rest_of_a_step_keeps_the_gram(shape):
    """WᵀΔ + ΔᵀW = 0 for the rest, and the part is orthogonal to every such step."""
    W, step = rng.normal(size=(2, *shape))
    part = np.asarray(feature_part(np, W, step))
    rest = step - part
    np.testing.assert_allclose(W.T @ rest + rest.T @ W, 0, atol=1e-12)
    skew = rng.normal(size=(shape[0], shape[0]))
    rotation = (skew - skew.T) @ W  # leaves the Gram as it is
    assert abs(np.sum(part * rotation)) < 1e-11
    # Against a dense least-squares solution over symmetric S.
    n = shape[1]
    basis = []
    for i in range(n):
        for j in range(i, n):
            S = np.zeros((n, n))
            S[i, j] = S[j, i] = 1.0
            basis.append((W @ S).ravel())
    A = np.array(basis).T
    solution = A @ np.linalg.lstsq(A, step.ravel(), rcond=None)[0]
    np.testing.assert_allclose(part.ravel(), solution, atol=1e-10)


def test_frozen_features_move_at_second_order_only():
    params = {"W": jnp.asarray(rng.normal(size=(6, 4))), "b": jnp.zeros(6)}
    gradient = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape)), params)
    changes = []
    for rate in (1e-3, 5e-4):
        optimiser = modulate_features(optax.sgd(rate), 0.0)
        updates, _ = optimiser.update(gradient, optimiser.init(params), params)
        np.testing.assert_allclose(updates["b"], -rate * gradient["b"], rtol=1e-6)
        after = np.asarray(params["W"] + updates["W"], dtype=np.float64)
        before = np.asarray(params["W"], dtype=np.float64)
        changes.append(np.linalg.norm(after.T @ after - before.T @ before))
    assert changes[0] / changes[1] == pytest.approx(4.0, rel=0.02)


def test_the_anchor_is_the_gradient_of_its_penalty():
    start, now = rng.normal(size=(2, 5, 7))

    def penalty(W):
        return 0.25 * 0.3 * jnp.sum((W.T @ W - jnp.asarray(start.T @ start)) ** 2)

    anchor = anchor_gram(0.3)
    state = anchor.init({"W": jnp.asarray(start)})
    zero = {"W": jnp.zeros((5, 7))}
    found, _ = anchor.update(zero, state, {"W": jnp.asarray(now)})
    np.testing.assert_allclose(found["W"], jax.grad(penalty)(jnp.asarray(now)), rtol=1e-9)
    turned = anchor_gram(0.3, output_axis=-1)
    state = turned.init({"W": jnp.asarray(start.T)})
    again, _ = turned.update({"W": jnp.zeros((7, 5))}, state, {"W": jnp.asarray(now.T)})
    np.testing.assert_allclose(again["W"], found["W"].T, rtol=1e-9)


def test_torch_and_jax_take_the_same_steps():
    torch = pytest.importorskip("torch")
    from dynagram.integrations.torch import AnchorGram, ModulateFeatures

    W, gradient = rng.normal(size=(2, 6, 4))
    layer = torch.nn.Linear(4, 6, bias=False, dtype=torch.float64)
    layer.weight.data = torch.as_tensor(W)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    handles = [AnchorGram(optimizer, 0.2), ModulateFeatures(optimizer, 1.7)]
    inner = optax.chain(anchor_gram(0.2), optax.sgd(0.1))
    ours = modulate_features(inner, 1.7)
    params = jnp.asarray(W)
    state = ours.init(params)
    for _ in range(3):
        layer.weight.grad = torch.as_tensor(gradient.copy())
        optimizer.step()
        updates, state = ours.update(jnp.asarray(gradient), state, params)
        params = params + updates
    np.testing.assert_allclose(layer.weight.detach().numpy(), params, rtol=1e-9)
    for handle in handles:
        handle.remove()
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.as_tensor(gradient.copy())
    optimizer.step()
    expected = before.numpy() - 0.1 * gradient
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, rtol=1e-12)


def test_bad_factors_and_missing_weights_are_refused():
    with pytest.raises(InvalidValueError, match="factor"):
        modulate_features(optax.sgd(0.1), -1.0)
    optimiser = modulate_features(optax.sgd(0.1), 2.0)
    state = optimiser.init(jnp.eye(2))
    with pytest.raises(InvalidValueError, match="params"):
        optimiser.update(jnp.eye(2), state)
    with pytest.raises(InvalidValueError, match="output_axis"):
        anchor_gram(1.0, output_axis=1)
