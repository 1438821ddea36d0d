"""Every quantity against an independent computation, and bands that hold where they should."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.integrations.torch import torch_ntk  # noqa: E402
from dynagram.watch import QUANTITIES  # noqa: E402
from dynagram.watch._mixing import mixing_signs  # noqa: E402
from dynagram.watch._torch_curvature import DenseCall, PowerMethod  # noqa: E402

X = torch.randn(24, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
Y = torch.tanh(X[:, :3])


def values_of(model, probe, **options):
    with dynagram.watch(model, probe, **options) as watcher:
        pass
    assert watcher.failures == []
    return watcher.last.values, watcher.last.bands


class Tokens(nn.Module):
    """Tokens, a convolution, an embedding and a shared layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.conv = nn.Conv2d(1, 2, (3, 2), padding=(1, 0), stride=(1, 2))
        self.head = nn.Linear(6, 4, bias=False)

    def forward(self, ids):
        x = self.mix(torch.relu(self.mix(self.embed(ids))))
        return self.head(torch.tanh(self.conv(x[:, None])).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("tokens", [False, True])
def test_kernel_shares_are_those_of_the_ntk(tokens):
    """By backward passes for every output, in place of products of inputs and gradients."""
    torch.manual_seed(0)
    if tokens:
        model = Tokens().double()
        probe = torch.randint(0, 11, (8, 7))
    else:
        layers = [nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 7, bias=False), nn.Tanh()]
        model = nn.Sequential(*layers, nn.Linear(7, 3)).double()
        probe = X[:8]
    values, _ = values_of(model, probe)
    z = model(probe)
    signs = torch.from_numpy(mixing_signs(tuple(z.shape)))

    def mixed(params, x):
        out = torch.func.functional_call(model, params, (x,))
        return (out * signs).flatten(1).sum(1, keepdim=True)

    names = dict(model.named_parameters())
    traces = {}
    for layer in {key[1] for key in values if key[0] == "kernel_share"}:
        rates = {n: float(n.rpartition(".")[0] == layer) for n in names}
        kernel = torch_ntk(mixed, names, probe, rates)[..., 0, 0].detach()
        traces[layer] = float(kernel.diagonal().sum())
    total = sum(traces.values())
    assert len(traces) == (4 if tokens else 3)
    for layer, trace in traces.items():
        assert values["kernel_share", layer] == pytest.approx(trace / total, rel=1e-10)


@pytest.mark.parametrize(
    ("kind", "frozen"), [("classes", False), ("reals", False), ("classes", True)]
)
def test_the_top_eigenvalue_is_that_of_the_gauss_newton_matrix(kind, frozen):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    model[2].weight.requires_grad_(not frozen)
    y = Y if kind == "reals" else Y.argmax(1)
    values, _ = values_of(model, (X, y))
    params = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def outputs(flat):
        parts = torch.split(flat, [p.numel() for p in params.values()])
        shaped = {n: v.reshape(p.shape) for (n, p), v in zip(params.items(), parts, strict=True)}
        return torch.func.functional_call(model, shaped, (X,))

    flat = torch.cat([p.detach().flatten() for p in params.values()])
    J = torch.autograd.functional.jacobian(outputs, flat).reshape(72, -1)
    loss = nn.functional.mse_loss if kind == "reals" else nn.functional.cross_entropy
    z = outputs(flat).detach().flatten()
    B = torch.autograd.functional.hessian(lambda z: loss(z.reshape(24, 3), y), z)
    top = torch.linalg.eigvalsh(J.T @ B @ J)[-1]
    assert values["top_eigenvalue", ""] == pytest.approx(float(top), rel=0.02)
    assert values["top_eigenvalue", ""] <= float(top) * (1 + 1e-9)


class UsedTwice(nn.Module):
    """A dense layer that is called once, and whose weight is used again."""

    def __init__(self):
        super().__init__()
        self.into, self.mix, self.out = nn.Linear(5, 40), nn.Linear(40, 40), nn.Linear(40, 3)

    def forward(self, x):
        h = torch.tanh(self.mix(torch.tanh(self.into(x))))
        return self.out(torch.tanh(h @ self.mix.weight))


def wide():
    """One bias missing, one frozen."""
    model = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 40, bias=False), nn.Tanh(),
                          nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))  # fmt: skip
    model[4].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize(("make", "goes"), [(wide, True), (UsedTwice, False)])
def test_curvature_goes_through_signals_where_that_is_the_same(make, goes, monkeypatch):
    torch.manual_seed(0)
    model, seen = make().double(), []

    def noted(method, *arguments):
        seen.append((largest(method, *arguments), method._by_signals))
        return seen[-1][0]

    largest = PowerMethod.largest
    monkeypatch.setattr(PowerMethod, "largest", noted)
    values_of(model, (X, Y))
    monkeypatch.setattr(DenseCall, "is_cheaper", False)
    values_of(model, (X, Y))
    (quick, tried), (plain, untried) = seen
    assert (tried, untried) == (goes, None)
    assert quick == pytest.approx(plain, rel=1e-10)


