"""What goes wrong is recorded, or refused in one line; the training loop never sees it."""

import logging
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError  # noqa: E402
from dynagram.watch import JsonLines, RunFolder, read_watch  # noqa: E402
from dynagram.watch._arguments import (  # noqa: E402
    check_functions,
    check_path,
    check_sinks,
    chosen,
    integer,
)
from dynagram.watch._measure import one_line  # noqa: E402

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
    from dynagram.watch import _torch_recorder, _torch_updates

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
    if name == "look":
        monkeypatch.setattr(_torch_recorder.TorchRecorder, name, fail)
    if name == "remember":
        monkeypatch.setattr(_torch_updates.Updates, name, fail)
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


class Summed(nn.Linear):
    def __init__(self):
        super().__init__(6, 2)

    def forward(self, x):
        return super().forward(x).sum()


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
        ((mlp(), X), {"run": "a\0b"}, "no zero bytes"),
        ((mlp(), X), {"run": __file__}, "is a file, no folder"),
        ((mlp(), X), {"run": "x" * 5000}, "cannot be written: File name too long"),
        ((mlp(), X), {"draws": 1}, "draws = 1: expected an integer ≥ 2"),
        ((mlp(), X), {"every": 10**30}, "every = .*: at most"),
        ((mlp(), X), {"step": -1}, "step = -1: expected an integer ≥ 0"),
        ((mlp(), X), {"sinks": [JsonLines]}, "sinks = 'JsonLines'"),
        ((mlp(), X), {"sinks": [3]}, "sinks = 'int'"),
        ((mlp(), X), {"quantities": []}, "expected some of"),
        ((mlp(), X), {"rate": 0.1}, "rate = 'float': has no meaning in PyTorch"),
        ((mlp(), X), {"fresh": lambda: 1 / 0}, "makes no model: ZeroDivisionError"),
        ((mlp(), X), {"fresh": lambda: nn.Linear(5, 2)}, "fresh = 'Linear': makes a model that"),
        ((mlp(), (X, Y, Y)), {}, r"probe = \['Tensor', 'Tensor', 'Tensor'\]"),
        ((mlp(), np.array(["a", "b"])), {}, "expected an array of numbers"),
        ((mlp(), X.to("meta")), {}, "probe = 'meta'"),
        ((Summed(), X), {}, r"output of the model = \(\): expected an array"),
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


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: check_path("run", 3), "run = 3: expected a path"),
        (lambda: integer("step", "5", 0), "step = '5': expected an integer ≥ 0"),
        (lambda: integer("every", 2.0, 1), "every = 2.0: expected an integer ≥ 1"),
        (lambda: check_sinks(JsonLines("a")), "sinks = 'JsonLines': expected a list"),
        (lambda: check_sinks(None), "sinks = 'NoneType'"),
        (lambda: check_functions(loss=3), "loss = 'int': expected a function"),
        (lambda: chosen(3), "quantities = 3: expected some of"),
        (lambda: chosen([["loss"]]), r"quantities = \['loss'\]"),
    ],
)
def test_bad_types(check, words):
    """Types that the checker of these tests would refuse before `watch` does."""
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        check()


def test_classes_of_every_integer_type_will_do():
    for y in (Y.bool(), Y.to(torch.int8), Y.int()):
        with dynagram.watch(mlp(), (X, y), every=1) as watcher:
            assert watcher.failures == []


def test_a_watch_that_is_refused_lets_its_folder_go(tmp_path):
    """Also while somebody holds the exception, as notebooks do."""

    class Broken:
        def begin(self, *_):
            raise OSError("no\nroom")

        write = close = begin

    held = []
    for _ in range(2):
        with pytest.raises(DynagramError, match="cannot begin: OSError: no room") as caught:
            dynagram.watch(mlp(), (X, Y), run=tmp_path / "run", sinks=[Broken()])
        held.append(caught.value)
    with pytest.raises(InvalidTypeError, match="fresh"):
        dynagram.watch(mlp(), (X, Y), run=tmp_path / "other", fresh=lambda: None)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda z, y: nn.functional.cross_entropy(z, y, reduction="none"), r"loss = \(32,\)"),
        (lambda *_: 3.0, "loss = 'float': expected a tensor of one number"),
    ],
)
def test_what_fails_at_every_step_is_told_once(loss, words):
    model = mlp()
    with dynagram.watch(model, (X, Y), every=1, loss=loss) as watcher:
        steps(model, 5)
    (line,) = watcher.failures
    assert re.search(words, line)


def test_an_error_without_words_is_told_by_its_class():
    class Wordless(Exception):
        def __str__(self):
            raise ValueError("none")

    def fail(*_):
        raise Wordless

    assert one_line(Wordless()) == "Wordless"
    model = mlp()
    with dynagram.watch(model, (X, Y), every=1, on_alert=fail) as watcher:
        with torch.no_grad():
            model[2].bias[0] = float("inf")
        steps(model, 1)
    assert watcher.failures == ["on_alert: Wordless"]


def test_bad_arguments_in_jax():
    params = {"W": np.ones((6, 2), np.float32), "b": np.zeros((1, 2), np.float32)}

    def f(params, x):
        return x @ params["W"] + params["b"]

    x, y = X.numpy(), Y.numpy()
    for probe, options, words in (
        ([x, y], {}, "probe = 'list': expected arrays"),
        ({"x": x}, {}, "probe = 'dict'"),
        ((x, y.astype(str)), {}, "probe = "),
        ((x, y), {"params": params | {"key": "a"}}, "'key' is no array of numbers"),
        ((x, y), {"rate": "fast"}, "rate = 'fast': expected a number"),
        ((x, y), {"rate": -1.0}, "rate = -1.0"),
        ((x, y), {"momentum": 1.0}, "momentum = 1.0: expected a number from 0 to below 1"),
        ((x, y), {"fresh": f}, "fresh = 'function': has no meaning in JAX"),
    ):
        with pytest.raises((InvalidValueError, InvalidTypeError), match=words) as caught:
            dynagram.watch(f, probe, **({"params": params} | options))
        assert "\n" not in str(caught.value)
    with dynagram.watch(lambda p, x: {"z": f(p, x)}, (x, y > 0), params=params) as watcher:
        assert watcher.failures == []
