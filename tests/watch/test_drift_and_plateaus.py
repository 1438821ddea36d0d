"""The drift of the kernel beside that of networks drawn again; plateaus and when they end."""

import math
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.watch._drift_band import DriftBand  # noqa: E402
from dynagram.watch._named_loss import loss_name  # noqa: E402
from dynagram.watch._plateau_state import plateau_state  # noqa: E402

QUANTITIES = ["loss", "rate", "kernel_drift", "plateau", "escape"]


def network(seed, scale=1.0, width=32):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, width, bias=False), nn.Tanh(),
                          nn.Linear(width, width, bias=False), nn.Tanh(),
                          nn.Linear(width, 1, bias=False))  # fmt: skip
    for part in model[::2]:
        nn.init.normal_(part.weight, std=scale * part.in_features**-0.5)
    return model


def train(model, x, y, steps, rate, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=options.pop("momentum", 0.0))
    watcher = dynagram.watch(
        model, (x, y), optimizer=optimizer, quantities=QUANTITIES, **options
    )  # fmt: skip
    records = [watcher.last]
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if watcher.last is not records[-1]:
            records.append(watcher.last)
    watcher.close()
    return watcher, records


def batch():
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(9))
    return x, x[:, :1].clone()


@pytest.mark.slow
def test_a_drift_that_is_normal_and_one_that_is_not():
    x, y = batch()
    watcher, records = train(network(0), x, y, 60, 0.02, every=20, theory=True)
    assert watcher.failures == []
    key = ("kernel_drift", "")
    assert key not in records[0].bands  # nothing has moved yet
    for record in records[1:]:
        assert record.bands[key].origin == "retrained"
        assert not record.bands[key].alarms(record.values[key])
    # The same rate with momentum is ten times the time of flow.
    _, moved = train(network(0), x, y, 60, 0.002, every=60, theory=True, momentum=0.9)
    assert math.isclose(moved[-1].bands[key].expected, records[-1].bands[key].expected)
    # Weights that someone rescales on the way are no drift of gradient descent.
    model = network(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    watcher = dynagram.watch(
        model, (x, y), every=1, optimizer=optimizer, quantities=QUANTITIES, theory=True
    )
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    assert watcher.alerts == []
    with torch.no_grad():
        model[2].weight.mul_(2.0)
    optimizer.step()
    watcher.close()
    (alert,) = watcher.alerts
    assert (alert.quantity, alert.level) == ("kernel_drift", "note")
    assert "drawn again and trained on the probe" in alert.sentence


@pytest.mark.slow
def test_where_no_drift_is_predicted_a_line_says_why():
    x, y = batch()
    model = network(0)
    model[0].weight.requires_grad_(False)
    with dynagram.watch(model, (x, y), theory=True, quantities=QUANTITIES) as watcher:
        pass
    assert watcher.failures == ["theory of the kernel's drift: some layers are frozen"]
    odd = lambda z, y: (z - y).abs().mean()  # noqa: E731
    with dynagram.watch(network(0), (x, y), loss=odd, theory=True) as watcher:
        pass
    assert [line for line in watcher.failures if "is not known" in line]
    # With Adam the time of flow is not known: no band, no line.
    model = network(0)
    optimizer = torch.optim.Adam(model.parameters())
    watcher = dynagram.watch(
        model, (x, y), every=1, theory=True, optimizer=optimizer, quantities=QUANTITIES
    )
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    watcher.close()
    assert watcher.failures == []
    assert watcher.last.bands == {}


def test_the_range_of_a_drift_follows_the_time():
    draws = np.random.default_rng(0).lognormal(-3.0, 0.1, size=(16, 1))
    drift = DriftBand(np.array([1.0, 10.0]), draws * np.array([1.0, 10.0]))
    at = {tau: drift.band(tau) for tau in (0.0, 0.5, 1.0, 3.0, 10.0, 11.0)}
    assert at[0.0] is None
    assert at[11.0] is None
    for tau in (0.5, 3.0, 10.0):
        for name in ("expected", "low", "high"):
            assert math.isclose(getattr(at[tau], name), tau * getattr(at[1.0], name))


def test_losses_that_theory_knows():
    reals, classes = np.zeros(3, np.float32), np.zeros(3, np.int64)
    assert loss_name(nn.functional.mse_loss, reals) == "mean"
    assert loss_name(nn.CrossEntropyLoss(), classes) == "cross-entropy"
    assert loss_name(nn.CrossEntropyLoss(label_smoothing=0.1), classes) is None
    assert loss_name(nn.MSELoss(reduction="sum"), reals) is None
    assert loss_name(nn.functional.l1_loss, reals) is None
    assert loss_name(nn.functional.cross_entropy, reals) is None
    assert loss_name(None, None) is None


def test_the_state_of_a_loss():
    steps = list(range(40))
    assert plateau_state(steps[:9], [1.0] * 9) is None
    assert plateau_state(steps, [1.0 - 1e-5 * 1.15**s for s in steps]) == "plateau"
    assert plateau_state(steps, [math.exp(-0.01 * s) for s in steps]) == "falling"
    assert plateau_state(steps, [math.exp(-2.0 * s) for s in steps]) == "done"
    assert plateau_state(steps, [0.5 + 0.5 * math.exp(-2.0 * s) for s in steps]) == "plateau"
    assert plateau_state(steps, [math.nan] * 40) is None


@pytest.mark.slow
def test_the_end_of_a_plateau_is_forecast_once_and_comes_then():
    x, y = batch()
    model, alone = network(1, scale=0.05), network(1, scale=0.05)
    watcher, records = train(model, x, y, 2500, 0.005, every=20)
    assert watcher.failures == []
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.005)
    for _ in range(2500):
        optimizer.zero_grad()
        nn.functional.mse_loss(alone(x), y).backward()
        optimizer.step()
    for watched, other in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(watched, other)
    notes = [alert for alert in watcher.alerts if alert.quantity == "escape"]
    assert "will leave it at step" in notes[0].sentence
    first = next(record for record in records if ("escape", "") in record.values)
    forecast, band = first.values["escape", ""], first.bands["escape", ""]
    assert band.low < forecast < band.high
    # The same number at every record of the plateau.
    same = [r.values["escape", ""] for r in records if ("escape", "") in r.values]
    assert same.count(forecast) > 3
    losses = {record.step: record.values["loss", ""] for record in records}
    left = next(step for step, loss in losses.items() if loss < 0.5 * losses[0])
    assert 0.7 < left / forecast < 1.4
    assert watcher.last.values["plateau", ""] == 2.0


