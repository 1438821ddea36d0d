"""Trained ensembles against loops written out in NumPy and PyTorch, and against themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram import MLP, Data, GradientDescent, Optax, Training, train
from dynagram.ensembles.trained._job import TrainingJob
from dynagram.errors import DynagramError
from dynagram.observables.tangents._ntk import network_ntk

RNG = np.random.default_rng(7)
NET = MLP([3, 5, 5, 2], "tanh", 0.1, 1.2, lambda_b=[0.5, 1.0, 2.0], lambda_W=[1.0, 2.0, 3.0])
X = RNG.standard_normal((8, 3))
Y = np.sin(X[:, :2])
CLASSES = RNG.integers(0, 2, 8)
DATA = Data(X, Y)


def training(eta, algorithm="gd", options=None, **more):
    rule = GradientDescent(eta) if algorithm == "gd" else Optax(algorithm, eta, **(options or {}))
    return Training(rule, **more)


# --- a network trained by hand ------------------------------------------------------------------


def start_of(member, seed=0, network=NET):
    """[b1, W1, b2, …] of a member, drawn as in training; `test_members` compares with init."""
    drawn = TrainingJob(network, DATA, training(1.0, steps=1), seed=seed).initial(0, 3)
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
    if loss != "cross-entropy":
        scale = 1.0 if loss == "half-sum" else 2.0 / z.size
        return scale * (z - y), 0.5 * scale * np.sum((z - y) ** 2)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return (p - y) / len(z), -np.sum(y * np.log(p)) / len(z)


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


def by_hand(theta, how, batch_of, network=NET, skips=(0.0, 0.0, 0.0)):
    """Final parameters and the loss of the batch of every step, steps + 1 of them."""
    memory, losses, rates = None, [], rates_of(network)
    for step in range(how.steps + 1):
        slope, value = gradient(theta, *batch_of(step), how.loss, skips)
        losses.append(value)
        if step == how.steps:
            return theta, np.array(losses)
        slope = [g + how.weight_decay * p for g, p in zip(slope, theta, strict=True)]
        updates, memory = RULES[how.name](slope, memory, step)
        theta = [
            p if index // 2 + 1 in how.fixed else p + how.eta * rate * u
            for index, (p, rate, u) in enumerate(zip(theta, rates, updates, strict=True))
        ]
    raise AssertionError


def assert_same_parameters(found, member, theta, tolerance=1e-10):
    leaves = [leaf[member] for layer in found.parameters for leaf in layer]
    for leaf, expected in zip(leaves, theta, strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("algorithm", "options", "loss", "more"),
    [
        ("gd", {}, "half-sum", {}),
        ("gd", {}, "mean", {"fixed": [2]}),
        ("gd", {}, "cross-entropy", {"weight_decay": 0.3}),
        ("momentum", {"momentum": 0.8}, "cross-entropy", {"fixed": [1, 3]}),
        ("adam", {"b2": 0.99}, "half-sum", {"weight_decay": 0.2}),
        ("optax:rmsprop", {"decay": 0.9}, "mean", {}),
    ],
)
def test_equals_a_loop_by_hand(algorithm, options, loss, more):
    """Every algorithm and loss, with rates per layer, decay and fixed layers, to 1e-10."""
    # The gradient of the mean over 8 samples is an eighth of that of the sum.
    eta = 0.24 if algorithm == "gd" and loss == "cross-entropy" else 0.03
    more = {"steps": 25, "record": 26, "spacing": "linear"} | more
    how = training(eta, algorithm, options, loss=loss, **more)
    data = Data.of_classes(X, CLASSES) if loss == "cross-entropy" else DATA
    found = train(NET, data, how, members=3, seed=4, keep_parameters=True)
    assert found.failures == ()
    for member in (0, 2):
        theta, losses = by_hand(start_of(member, seed=4), how, lambda _: (X, data.y))
        np.testing.assert_allclose(found["loss"][member], losses, rtol=1e-10)
        assert_same_parameters(found, member, theta)


def test_network_with_skips_by_hand():
    network = MLP([3, 5, 5, 2], "tanh", 0.1, 1.2, skip=0.7, lambda_b=0.5)
    how = training(0.03, steps=20, record=21, spacing="linear")
    found = train(network, DATA, how, members=3, keep_parameters=True)
    skips = network.skip_of_layers
    start = start_of(1, network=network)
    theta, losses = by_hand(start, how, lambda _: (X, Y), network, skips)
    np.testing.assert_allclose(found["loss"][1], losses, rtol=1e-10)
    assert_same_parameters(found, 1, theta)


def data_key(member, seed=0):
    stream = jax.random.fold_in(jax.random.key(seed), np.uint32(2**32 - 1))
    return jax.random.fold_in(stream, np.uint32(member))


def test_minibatches_by_hand():
    """Each epoch takes every sample once, in a new order, different for each member."""
    how = training(0.05, steps=9, batch=2, record=[1])
    found = train(NET, DATA, how, members=3, keep_parameters=True)
    orders = []
    for member in (0, 1):
        keys = [jax.random.fold_in(data_key(member), epoch) for epoch in range(3)]
        order = np.concatenate([np.array(jax.random.permutation(key, 8)) for key in keys])
        batches = order.reshape(-1, 2)
        theta, _ = by_hand(start_of(member), how, lambda s, b=batches: (X[b[s]], Y[b[s]]))
        assert_same_parameters(found, member, theta)
        z, _ = forward(theta, X, (0.0, 0.0, 0.0))  # what is recorded is the loss of all samples
        value = error("half-sum", z, Y)[1]
        np.testing.assert_allclose(found["loss"][member, -1], value, rtol=1e-10)
        orders.append(tuple(order))
    assert len({orders[0][:8], orders[0][8:16], orders[1][:8]}) == 3


def teacher(key):
    x = jax.random.normal(key, (4, 3))
    return x, jnp.tanh(x[:, :2])


def test_fresh_data_by_hand():
    """The loss recorded at a step is that of the batch the step is about to see."""
    how = training(0.05, steps=6, record=7, spacing="linear")
    found = train(NET, teacher, how, members=3, keep_parameters=True)
    for member in (0, 1):
        batch = lambda s, m=member: [  # noqa: E731
            np.array(a) for a in teacher(jax.random.fold_in(data_key(m), np.uint32(s)))
        ]
        theta, losses = by_hand(start_of(member), how, batch)
        np.testing.assert_allclose(found["loss"][member], losses, rtol=1e-10)
        assert_same_parameters(found, member, theta)


@pytest.mark.parametrize("algorithm", ["momentum", "adam"])
def test_equals_torch(algorithm):
    """One network, with PyTorch's own optimisers: λ_b = 1 and λ_W = n_{ℓ-1} is one rate for all."""
    torch = pytest.importorskip("torch")
    network = MLP([3, 5, 5, 2], "tanh", 0.1, 1.2, lambda_b=1.0, lambda_W=[3, 5, 5])
    options = {"momentum": 0.9, "nesterov": True} if algorithm == "momentum" else {"b1": 0.8}
    how = training(0.02, algorithm, options, steps=20, loss="mean", weight_decay=0.1)
    found = train(network, DATA, how, members=3, keep_parameters=True)

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
    how = training(0.02, steps=10, record=[0, 4])
    data = Data(X, Y, test_x)
    found = train(NET, data, how, members=3, observables=names, keep_parameters=True)
    assert found.times == (0.0, 0.08, 0.2)
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


