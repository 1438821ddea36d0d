"""Live models read as networks of ours: what is recognised, what is refused, the same numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Architecture, Chain, Model, load_config

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from dynagram.live import measure_torch, read_live, torch_layers  # noqa: E402

rng = np.random.default_rng(5)
X = rng.normal(size=(5, 6))
T = torch.from_numpy(X)


def agrees(module, x, model):
    """Whether a model of ours gives the outputs of a module."""
    module.eval()
    with torch.no_grad():
        theirs = module(x).double().numpy().reshape(len(x), -1)
    rows = x.double().numpy()
    if rows.ndim == 4 and isinstance(model.network, Chain):  # channels last, as our rows are
        rows = np.moveaxis(rows, 1, -1)
    ours = np.asarray(model(rows.reshape(len(x), -1)))
    return np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


class Block(nn.Module):
    def __init__(self, width, norm=None, strength=0.5):
        super().__init__()
        self.norm = norm or nn.Identity()
        self.up, self.down, self.strength = nn.Linear(width, 12), nn.Linear(12, width), strength

    def forward(self, x):
        return x + self.strength * self.down(functional.silu(self.up(self.norm(x))))


class Heads(nn.Module):
    """Attention written out, with a written norm and a written activation behind it."""

    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out, self.groups = nn.Linear(width, width), groups
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        batch, length, width = x.shape
        y = x * torch.rsqrt((x**2).mean(-1, keepdim=True) + 1e-6)
        k, v = self.kv(y).chunk(2, dim=-1)
        q, k, v = (
            part.view(batch, length, h, self.size).transpose(1, 2)
            for part, h in ((self.q(y), self.heads), (k, self.groups), (v, self.groups))
        )
        k, v = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (k, v))
        logits = q @ k.transpose(-2, -1) / self.size**0.5
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        logits = logits.masked_fill(mask, float("-inf"))
        read = torch.softmax(logits, dim=-1) @ v
        return x + self.out(read.transpose(1, 2).reshape(batch, length, width))


def chain(*modules):
    return nn.Sequential(*modules).double()


RECOGNISED = {
    "mlp": (chain(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.4), nn.Linear(8, 2)), T),
    "written activation": (
        chain(nn.Linear(6, 8), nn.Hardtanh(), nn.Linear(8, 8), nn.LeakyReLU(0.3), nn.Linear(8, 2)),
        T,
    ),
    "residual": (
        chain(nn.Linear(6, 8), Block(8), Block(8, nn.LayerNorm(8)), nn.Linear(8, 2)),
        T,
    ),
    "images as vectors": (chain(nn.Flatten(), nn.Linear(18, 8), nn.ReLU(), nn.Linear(8, 3)),
                          torch.randn(4, 2, 3, 3).double()),
    "convolutions": (
        chain(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2),
              nn.Conv2d(4, 5, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten(),
              nn.Linear(20, 3)), torch.randn(3, 2, 8, 8).double()),
    "pooled convolutions": (
        chain(nn.Conv2d(2, 6, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
              nn.Linear(6, 3)), torch.randn(3, 2, 5, 5).double()),
    "encoder, post-norm": (
        chain(nn.Linear(3, 8), nn.TransformerEncoderLayer(8, 2, 12, batch_first=True),
              nn.Linear(8, 2)), torch.randn(2, 4, 3).double()),
    "written attention": (
        chain(nn.Linear(3, 8), Heads(8, 4, 2), nn.LayerNorm(8), nn.Linear(8, 2)),
        torch.randn(2, 4, 3).double()),
}  # fmt: skip


@pytest.mark.parametrize("name", RECOGNISED)
def test_a_module_is_read_and_gives_the_same_outputs(name):
    module, x = RECOGNISED[name]
    before = {key: value.clone() for key, value in module.state_dict().items()}
    module.train()
    random = torch.get_rng_state()
    model = Model.of(module, x)
    assert module.training
    assert all(part.training for part in module.modules())
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert agrees(module, x, model)


def test_what_is_read_has_the_right_blocks():
    residual = Model.of(*RECOGNISED["residual"]).network
    assert [block.kind for block in residual.blocks] == ["dense", "residual", "residual", "dense"]
    assert residual.blocks[1].strength == pytest.approx(0.5)
    heads = Model.of(*RECOGNISED["written attention"]).network.blocks[1].branches[0]
    assert (heads[0].kind, heads[1].heads, heads[1].groups) == ("rms-norm", 4, 2)
    assert heads[1].causal
    mlp = Model.of(RECOGNISED["mlp"][0])  # the first layer says what goes in
    assert isinstance(mlp.network, Architecture)
    assert (mlp.network.activation.name, mlp.names) == ("gelu", ("0.weight", "3.weight"))


class Factor(nn.Module):
    """Outputs times a number, as muP has them."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        return 0.125 * self.inner(x)


