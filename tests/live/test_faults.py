"""Faults that a pass shows by itself, and readings of models that make numbers on their way."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynagram.live import check
from dynagram.live._faults import (
    find_dead_units,
    find_lost_signal,
    find_no_effect,
    find_no_numbers,
    find_unscaled_inputs,
    find_wrong_softmax,
)
from dynagram.live._live import read_live
from dynagram.live._lone_layers import (
    find_frozen,
    find_lone_layer,
    find_lone_linear,
    find_odd_gains,
)
from dynagram.live._recipes import recipe_of
from dynagram.live._structure import compare_structures
from dynagram.live._unread_weights import branch_ends, read_sizes, weights_of
from dynagram.networks import MLP, Chain, load_config

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from dynagram.live._dependence import mixes_samples, reads_later_tokens  # noqa: E402
from dynagram.live._torch_trace import trace_torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import check_models as models  # noqa: E402


def graph_of(model, x):
    return trace_torch(model, x)[0]


def test_silent_units_are_a_fault_where_no_others_are_always_on():
    torch.manual_seed(0)
    model, x = models.mlp(64, 3, "relu"), torch.randn(32, 24)
    causes, shares = find_dead_units(graph_of(model, x))
    assert causes == []
    assert list(shares) == ["0", "2", "4"]
    assert max(shares.values()) < 0.1
    alike = torch.randn(1, 24) + 1e-3 * torch.randn(32, 24)
    causes, shares = find_dead_units(graph_of(model, alike))  # half are silent, half always on
    assert causes == []
    assert all(0.3 < share < 0.7 for share in shares.values())
    models.changed(model, lambda m: m[2].bias[:24].fill_(-20.0))
    causes, shares = find_dead_units(graph_of(model, x))
    assert [(c.name, c.parameters[0]) for c in causes] == [("dead units", "2.weight")]
    assert "38 %" in causes[0].message
    assert "2" not in shares
    normed = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 2))
    models.changed(normed, lambda m: m[1].bias.fill_(-10.0))
    assert [c.parameters[0] for c in find_dead_units(graph_of(normed, x))[0]] == ["1.weight"]


class Branches(nn.Module):
    """x + norm(conv(x)), some times."""

    def __init__(self, depth, without=()):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(2, 8) for _ in range(depth))
        self.last, self.without = nn.Linear(8, 2), without

    def forward(self, x):
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(x)
            x = conv(torch.relu(x)) + (0.0 if number in self.without else x)
        return self.last(x.mean((2, 3)))


def test_a_signal_that_is_lost_on_its_way():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(36, 2)
    )
    assert find_lost_signal(graph_of(model, x)) == []
    models.changed(model, lambda m: m[4].weight.zero_())
    assert find_lost_signal(graph_of(model, x)) == []  # readouts may begin so
    models.changed(model, lambda m: m[2].weight.zero_())
    (cause,) = find_lost_signal(graph_of(model, x))
    assert (cause.name, cause.parameters) == ("weights are zero", ("2.weight",))
    large = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2))
    models.changed(large, lambda m: m[0].bias.fill_(1e4))
    (cause,) = find_lost_signal(graph_of(large, torch.randn(4, 3)))
    assert (cause.name, cause.parameters) == ("signal lost", ())
    assert "sigmoid" in cause.message


def test_gains_and_sums_that_one_layer_of_many_lacks():
    torch.manual_seed(0)
    x, model = torch.randn(4, 8, 4, 4), Branches(4)
    graph, parameters = trace_torch(model, x)
    assert find_odd_gains(graph, parameters) == []
    assert find_lone_layer(weights_of(graph), branch_ends(graph)) == []
    models.changed(model, lambda m: m.norms[2].weight.zero_())
    (cause,) = find_odd_gains(*trace_torch(model, x))
    assert cause.parameters == ("norms.2.weight",)
    models.changed(model, lambda m: [norm.weight.zero_() for norm in m.norms])
    assert find_odd_gains(*trace_torch(model, x)) == []  # meant so
    for without, names in (((1,), ["convs.1.weight"]), ((0,), []), ((1, 2), [])):
        graph = graph_of(Branches(4, without), x)
        causes = find_lone_layer(weights_of(graph), branch_ends(graph))
        assert [name for cause in causes for name in cause.parameters] == names


class Mixing(nn.Module):
    """Attention whose softmax is over an axis of one's choice."""

    def __init__(self, axis):
        super().__init__()
        self.qk, self.v, self.axis = nn.Linear(6, 12), nn.Linear(6, 6), axis

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        return functional.dropout((q @ k.mT).softmax(self.axis), 0.1, self.training) @ self.v(x)


def test_a_softmax_over_the_wrong_axis_is_named():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 6)
    assert find_wrong_softmax(graph_of(Mixing(-1), x)) == []
    for axis in (0, 1):
        (cause,) = find_wrong_softmax(graph_of(Mixing(axis), x))
        assert cause.name == "softmax over the wrong axis"
        assert cause.parameters == ("qk.weight",)


