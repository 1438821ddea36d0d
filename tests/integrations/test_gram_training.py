"""Gram-only steps: exact Gram, smallest move, torch and JAX agree."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dynagram.errors import AccuracyError, InvalidValueError, NonFiniteError
from dynagram.integrations._procrustes import gram_error, rotate_back
from dynagram.integrations.optax import GramOnlyState, check_gram, gram_only
from dynagram.networks import MLP

rng = np.random.default_rng(4)
SHAPES = [(12, 5), (7, 7), (3, 9), (1, 4), (4, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rotation_keeps_the_gram_and_is_the_smallest_move(shape):
    before = rng.normal(size=shape)
    after = before + 0.5 * rng.normal(size=shape)
    rotated = np.asarray(rotate_back(jnp.asarray(before), jnp.asarray(after)))
    assert float(gram_error(jnp.asarray(rotated), jnp.asarray(after))) < 1e-14
    moved = np.linalg.norm(rotated - before)
    assert moved <= np.linalg.norm(after - before) + 1e-12
    # Against the SVD of the full n_out × n_out product, and against small further rotations.
    U, _, Vt = np.linalg.svd(before @ after.T)
    assert moved == pytest.approx(np.linalg.norm(U @ Vt @ after - before), rel=1e-10)
    for _ in range(20):
        A = 0.05 * rng.normal(size=(shape[0], shape[0]))
        Q = np.linalg.qr(np.eye(shape[0]) + A - A.T)[0]
        Q = Q * np.sign(np.diag(Q))
        assert np.linalg.norm(Q @ rotated - before) >= moved - 1e-10


def test_column_space_of_a_tall_layer_never_changes():
    before = rng.normal(size=(12, 5))
    rotated = np.asarray(rotate_back(jnp.asarray(before), jnp.asarray(rng.normal(size=(12, 5)))))
    assert np.linalg.matrix_rank(np.concatenate([before, rotated], axis=1), tol=1e-10) == 5


@pytest.mark.parametrize("shape", [(8, 5), (5, 8)])
def test_deficient_and_zero_weights_keep_their_gram(shape):
    before = np.zeros(shape)
    before[0] = 1.0
    after = rng.normal(size=shape)
    after[:, 1] = 0.0
    rotated = rotate_back(jnp.asarray(before), jnp.asarray(after))
    assert float(gram_error(rotated, jnp.asarray(after))) < 1e-14
    nothing = rotate_back(jnp.asarray(before), jnp.zeros(shape))
    assert float(jnp.max(jnp.abs(nothing))) == 0.0


def train(optimiser, steps, sigma="gelu"):
    """Full-batch training of a small network; its weights after every step."""
    net = MLP([6, 12, 12, 3], sigma, C_b=0.0, C_W=2.0)
    x, y = (jax.random.normal(jax.random.key(k), (30, n)) for k, n in ((1, 6), (2, 3)))
    params = net.draw(jax.random.key(0))

    @jax.jit
    def step(params, state):
        gradient = jax.grad(lambda p: jnp.mean((net.apply(p, x) - y) ** 2))(params)
        updates, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    path, state = [params], optimiser.init(params)
    for _ in range(steps):
        params, state = step(params, state)
        path.append(params)
    return net, x, y, path, state


def test_every_step_keeps_the_gram_of_the_plain_step():
    """Each step redone with plain SGD from the same weights: same Gram, larger move."""
    net, x, y, path, state = train(gram_only(optax.sgd(0.1)), steps=20)
    check_gram(state, 1e-10)
    assert int(state.steps) == 20
    assert 0 < float(state.step_ratio) <= 1 + 1e-12
    gradient = jax.jit(jax.grad(lambda p: jnp.mean((net.apply(p, x) - y) ** 2)))
    for before, after in itertools.pairwise(path):
        plain = jax.tree.map(lambda p, d: p - 0.1 * d, before, gradient(before))
        for old, new, free in zip(before, after, plain, strict=True):
            wanted = free.W.T @ free.W
            error = np.linalg.norm(new.W.T @ new.W - wanted) / np.linalg.norm(wanted)
            assert error < 1e-10
            assert np.linalg.norm(new.W - old.W) <= np.linalg.norm(free.W - old.W) * (1 + 1e-12)
            np.testing.assert_allclose(new.b, free.b, rtol=0, atol=1e-14)


def test_flax_layout_is_the_transpose():
    weights, gradient = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    rows, columns = gram_only(optax.sgd(0.3)), gram_only(optax.sgd(0.3), output_axis=-1)
    a, _ = rows.update(jnp.asarray(gradient), rows.init(jnp.asarray(weights)), jnp.asarray(weights))
    flipped = jnp.asarray(weights.T)
    b, _ = columns.update(jnp.asarray(gradient.T), columns.init(flipped), flipped)
    np.testing.assert_allclose(np.asarray(b).T, a, atol=1e-14)


def test_convolutions_are_unfolded():
    weights, gradient = rng.normal(size=(8, 3, 2, 2)), rng.normal(size=(8, 3, 2, 2))
    optimiser = gram_only(optax.sgd(0.3))
    move, _ = optimiser.update(
        jnp.asarray(gradient), optimiser.init(jnp.asarray(weights)), jnp.asarray(weights)
    )
    after, free = ((weights + m).reshape(8, -1) for m in (np.asarray(move), -0.3 * gradient))
    np.testing.assert_allclose(after.T @ after, free.T @ free, atol=1e-12)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_torch_and_jax_agree(kind):
    torch = pytest.importorskip("torch")
    from dynagram.integrations.torch import GramOnly

    optimiser = optax.sgd(0.05, momentum=0.85) if kind == "sgd" else optax.adam(3e-3)
    net, x, y, path, state = train(gram_only(optimiser), steps=40, sigma="tanh")
    modules = []
    for layer in path[0]:
        module = torch.nn.Linear(layer.W.shape[1], layer.W.shape[0], dtype=torch.float64)
        with torch.no_grad():
            module.weight.copy_(torch.tensor(np.asarray(layer.W)))
            module.bias.copy_(torch.tensor(np.asarray(layer.b)))
        modules += [module, torch.nn.Tanh()]
    model = torch.nn.Sequential(*modules[:-1])
    parameters = list(model.parameters())
    if kind == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.85)
    else:
        optimizer = torch.optim.Adam(parameters, lr=3e-3)
    handle = GramOnly(optimizer)
    inputs, targets = (torch.tensor(np.asarray(v)) for v in (x, y))
    for _ in range(40):
        optimizer.zero_grad()
        ((model(inputs) - targets) ** 2).mean().backward()
        optimizer.step()
    linear = [m for m in model if isinstance(m, torch.nn.Linear)]
    for layer, module in zip(path[-1], linear, strict=True):
        np.testing.assert_allclose(module.weight.detach().numpy(), layer.W, atol=1e-9)
        np.testing.assert_allclose(module.bias.detach().numpy(), layer.b, atol=1e-9)
    assert handle.steps == 40
    assert handle.gram_error < 1e-10
    assert float(state.gram_error) < 1e-10
    handle.remove()
    before = linear[0].weight.detach().clone()
    optimizer.step()
    assert handle.steps == 40
    assert not torch.equal(before, linear[0].weight)
    assert net.depth == len(linear)


def test_torch_float32_and_divergence():
    torch = pytest.importorskip("torch")
    from dynagram.integrations.torch import GramOnly

    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(2, 6, 3)
    optimizer = torch.optim.SGD(convolution.parameters(), lr=0.1)
    handle = GramOnly(optimizer)
    (convolution(torch.ones(1, 2, 5, 5)) ** 2).sum().backward()
    optimizer.step()
    assert 0 < handle.gram_error < 1e-5
    with torch.no_grad():
        convolution.weight.grad.fill_(float("inf"))
    with pytest.raises(NonFiniteError, match="after step 2"):
        optimizer.step()


def test_refusals():
    with pytest.raises(InvalidValueError, match="output_axis = 1"):
        gram_only(optax.sgd(0.1), output_axis=1)
    optimiser = gram_only(optax.sgd(0.1))
    state = optimiser.init(jnp.eye(2))
    with pytest.raises(InvalidValueError, match="params = None"):
        optimiser.update(jnp.eye(2), state)
    with pytest.raises(AccuracyError, match="within 5 steps"):
        check_gram(GramOnlyState((), jnp.array(5), jnp.array(1e-3), jnp.array(1.0)), 1e-10)
    with pytest.raises(AccuracyError, match="diverged"):
        check_gram(GramOnlyState((), jnp.array(5), jnp.array(jnp.nan), jnp.array(1.0)), 1e-10)
