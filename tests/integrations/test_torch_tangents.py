"""The NTK of PyTorch functions against dense Jacobians, and against JAX."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.observables.tangents import function_ntk

torch = pytest.importorskip("torch")
from dynagram.integrations import _torch_tangents  # noqa: E402
from dynagram.integrations.torch import torch_ntk  # noqa: E402

RATES = {"0.weight": 0.7, "0.bias": 0.4, "2.weight": 1.3, "2.bias": 0.2}


def make_module():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(3, 7), torch.nn.GELU(), torch.nn.Linear(7, 2))
    return torch.nn.Sequential(*layers).to(torch.float64)


def dense(function, params, x, rates):
    """Σ_μ λ_μ J J from the whole Jacobian."""
    jacobian = torch.func.jacrev(function, chunk_size=1)(params, x)
    total = 0.0
    for name, J in jacobian.items():
        scaled = J * rates[name]
        total = total + torch.einsum("aiz,bjz->abij", scaled.flatten(2), J.flatten(2))
    return total


@pytest.mark.parametrize("numbers", [2**26, 100])
def test_a_module(numbers, monkeypatch):
    """All rows at once, and in blocks of one row."""
    monkeypatch.setattr(_torch_tangents, "_NUMBERS_AT_ONCE", numbers)
    module, x = make_module(), torch.randn(5, 3, dtype=torch.float64)
    params = {name: value.detach() for name, value in module.named_parameters()}

    def apply(values, inputs):
        return torch.func.functional_call(module, values, (inputs,))

    expected = dense(apply, params, x, RATES)
    assert expected.shape == (5, 5, 2, 2)
    for found in (torch_ntk(module, None, x, RATES), torch_ntk(apply, params, x, RATES)):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


def test_attention_and_samples_that_depend_on_each_other():
    """A transformer layer, and a mean over the batch."""
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(
        4, 2, 8, dropout=0.0, batch_first=True, dtype=torch.float64
    ).train()
    params = {name: value.detach() for name, value in layer.named_parameters()}
    rates = {name: 0.5 + 0.1 * i for i, name in enumerate(params)}
    x = torch.randn(2, 3, 4, dtype=torch.float64)

    def apply(values, inputs):
        out = torch.func.functional_call(layer, values, (inputs,))[:, -1]
        return out - out.mean(dim=0, keepdim=True)

    found = torch_ntk(apply, params, x, rates)
    torch.testing.assert_close(found, dense(apply, params, x, rates), rtol=1e-10, atol=1e-12)


def test_the_same_function_in_jax():
    rng = np.random.default_rng(0)
    W, v, x = rng.normal(size=(3, 6)), rng.normal(size=(6, 2)), rng.normal(size=(4, 3))
    scale = rng.uniform(0.5, 1.5, size=(3, 6))
    ours = function_ntk(
        lambda p, z: jnp.tanh(z @ p["W"]) @ p["v"],
        {"W": jnp.asarray(W), "v": jnp.asarray(v)}, jnp.asarray(x),
        {"W": jnp.asarray(scale), "v": 2.0},
    )  # fmt: skip
    theirs = torch_ntk(
        lambda p, z: torch.tanh(z @ p["W"]) @ p["v"],
        {"W": torch.tensor(W), "v": torch.tensor(v)}, torch.tensor(x),
        {"W": torch.tensor(scale), "v": 2.0},
    )  # fmt: skip
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-12)


def test_bad_input_is_one_line():
    module, x = make_module(), torch.randn(5, 3, dtype=torch.float64)

    def still(params, inputs):
        return inputs + 0.0 * params["W"].detach().sum()

    with pytest.raises(InvalidValueError, match="needs its parameters by name"):
        torch_ntk(still, None, x)
    with pytest.raises(InvalidValueError, match="expected the names of the parameters"):
        torch_ntk(module, None, x, {"weight": 1.0})
    with pytest.raises(InvalidValueError, match=r"expected \(samples, outputs\)"):
        torch_ntk(lambda params, inputs: params["W"].sum() * inputs.sum(), {"W": torch.ones(3)}, x)
    with pytest.raises(InvalidValueError, match="does not depend on them"):
        torch_ntk(still, {"W": torch.ones(3)}, x)
