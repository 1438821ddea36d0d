"""Models as many authors write them: what must not be called wrong, and bugs that hide in them."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.live import check
from dynagram.live._faults import find_large_epsilon, find_large_readout, find_silent_layers
from dynagram.live._live import first_output, measure_made, parameters_of, read_live
from dynagram.live._lone_layers import find_lone_layer, find_lone_linear, find_lone_sharing
from dynagram.live._measured_only import _draw_again
from dynagram.live._recipes import common_size
from dynagram.live._redraw import redrawn
from dynagram.live._result import LayerReading
from dynagram.live._signals import explain_signals
from dynagram.live._structure import find_copies
from dynagram.live._unread_weights import branch_ends, weights_of

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from dynagram.live._torch_layers import shared_parameters  # noqa: E402
from dynagram.live._torch_trace import trace_torch  # noqa: E402


def names(result):
    return [cause.name for cause in result.causes]


def graph_of(model, x):
    return trace_torch(model, x)[0]


def changed(model, change):
    with torch.no_grad():
        change(model)
    return model


class Dueling(nn.Module):
    """Two readouts that are added, as in value learning."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.value, self.gain = nn.Linear(32, 1), nn.Linear(32, 6)

    def forward(self, x):
        h = self.trunk(x)
        gain = self.gain(h)
        return self.value(h) + gain - gain.mean(1, keepdim=True)


def test_readouts_side_by_side_are_not_left_out():
    torch.manual_seed(0)
    live = read_live(Dueling(), torch.randn(8, 8))
    assert live.recognised is None
    assert "several readouts" in live.reason
    assert set(live.unread) >= {"value.weight", "gain.weight"}


class Products(nn.Module):
    """Products that are written as einsums, with either order of the matrix."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(32, 12) / 12**0.5)
        self.b = nn.Parameter(torch.randn(32, 16) / 32**0.5)

    def forward(self, x):
        return torch.einsum("...i,io->...o", torch.einsum("bi,oi->bo", x, self.a).relu(), self.b)


def test_einsums_with_a_matrix_are_dense_layers():
    torch.manual_seed(0)
    model, x = Products(), torch.randn(8, 12)
    read = read_live(model, x).recognised
    assert read is not None
    assert [weight.name for weight in read.weights] == ["a", "b"]
    assert [weight.fan_in for weight in read.weights] == [12, 32]


def test_convolutions_in_three_dimensions_are_held_against_recipes():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv3d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 16, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(128, 3),
    )  # fmt: skip
    for index in (0, 2, 5):
        nn.init.kaiming_normal_(model[index].weight, nonlinearity="linear")
        nn.init.zeros_(model[index].bias)
    x = torch.randn(4, 2, 4, 4, 4)
    assert names(check(model, x, expected="lecun")) == []
    assert "gain missing" in names(check(model, x, expected="kaiming"))


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norms_are_those_of_the_weights_drawn_anew(norm):
    torch.manual_seed(1)
    model = nn.Sequential(
        norm(nn.Linear(16, 48)), nn.Tanh(), norm(nn.Linear(48, 48)), nn.Tanh(), nn.Linear(48, 2)
    )
    live = read_live(model, torch.randn(16, 16))
    own = live.measure(None)
    other = live.measure(redrawn(live.parameters, np.random.default_rng(0)))
    for a, b in zip(own, other, strict=True):
        assert b.mean_square == pytest.approx(a.mean_square, rel=0.6)
    powers = [p.n_power_iterations for p in model.modules() if hasattr(p, "n_power_iterations")]
    assert set(powers) <= {1}


class Padded(nn.Module):
    """A bag of tokens with a tied readout; the vector of token 0 is 0."""

    def __init__(self, std):
        super().__init__()
        self.table = nn.Embedding(40, 24, padding_idx=0)
        self.table.weight.data[1:].normal_(std=std)
        self.mix, self.norm = nn.Linear(24, 24), nn.LayerNorm(24)

    def forward(self, tokens):
        x = self.table(tokens)
        return self.norm(x + torch.tanh(self.mix(x))) @ self.table.weight.T


def test_a_vector_for_padding_is_no_draw():
    torch.manual_seed(0)
    model, tokens = Padded(0.1), torch.randint(1, 40, (4, 6))
    live = read_live(model, tokens)
    assert first_output(live.graph) == 1
    again = redrawn(live.parameters, np.random.default_rng(0))["table.weight"]
    assert not np.any(again[0])
    assert np.all(np.any(again[1:], axis=1))
    tokens[0, 0] = 0
    assert names(check(model, tokens)) == []
    assert find_large_readout(live.graph) == []
    (cause,) = find_large_readout(graph_of(Padded(1.0), tokens))
    assert (cause.name, cause.parameters) == ("readout too large", ("table.weight",))


def test_vectors_of_positions_may_be_given_for_every_sample():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(20, 16), nn.Embedding(8, 16)
            self.out = nn.Linear(16, 20)

        def forward(self, tokens):
            places = torch.ones_like(tokens).cumsum(1) - 1
            return self.out(torch.tanh(self.token(tokens) + self.place(places.detach())))

    torch.manual_seed(0)
    assert isinstance(read_live(Positions(), torch.randint(20, (3, 5))).reason, str)

    class Fixed(Positions):
        def forward(self, tokens):
            places = torch.arange(tokens.shape[1]).expand(tokens.shape)
            return self.out(torch.tanh(self.token(tokens) + self.place(places)))

    read = read_live(Fixed(), torch.randint(20, (3, 5))).recognised
    assert read is not None
    assert read.network.blocks[0].has_positions


def test_numbers_that_do_not_vary_about_zero_are_drawn_from_themselves():
    rng = np.random.default_rng(0)
    rates = np.log(np.broadcast_to(np.arange(1.0, 9.0), (6, 8)))
    gains = 1.0 + 0.02 * rng.normal(size=200)
    made = redrawn({"rates": rates, "gains": gains, "eye": np.eye(5)}, rng)
    np.testing.assert_array_equal(made["rates"], rates)
    np.testing.assert_array_equal(made["eye"], np.eye(5))
    assert set(made["gains"]) <= set(gains)


def test_a_common_size_is_that_of_the_large_matrices():
    rng = np.random.default_rng(0)
    counts, z = [128, 4096, 8192, 65536], []
    for _ in range(400):
        sizes = [float(np.mean(rng.normal(size=n) ** 2)) for n in counts]
        size, errors = common_size(sizes, [(2.0 / n) ** 0.5 for n in counts]) or (0.0, [1.0] * 4)
        z.append((np.array(sizes) / size - 1.0) / errors)
    assert np.std(z[:], axis=0) == pytest.approx(1.0, abs=0.12)


class Experts(nn.Module):
    """The best of three experts for every sample."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

    def forward(self, x):
        best = self.gate(x).argmax(-1)
        out = x.new_zeros(len(x), 4)
        for number, expert in enumerate(self.experts):
            rows = torch.where(best == number)[0]
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]))
        return out


