"""Steps of real networks at several widths go as the powers in the table of their scheme.

The table is derived from the sizes of ∂f/∂z and x; here the steps are taken. A power that is off
by one, or a factor of the width in one rate, is far outside.
"""

from itertools import pairwise

import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._scaling import fit_scaling
from dynagram.live._scheme_rates import CHANGES, scheme_rule
from dynagram.live._steps import OUTPUTS, Probe, Rule, own_changes

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

X = torch.randn(4, 12, generator=torch.Generator().manual_seed(3))
SIZES = (32, 64, 128)


def mlp(width, readout=0.5):
    """Variances 1/fan-in, of the readout 1/fan-in^(2·readout)."""
    sizes = [12, width, width, width, 3]
    layers = []
    for n_in, n_out in pairwise(sizes):
        layer = nn.Linear(n_in, n_out)
        nn.init.normal_(layer.weight, std=n_in**-0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    nn.init.normal_(layers[-2].weight, std=4 * width**-readout)
    return nn.Sequential(*layers[:-1])


def mup(width):
    return mlp(width, 1.0)


def adam(model, wrong=""):
    """The rates of muP for Adam, one of them forgotten."""
    width = model[0].weight.shape[0]
    rates = {n: 1e-3 * (1 if n.endswith("bias") or n in ("0.weight", wrong) else 32 / width)
             for n, _ in model.named_parameters()}  # fmt: skip
    return torch.optim.Adam([{"params": [p], "lr": rates[n]} for n, p in model.named_parameters()])


def steps(table):
    return {e.layer: e for e in table.exponents if e.layer}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["sp", "ntk", "mup"])
def test_steps_at_the_rates_of_a_scheme_have_its_powers(scheme):
    made = steps(fit_scaling(mup if scheme == "mup" else mlp, X, scheme, SIZES))
    powers = CHANGES[scheme, "sgd"]
    roles = {"0": "first", "2": "hidden", "4": "hidden", "6": "readout", OUTPUTS: OUTPUTS}
    assert set(made) == set(roles)
    for layer, role in roles.items():
        exponent = made[layer]
        assert exponent.expected == powers[role]
        assert exponent.is_right, exponent
        # Of the powers −1, 0, 1 and 2 that are in the table it is this one and no other.
        assert abs(exponent.value - powers[role]) < 0.5, exponent


@pytest.mark.slow
def test_rates_of_an_optimiser_are_looked_at():
    assert not fit_scaling(mup, X, "mup", SIZES, adam).causes()
    (cause,) = fit_scaling(mup, X, "mup", SIZES, lambda m: adam(m, "2.weight")).causes()
    assert cause.name == "not mup"
    assert "step of 2, squared" in cause.message
    assert "lacks a factor width^-" in cause.message
    plain = fit_scaling(mlp, X, "sp", SIZES, lambda m: torch.optim.Adam(m.parameters(), lr=0.01))
    assert not plain.causes()
    assert steps(plain)["2"].value == pytest.approx(2.0, abs=0.3)
    with pytest.raises(InvalidValueError, match="ntk has rates for SGD only"):
        fit_scaling(mlp, X, "ntk", SIZES, adam)
    with pytest.raises(InvalidTypeError, match="SGD without momentum, Adam or AdamW"):
        fit_scaling(mlp, X, "sp", SIZES, lambda m: torch.optim.Adagrad(m.parameters()))


def test_a_factor_in_the_model_is_made_up_for():
    """W = c w: the rate of w is divided by c², so that W moves alike."""
    from dynagram.live import read_live

    class Factor(nn.Module):
        def __init__(self, model, c):
            super().__init__()
            self.model, self.c = model, c
            with torch.no_grad():
                model[-1].weight /= c
                model[-1].bias /= c

        def forward(self, x):
            return self.c * self.model(x)

    torch.manual_seed(0)
    plain = mup(32)
    rates = []
    for model in (plain, Factor(mup(32), 0.25)):
        live = read_live(model, X)
        rates.append(scheme_rule("mup", live.recognised, live.parameters).rates)
    assert rates[1]["model.6.weight"] == pytest.approx(16 * rates[0]["6.weight"])
    assert rates[1]["model.2.weight"] == pytest.approx(rates[0]["2.weight"])


def test_a_step_is_the_gradient_times_the_rate():
    """Of a linear model f = w·x at one sample: Δf = −λ (f − y) |x|², step by step."""
    x, w, rate = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -0.4]), 1e-3

    def probe(values, target):
        f = float(values["w"] @ x)
        slopes = {} if target is None else {"w": (f - target) * x}
        return Probe({"layer": np.array([f])}, f, slopes, {"w": "layer"})

    made = own_changes(probe, {"w": w}, Rule("sgd", {"w": rate}))
    left = (1.0 - rate * float(x @ x)) ** 3
    assert made[OUTPUTS] == pytest.approx(((1.0 - left) * (w @ x - 10.0)) ** 2, rel=1e-10)
    assert made["layer"] == pytest.approx(made[OUTPUTS], rel=1e-10)
