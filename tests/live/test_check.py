"""`check`: healthy models pass, planted bugs are named; bands, recipes, schemes and refusals."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live import check
from dynagram.live._bands import band_of_draws, band_of_theory, family_threshold
from dynagram.live._recipes import declared_network
from dynagram.live._walk import matrices_of, with_variances
from dynagram.networks import MLP, Chain, load_config
from dynagram.networks.blocks import Activate, Dense

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import check_models as models  # noqa: E402
import check_styles as styles  # noqa: E402

rng = np.random.default_rng(2)


# --- bands ------------------------------------------------------------------------------------


def test_bands_hold_what_they_should():
    draws = np.exp(0.4 * rng.normal(size=20_000))
    theory = band_of_theory(float(draws.mean()), float(draws.std()))
    outside = np.mean((draws < theory.low) | (draws > theory.high))
    assert 0.04 < outside < 0.06
    few = [band_of_draws(np.exp(0.4 * rng.normal(size=20))) for _ in range(2000)]
    fresh = np.exp(0.4 * rng.normal(size=2000))
    left = np.mean([abs(b.z(v)) > 1.96 for b, v in zip(few, fresh, strict=True)])
    assert abs(left - 0.05) < 4 * (0.05 * 0.95 / 2000) ** 0.5
    alike = band_of_theory(0.8, 0.02, signed=True)
    assert alike.low < 0.8 < alike.high
    assert alike.z(0.8) == pytest.approx(0.0, abs=1e-12)
    assert abs(alike.z(0.82)) == pytest.approx(1.0, rel=0.1)


def test_one_threshold_for_all_checks_together():
    assert family_threshold(1) < family_threshold(50) < family_threshold(5000) < 6.5
    band = band_of_draws(np.exp(rng.normal(size=10)))
    assert abs(band.z(1e9)) < band_of_theory(1.0, 0.5).z(1e9)  # ten draws know little of tails
    assert band.z(0.0) == -np.inf


# --- walking through networks -----------------------------------------------------------------


def test_variances_are_those_of_drawn_weights():
    config = {
        "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 50,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
    }  # fmt: skip
    network = load_config(config, positions=3)
    params = network.init(seed=0).params
    for matrix in matrices_of(network):
        values = params
        for key in matrix.place:
            values = values[key]
        error = (2.0 / values.size) ** 0.5
        ratio = float(np.mean(np.asarray(values) ** 2)) / matrix.variance
        assert abs(ratio - 1.0) < 4 * error, matrix
    assert with_variances(network, lambda m: m.variance) == network
    ends = [m.place[-1] for m in matrices_of(network) if m.is_branch_end]
    assert ends == ["O", "W"]


def test_recipes_are_those_of_torch():
    network = Chain([Dense(64), Activate("relu"), Dense(200), Activate("relu"), Dense(5)], 30)
    modules = [nn.Linear(30, 64), nn.Linear(64, 200), nn.Linear(200, 5)]
    torch.manual_seed(0)
    drawings = {
        "kaiming": lambda W: nn.init.kaiming_normal_(W, nonlinearity="relu"),
        "xavier": nn.init.xavier_normal_,
        "lecun": lambda W: nn.init.kaiming_normal_(W, nonlinearity="linear"),
        "pytorch": lambda W: nn.Linear(W.shape[1], W.shape[0]).weight.data,
    }
    for recipe, draw in drawings.items():
        meant = matrices_of(declared_network(network, recipe))
        for matrix, module in zip(meant, modules, strict=True):
            square = float((draw(module.weight.data) ** 2).mean())
            spread = 4 * (2.0 / module.weight.numel()) ** 0.5
            assert square == pytest.approx(matrix.variance, rel=spread), recipe


# --- healthy and not --------------------------------------------------------------------------


def small(init="kaiming"):
    """One architecture for all quick tests, which is compiled once."""
    return models.mlp(64, 3, "relu", init)


def fill_biases(model):
    model[2].bias.fill_(-8.0)


def copy_layer(model):
    model[4].weight.copy_(model[2].weight)


def empty_layer(model):
    model[4].weight.zero_()


PLANTED = {
    "gain missing": (lambda: small("lecun"), "kaiming"),
    "dead units": (lambda: models.changed(small(), fill_biases), None),
    "same draw twice": (lambda: models.changed(small(), copy_layer), None),
    "weights are zero": (lambda: models.changed(small(), empty_layer), "kaiming"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_named(name):
    torch.manual_seed(1)
    make, expected = PLANTED[name]
    model, x, _ = models.vectors(make())
    result = check(model, x, expected=expected)
    assert not result.is_fine
    assert any(name in cause.name for cause in result.causes), result.causes


# A few of every kind; DYNAGRAM_CHECK=all for all of them, as benchmarks/check.py does.
EVERY = 1 if os.environ.get("DYNAGRAM_CHECK") == "all" else 6
NAMED = ("gpt: depth scaling never applied, no name matches",
         "llama: up_proj scaled in place of down_proj")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", dict.fromkeys([*NAMED, *list(models.BUGS)[::EVERY]]))
def test_every_planted_bug_is_named(name):
    torch.manual_seed(2)
    make, meant = models.BUGS[name]
    model, x, options = make()
    result = check(model, x, **options)
    assert any(meant in cause.name for cause in result.causes), result.causes


def left(kind, seeds):
    """Checks, those outside their bands, and what was called wrong of healthy networks."""
    checks = outside = 0
    for seed in range(seeds):
        torch.manual_seed(900 + seed)
        model, x, options = models.HEALTHY[kind]()
        result = check(model, x, seed=seed, **options)
        assert result.is_fine, (kind, seed, result.words)
        checks += len(result.checked)
        outside += sum(not reading.is_inside for reading in result.checked)
    return checks, outside


@pytest.mark.slow
def test_healthy_networks_leave_their_bands_as_often_as_they_should():
    checks, outside = left("mlp 64×3 relu, kaiming", 20)
    assert checks == 280
    # Numbers of one network go together: the share has the error of about 80 independent ones.
    assert abs(outside / checks - 0.05) < 4 * (0.05 * 0.95 / 80) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(models.HEALTHY)[::EVERY])
def test_no_healthy_network_is_called_wrong(kind):
    checks, outside = left(kind, 4)
    assert outside / checks < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixer", "narrow", "llama, grouped, written out"])
def test_other_styles_are_not_called_wrong(name):
    torch.manual_seed(3)
    model, x, options = styles.STYLES[name]()
    result = check(model, x, seed=3, **options)
    assert result.is_fine, result.words


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "encoder as it comes: all layers hold the same numbers",
    "llama, grouped: w3 scaled in place of w2",
    "batch norms: the gain of relu is missing",
])  # fmt: skip
def test_bugs_in_other_styles_are_named(name):
    torch.manual_seed(3)
    make, meant = styles.MISTAKES[name]
    model, x, options = make()
    result = check(model, x, **options)
    assert any(meant in cause.name for cause in result.causes), result.causes


def test_models_that_cannot_be_read_are_measured_only():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
        nn.Linear(32, 2),
    )  # fmt: skip
    x = torch.randn(40, 6)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    result = check(model, x)
    assert result.is_fine, result.words
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert "0.weight" in result.measured_only
    assert {r.source for r in result.checked} == {"Monte Carlo"}
    assert any("batch_norm" in note for note in result.notes)
    with torch.no_grad():
        model[3].weight[:, :] = model[3].weight[0]  # every unit the same: variance as it was
    wrong = check(model, x)
    assert [cause.name for cause in wrong.causes] == ["constant weights"]
    with pytest.raises(InvalidValueError, match="only a model that can be read"):
        check(model, x, expected=MLP([6, 32, 32, 2], "relu", C_b=0.0, C_W=2.0))


def test_weights_of_models_that_are_measured_only_are_held_against_recipes_and_their_like():
    torch.manual_seed(0)
    layers = [nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(32, 2))
    x = torch.randn(24, 6)
    assert check(model, x).is_fine
    assert check(model, x, expected="pytorch").is_fine
    (cause,) = check(model, x, expected="kaiming").causes
    assert cause.name == "never initialised"
    assert "0.weight" in cause.parameters
    with torch.no_grad():
        model[6].weight.mul_(2.0)
    (cause,) = check(model, x).causes
    assert (cause.name, cause.parameters) == ("doubled init", ("6.weight",))


def test_xavier_counts_the_taps_of_a_convolution_in_both_fans():
    torch.manual_seed(0)
    model = models.cnn(16, 2, "tanh", "xavier")
    assert check(model, torch.randn(2, 3, 6, 6), expected="xavier").is_fine


def test_a_target_begins_as_what_it_will_follow():
    torch.manual_seed(0)
    model = models.changed(small(), copy_layer)
    model[4].weight.requires_grad_(False)
    names = [cause.name for cause in check(model, torch.randn(24, 24)).causes]
    assert "same draw twice" not in names


def test_a_recipe_sees_queries_keys_and_values_in_one_as_one_parameter():
    torch.manual_seed(0)
    model = models.encoder(32, 1, True)  # xavier_uniform_ for every parameter
    x = torch.randn(2, 3, 12)
    assert check(model, x, expected="xavier").is_fine


def test_branches_and_readouts_may_begin_with_zeros_but_nothing_else():
    torch.manual_seed(0)
    x = torch.randn(24, 24)
    start = models.changed(small(), lambda m: m[6].weight.zero_())
    assert check(start, x).is_fine
    assert check(models.changed(models.residual(32, 1), lambda m: m[1].down.weight.zero_()),
                 x).is_fine  # fmt: skip
    empty = models.changed(small(), lambda m: m[2].weight.zero_())
    assert [cause.name for cause in check(empty, x).causes] == ["weights are zero"]


def test_dropout_that_is_never_off_is_named():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 32), nn.Linear(32, 2)

        def forward(self, x):
            return self.last(nn.functional.dropout(torch.relu(self.first(x)), 0.5, training=True))

    torch.manual_seed(0)
    x = torch.randn(24, 6)
    assert "dropout always on" in [c.name for c in check(Dropped(), x).causes]
    kept = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.95), nn.Linear(32, 2))
    assert [c.name for c in check(kept, x).causes] == ["dropout too large"]


# --- the result -------------------------------------------------------------------------------


def test_a_result_shows_itself():
    net = MLP([24, 64, 64, 64, 10], "relu", C_b=0.0, C_W=2.0)
    x = rng.normal(size=(30, 24))
    result = check(net.init(seed=0), x, expected=net)
    assert repr(result) == f"Check(4 layers, {len(result.checked)} checks; nothing wrong)"
    data = result.to_dict()
    assert data["is_fine"]
    assert data["causes"] == []
    assert {r["source"] for r in data["readings"]} == {"theory", "Monte Carlo", "declared", None}
    first = next(r for r in result.readings if r.quantity == "mean square")
    assert first.low < first.expected < first.high
    assert "<table>" in result._repr_html_()
    assert result.summary().headings[0] == "layer"
    bad = check(net.init(seed=0), x, expected="pytorch")
    ratio = float(bad.words.partition("all weights have ")[2].split()[0])
    assert ratio == pytest.approx(6.0, rel=0.1)
    assert "torch.nn.init.normal_" in bad.fix
    assert bad.verdict_of(bad.layers[0]).endswith("σ")


def test_wrong_requests_are_one_line():
    net = MLP([24, 64, 64, 64, 10], "relu", C_b=0.0, C_W=2.0).init(seed=0)
    x = rng.normal(size=(30, 24))
    for options, words in (
        ({"expected": "he"}, "recipes are kaiming"),
        ({"expected": MLP([24, 16, 1], "relu", C_b=0.0, C_W=2.0)}, "the same layers"),
        ({"scheme": "mup"}, "needed with scheme"),
        ({"scheme": "mu", "factory": MLP}, "expected one of sp, ntk"),
    ):
        with pytest.raises(InvalidValueError) as caught:
            check(net, x, **options)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidTypeError, match="must take width="):
        check(net, x, scheme="sp", factory=lambda: net)
    with pytest.raises(InvalidTypeError, match="expected a batch"):
        check(net, None)
    with pytest.raises(InvalidTypeError, match="a Network, a config.json or the name"):
        check(net, x, expected=3)


def test_a_function_that_needs_a_size_is_no_reason_to_fail():
    """Of a model that is measured only, weights are then drawn as they look."""

    def make(width):
        return nn.Sequential(
            nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 4)
        )

    result = check(make(32), torch.randn(8, 8), factory=make)
    assert any(reading.z is not None for reading in result.readings)
    assert "batch_norm" in " ".join(result.notes)