def test_experts_that_other_weights_do_not_choose_are_no_error():
    torch.manual_seed(0)
    assert names(check(Experts(), torch.randn(4, 6))) == []


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(3, 8, key=one)
        self.out = eqx.nn.Linear(8, 2, key=two)

    def __call__(self, x):
        h, _ = jax.lax.scan(lambda h, row: (self.cell(row, h), None), jnp.zeros(8), x)
        return self.out(h)


def test_measuring_in_jax_is_compiled_once():
    x = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    live = read_live(Recurrent(jax.random.key(0)), x)
    rng = np.random.default_rng(0)
    first = live.measure(redrawn(live.parameters, rng))
    assert [layer.name for layer in first] == [layer.name for layer in live.measure(None)]
    assert live.measure(None)[0].mean_square != first[0].mean_square


def test_a_complaint_about_one_sample_is_told():
    model = eqx.nn.Sequential([eqx.nn.Conv2d(1, 2, 3, key=jax.random.key(0)),
                               eqx.nn.Lambda(jnp.ravel),
                               eqx.nn.Linear(7, 2, key=jax.random.key(1))])  # fmt: skip
    with pytest.raises(ValueError, match="dot_general"):
        check(model, np.ones((4, 1, 6, 6), np.float32))


def test_a_factory_that_sets_its_seed_is_drawn_anew_all_the_same():
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))

    model, x = make(), torch.randn(16, 6)
    live = read_live(model, x)
    draws = _draw_again(live, make, x, 0)
    assert len({draw[0].mean_square for draw in draws}) > 50
    assert measure_made(live, model, x)[0].mean_square == live.measure(None)[0].mean_square
    assert set(parameters_of(model, x)) == set(live.parameters)


# --- bugs -------------------------------------------------------------------------------------


def dense(depth=4, width=32):
    sizes = [12, *[width] * depth]
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 3))
    for layer in model[::2]:
        nn.init.kaiming_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return model


