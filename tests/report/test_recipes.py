"""The code that `dynagram advise` prints runs as pasted and trains with the rates advised."""

import itertools

import jax
import numpy as np
import optax
import pytest

from dynagram import MLP, Data, advise
from dynagram.report.prose._recipes import optax_recipe, per_layer_text, pytorch_recipe

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
X = 4.0 * RNG.normal(size=(30, 5))
Y = np.sin(X[:, :2] / 4.0)


def network(skip=0.0):
    return MLP([5, *[16] * 4, 2], "tanh", C_b=0.0, C_W=1.0, skip=skip)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_optax_recipe_runs_and_steps_as_advised(optimizer):
    advice = advise(network(), Data(X, Y), optimizer=optimizer)
    space = {"x": X, "y": Y}
    exec(optax_recipe(advice), space)
    model, optimiser = space["model"], space["optimizer"]
    np.testing.assert_allclose(model.params[2].W, advice.model.params[2].W)
    ones = jax.tree.map(np.ones_like, model.params)
    updates, _ = optimiser.update(ones, optimiser.init(model.params), model.params)
    moved = optax.apply_updates(model.params, updates)
    if optimizer != "adamw":
        for before, after, rate in zip(model.params, moved, advice.rates.tree, strict=True):
            np.testing.assert_allclose(before.b - after.b, rate.b, rtol=1e-4)
            np.testing.assert_allclose(before.W - after.W, rate.W, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("optimizer", "skip"), [("sgd", 0.0), ("adamw", 0.0), ("momentum", 1.0)])
def test_pytorch_recipe_runs_and_learns(optimizer, skip, bias):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [5, *[16] * 4, 2]
            self.layers = nn.ModuleList(
                nn.Linear(n, m, bias=bias) for n, m in itertools.pairwise(sizes)
            )
            self.activation = nn.Tanh()

        def forward(self, x):
            z = self.layers[0](x)
            for layer in self.layers[1:-1]:
                z = layer(self.activation(z)) + skip * z
            return self.layers[-1](self.activation(z))

    torch.manual_seed(0)
    model = Net()
    x, y = torch.as_tensor(X).float(), torch.as_tensor(Y).float()
    advice = advise(model, Data(X, Y), optimizer=optimizer)
    assert advice.model.network.has_skips is (skip != 0.0)
    space = {"model": model, "x": x, "y": y}
    exec(pytorch_recipe(advice), space)
    losses = []
    for _ in range(40):
        space["optimizer"].zero_grad()
        loss = nn.MSELoss()(model(x), y)
        loss.backward()
        space["optimizer"].step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


def test_a_module_that_does_more_is_refused():
    from dynagram.errors import InvalidValueError

    model = torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    )
    with pytest.raises(InvalidValueError, match="linear layers alone do not give its outputs"):
        advise(model, Data(X, Y))


def test_per_layer_text_of_one():
    assert per_layer_text([1.0]) == "1"