def test_a_factor_behind_the_last_matrix_is_part_of_it():
    module = Factor().double()
    model = Model.of(module, T)
    assert agrees(module, T, model)
    assert model.notes == ()


class LowNorm(nn.Module):
    """A norm and a softmax that are computed in float32 whatever goes in, as many models do."""

    def __init__(self, width=8):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def turned(self, x):
        half = x.shape[-1] // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.outer(torch.arange(x.shape[2]).float(), rates)
        a, b = x[..., ::2], x[..., 1::2]  # neighbouring channels are a plane
        turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.stack(turned, dim=-1).flatten(-2)

    def forward(self, x):
        y = x.to(torch.float32)
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        q, k, v = (f(y).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        logits = self.turned(q) @ self.turned(k).transpose(-2, -1) / 2.0
        mask = torch.full(logits.shape[-2:], float("-inf")).triu(1)
        weights = torch.softmax(logits + mask, dim=-1, dtype=torch.float32).to(x.dtype)
        return x + self.o((weights @ v).transpose(1, 2).flatten(-2))


def test_casts_to_float32_and_rotations_of_neighbours_are_read():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), LowNorm(), nn.Linear(8, 2))
    x = torch.randn(2, 5, 3)
    model = Model.of(module, x)
    norm, heads = model.network.blocks[1].branches[0]
    assert norm.kind == "rms-norm"
    assert (heads.heads, heads.rope, heads.causal) == (2, 10000.0, True)
    with torch.no_grad():
        theirs = module(x).numpy().reshape(2, -1)
    assert np.allclose(model(x.numpy().reshape(2, -1).astype(float)), theirs, atol=1e-5)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.c(torch.tanh(self.a(torch.tanh(self.a(x)))))


