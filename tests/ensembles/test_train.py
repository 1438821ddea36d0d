"""Trained ensembles against loops written out in NumPy and PyTorch, and against themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynagram.ensembles.trained._train import TrainingJob

from dynagram import MLP, Training, train_ensemble
from dynagram.observables.tangents._ntk import network_ntk

RNG = np.random.default_rng(7)
NET = MLP([3, 5, 5, 2], "tanh", 0.1, 1.2, lambda_b=[0.5, 1.0, 2.0], lambda_W=[1.0, 2.0, 3.0])
X = RNG.standard_normal((8, 3))
Y = np.sin(X[:, :2])
CLASSES = RNG.integers(0, 2, 8)


# --- a network trained by hand ------------------------------------------------------------------


def start_of(member, seed=0, network=NET):
    """[b1, W1, b2, …] of a member, drawn as in training; `test_members` compares with init."""
    drawn = TrainingJob(network, Training(1, 1.0), X, Y, seed=seed).initial(0, 3)
    return [np.array(leaf[member]) for layer in drawn for leaf in layer]


def forward(theta, x, skips):
    z, signals = None, [x]
    for index, skip in enumerate(skips):
        b, W = theta[2 * index], theta[2 * index + 1]
        z = signals[-1] @ W.T + b + (skip * z if skip else 0.0)
        signals.append(np.tanh(z))
    return z, signals


def error(loss, z, y):
    """dL/dz and L."""
    if loss.startswith("mse"):
        scale = 1.0 if loss == "mse" else 2.0 / z.size
        return scale * (z - y), 0.5 * scale * np.sum((z - y) ** 2)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    scale = 1.0 / len(z) if loss.endswith("mean") else 1.0
    return scale * (p - y), -scale * np.sum(y * np.log(p))


def gradient(theta, x, y, loss, skips=(0.0, 0.0, 0.0)):
    z, signals = forward(theta, x, skips)
    delta, value = error(loss, z, y)
    slope = [None] * len(theta)
    for index in reversed(range(len(skips))):
        slope[2 * index], slope[2 * index + 1] = delta.sum(axis=0), delta.T @ signals[index]
        below = (delta @ theta[2 * index + 1]) * (1 - signals[index] ** 2)
        delta = below + skips[index] * delta if skips[index] else below
    return slope, value


def rates_of(network):
    return [
        rate
        for b, W, n in zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
        for rate in (b, W / n)
    ]


def gd(slope, memory, _):
    return [-g for g in slope], memory


def momentum(slope, memory, _):
    memory = [0.8 * m + g for m, g in zip(memory or [0.0] * len(slope), slope, strict=True)]
    return [-m for m in memory], memory


def adam(slope, memory, step):
    first, second = memory or ([0.0] * len(slope), [0.0] * len(slope))
    first = [0.9 * m + 0.1 * g for m, g in zip(first, slope, strict=True)]
    second = [0.99 * v + 0.01 * g**2 for v, g in zip(second, slope, strict=True)]
    scale = (1 - 0.9 ** (step + 1), 1 - 0.99 ** (step + 1))
    pairs = zip(first, second, strict=True)
    return [-m / scale[0] / (np.sqrt(v / scale[1]) + 1e-8) for m, v in pairs], (first, second)


def rmsprop(slope, memory, _):
    memory = [
        0.9 * m + 0.1 * g**2 for m, g in zip(memory or [0.0] * len(slope), slope, strict=True)
    ]
    return [-g / np.sqrt(m + 1e-8) for g, m in zip(slope, memory, strict=True)], memory


RULES = {"gd": gd, "momentum": momentum, "adam": adam, "optax:rmsprop": rmsprop}


def by_hand(theta, training, batch_of, network=NET, skips=(0.0, 0.0, 0.0)):
    """Final parameters and the loss of the batch of every step, steps + 1 of them."""
    memory, losses = None, []
    plain = getattr(network, "plain", network)
    for step in range(training.steps + 1):
        slope, value = gradient(theta, *batch_of(step), training.loss, skips)
        losses.append(value)
        if step == training.steps:
            return theta, np.array(losses)
        slope = [g + training.weight_decay * p for g, p in zip(slope, theta, strict=True)]
        updates, memory = RULES[training.algorithm](slope, memory, step)
        theta = [
            p if index // 2 + 1 in training.fixed else p + training.eta * rate * u
            for index, (p, rate, u) in enumerate(zip(theta, rates_of(plain), updates, strict=True))
        ]
    raise AssertionError


def assert_same_parameters(found, member, theta, tolerance=1e-10):
    leaves = [leaf[member] for layer in found.parameters for leaf in layer]
    for leaf, expected in zip(leaves, theta, strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("algorithm", "options", "loss", "more"),
    [
        ("gd", {}, "mse", {}),
        ("gd", {}, "mse-mean", {"fixed": [2]}),
        ("gd", {}, "cross-entropy", {"weight_decay": 0.3}),
        ("momentum", {"momentum": 0.8}, "cross-entropy-mean", {"fixed": [1, 3]}),
        ("adam", {"b2": 0.99}, "mse", {"weight_decay": 0.2}),
        ("optax:rmsprop", {"decay": 0.9}, "mse-mean", {}),
    ],
)
def test_equals_a_loop_by_hand(algorithm, options, loss, more):
    """Every algorithm and loss, with rates per layer, decay and fixed layers, to 1e-10."""
    training = Training(25, 0.03, algorithm, options=options, loss=loss, record=26,
                        spacing="linear", **more)  # fmt: skip
    y = CLASSES if loss.startswith("cross") else Y
    targets = np.eye(2)[y] if loss.startswith("cross") else Y
    found = train_ensemble(NET, training, X, y, members=3, seed=4, keep_parameters=True)
    assert found.failures == ()
    for member in (0, 2):
        theta, losses = by_hand(start_of(member, seed=4), training, lambda _: (X, targets))
        np.testing.assert_allclose(found["loss"][member], losses, rtol=1e-10)
        assert_same_parameters(found, member, theta)


def test_residual_network_by_hand():
    network = MLP([3, 5, 5, 2], "tanh", 0.1, 1.2, skip=0.7, lambda_b=0.5)
    training = Training(20, 0.03, record=21, spacing="linear")
    found = train_ensemble(network, training, X, Y, members=3, keep_parameters=True)
    skips = network.skip_of_layers
    start = start_of(1, network=network)
    theta, losses = by_hand(start, training, lambda _: (X, Y), network, skips)
    np.testing.assert_allclose(found["loss"][1], losses, rtol=1e-10)
    assert_same_parameters(found, 1, theta)


def data_key(member, seed=0):
    stream = jax.random.fold_in(jax.random.key(seed), np.uint32(2**32 - 1))
    return jax.random.fold_in(stream, np.uint32(member))


def test_minibatches_by_hand():
    """Each epoch takes every sample once, in a new order, different for each member."""
    training = Training(9, 0.05, batch=2, record=[1])
    found = train_ensemble(NET, training, X, Y, members=3, keep_parameters=True)
    orders = []
    for member in (0, 1):
        keys = [jax.random.fold_in(data_key(member), epoch) for epoch in range(3)]
        order = np.concatenate([np.array(jax.random.permutation(key, 8)) for key in keys])
        batches = order.reshape(-1, 2)
        theta, _ = by_hand(start_of(member), training, lambda s, b=batches: (X[b[s]], Y[b[s]]))
        assert_same_parameters(found, member, theta)
        z, _ = forward(theta, X, (0.0, 0.0, 0.0))  # what is recorded is the loss of all samples
        np.testing.assert_allclose(found["loss"][member, -1], error("mse", z, Y)[1], rtol=1e-10)
        orders.append(tuple(order))
    assert len({orders[0][:8], orders[0][8:16], orders[1][:8]}) == 3


def teacher(key):
    x = jax.random.normal(key, (4, 3))
    return x, jnp.tanh(x[:, :2])


def test_fresh_data_by_hand():
    """The loss recorded at a step is that of the batch the step is about to see."""
    training = Training(6, 0.05, record=7, spacing="linear")
    found = train_ensemble(NET, training, data=teacher, members=3, keep_parameters=True)
    for member in (0, 1):
        batch = lambda s, m=member: [  # noqa: E731
            np.array(a) for a in teacher(jax.random.fold_in(data_key(m), np.uint32(s)))
        ]
        theta, losses = by_hand(start_of(member), training, batch)
        np.testing.assert_allclose(found["loss"][member], losses, rtol=1e-10)
        assert_same_parameters(found, member, theta)


@pytest.mark.parametrize("algorithm", ["momentum", "adam"])
def test_equals_torch(algorithm):
    """One network, with PyTorch's own optimisers: λ_b = 1 and λ_W = n_{ℓ-1} is one rate for all."""
    torch = pytest.importorskip("torch")
    network = MLP([3, 5, 5, 2], "tanh", 0.1, 1.2, lambda_b=1.0, lambda_W=[3, 5, 5])
    options = {"momentum": 0.9, "nesterov": True} if algorithm == "momentum" else {"b1": 0.8}
    training = Training(20, 0.02, algorithm, options=options, loss="mse-mean", weight_decay=0.1)
    found = train_ensemble(network, training, X, Y, members=3, keep_parameters=True)

    layers = []
    start = start_of(0, network=network)
    for b, W in zip(start[::2], start[1::2], strict=True):
        layer = torch.nn.Linear(W.shape[1], W.shape[0], dtype=torch.float64)
        layer.load_state_dict({"weight": torch.tensor(W), "bias": torch.tensor(b)})
        layers += [layer, torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers[:-1])
    if algorithm == "momentum":
        optimiser = torch.optim.SGD(
            model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.1
        )
    else:
        optimiser = torch.optim.Adam(
            model.parameters(), lr=0.02, betas=(0.8, 0.999), weight_decay=0.1
        )
    for _ in range(20):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(torch.tensor(X)), torch.tensor(Y)).backward()
        optimiser.step()
    theta = [p.detach().numpy() for layer in model[::2] for p in (layer.bias, layer.weight)]
    assert_same_parameters(found, 0, theta)