class Blocks(nn.Module):
    """x + W₂ gelu(W₁ norm(x)), in code that knows no names of ours."""

    def __init__(self, epsilon=1e-5):
        super().__init__()
        self.first, self.last = nn.Linear(12, 32), nn.Linear(32, 3)
        self.norms = nn.ModuleList(nn.LayerNorm(32, eps=epsilon) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(32, 48) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(48, 32) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(nn.functional.gelu(up(norm(x))))
        return self.last(x)


def test_units_or_inputs_that_are_all_the_same_are_named():
    torch.manual_seed(0)
    x = torch.randn(16, 12)
    for change, which in (
        (lambda m: m[2].weight.copy_(m[2].weight[:1].expand(32, 32)), "all units"),
        (lambda m: m[2].weight.copy_(m[2].weight[:, :1].expand(32, 32)), "all inputs"),
    ):
        (cause,) = find_copies(weights_of(graph_of(changed(dense(), change), x)))
        assert cause.name == "constant weights"
        assert which in cause.message
    assert find_copies(weights_of(graph_of(dense(), x))) == []


def test_weights_that_some_layers_share_and_one_does_not():
    model, shapes = dense(), {"0.weight": (32, 12), "2.weight": (32, 32), "6.weight": (32, 32)}
    model[2].weight = model[4].weight
    shared = shared_parameters(model)
    (cause,) = find_lone_sharing(shared, shapes)
    assert (cause.name, cause.parameters) == ("shared weights", ("2.weight", "4.weight"))
    del shapes["6.weight"]
    model[6].weight = model[4].weight
    assert find_lone_sharing(shared_parameters(model), shapes) == []  # all of them: meant so


def test_gains_of_zeros_before_matrices_are_named_and_those_at_ends_of_branches_are_not():
    torch.manual_seed(0)
    x = torch.randn(16, 12)
    model = changed(Blocks(), lambda m: [norm.weight.zero_() for norm in m.norms])
    (cause,) = find_silent_layers(graph_of(model, x))
    assert cause.name == "weights are zero"
    assert set(cause.parameters) == {f"norms.{i}.weight" for i in range(3)}
    model = changed(Blocks(), lambda m: [down.weight.zero_() for down in m.down])
    changed(model, lambda m: [down.bias.zero_() for down in m.down])
    assert find_silent_layers(graph_of(model, x)) == []


def test_an_epsilon_beyond_the_signal_is_named_and_read():
    torch.manual_seed(0)
    model, x = Blocks(0.5), 0.1 * torch.randn(16, 12)
    live = read_live(model, x)
    (cause,) = find_large_epsilon(live.graph)
    assert cause.parameters == tuple(f"norms.{i}.weight" for i in range(3))
    block = live.recognised.network.blocks[1].branches[0][0]
    assert block.epsilon == pytest.approx(0.5)
    assert find_large_epsilon(graph_of(Blocks(), torch.randn(16, 12))) == []


def test_constant_biases_are_named_where_signals_are_off():
    rows = [LayerReading("0", "mean square", 50.0, 2.0, 1.0, 3.0, 9.0, "theory")]
    biases = {"0.bias": np.full(8, 5.0), "1.weight": np.ones(8), "2.bias": np.zeros(8)}
    (cause,) = explain_signals(rows, 4.0, biases)
    assert (cause.name, cause.parameters) == ("constant biases", ("0.bias",))
    (cause,) = explain_signals(rows, 4.0, {"1.weight": np.ones(8)})
    assert cause.name == "signal outside"
    assert explain_signals(rows, 10.0, biases) == []


def test_a_norm_behind_a_norm_and_layers_that_read_zeros_are_read():
    torch.manual_seed(0)
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(12, 32), nn.LayerNorm(32), nn.LayerNorm(32), nn.Linear(32, 3)
        )
        read = read_live(model, 9.0 * torch.randn(8, 12)).recognised
        kinds = [block.kind for block in read.network.blocks]
        assert kinds == ["dense", "layer-norm", "layer-norm", "dense"]
    dead = changed(dense(3), lambda m: m[0].bias.fill_(-90.0))
    read = read_live(dead, torch.randn(8, 12)).recognised
    assert [b.kind for b in read.network.blocks] == ["dense", "activate"] * 3 + ["dense"]


def test_one_missing_sum_has_one_name():
    class Lone(Blocks):
        def forward(self, x):
            x = self.first(x)
            for number in range(3):
                y = self.down[number](nn.functional.gelu(self.up[number](self.norms[number](x))))
                x = y if number == 1 else x + y
            return self.last(x)

    torch.manual_seed(0)
    graph = graph_of(Lone(), torch.randn(16, 12))
    weights = weights_of(graph)
    lone = find_lone_layer(weights, branch_ends(graph))
    assert [cause.parameters for cause in lone] == [("down.1.weight",)]
    assert find_lone_linear(graph, weights, lone) == []