class Mixed(nn.Module):
    """A reshape that mixes samples."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 10), nn.Linear(5, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)).reshape(10, 5))


REFUSED = {
    "used more than once": (Shared(), T.float()),
    "batch_norm": (nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), T.float()),
    "max_pool2d": (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 1)),
        torch.randn(2, 1, 4, 4),
    ),
    "reshape": (Mixed(), T.float()),
    "biases of attention": (
        nn.Sequential(nn.Linear(3, 8), nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)),
        torch.randn(2, 4, 3),
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_no_network_of_ours_is_refused_in_one_line(reason):
    module, x = REFUSED[reason]
    if reason == "biases of attention":
        module[1].self_attn.in_proj_bias.data.fill_(0.1)
        module.add_module("2", nn.Linear(8, 1))
    with pytest.raises(InvalidTypeError) as caught:
        Model.of(module, x)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("function", [
    functional.relu6, lambda x: torch.relu(x.clamp(-9, 9)),
    lambda x: torch.minimum(torch.relu(x), torch.tensor(6.0)),
    lambda x: torch.relu(x) if x.sum() < 9e9 and x.max() < 4 else torch.tanh(x),
])  # fmt: skip
def test_bounds_that_this_batch_keeps_are_not_overlooked(function):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), Function(function), nn.Linear(16, 2))
    with pytest.raises(InvalidTypeError, match="is no network of ours"):
        Model.of(module, 2.0 * T.float())


def test_branches_and_heads_that_add_nothing_stay_what_they_are():
    torch.manual_seed(0)
    branch, heads = Block(8, nn.RMSNorm(8)), Heads(8, 4, 2)
    module = nn.Sequential(nn.Linear(3, 8), nn.RMSNorm(8), branch, heads, nn.Linear(8, 2))
    for part in (branch.down.weight, branch.down.bias, heads.out.weight):
        nn.init.zeros_(part)
    network = Model.of(module, torch.randn(2, 4, 3)).network
    kinds = [block.kind for block in network.blocks]
    assert kinds == ["dense", "rms-norm", "residual", "residual", "dense"]
    assert network.blocks[3].branches[0][1].causal
    alike = Model.of(module, torch.zeros(2, 4, 3)).network  # equal tokens show no mask
    assert alike.blocks[3].branches[0][1].causal


class Plain(nn.Module):
    """A tensor that is no buffer, a mapping for a batch, whole numbers cast to float32."""

    def __init__(self):
        super().__init__()
        self.waves, self.last = torch.randn(3, 8), nn.Linear(8, 2)

    def forward(self, batch):
        return self.last(torch.sin(batch["x"].float() @ self.waves))


def test_inputs_by_name_and_tensors_that_are_no_buffers():
    torch.manual_seed(0)
    named = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    assert read_live(named, {"input": T.float()}).recognised is not None
    live = read_live(Plain(), {"x": torch.randint(0, 4, (5, 3))})
    assert live.graph.nodes[live.graph.output].value.shape == (5, 2)
    normed = torch.nn.utils.spectral_norm(nn.Linear(6, 4))
    assert read_live(normed, T.float()).graph.nodes[-1].value.shape == (5, 4)
    with pytest.raises(InvalidValueError, match="fails: ") as caught:
        read_live(nn.Linear(4, 1), T.float())
    assert "\n" not in str(caught.value)


def test_trained_gains_of_a_norm_are_not_overlooked():
    module = chain(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    assert agrees(module, T, Model.of(module, T))
    module[1].weight.data[3] = 2.0
    with pytest.raises(InvalidTypeError, match="layer_norm"):
        Model.of(module, T)


def test_unused_and_tied_parameters_are_listed():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 8), nn.Linear(8, 7, bias=False)
            self.spare, self.head.weight = nn.Linear(3, 3), self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    module, x = Tied(), torch.randint(7, (2, 3))
    live = read_live(module, x)
    assert live.unused == ("spare.weight", "spare.bias")
    assert live.shared == (("embed.weight", "head.weight"),)
    assert "both embedding and readout" in Model.of(module, x).notes[0]
    layers = torch_layers(module, x)
    assert layers.unused == ("spare.weight", "spare.bias")
    assert [layer.kind for layer in layers.layers] == ["embedding", "linear"][:2]


def test_wrong_models_and_batches_are_one_line():
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    with pytest.raises(InvalidTypeError, match="expected a torch.nn.Module, a JAX function"):
        Model.of("gpt2", X)
    with pytest.raises(InvalidValueError, match="samples first"):
        Model.of(module, torch.ones(6))
    with pytest.raises(InvalidValueError, match="a batch is needed"):
        Model.of(nn.Sequential(nn.Conv2d(1, 2, 3)))
    module[0].weight.data[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="0.weight is not finite"):
        Model.of(module, T.float())


# --- JAX --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_networks_of_ours_are_read_back():
    mlp = MLP([6, 16, 16, 2], "relu", C_b=0.1, C_W=2.0).init(seed=1)
    again = Model.of(mlp, X)
    assert again.network.widths == (6, 16, 16, 2)
    assert np.allclose(again(X), mlp(X))
    skips = MLP([6, 16, 16, 16, 1], "tanh", C_b=0.0, C_W=1.0, skip=[0.5, -0.7]).init(seed=1)
    assert Model.of(skips, X).network.skip == pytest.approx((0.5, -0.7))
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9}
    gpt = load_config(config, positions=3).init(seed=0)
    tokens = np.array([[1.0, 2.0, 3.0]])
    assert np.allclose(Model.of(gpt, tokens)(tokens), gpt(tokens))


def test_functions_and_equinox_modules_are_read():
    params = {"a": {"kernel": rng.normal(size=(6, 9)), "bias": rng.normal(size=9)},
              "b": {"kernel": rng.normal(size=(9, 2)), "bias": np.zeros(2)}}  # fmt: skip

    def net(p, x):
        hidden = jax.nn.silu(x @ p["a"]["kernel"] + p["a"]["bias"][None])
        return hidden @ p["b"]["kernel"] + p["b"]["bias"][None]

    model = Model.of(net, X, params=params)
    assert model.names == ("a.kernel", "b.kernel")
    assert np.allclose(model(X), net(params, X))
    module = eqx.nn.MLP(6, 2, 8, 2, activation=jax.nn.gelu, key=jax.random.key(0))
    assert np.allclose(Model.of(module, X)(X), jax.vmap(module)(jnp.asarray(X)), atol=1e-6)
    with pytest.raises(InvalidTypeError, match="no network of ours"):
        Model.of(lambda p, x: x @ p["a"]["kernel"] @ p["a"]["kernel"].T, X, params=params)


def copied(module, dtype):
    """The weights of a chain of linear layers as an equinox MLP."""
    made = eqx.nn.MLP(6, 3, 16, 2, activation=jax.nn.relu, key=jax.random.key(0), dtype=dtype)
    linear = [part for part in module if isinstance(part, nn.Linear)]
    arrays = [p.detach().numpy().astype(dtype) for one in linear for p in (one.weight, one.bias)]
    where = lambda m: [p for one in m.layers for p in (one.weight, one.bias)]  # noqa: E731
    return eqx.tree_at(where, made, [jnp.asarray(a) for a in arrays])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_torch_and_jax_show_the_same_numbers(dtype, tolerance):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    ).to(getattr(torch, dtype))
    x = X.astype(dtype)
    theirs = measure_torch(module, torch.from_numpy(x))
    ours = read_live(copied(module, dtype), x).measure(None)
    assert [layer.channels for layer in ours] == [16, 16, 3]
    for a, b in zip(theirs, ours, strict=True):
        for quantity, value in a.numbers.items():
            if np.isfinite(value):
                assert b.numbers[quantity] == pytest.approx(value, rel=tolerance), quantity


@pytest.mark.parametrize("name", ["residual", "pooled convolutions", "written attention"])
def test_the_network_read_shows_the_numbers_of_the_module(name):
    from dynagram.live._stages import measure_stages

    module, x = RECOGNISED[name]
    read = read_live(module, x).recognised
    stages = measure_stages(read.network, read.params, read.rows)
    total = sum(layer.gradient for layer in measure_torch(module, x) if "norm" not in layer.name)
    gains = sum(float(v) for k, v in _gains(module, x).items())
    ours = float(np.nansum(stages.numbers["squared gradient"]))
    biases = 0.0 if name != "written attention" else _output_bias(module, x)
    assert ours + gains + biases == pytest.approx(total + 0.0, rel=1e-9)
    last = measure_torch(module, x)[-1]
    assert stages.numbers["mean square"][-1] == pytest.approx(last.mean_square, rel=1e-10)
    assert stages.numbers["Jacobian"][-1] == pytest.approx(last.jacobian, rel=1e-10)


def _slopes(module, x):
    module.zero_grad()
    module.eval()
    out = module(x)
    out.reshape(-1, out.shape[-1])[:, 0].mean().backward()
    made = {n: float((p.grad**2).sum()) for n, p in module.named_parameters()}
    module.zero_grad()
    return made


def _gains(module, x):
    """Squared gradients of gains, which our norms do not have, inside layers that are no norms."""
    named = dict(module.named_modules())
    return {
        n: v
        for n, v in _slopes(module, x).items()
        if isinstance(named[n.rpartition(".")[0]], nn.LayerNorm) and "norm" not in n
    }


def _output_bias(module, x):
    return _slopes(module, x)["1.out.bias"]


def test_a_chain_of_blocks_is_what_it_was_drawn_from():
    assert isinstance(Model.of(*RECOGNISED["convolutions"]).network, Chain)