def test_members():
    """Member m is drawn from the key of the seed, folded with m, as in all ensembles."""
    for seed, member in ((0, 2), (4, 1)):
        params = NET.draw(jax.random.fold_in(jax.random.key(seed), member), dtype=jnp.float64)
        leaves = [leaf for layer in params for leaf in layer]
        for leaf, drawn in zip(leaves, start_of(member, seed), strict=True):
            np.testing.assert_allclose(drawn, leaf, rtol=1e-12)


# --- what is recorded ---------------------------------------------------------------------------


def test_observables():
    """Built-in and own observables at the recorded steps, on test inputs."""
    test_x = RNG.standard_normal((3, 3))
    own = lambda params, x: jnp.max(params[1].W @ params[0].W @ x.T)  # noqa: E731
    names = {"loss": "loss", "z": "outputs", "norms": "norms", "H": "ntk", "own": own}
    training = Training(10, 0.02, record=[4])
    found = train_ensemble(
        NET, training, X, Y, members=3, test_x=test_x, observables=names, keep_parameters=True
    )
    assert found.steps.tolist() == [0, 4, 10]
    params = jax.tree.map(lambda a: jnp.asarray(a[1]), found.parameters)
    H = network_ntk(NET, params, test_x)
    expected = {
        "z": NET.apply(params, test_x),
        "norms": [[np.linalg.norm(a) for a in layer] for layer in params],
        "H": H,
        "own": own(params, test_x),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name][1, -1], value, rtol=1e-12, atol=1e-14)
    first, _ = forward(start_of(1), test_x, (0.0, 0.0, 0.0))
    np.testing.assert_allclose(found["z"][1, 0], first, rtol=1e-12)
    with pytest.raises(ValueError, match="observable = 'ntk': recorded: loss, z, norms, H, own"):
        found["ntk"]


def test_float32_leaves_the_configuration_alone():
    """The same members in both precisions, whatever JAX is set to."""
    results = {}
    for dtype in ("float32", "float64"):
        training = Training(20, 0.03, dtype=dtype, record=5)
        results[dtype] = train_ensemble(NET, training, X, Y, members=3, keep_parameters=True)
    assert results["float32"]["loss"].dtype == np.float32
    assert results["float32"].parameters[0].W.dtype == np.float32
    assert results["float64"]["loss"].dtype == np.float64
    difference = np.abs(results["float32"]["loss"] / results["float64"]["loss"] - 1.0)
    assert 1e-9 < difference.max() < 1e-4
    assert jnp.ones(1).dtype == np.float64  # what the tests are set to
