"""What is expected of a training rule is expected only where the steps are those of that rule."""

import json

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.cli import _watch as command  # noqa: E402
from dynagram.watch import read_watch  # noqa: E402

X = torch.randn(128, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] ** 2).reshape(-1, 1)
SGD, ADAM = torch.optim.SGD, torch.optim.Adam


def fresh():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(),
                         nn.Linear(24, 1))  # fmt: skip


def mlp():
    torch.manual_seed(0)
    return fresh()


def train(model, optimizers, steps=60, loss=None, after=lambda: None, **options):
    watcher = dynagram.watch(model, (X, Y), **({"every": 5} | options))
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss or (lambda: F.mse_loss(model(X), Y)))().backward()
        for optimizer in optimizers:
            optimizer.step()
        after()
    assert watcher.failures == []
    return watcher


def balance(watcher):
    bands = {key for key in watcher.last.bands if key[0] == "imbalance"}
    return bands, [alert for alert in watcher.alerts if alert.quantity == "imbalance"]


def frozen(model):
    model[2].requires_grad_(False)
    return {"optimizers": [SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)]}


def head_only(model):
    return {"optimizers": [SGD(model[4].parameters(), lr=0.1)]}


def rates_of_their_own(model):
    return {"optimizers": [SGD([{"params": model[0].parameters(), "lr": 0.01},
                                {"params": model[2:].parameters(), "lr": 0.1}])]}  # fmt: skip


def two_optimizers(model):
    rest = model[2:].parameters()
    return {"optimizers": [SGD(model[0].parameters(), lr=0.05), ADAM(rest, lr=1e-2)]}


def loss_of_what_lies_between(model):
    def loss():
        h = model[:4](X)
        return F.mse_loss(model[4](h), Y) + h.abs().mean()

    return {"optimizers": [SGD(model.parameters(), lr=0.05)], "loss": loss}


def penalty_in_the_loss(model):
    def loss():
        return F.mse_loss(model(X), Y) + 1e-2 * sum((p**2).sum() for p in model.parameters())

    return {"optimizers": [SGD(model.parameters(), lr=0.05)], "loss": loss}


def projection(model):
    def clamp():
        with torch.no_grad():
            for p in model.parameters():
                p.clamp_(-0.3, 0.3)

    return {"optimizers": [SGD(model.parameters(), lr=0.05)], "after": clamp}


@pytest.mark.parametrize(
    "rule",
    [frozen, head_only, rates_of_their_own, two_optimizers, loss_of_what_lies_between,
     penalty_in_the_loss, projection],
)  # fmt: skip
def test_other_rules_are_not_held_against_the_conservation_of_plain_descent(rule):
    model = mlp()
    watcher = train(model, **rule(model))
    bands, alerts = balance(watcher)
    assert alerts == []
    if rule is projection or rule is two_optimizers or rule is penalty_in_the_loss:
        assert bands == set()
    if rule is rates_of_their_own or rule is two_optimizers or rule is head_only:
        assert not any(("top_eigenvalue", "") in r for r in [watcher.last.bands])
        assert [a for a in watcher.alerts if a.quantity == "top_eigenvalue"] == []


def test_a_head_of_which_the_probe_has_no_targets():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()[:4]
            self.policy, self.value = nn.Linear(24, 1), nn.Linear(24, 1)

        def forward(self, x):
            h = self.body(x)
            return self.policy(h), self.value(h)

    model = Heads()

    def loss():
        policy, value = model(X)
        return F.mse_loss(policy, Y) + F.mse_loss(value, X[:, :1])

    bands, alerts = balance(train(model, [SGD(model.parameters(), lr=0.1)], loss=loss))
    assert alerts == []
    assert bands == {("imbalance", "body.0")}


