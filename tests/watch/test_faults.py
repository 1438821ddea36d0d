"""What goes wrong is recorded, or refused in one line; the training loop never sees it."""

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError  # noqa: E402
from dynagram.watch import RunFolder, read_watch  # noqa: E402

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def mlp(width=16):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))


def steps(model, count, optimizer=None, lr=0.1):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X).float(), Y)
        if loss.requires_grad:
            loss.backward()
        optimizer.step()


def test_weights_that_are_no_numbers_are_told_once(caplog):
    model = mlp()
    with caplog.at_level(logging.WARNING, "dynagram.watch"):
        watcher = dynagram.watch(model, (X, Y), every=1)
        with torch.no_grad():
            model[2].weight[0, 0] = float("nan")
        steps(model, 3)
    watcher.close()
    assert watcher.last.step == 3
    assert np.isnan(watcher.last.values["weight_norm", "2"])
    (told,) = [a for a in watcher.alerts if "the run has diverged" in a.sentence]
    assert (told.step, told.quantity) == (1, "weight_norm")
    assert "\n" not in caplog.records[0].getMessage()


def test_a_loss_that_explodes(tmp_path):
    model = mlp()
    watcher = dynagram.watch(model, (X, 1e3 * X[:, :2]), every=1, run=tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X), 1e3 * X[:, :2]).backward()
        optimizer.step()
    watcher.close()
    assert watcher.step == 60
    first = next(a for a in watcher.alerts if a.quantity == "top_eigenvalue")
    assert "a rate below 2/λ is stable" in first.sentence
    history = read_watch(tmp_path / "run")
    assert np.isinf(history.values["loss"][-1])
    assert any("diverged" in alert.sentence for alert in history.alerts)


def test_frozen_and_shared_layers_have_no_part_or_one_part():
    model = mlp()
    model[0].requires_grad_(False)
    with dynagram.watch(model, (X, Y), every=1) as watcher:
        steps(model, 2, torch.optim.SGD(model[2].parameters(), lr=0.1))
    values = watcher.last.values
    assert watcher.failures == []
    assert values["kernel_share", "0"] == 0.0
    assert values["kernel_share", "2"] == 1.0
    assert values["update_norm", "0"] == 0.0 < values["update_norm", "2"]
    assert not model[0].weight.requires_grad

    torch.manual_seed(0)
    layer = nn.Linear(6, 6)
    shared = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(6, 2))
    with dynagram.watch(shared, (X, Y), every=1) as watcher:
        steps(shared, 2)
    assert watcher.failures == []
    assert watcher.layers == ("0", "4")
    total = sum(watcher.last.values["kernel_share", name] for name in watcher.layers)
    assert total == pytest.approx(1.0)


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 5)
            self.head = nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    model, ids = Tied(), torch.randint(0, 7, (8, 3))
    with dynagram.watch(model, (ids, ids), every=1) as watcher:
        pass
    assert watcher.failures == []
    assert watcher.layers == ("embed", "head")
    assert watcher.last.values["weight_norm", "embed"] == watcher.last.values["weight_norm", "head"]


def test_half_precision_agrees_with_full():
    half, full = mlp(64).to(torch.bfloat16), mlp(64)
    full.load_state_dict({k: v.float() for k, v in half.state_dict().items()})
    records = []
    for model in (half, full):
        with dynagram.watch(model, (X, Y), every=1) as watcher:
            pass
        assert watcher.failures == []
        records.append(watcher.last.values)
    for key in records[1]:
        if key[0] in ("weight_norm", "activation", "gradient", "similarity", "kernel_share"):
            assert records[0][key] == pytest.approx(records[1][key], rel=0.05, abs=0.02)


def test_another_device_is_refused_in_one_line():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    with pytest.raises(InvalidValueError, match="holds no numbers") as caught:
        dynagram.watch(model, X)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["look", "quantity", "sink", "alert", "remember"])
def test_an_exception_inside_is_recorded(name, monkeypatch):
    from dynagram.watch import _torch_recorder

    def fail(*_, **__):
        raise RuntimeError("out\nof order")

    class Broken:
        def begin(self, *_):
            pass

        write = close = fail

    model, options = mlp(), {}
    if name == "quantity":
        row = dynagram.watch.QUANTITIES["dead"]
        broken = type(row)("dead", row.plain, fail)
        monkeypatch.setitem(dynagram.watch.QUANTITIES, "dead", broken)
    if name == "sink":
        options["sinks"] = [Broken()]
    if name == "alert":
        options["on_alert"] = fail
    watcher = dynagram.watch(model, (X, Y), every=1, **options)
    if name in ("look", "remember"):
        monkeypatch.setattr(_torch_recorder.TorchRecorder, name, fail)
    if name == "alert":
        with torch.no_grad():
            model[2].bias[0] = float("inf")
    steps(model, 3)
    watcher.close()
    assert watcher.step == 3
    assert watcher.failures
    assert any("RuntimeError: out of order" in line for line in watcher.failures)
    assert all("\n" not in line for line in watcher.failures)
    if name in ("quantity", "sink"):
        assert watcher.last.step == 3


def test_out_of_room_on_disk_is_no_end(tmp_path, monkeypatch):
    model = mlp()
    watcher = dynagram.watch(model, (X, Y), every=1, run=tmp_path / "run")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write", full)
    steps(model, 2)
    watcher.close()
    assert watcher.failures == ["RunFolder: OSError: [Errno 28] No space left on device"]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((3, X), {}, "model = 'int'"),
        ((mlp(), "x"), {}, "probe = 'str'"),
        ((mlp(), X[:1]), {}, "at least 2 samples"),
        ((mlp(), X, 0), {}, "every = 0"),
        ((mlp(), X), {"samples": 1}, "samples = 1"),
        ((mlp(), X), {"quantities": ["speed"]}, "quantities = 'speed'"),
        ((mlp(), X), {"optimizer": 1}, "optimizer = 'int'"),
        ((nn.ReLU(), X), {}, "has no parameters to watch"),
        ((mlp(), X), {"run": "no/such/folder"}, "its parent folder does not exist"),
    ],
)
def test_bad_arguments(arguments, options, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words) as caught:
        dynagram.watch(*arguments, **options)
    assert isinstance(caught.value, DynagramError)
    assert "\n" not in str(caught.value)


def test_a_model_that_cannot_take_the_probe_is_refused():
    """Before training begins the user can mend it."""
    with pytest.raises(InvalidValueError, match="the model does not take it: RuntimeError"):
        dynagram.watch(mlp(), torch.zeros(4, 5))