def test_outputs_by_default_and_where_asked():
    """Those of test inputs by default; of distinct training inputs, then test inputs, if asked."""
    test_x = RNG.standard_normal((3, 3))
    repeated = Data(np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]]), test_x)
    how = training(0.02, steps=10, record=[0])
    default = train(NET, repeated, how, members=3)
    assert default["outputs"].shape == (3, 2, 3, 2)
    assert default.mean.shape == default.std.shape == default.error.shape == (3, 2)
    assert default.covariance.shape == (3, 2, 3, 2)
    both = train(NET, repeated, how, members=3, observables=["all_outputs"])
    assert both.training_samples == 8
    np.testing.assert_allclose(both.mean, default.mean, rtol=1e-12)
    np.testing.assert_array_equal(both.train.inputs, X)
    assert both.samples.covariance.shape == (11, 2, 11, 2)
    assert both.joint_error.shape == (6, 6)
    own = train(NET, DATA, how, members=3, observables=["outputs"])
    np.testing.assert_allclose(own.means[0], both.train.means[0], rtol=1e-12)  # before training
    assert len(train(NET, DATA, how, members=3).inputs) == 0
    assert "loss" in train(NET, DATA, how, members=3).estimates


def test_statistics_of_outputs():
    """Mean and covariance over members, and their exact standard errors for few members."""
    how = training(0.02, steps=10, record=[0, 4])
    found = train(NET, Data(X, Y, X[:2] + 1.0), how, members=40)
    z = found["outputs"].reshape(40, 3, 4)
    np.testing.assert_allclose(found.means.reshape(3, 4), z.mean(axis=0), rtol=1e-12)
    covariance = np.array([np.cov(z[:, time].T) for time in range(3)])
    np.testing.assert_allclose(found.covariances.reshape(3, 4, 4), covariance, rtol=1e-10)
    np.testing.assert_allclose(found.errors.reshape(3, 4), z.std(0, ddof=1) / np.sqrt(40))
    np.testing.assert_allclose(found.joint_errors, covariance / 40, rtol=1e-10)
    last = found.at(found.times[1])
    np.testing.assert_array_equal(last.mean, found.means[1])
    np.testing.assert_array_equal(last["loss"], found["loss"][:, [1]])


