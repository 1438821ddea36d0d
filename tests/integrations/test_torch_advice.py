"""Advice applied to PyTorch modules: the numbers of JAX, and models it must refuse."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from dynagram.advice import advise_rates  # noqa: E402
from dynagram.data import Data  # noqa: E402
from dynagram.errors import InvalidValueError  # noqa: E402
from dynagram.integrations.torch import init_, param_groups  # noqa: E402
from dynagram.networks import Model  # noqa: E402

RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 6)) + 1.0
LABELS = RNG.integers(3, size=40)


def perceptron(activation=nn.ReLU, depth=5, width=20, bias=True):
    layers = [nn.Linear(6, width, bias=bias), activation()]
    for _ in range(depth - 2):
        layers += [nn.Linear(width, width, bias=bias), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 3, bias=bias)).double()


def linear_layers(model):
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(n, m).double() for n, m in itertools.pairwise([6, 20, 20, 20, 3])
        )

    def forward(self, x):
        z = self.layers[0](x)
        for layer in self.layers[1:-1]:
            z = z + layer(torch.relu(z))
        return self.layers[-1](torch.relu(z))


@pytest.mark.parametrize("skip", [0.0, 1.0])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_rates_are_those_of_jax_on_the_same_weights(optimizer, skip):
    torch.manual_seed(0)
    model, x = Residual() if skip else perceptron(), torch.tensor(X)
    options = {"activation": "relu", "residual": skip != 0.0}
    init_(model, x, **options)
    groups = param_groups(
        model, x, torch.tensor(LABELS), nn.CrossEntropyLoss(), optimizer=optimizer, batch=30,
        **options,
    )  # fmt: skip
    rate_of = {id(p): group["lr"] for group in groups for p in group["params"]}
    weights, biases = (
        [getattr(layer, name).detach().numpy() for layer in linear_layers(model)]
        for name in ("weight", "bias")
    )
    twin = Model.of_matrices(weights, "relu", biases=biases, skip=skip)
    data = Data(X, np.eye(3)[LABELS])
    wanted = advise_rates(twin, data, loss="cross-entropy", optimizer=optimizer, batch=30)
    # The largest eigenvalue comes from power iterations that start elsewhere, to a few per cent.
    tolerance = 1e-9 if optimizer == "adam" else 0.03
    for name, rates in (("weight", wanted.layers), ("bias", wanted.biases)):
        found = [rate_of[id(getattr(layer, name))] for layer in linear_layers(model)]
        assert found == pytest.approx(list(rates), rel=tolerance)


def test_layers_are_placed_and_nothing_else_is_touched():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 3)
    ).double()
    x = torch.tensor(X)
    before = {name: value.clone() for name, value in model.named_buffers()}
    model.train()
    init_(model, x)
    assert model.training
    for name, value in model.named_buffers():
        assert torch.equal(value, before[name])
    model.eval()
    out = model(x).detach()
    assert float(out.mean(0).abs().max()) < 1e-12
    assert float(out.var(0, unbiased=False).mean()) == pytest.approx(1.0, rel=1e-9)
    groups = param_groups(model, x, torch.tensor(LABELS), nn.CrossEntropyLoss())
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_layers_without_a_bias_are_scaled():
    model, x = perceptron(nn.Tanh, bias=False), torch.tensor(X)
    init_(model, x)
    assert float((model(x).detach() ** 2).mean()) == pytest.approx(1.0, rel=1e-9)


def test_models_that_are_refused():
    x = torch.tensor(X)
    shared = nn.Linear(6, 6).double()
    with pytest.raises(InvalidValueError, match="must be called once"):
        init_(nn.Sequential(shared, nn.ReLU(), shared), x)
    with pytest.raises(InvalidValueError, match="at least two linear layers"):
        init_(nn.Sequential(nn.Linear(6, 6), nn.ReLU()).double(), x)
    mixed = nn.Sequential(
        nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)
    ).double()
    with pytest.raises(InvalidValueError, match="activation = 'relu, tanh': say which one"):
        init_(mixed, x)
    images = nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    with pytest.raises(InvalidValueError, match="Conv2d; advice is for .* --arch convnet"):
        init_(images, torch.ones(4, 1, 3, 3))
    encoder = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    with pytest.raises(InvalidValueError, match="MultiheadAttention; .* --arch pre-norm"):
        init_(encoder, torch.ones(4, 5, 6))
    with pytest.raises(InvalidValueError, match=r"x = .*float32 \(40, 6\).*does not run on it"):
        init_(perceptron(), x.float())
    with pytest.raises(InvalidValueError, match="optimizer = 'lion'"):
        param_groups(perceptron(), x, x, nn.MSELoss(), optimizer="lion")