def test_signals_and_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)).double()
    values, _ = values_of(model, (X, Y))
    z1 = model[0](X).detach().requires_grad_()
    z2 = model[2](torch.relu(z1))
    nn.functional.mse_loss(z2, Y).backward()
    square = float((z1.detach() ** 2).mean())
    assert values["activation", "0"] == pytest.approx(square, rel=1e-12)
    assert values["gradient", "0"] == pytest.approx(float(((24 * z1.grad) ** 2).mean()), rel=1e-10)
    unit = (z1 / z1.norm(dim=1, keepdim=True)).detach()
    cosines = (unit @ unit.T)[~torch.eye(24, dtype=torch.bool)]
    assert values["similarity", "0"] == pytest.approx(float(cosines.mean()), rel=1e-10)
    with torch.no_grad():
        model[0].bias[:2] = -100.0
    values, _ = values_of(model, (X, Y))
    assert values["dead", "0"] == 0.25


def test_the_imbalance_of_relu_layers_stays_and_that_of_others_has_no_band():
    def train(activation, lr):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 30), activation, nn.Linear(30, 3)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        with dynagram.watch(model, (X, Y), every=20, optimizer=optimizer) as watcher:
            for _ in range(200):
                rows = torch.randint(0, 24, (8,))
                optimizer.zero_grad()
                nn.functional.mse_loss(model(X[rows]), Y[rows]).backward()
                optimizer.step()
        return watcher

    watcher = train(nn.ReLU(), 0.1)
    key = ("imbalance", "0")
    band = watcher.last.bands[key]
    assert band.holds(watcher.last.values[key])
    assert watcher.last.values[key] != band.expected
    assert not [alert for alert in watcher.alerts if alert.quantity == "imbalance"]
    assert key not in train(nn.Tanh(), 0.1).last.bands


def test_the_gram_follows_the_push_of_the_loss_under_gradient_descent():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dynagram.watch(model, (X, Y), every=5) as watcher:
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(X), Y).backward()
            optimizer.step()
    for layer in watcher.layers:
        assert watcher.last.values["gram_explained", layer] > 0.999
        assert watcher.last.bands["gram_explained", layer].high < 0.9


@pytest.mark.parametrize("shape", [(64, 64), (40, 100), (300, 50)])
def test_random_weights_have_the_rank_and_tail_of_their_null(shape):
    """Of independent draws about 95 % are inside, whatever the distribution."""
    inside = {"effective_rank": [], "tail": []}
    for seed in range(20):
        torch.manual_seed(seed)
        layer = nn.Linear(shape[1], shape[0])
        if seed % 2:
            nn.init.normal_(layer.weight)
        values, bands = values_of(
            layer, torch.zeros(4, shape[1]), quantities=["effective_rank", "tail"]
        )
        for (name, _), band in bands.items():
            inside[name].append(band.holds(values[name, "Linear"]))
    for name, held in inside.items():
        assert np.mean(held) > 0.8, name


@pytest.mark.slow
def test_redrawn_bands_hold_for_the_same_model_and_find_another_scale():
    def fresh():
        return nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                             nn.Linear(64, 3)).double()  # fmt: skip

    outside, checks = 0, 0
    for seed in range(6):
        torch.manual_seed(100 + seed)
        with dynagram.watch(fresh(), (X, Y), fresh=fresh, draws=12) as watcher:
            pass
        record = watcher.last
        drawn = {key: band for key, band in record.bands.items() if band.origin == "redrawn"}
        checks += len(drawn)
        outside += sum(not band.holds(record.values[key]) for key, band in drawn.items())
        assert watcher.alerts == []
    assert checks > 80
    assert outside / checks < 0.15
    torch.manual_seed(1)
    model = fresh()
    with torch.no_grad():
        model[2].weight.mul_(2.0)
    with dynagram.watch(model, (X, Y), fresh=fresh, draws=12) as watcher:
        pass
    first = watcher.alerts[0]
    assert (first.quantity, first.layer, first.level) == ("weight_norm", "2", "warning")


def test_a_run_goes_on_where_it_was(tmp_path):
    def train(steps, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 3)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with dynagram.watch(model, (X, Y), every=10, run=tmp_path / "run", **options) as watcher:
            for _ in range(steps):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(X), Y).backward()
                optimizer.step()
        assert watcher.failures == []
        return watcher

    train(30)
    watcher = train(20)
    history = dynagram.watch.read_watch(tmp_path / "run")
    assert history.steps.tolist() == [0, 10, 20, 30, 40, 50]
    # The kernel of the beginning is remembered: at the second start it is there again.
    assert history.values["kernel_drift"][0] == 0.0
    np.testing.assert_allclose(
        history.values["kernel_drift"][4:], history.values["kernel_drift"][1:3], rtol=1e-4
    )
    assert watcher.memory.steps == [0, 10, 20, 30, 40, 50]


def test_every_quantity_is_explained_and_recorded():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(),
                          nn.Linear(40, 3)).double()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = set()
    with dynagram.watch(model, (X, Y), every=1, optimizer=optimizer) as watcher:
        seen |= {key[0] for key in watcher.last.values}
        for _ in range(12):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(X), Y).backward()
            optimizer.step()
            seen |= {key[0] for key in watcher.last.values}
    assert seen == set(QUANTITIES) - {"escape"}  # there is no plateau
    assert all(row.plain and row.name == name for name, row in QUANTITIES.items())