def test_very_many_outputs_have_no_covariance_unless_asked():
    inputs = RNG.standard_normal((300, 3))
    how = training(0.02, steps=1)
    found = train(NET, Data(X, Y, inputs), how, members=5)
    assert found.measured_covariance is None
    np.testing.assert_allclose(found.std, found["outputs"][:, -1].std(axis=0, ddof=1), rtol=1e-10)
    assert found.to_dict()["covariance"] is None
    assert "covariance" not in found.to_xarray()
    asked = train(NET, Data(X, Y, inputs), how, members=5, covariances=["outputs"])
    np.testing.assert_allclose(asked.std, found.std, rtol=1e-9)


def test_a_model_is_trained_from_its_weights():
    """All members start from them; one network has a mean and no spread."""
    model = NET.init(seed=5)
    how = training(0.05, steps=9, batch=2, record=[0])
    found = train(model, Data(X, Y, X[:2]), how, members=3, keep_parameters=True)
    start = np.asarray(model(X[:2]))
    for member in range(3):
        np.testing.assert_allclose(found["outputs"][member, 0], start, rtol=1e-12)
    assert np.ptp(found["loss"][:, -1]) > 0.0  # batches differ
    one = train(model, Data(X, Y, X[:2]), how, members=1)
    np.testing.assert_allclose(one.mean, found["outputs"][0, -1], rtol=1e-12)
    assert np.all(np.isnan(one.error))
    assert np.all(np.isnan(one.std))


def test_float32_leaves_the_configuration_alone():
    """The same members in both precisions, whatever JAX is set to."""
    results = {}
    for dtype in ("float32", "float64"):
        how = training(0.03, steps=20, dtype=dtype, record=5)
        results[dtype] = train(NET, DATA, how, members=3, keep_parameters=True)
    assert results["float32"]["loss"].dtype == np.float32
    assert results["float32"].parameters[0].W.dtype == np.float32
    assert results["float64"]["loss"].dtype == np.float64
    difference = np.abs(results["float32"]["loss"] / results["float64"]["loss"] - 1.0)
    assert 1e-9 < difference.max() < 1e-4
    assert jnp.ones(1).dtype == np.float64  # what the tests are set to


def test_a_run_without_a_single_result_says_why():
    """As where the user's activation has no gradient backwards, which theory does not need."""

    def loop(z):
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.tanh(s[1])), (0, z))[
            1
        ]

    network, how = MLP([1, 3, 1], loop, C_b=0.1, C_W=1.0), Training(GradientDescent(0.1), steps=2)
    with pytest.raises(
        DynagramError, match="no member gave a result: 4 failed, the first: .*Reverse"
    ):
        train(network, Data([[1.0]], [1.0], test_x=[[2.0]]), how, members=4)
