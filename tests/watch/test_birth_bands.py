"""Bands of the beginning by theory: held by drawn networks, left by wrong ones."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402

pytestmark = pytest.mark.slow


def draw(seed, width=64, scale=1.0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                          nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))  # fmt: skip
    for part in model[::2]:
        nn.init.normal_(part.weight, std=(2 / part.in_features) ** 0.5)
        nn.init.zeros_(part.bias)
    with torch.no_grad():  # correlated rows: every weight has its variance, signals do not
        if scale != 1.0:
            model[2].weight[:] = model[2].weight.abs() * scale
    return model


def test_drawn_networks_are_inside_and_correlated_weights_are_not():
    x = torch.randn(32, 10, generator=torch.Generator().manual_seed(5))
    held = []
    for seed in range(10):
        with dynagram.watch(
            draw(seed), x, theory=True, quantities=["activation", "weight_norm"]
        ) as watcher:
            pass
        assert watcher.failures == []
        assert watcher.alerts == []
        bands = watcher.last.bands
        assert set(bands) == {("activation", name) for name in ("0", "2", "4")}
        held += [band.holds(watcher.last.values[key]) for key, band in bands.items()]
    # 30 checks, those of one network not independent: 95 %, less four standard deviations of ten.
    assert np.mean(held) > 0.95 - 4 * (0.05 * 0.95 / 10) ** 0.5
    with dynagram.watch(draw(0, scale=1.01), x, theory=True, quantities=["activation"]) as watcher:
        pass
    first = watcher.alerts[0]
    assert (first.layer, first.level) == ("2", "warning")


def test_in_jax_and_where_there_is_no_theory():
    x = np.random.default_rng(0).normal(size=(16, 6))
    params = [np.random.default_rng(i).normal(size=(6 if i == 0 else 40, 40)) for i in range(2)]

    def function(params, x):
        return np.tanh(1.0) * dynagram_tanh(x @ params[0]) @ params[1]

    import jax.numpy as jnp

    dynagram_tanh = jnp.tanh
    with dynagram.watch(function, x, params=params, theory=True) as watcher:
        pass
    assert watcher.failures == []
    assert ("activation", "0") in watcher.last.bands
    model = nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.Linear(20, 2))
    with dynagram.watch(model, torch.from_numpy(x).float(), theory=True) as watcher:
        pass
    (line,) = watcher.failures
    assert line.startswith("theory: no theory of ours applies")
    assert watcher.last.step == 0


def test_gradients_and_similarity_of_tokens_have_their_ranges():
    quantities = ["activation", "gradient", "similarity"]
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(32, 10, generator=generator)
    with dynagram.watch(draw(3), (x, x[:, :1]), theory=True, quantities=quantities) as watcher:
        pass
    assert watcher.failures == []
    assert watcher.alerts == []
    last = watcher.last
    assert {key for key in last.bands if key[0] == "gradient"} == {
        ("gradient", name) for name in ("0", "2", "4")
    }
    assert not [key for key in last.bands if key[0] == "similarity"]  # samples have one token

    def convolutions(gain):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
                              nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                              nn.Flatten(), nn.Linear(32 * 25, 3))  # fmt: skip
        with torch.no_grad():  # every entry keeps its size: channels become alike
            if gain:
                model[2].weight[:] = model[2].weight.abs()
        return model

    x = torch.randn(16, 1, 5, 5, generator=generator)
    y = torch.randint(0, 3, (16,), generator=generator)
    for gain in (False, True):
        with dynagram.watch(
            convolutions(gain), (x, y), theory=True, quantities=quantities
        ) as watcher:
            pass
        assert watcher.failures == []
        told = {(alert.quantity, alert.layer) for alert in watcher.alerts}
        assert {("similarity", "0"), ("similarity", "2")} <= set(watcher.last.bands)
        assert told == set() if not gain else ("similarity", "2") in told
