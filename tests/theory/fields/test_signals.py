"""Fields of several outputs and any loss: against automatic differentiation and real steps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Layer, Model
from dynagram.observables.fields import (
    collective_kernel,
    fields,
    forward_transport,
    observable_state,
    output_fields,
    output_kernel,
    residual_state,
    transport_operator,
    unit_sharing,
)
from dynagram.observables.tangents import ntk
from dynagram.theory.fields import (
    conjugate_updates,
    field_step,
    output_signal,
    output_update,
    signal_gradient,
)
from dynagram.training._losses import loss_value

SIZES = (4, 7, 6, 5)


def model_of(outputs, activation="relu", *, fixed=True, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [*SIZES, outputs]
    pairs = list(itertools.pairwise(sizes))
    weights = [rng.normal(size=(n, m)) * np.sqrt(2 / m) for m, n in pairs]
    moving = [1.0] * (len(pairs) - 1) + [0.0 if fixed else 1.0]
    network = Architecture(
        sizes, activation,
        lambda_b=moving, lambda_W=[n * rate for n, rate in zip(sizes[:-1], moving, strict=True)],
    )  # fmt: skip
    biases = [0.1 * rng.normal(size=n) for _, n in pairs]
    return Model(network, tuple(Layer(b, W) for b, W in zip(biases, weights, strict=True)))


def batch(outputs, loss, samples=6, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, SIZES[0]))
    if loss == "cross-entropy":
        return x, np.eye(outputs)[rng.integers(outputs, size=samples)]
    y = rng.normal(size=(samples, outputs))
    return x, np.sign(y) if loss == "logistic" else y


LOSSES = ("half-sum", "mean", "cross-entropy", "logistic")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradient_of_any_loss(loss, activation):
    model = model_of(3, activation, fixed=False)
    x, y = batch(3, loss)
    state = output_fields(model, x)
    found = signal_gradient(state, output_signal(state, y, loss))
    with jax.enable_x64(True):
        targets = jnp.asarray(y)
        expected = jax.grad(
            lambda params: loss_value(loss, model.network.apply(params, jnp.asarray(x)), targets)
        )(jax.tree.map(jnp.asarray, model.params))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.W, theirs.W, atol=1e-12)
        np.testing.assert_allclose(ours.b, theirs.b, atol=1e-12)


@pytest.mark.parametrize("fixed", [True, False])
def test_kernel_of_outputs_is_the_tangent_kernel(fixed):
    model = model_of(3, "tanh", fixed=fixed)
    x, _ = batch(3, "mean")
    unseen = batch(3, "mean", samples=4, seed=2)[0]
    with jax.enable_x64(True):
        every = np.asarray(ntk(model, np.concatenate([x, unseen])))
    np.testing.assert_allclose(output_kernel(output_fields(model, x)), every[:6, :6], atol=1e-11)
    mixed = output_kernel(output_fields(model, unseen), output_fields(model, x))
    np.testing.assert_allclose(mixed, every[6:, :6], atol=1e-11)


@pytest.mark.parametrize("loss", ["mean", "cross-entropy"])
@pytest.mark.parametrize("fixed", [True, False])
def test_one_step_to_first_order(loss, fixed):
    """Errors of a real step, divided by η, fall in proportion to η, on unseen inputs as well."""
    model = model_of(3, "relu", fixed=fixed)
    x, y = batch(3, loss)
    unseen = batch(3, loss, samples=4, seed=2)[0]
    train, other = output_fields(model, x), output_fields(model, unseen)
    signal = output_signal(train, y, loss)
    gradient = signal_gradient(train, signal)
    scaled = []
    for eta in (1e-5, 1e-6):
        rates = zip(model.network.lambda_W, model.network.widths, strict=False)
        moved = tuple(
            Layer(old.b - eta * lb * g.b, old.W - eta * lw / n * g.W)
            for old, g, lb, (lw, n) in zip(
                model.params, gradient, model.network.lambda_b, rates, strict=True
            )
        )
        for inputs, before in ((x, None), (unseen, other)):
            step = field_step(train, signal, eta, before)
            old, after = before or train, output_fields(Model(model.network, moved), inputs)
            assert all(
                np.array_equal(a, b) for a, b in zip(old.shared.a, after.shared.a, strict=True)
            )
            errors = [np.max(np.abs(after.outputs - old.outputs - step.output))]
            errors += [
                np.max(np.abs(new - u - du))
                for new, u, du in zip(after.shared.u[1:], old.shared.u[1:], step.u, strict=True)
            ]
            if fixed:
                errors += [
                    np.max(np.abs(new - b - db))
                    for one, was, moves in zip(after.each, old.each, step.b, strict=True)
                    for new, b, db in zip(one.b, was.b, moves, strict=True)
                ]
            else:
                assert step.b is None
            scaled.append(max(errors) / eta)
    assert scaled[0] < 1e-2 * np.max(np.abs(train.outputs))
    assert scaled[2] == pytest.approx(0.1 * scaled[0], rel=0.1)
    assert scaled[3] == pytest.approx(0.1 * scaled[1], rel=0.1)


def test_one_output_is_the_case_of_the_paper():
    model = model_of(1)
    x, y = batch(1, "mean")
    one, many = fields(model, x), output_fields(model, x)
    residual = one.output - y[:, 0]
    step = field_step(many, output_signal(many, y, "mean"), 0.1)
    np.testing.assert_allclose(step.output[:, 0], output_update(one, residual, 0.1), atol=1e-12)
    for ours, theirs in zip(step.b[0], conjugate_updates(one, residual, 0.1), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_forward_transport_is_the_derivative_of_the_layers():
    model = model_of(1, "tanh")
    x, _ = batch(1, "mean")
    state = fields(model, x)
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(4, SIZES[1]))
    samples = [0, 2, 2, 5]

    def above(u):
        for layer in model.params[1:3]:
            u = jnp.tanh(layer.W @ u + layer.b)
        return u

    with jax.enable_x64(True):
        for row, sample in enumerate(samples):
            u = jnp.asarray(state.u[1][sample])
            _, expected = jax.jvp(above, (u,), (jnp.asarray(vectors[row]),))
            found = forward_transport(state, 1, 3, samples, vectors)[row]
            np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(forward_transport(state, 1, 1, samples, vectors), vectors)
    with pytest.raises(InvalidValueError, match="first ≤ last"):
        forward_transport(state, 2, 1, samples, vectors)


def test_bundled_states():
    model = model_of(1)
    x, y = batch(1, "mean")
    state = fields(model, x)
    bundle = residual_state(state)
    np.testing.assert_allclose(bundle.kernel, collective_kernel(state), atol=1e-12)
    residual = state.output - y[:, 0]
    after = residual + output_update(state, residual, 0.01)
    np.testing.assert_allclose(bundle.step(residual, 0.01), after, atol=1e-12)
    seen = observable_state(state)
    expected = transport_operator(state, 1, [0, 1], [2, 3]).dense()
    np.testing.assert_array_equal(seen.M(1, [0, 1], [2, 3]).dense(), expected)
    assert seen.u is state.u


def test_sharing_of_units_by_brute_force():
    model = model_of(2, "relu")
    x, _ = batch(2, "mean", samples=9)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    found = unit_sharing(model, x, labels)
    masks = output_fields(model, x).shared.a
    for layer, a in enumerate(masks):
        for c in range(3):
            for d in range(3):
                pairs = [
                    np.mean(a[i] * a[j])
                    for i in np.flatnonzero(labels == c)
                    for j in np.flatnonzero(labels == d)
                    if i != j
                ]
                assert found.shared[layer, c, d] == pytest.approx(np.mean(pairs))
    with jax.enable_x64(True):
        kernel = np.asarray(ntk(model, x))
    trace = np.einsum("aakk->", kernel)
    layers = output_kernel(output_fields(model, x))
    assert np.einsum("aakk->", layers) == pytest.approx(trace)
    assert found.kernel_shares.sum() == pytest.approx(1.0)
    assert found.kernel_shares[-1] == 0.0  # the readout is fixed
    with pytest.raises(InvalidValueError, match="two samples or more"):
        unit_sharing(model, x, np.arange(9))
