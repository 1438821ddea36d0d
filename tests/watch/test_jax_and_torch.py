"""PyTorch and JAX give the same numbers on the same weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.errors import InvalidTypeError, InvalidValueError  # noqa: E402

rng = np.random.default_rng(0)
X = rng.normal(size=(64, 6))
CLASSES = (X[:, 0] > 0) + (X[:, 1] > 0).astype(int)


def weights(sizes=(6, 40, 36, 3)):
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    return [(rng.normal(size=s) / s[1] ** 0.5, 0.1 * rng.normal(size=s[0])) for s in shapes]


def in_torch(layers, dtype):
    modules = []
    for W, b in layers:
        linear = nn.Linear(W.shape[1], W.shape[0], dtype=dtype)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(W))
            linear.bias.copy_(torch.from_numpy(b))
        modules += [linear, nn.Tanh()]
    return nn.Sequential(*modules[:-1])


def outputs_first(params, x):
    """The weights as torch has them."""
    for i, (W, b) in enumerate(params):
        x = (jnp.tanh(x) if i else x) @ W.T + b[None, :]
    return x


def inputs_first(params, x):
    """The weights as flax has them, in a compiled function."""
    for i, (W, b) in enumerate(params):
        x = jax.jit(lambda h, W: jnp.dot(h, W))(jnp.tanh(x) if i else x, W) + b[None, :]
    return x


@pytest.mark.parametrize(
    ("function", "kind", "dtype", "tolerance"),
    [
        (outputs_first, "classes", "float32", 1e-5),
        (inputs_first, "classes", "float64", 1e-10),
        (inputs_first, "reals", "float32", 1e-5),
        (outputs_first, "reals", "float64", 1e-10),
    ],
)
def test_the_same_numbers(function, kind, dtype, tolerance):
    y = CLASSES if kind == "classes" else np.tanh(X[:, :3])
    start, end = weights(), weights()
    end = [(W + 0.01 * V, b) for (W, b), (V, _) in zip(start, end, strict=True)]
    x = X.astype(dtype)
    y = y if kind == "classes" else y.astype(dtype)

    model = in_torch(start, getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    probe = torch.from_numpy(x), torch.from_numpy(y)
    with dynagram.watch(model, probe, every=1, optimizer=optimizer) as first:
        first_record = first.last
        for parameter, values in zip(
            model.parameters(), [v for layer in end for v in layer], strict=True
        ):
            parameter.grad = ((parameter.detach() - torch.from_numpy(values)) / 0.5).to(parameter)
        optimizer.step()

    turned = (lambda W: W.T) if function is inputs_first else (lambda W: W)
    params = [(turned(W).astype(dtype), b.astype(dtype)) for W, b in start]
    # The weights that the step gave, bit for bit: rounding it otherwise is another update.
    stepped = [p.detach().numpy().copy() for p in model.parameters()]
    later = [(turned(W), b) for W, b in zip(stepped[::2], stepped[1::2], strict=True)]
    with dynagram.watch(function, (x, y), every=1, params=params, rate=0.5, momentum=0.0) as second:
        second_record = second.last
        second(later)
    assert first.failures == second.failures == []
    assert second.layers == ("0.0", "1.0", "2.0")
    names = dict(zip(first.layers, second.layers, strict=True)) | {"": ""}
    for one, other in ((first_record, second_record), (first.last, second.last)):
        translated = {(q, names[layer]): value for (q, layer), value in one.values.items()}
        assert translated.keys() == other.values.keys()
        for key, value in translated.items():
            # ‖Θ_t − Θ_0‖/‖Θ_0‖ and a cosine are parts of 1, the size of what they were rounded at:
            # digits that a difference of kernels has lost in float32 are nobody's.
            is_part = key[0] in ("gram_explained", "kernel_drift")
            scale = max(abs(value), 1.0 if is_part else 1e-6 if dtype == "float32" else 0.0)
            off = abs(other.values[key] - value)
            assert off <= tolerance * scale, (key, value, other.values[key])
        bands = {(q, names[layer]): band for (q, layer), band in one.bands.items()}
        assert bands.keys() == other.bands.keys()


def test_an_equinox_module():
    key = jax.random.key(0)
    model = eqx.nn.MLP(6, 3, 32, 2, key=key)
    with dynagram.watch(model, (X.astype(np.float32), CLASSES), every=2) as watcher:
        for _ in range(4):
            model = jax.tree.map(lambda a: 0.99 * a if eqx.is_inexact_array(a) else a, model)
            watcher(model)
    assert watcher.failures == []
    assert watcher.last.step == 4
    assert [name.rpartition(".")[2] for name in watcher.layers] == ["weight"] * 3
    norms = [watcher.last.values["weight_norm", name] for name in watcher.layers]
    updates = [watcher.last.values["update_norm", name] for name in watcher.layers]
    np.testing.assert_allclose(updates, np.array(norms) * (1 / 0.99 - 1), rtol=1e-3)
    total = sum(watcher.last.values["kernel_share", name] for name in watcher.layers)
    assert total == pytest.approx(1.0)


def test_convolutions_and_unused_weights_are_measured_as_far_as_they_go():
    params = {"conv": np.ones((4, 1, 3)), "head": np.ones((3, 4)), "idle": np.ones((2, 2))}

    def function(params, x):
        shape = ("NCH", "OIH", "NCH")
        h = jax.lax.conv_general_dilated(
            x[:, None, :], params["conv"], (1,), "VALID", dimension_numbers=shape
        )
        return jnp.tanh(h).mean(axis=2) @ params["head"].T

    with dynagram.watch(function, (X, CLASSES), params=params) as watcher:
        pass
    values = watcher.last.values
    assert watcher.failures == []
    assert watcher.layers == ("conv", "head", "idle")
    assert values["activation", "conv"] > 0
    assert ("activation", "idle") not in values
    assert values["weight_norm", "idle"] == 2.0


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((lambda p, x: x @ p, X), {}, "with params="),
        ((lambda p, x: x @ p, X), {"params": np.ones(6)}, "no leaf with two or more"),
        ((lambda p, x: x @ p, X), {"params": np.ones((5, 2))}, "the model does not take it"),
        ((lambda p, x: (x @ p).sum(), X), {"params": np.ones((6, 2))}, "samples first"),
    ],
)
def test_bad_arguments(arguments, options, words):
    with pytest.raises((InvalidTypeError, InvalidValueError), match=words) as caught:
        dynagram.watch(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_parameters_that_are_no_numbers_and_functions_that_fail():
    params = np.ones((6, 3))
    with dynagram.watch(lambda p, x: x @ p, (X, CLASSES), every=1, params=params) as watcher:
        watcher(np.full((6, 3), np.nan))
        assert any("diverged" in alert.sentence for alert in watcher.alerts)
        watcher(np.ones((7, 3)))
    assert len(watcher.failures) >= 1
    assert watcher.step == 2