def test_the_first_nan_is_told():
    torch.manual_seed(0)
    assert find_no_numbers(graph_of(Mixing(0), torch.ones(2, 3, 6))) == []
    model = nn.Sequential(nn.Linear(6, 4), nn.Softmax(-1), nn.Linear(4, 2))
    models.changed(model, lambda m: m[0].bias.fill_(float("inf")))
    (cause,) = find_no_numbers(graph_of(model, torch.ones(2, 6)))
    assert (cause.name, cause.parameters) == ("not a number", ("0.weight", "0.bias"))
    assert "softmax" in cause.message


class Heads(nn.Module):
    """A layer that nothing calls, one for training only, and one for a second output."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.aid, self.idle = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        x = torch.relu(self.one(x))
        return (x, self.two(x), self.aid(x)) if self.training else (x, self.two(x))


def test_layers_without_any_effect_are_told_from_those_for_training():
    model, x = Heads().eval(), torch.ones(2, 4)
    graph = graph_of(model, x)
    unused = [name for name, _ in model.named_parameters() if name not in graph.used()]
    assert len(unused) == 6
    (cause,) = find_no_effect(model, x, graph, unused)
    assert (cause.name, cause.parameters) == ("unused layer", ("idle.weight",))
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


class Rotating(nn.Module):
    """A recurrent pass from zeros that the model makes, and a rotation by complex numbers."""

    def __init__(self):
        super().__init__()
        self.read, self.again = nn.Linear(3, 4), nn.Linear(4, 4)
        self.register_buffer("turn", torch.polar(torch.ones(2), torch.tensor([0.3, 1.2])))

    def forward(self, x):
        h = torch.zeros(len(x), 4)
        for t in range(x.shape[1]):
            h = torch.tanh(self.read(x[:, t]) + self.again(h))
            h = torch.view_as_real(torch.view_as_complex(h.view(-1, 2, 2)) * self.turn).flatten(1)
        return h


def test_numbers_that_a_model_makes_are_those_of_its_pass():
    torch.manual_seed(0)
    model, x = Rotating(), torch.randn(5, 3, 3)
    graph = graph_of(model, x)
    np.testing.assert_allclose(graph.nodes[graph.output].value, model(x).detach(), atol=1e-5)
    assert torch.get_default_dtype() == torch.float32


def test_logits_that_are_not_divided_are_read_and_named():
    torch.manual_seed(0)
    model = models.GPT(32, 1, flash=False, power=0.0)
    live = read_live(model, torch.randint(97, (2, 6)))
    assert live.recognised is not None, live.reason
    assert live.recognised.factors == {"h.0.attn.c_attn.weight": pytest.approx(8**0.5)}
    own, declared = live.recognised.network, load_config(models.gpt_config(32, 1), positions=6)
    (cause,) = compare_structures(own, declared, live.recognised.factors)
    assert cause.name == "other attention"
    assert "not divided by √d" in cause.message


def test_a_config_says_sizes_where_a_model_cannot_be_read():
    torch.manual_seed(0)
    recipe = recipe_of(models.gpt_config(64, 3), 6)
    for scaled, least, most in (("c_proj.weight", 0.8, 1.25), ("no name", 4.0, 9.0)):
        graph = graph_of(models.GPT(64, 3, scaled=scaled), torch.randint(97, (2, 6)))
        sizes, branches = read_sizes(branch_ends(graph), weights_of(graph), recipe)
        assert branches == 6
        ratios = [size.ratio for size in sizes if size.matrix.is_branch_end]
        assert len(ratios) == 6
        assert least < min(ratios) < max(ratios) < most
        assert all(0.8 < s.ratio < 1.25 for s in sizes if not s.matrix.is_branch_end)
    assert recipe_of(MLP([4, 4, 4], "relu", C_b=0.0, C_W=2.0), 1) is None


class Tied(nn.Module):
    """Tokens without positions, one residual branch, and the embedding as the readout."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 64), nn.RMSNorm(64)
        self.up, self.down = nn.Linear(64, 128, bias=False), nn.Linear(128, 64, bias=False)
        self.final, self.readout = nn.RMSNorm(64), nn.Linear(64, 50, bias=False)
        self.readout.weight = self.embed.weight
        for weight in (self.embed.weight, self.up.weight, self.down.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.down(functional.gelu(self.up(self.norm(x))))
        return self.readout(self.final(x))


def test_a_tied_readout_is_judged_on_tokens_that_do_not_occur():
    """The output of a token that occurs is the square of its own vector, not a fresh product."""
    torch.manual_seed(1)
    tokens = torch.randint(50, (4, 8))
    model = Tied()
    result = check(model, tokens, expected="normal-0.02")
    assert result.network
    assert result.is_fine, result.causes
    own = model(tokens).gather(-1, tokens[..., None]).square().mean()
    assert own > 10 * model(tokens).square().mean()  # what would be outside


def test_gradients_that_explode_while_signals_keep_their_size():
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64), *[nn.Linear(64, 64) for _ in range(5)], nn.Linear(64, 3)]
    for layer in layers:
        nn.init.normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    model = nn.Sequential(
        *[part for layer in layers[:-1] for part in (layer, nn.Tanh())], layers[-1]
    )
    result = check(model, torch.randn(16, 32))
    assert [cause.name for cause in result.causes] == ["gradients explode"]