@pytest.mark.slow
def test_a_plateau_of_classes_is_forecast():
    """Labels, as a cross-entropy of PyTorch takes them."""
    torch.manual_seed(0)
    x = torch.randn(200, 6)
    y = (x[:, 0] + 0.3 * x[:, 1] > 0).long() + (x[:, 2] > 0.8).long()
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                          nn.Linear(32, 3))  # fmt: skip
    with torch.no_grad():
        for part in model.parameters():
            part.mul_(0.08 if part.ndim == 2 else 0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    names = ["loss", "plateau", "escape"]
    watcher = dynagram.watch(model, (x, y), every=10, optimizer=optimizer, quantities=names)
    losses = []
    for _ in range(2500):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        known = [alert for alert in watcher.alerts if alert.quantity == "escape"]
        if known and loss < 0.8 * losses[known[0].step - 1]:
            break
    watcher.close()
    assert watcher.failures == []
    assert "will leave it at step" in known[0].sentence
    forecast = float(known[0].sentence.split("at step ")[1].split()[0])
    assert 0.7 < len(losses) / forecast < 1.4


def test_a_number_at_the_end_of_its_range_is_told_once():
    from dynagram.watch import Band
    from dynagram.watch._measure import Guard

    guard, key = Guard(), ("activation", "0")
    bands = {key: Band(1.0, 0.9, 1.1, "redrawn", (0.8, 1.2))}
    values = [1.0, 1.25, 1.15, 1.25, 1.19, 1.3, 1.05, 1.25]
    told = [len(guard.alerts(step, {key: value}, bands)) for step, value in enumerate(values)]
    assert told == [0, 1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("step", "value", "words"),
    [
        (0, 2.0, "larger than expected: see how"),
        (0, 0.5, "smaller than expected: see how"),
        (9, 2.0, "larger than when the model was drawn, which training may want"),
        (9, 0.5, "smaller than when the model was drawn, which training may want"),
    ],
)
def test_an_alert_says_on_which_side_and_of_what(step, value, words):
    from dynagram.watch import Band
    from dynagram.watch._measure import Guard

    key = ("activation", "0")
    bands = {key: Band(1.0, 0.9, 1.1, "redrawn", (0.8, 1.2))}
    (alert,) = Guard().alerts(step, {key: value}, bands)
    assert words in alert.sentence
    assert alert.level == ("note" if step else "warning")


def test_a_loss_that_wavers_is_not_forecast_again_and_again(monkeypatch):
    from dynagram.watch import _run_quantities
    from dynagram.watch._context import Context, Memory
    from dynagram.watch._escape import Escape
    from dynagram.watch._look import Look

    asked = []

    def forecast(_, step):
        asked.append(step)
        time.sleep(0.02)
        return Escape(2.0 * step, 1.0, 3.0, "words")

    monkeypatch.setattr(_run_quantities, "forecast_escape", forecast)
    memory = Memory(spent=5.0)  # reckoned for the first, which waits for a longer run
    context = Context(Look([]), memory, 1)
    context.state = "plateau"
    assert _run_quantities.escape(context) is None
    memory.spent = 0.0
    for step in range(40):
        context = Context(Look([]), memory, 1)
        context.state = "plateau" if step % 2 else "falling"
        memory.steps.append(step)
        _run_quantities.escape(context)
    assert asked == [1]
    assert memory.notes == ["words"]
    memory.spent = 0.0
    context = Context(Look([]), memory, 1)
    context.state = "plateau"
    assert _run_quantities.escape(context)[0] == 78.0


def test_no_forecast_is_a_sentence_and_no_failure():
    """A network that stands still because it does not learn, with an optimizer not forecast."""
    x, y = batch()
    for make, words in (
        (lambda p: torch.optim.Adam(p, lr=1e-9), "not those of gradient descent"),
        (lambda p: torch.optim.SGD(p, lr=1e-9, weight_decay=0.1), "without weight decay"),
        (lambda p: torch.optim.SGD(p, lr=1e-9), "is not small"),
    ):
        model = network(2)
        optimizer = make(model.parameters())
        watcher = dynagram.watch(
            model, (x, y), every=1, optimizer=optimizer, quantities=["loss", "plateau", "escape"]
        )
        for _ in range(14):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        watcher.close()
        assert watcher.failures == []
        (alert,) = watcher.alerts  # once for this plateau
        assert alert.level == "note"
        assert words in alert.sentence
        assert watcher.last.values["plateau", ""] == 1.0