def test_plain_descent_is_held_against_it_and_one_large_step_is_told():
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.05)
    watcher = train(model, [optimizer])
    bands, alerts = balance(watcher)
    assert bands == {("imbalance", "0"), ("imbalance", "2")}
    assert alerts == []
    watcher.close()
    steps = iter(range(100))

    def schedule():
        optimizer.param_groups[0]["lr"] = 8.0 if next(steps) == 6 else 0.01

    watcher = train(model, [optimizer], 20, after=schedule)
    assert {a.level for a in balance(watcher)[1]} == {"warning"}


def test_the_momentum_of_nesterov_is_stable_below_less():
    highs = {}
    for nesterov in (False, True):
        model = mlp()
        rule = SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=nesterov)
        watcher = train(model, [rule], 2, every=1, optimizer=rule)
        highs[nesterov] = (
            watcher.last.bands.get(("top_eigenvalue", ""))
            or (dynagram.watch(model, (X, Y), optimizer=rule).last.bands["top_eigenvalue", ""])
        )
    # θ' = (1 + β)(1 − ηλ)θ − β(1 − ηλ)θ₋: at the bound one solution changes its sign only.
    for nesterov, band in highs.items():
        a = 1.0 - 0.01 * band.high
        ahead = (1.0 + 0.9) * (a if nesterov else 1.0) - (0.0 if nesterov else 0.01 * band.high)
        back = 0.9 * (a if nesterov else 1.0)
        roots = torch.linalg.eigvals(torch.tensor([[ahead, -back], [1.0, 0.0]]).double())
        assert float(roots.abs().max()) == pytest.approx(1.0, abs=1e-5)
        assert float(roots.real.min()) == pytest.approx(-1.0, abs=1e-5)


def test_a_few_samples_are_no_warning_where_others_disagree():
    """λ of 32 samples is above that of all, on average: one odd sample makes it."""
    bounds = {}
    for odd in (1, 128):
        x = X.clone()
        x[:odd] *= 8.0
        torch.manual_seed(0)
        model = nn.Linear(6, 1)
        optimizer = SGD(model.parameters(), lr=0.3)
        with dynagram.watch(model, (x, Y), optimizer=optimizer) as watcher:
            bounds[odd] = watcher.last.values["top_eigenvalue", ""]
            assert bounds[odd] > watcher.last.bands["top_eigenvalue", ""].high
            assert [a.quantity for a in watcher.alerts] == (["top_eigenvalue"] if odd > 1 else [])
        with dynagram.watch(model, (x[:40], Y[:40]), optimizer=optimizer) as watcher:
            assert len(watcher.alerts) == 1  # there is nothing to ask


def test_the_curvature_along_a_direction_on_other_samples():
    """Beside dense matrices, in both frameworks."""
    from dynagram.watch._jax_recorder import JaxRecorder
    from dynagram.watch._torch_recorder import TorchRecorder

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    x, y = X.double(), (X[:, 0] > 0).long() + (X[:, 1] > 0)
    look = TorchRecorder(model, (x, y), None, 32).look()
    for _ in range(30):  # the power method goes on from where it is
        value = look.curvature()
    params = {k: v.detach() for k, v in model.named_parameters()}

    def matrix(rows):
        z = model(x[rows]).detach()
        jacobian = torch.func.jacrev(
            lambda p: torch.func.functional_call(model, p, x[rows]).reshape(-1)
        )(params)
        J = torch.cat([part.flatten(1) for part in jacobian.values()], dim=1)
        p = z.softmax(1)
        H = torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in p)) / len(z)
        return J.T @ H @ J

    values, vectors = torch.linalg.eigh(matrix(slice(0, 32)))
    expected = vectors[:, -1] @ matrix(slice(32, 64)) @ vectors[:, -1]
    assert value == pytest.approx(float(values[-1]), rel=1e-6)
    assert look.elsewhere() == pytest.approx(float(expected), rel=1e-4)

    import jax.numpy as jnp

    def f(p, x):
        h = jnp.tanh(x @ p["0.weight"].T + p["0.bias"][None])
        return h @ p["2.weight"].T + p["2.bias"][None]

    arrays = {name: value.numpy() for name, value in params.items()}
    other = JaxRecorder(f, arrays, (x.numpy(), y.numpy()), None, 32).look(arrays)
    for _ in range(30):
        other.curvature()
    assert other.elsewhere() == pytest.approx(look.elsewhere(), rel=1e-10)