def test_matrices_without_an_activation_in_between_are_noted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    notes = check(model, torch.randn(16, 8)).notes
    assert any("without an activation, once" in note for note in notes)


# --- one layer that is not like the others, and what goes in ----------------------------------


def test_an_activation_that_one_layer_of_many_lacks():
    torch.manual_seed(0)
    x = torch.randn(24, 20)

    def lone(*without, widths=(32, 32, 32, 32)):
        layers, last = [], 20
        for number, width in enumerate(widths):
            layers += [nn.Linear(last, width), nn.Identity() if number in without else nn.ReLU()]
            last = width
        graph = graph_of(nn.Sequential(*layers, nn.Linear(last, 3)), x)
        return [name for cause in find_lone_linear(graph, weights_of(graph))
                for name in cause.parameters]  # fmt: skip

    assert lone() == []
    assert lone(1) == ["2.weight"]
    assert lone(0, 1, 2, 3) == []  # linear on purpose
    assert lone(1, widths=(32, 8, 32, 32)) == []  # a code between two halves
    assert lone(3) == []


def test_layers_that_are_not_trained_between_others():
    names = {f"h.{number}.weight": 8 for number in range(4)}
    for frozen, said in (((), 0), ((0,), 0), ((0, 1), 0), ((0, 1, 2, 3), 0), ((1,), 1), ((3,), 1)):
        learns = {name: int(name[2]) not in frozen for name in names}
        assert len(find_frozen(learns, names)) == said, frozen


def test_pixels_that_were_not_divided_are_named_and_other_large_inputs_noted():
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (6, 30)).float()
    plain, normed = nn.Linear(30, 8), nn.BatchNorm1d(30)
    (cause,), _ = find_unscaled_inputs(graph_of(plain, pixels))
    assert cause.name == "inputs not scaled"
    for model, x in ((plain, pixels / 255), (nn.Sequential(normed, plain), pixels)):
        assert find_unscaled_inputs(graph_of(model, x)) == ([], [])
    causes, (note,) = find_unscaled_inputs(graph_of(plain, 1e3 * torch.randn(6, 30)))
    assert causes == []
    assert "not scaled" in note


class Cut(nn.Module):
    """A layer that is read and never learns."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)).detach())


def test_gradients_that_do_not_reach_a_layer():
    model, x = Cut(), torch.randn(5, 4)
    (cause,) = find_no_effect(model, x, graph_of(model, x), [])
    assert (cause.name, cause.parameters) == ("no gradient", ("one.weight",))
    model.one.requires_grad_(False)
    assert find_no_effect(model, x, graph_of(model, x), []) == []


def test_outputs_that_depend_on_other_samples_or_later_tokens():
    torch.manual_seed(0)
    batch = torch.randn(6, 5, 4)
    assert mixes_samples(nn.LSTM(4, 8), batch)
    assert not mixes_samples(nn.LSTM(4, 8, batch_first=True), batch)
    assert not mixes_samples(nn.Sequential(nn.Conv1d(5, 8, 1), nn.BatchNorm1d(8)), batch)
    tokens = torch.randint(97, (2, 6))
    assert not reads_later_tokens(models.GPT(32, 1), tokens)
    leaking = models.GPT(32, 1, flash=False, causal=False)
    assert reads_later_tokens(leaking, tokens)
    assert not reads_later_tokens(nn.Embedding(97, 8), tokens)


def test_parts_that_only_a_declared_network_has_are_named():
    torch.manual_seed(0)
    config = models.gpt_config(32, 1)
    live = read_live(models.GPT(32, 1), torch.randint(97, (2, 6)))
    own, declared = live.recognised.network, load_config(config, positions=6)
    assert compare_structures(own, declared, {}) == []
    without = Chain([b for b in own.blocks if b.kind != "layer-norm"], own.inputs)
    assert [c.name for c in compare_structures(without, declared, {})] == ["norm missing"]
    embedding = replace(own.blocks[0], C_position=0.0, lambda_position=0.0)
    bare = Chain([embedding, *own.blocks[1:]], own.inputs)
    assert [c.name for c in compare_structures(bare, declared, {})] == ["positions missing"]
    twice = [replace(b, skip=2.0) if b.kind == "residual" else b for b in own.blocks]
    names = [c.name for c in compare_structures(Chain(twice, own.inputs), declared, {})]
    assert names == ["other skip"]
    llama = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 50,
             "num_attention_heads": 4, "intermediate_size": 48}  # fmt: skip
    same = [load_config({**llama, **more}, positions=3) for more in
            ({}, {"num_key_value_heads": 4})]  # fmt: skip
    assert compare_structures(*same, {}) == []  # as many heads of keys, said or not
