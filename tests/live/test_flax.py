"""Modules of flax read as networks of ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from dynagram.errors import InvalidValueError
from dynagram.live import check
from dynagram.networks import Architecture, Chain, Model

rng = np.random.default_rng(0)
X = rng.normal(size=(5, 8)).astype(np.float32)
IMAGES = rng.normal(size=(3, 6, 6, 2)).astype(np.float32)


class LinenMLP(linen.Module):
    @linen.compact
    def __call__(self, x):
        for _ in range(2):
            x = linen.relu(linen.Dense(32)(x))
        return linen.Dense(3)(x)


class LinenConv(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Conv(16, (3, 3))(x)
        x = x + linen.Conv(16, (3, 3))(linen.relu(x))
        return linen.Dense(4)(linen.relu(x).mean(axis=(1, 2)))


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.b(self.drop(nnx.relu(self.a(x))))


class Conv(nnx.Module):
    def __init__(self, rngs):
        self.a = nnx.Conv(2, 16, (3, 3), rngs=rngs)
        self.b = nnx.Conv(16, 16, (3, 3), rngs=rngs)
        self.c = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x):
        x = self.a(x)
        x = x + self.b(nnx.relu(x))
        return self.c(nnx.relu(x).mean(axis=(1, 2)))


@pytest.mark.parametrize(("module", "x", "kind"), [(LinenMLP(), X, Architecture),
                                                   (LinenConv(), IMAGES, Chain)])  # fmt: skip
def test_linen_modules_are_read(module, x, kind):
    variables = module.init(jax.random.key(0), jnp.asarray(x))
    theirs = np.asarray(module.apply(variables, x))
    for model in (Model.of(module, x, params=variables), Model.of(module.bind(variables), x)):
        assert isinstance(model.network, kind)
        assert np.allclose(model(x.reshape(len(x), -1).astype(float)), theirs, atol=1e-5)
    assert model.names[-1] == "params.Dense_2.kernel" if kind is Architecture else True
    with pytest.raises(InvalidValueError, match="variables of a linen module are needed"):
        Model.of(module, x)


@pytest.mark.parametrize(("kind", "x"), [(MLP, X), (Conv, IMAGES)])
def test_nnx_modules_are_read(kind, x):
    module = kind(nnx.Rngs(0))
    model = Model.of(module, x)
    assert model.names[0] == "a.kernel"
    if kind is MLP:
        assert not module.drop.deterministic  # a copy was made quiet
    module.eval()
    theirs = np.asarray(module(jnp.asarray(x)))
    assert np.allclose(model(x.reshape(len(x), -1).astype(float)), theirs, atol=1e-5)


def test_flax_is_checked():
    assert check(MLP(nnx.Rngs(0)), X, expected="lecun").is_fine
    names = [cause.name for cause in check(MLP(nnx.Rngs(0)), X, expected="kaiming").causes]
    assert names == ["gain missing"]