def test_batch_norms_that_are_trained_have_no_bound():
    """The curvature with constant statistics is tens of times that of the training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = SGD(model.parameters(), lr=0.1)
    for is_training in (True, False):
        model.train(is_training)
        with dynagram.watch(model, (X, Y), optimizer=optimizer) as watcher:
            assert ("top_eigenvalue", "") in watcher.last.values
            assert (("top_eigenvalue", "") in watcher.last.bands) != is_training
        assert model.training == is_training


@pytest.mark.parametrize("leads", [0, 1])
def test_updates_of_every_optimizer_are_seen(leads):
    model = mlp()
    optimizers = [SGD(model[0].parameters(), lr=0.1), ADAM(model[2:].parameters(), lr=1e-2)]
    weights = []
    watcher = train(
        model, optimizers, 10, optimizer=optimizers[leads],
        after=lambda: weights.append([model[i].weight.detach().clone() for i in (0, 2, 4)]),
    )  # fmt: skip
    # Of those that come later in the loop, the last update is the one before.
    for index, name in enumerate(watcher.layers):
        last = -1 if leads == 1 or index == 0 else -2
        update = float((weights[last][index] - weights[last - 1][index]).norm())
        assert watcher.last.values["update_norm", name] == pytest.approx(update, rel=1e-5)


def test_a_second_optimizer_goes_on_where_the_first_is_gone_or_rests():
    model = mlp()
    first = SGD(model[4].parameters(), lr=0.05)
    watcher = train(model, [first], 10, every=5)

    def further(optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            F.mse_loss(model(X), Y).backward()
            optimizer.step()

    del first  # as scripts do that give its name to the next one
    second = SGD(model.parameters(), lr=0.05)
    further(second, 10)
    assert watcher.last.step == 20
    third = SGD(model[0].parameters(), lr=0.05)
    further(third, 130)
    assert watcher.last.step >= 45
    assert watcher.failures == []
    watcher.close()


def test_a_wrapped_optimizer_is_the_one_within():
    model = mlp()

    class Wrapped(torch.optim.Optimizer):  # as accelerate makes them
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def zero_grad(self):
            self.optimizer.zero_grad()

        def step(self):
            self.optimizer.step()

    optimizer = Wrapped(SGD(model.parameters(), lr=0.05))
    assert train(model, [optimizer], 10, optimizer=optimizer).last.step == 10


def test_a_range_that_ends_is_not_drawn_on(tmp_path, capsys):
    """And a run that goes on knows what was told before."""
    run = tmp_path / "run"
    for part, factor in enumerate((0.0, 1.0)):
        model = mlp()
        with torch.no_grad():
            model[2].weight.mul_(4.0)

        def loss(model=model, factor=factor):
            h = model[:4](X)
            return F.mse_loss(model[4](h), Y) + factor * h.abs().mean()

        rule = [SGD(model.parameters(), lr=0.01)]
        with train(model, rule, 20, loss, run=run, fresh=fresh) as watcher:
            norms = [a for a in watcher.alerts if (a.quantity, a.layer) == ("weight_norm", "2")]
        assert len(norms) == (part == 0)
    history = read_watch(run)
    changes = history.ranges["imbalance", "2"]
    assert changes[0][1] is not None
    assert changes[-1] == (25, None)
    assert ("imbalance", "2") not in history.bands
    assert history.plot("imbalance") is not None
    command.watch(run, as_json=True)
    assert "2" not in json.loads(capsys.readouterr().out)["bands"].get("imbalance", {})
