"""Models as people write them: looked at whole, and their training left as it is."""

import types

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.errors import DynagramError  # noqa: E402

G = torch.Generator().manual_seed(0)
IMAGES, LABELS = torch.randn(16, 3, 8, 8, generator=G), torch.randint(0, 3, (16,), generator=G)
ROWS, CLASSES = torch.randn(16, 6, generator=G), torch.randint(0, 2, (16,), generator=G)
WORDS = torch.randint(0, 20, (8, 7), generator=G)
QUANTITIES = ["loss", "top_eigenvalue", "kernel_drift", "weight_norm", "update_norm", "activation",
              "gradient", "similarity", "kernel_share", "dead"]  # fmt: skip


class Patches(nn.Module):
    """A convolution of patches, a token of its own, blocks of attention."""

    def __init__(self):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 1, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.block(x)[:, 0])


class Residual(nn.Module):
    """A block of convolutions with batch norms, in place where it can."""

    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = (
            nn.Conv2d(n, 8, 3, padding=1, bias=False) for n in (3, 8, 8)
        )
        self.norms, self.head = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3)), nn.Linear(8, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.norms[0](self.stem(x)))
        y = self.norms[2](self.second(self.relu(self.norms[1](self.first(x)))))
        y += x
        return self.head(self.relu(y).mean(dim=(2, 3)))


class Tied(nn.Module):
    """A language model whose embedding reads out; returns (outputs, loss) when it has targets."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(20, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, targets=None):
        z = self.head(torch.tanh(self.mix(self.embed(ids).cumsum(dim=1))))
        if targets is None:
            return z
        return z, nn.functional.cross_entropy(z.flatten(0, 1), targets.flatten())


class Named(nn.Module):
    """Takes one mapping."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(6, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, batch):
        return self.head(torch.relu(self.left(batch["left"]) + self.right(batch["right"])))


class Returning(nn.Module):
    """Returns an object, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        return types.SimpleNamespace(logits=self.head(torch.relu(self.body(x))), loss=None)


def plain():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def frozen():
    model = plain()
    for parameter in model[2].parameters():
        parameter.requires_grad_(False)
    return model


def entropy(z, y):
    return nn.functional.cross_entropy(z.flatten(0, -2).float(), y.flatten())


def halves(x):
    return {"left": x, "right": x[:, :4]}


X, Y = WORDS[:, :-1], WORDS[:, 1:].contiguous()
# How a model is made, its probe, its loss in training, its inputs and targets.
CASES = {
    "patches": (Patches, (IMAGES, LABELS), lambda m, x, y: entropy(m(x), y), IMAGES, LABELS),
    "residual": (Residual, (IMAGES, LABELS), lambda m, x, y: entropy(m(x), y), IMAGES, LABELS),
    "tied": (Tied, (X, Y), lambda m, x, y: entropy(m(x), y), X, Y),
    "pair": (Tied, {"ids": X, "targets": Y}, lambda m, x, y: m(x, y)[1], X, Y),
    "frozen": (frozen, (ROWS, CLASSES), lambda m, x, y: entropy(m(x), y), ROWS, CLASSES),
    "bf16": (lambda: plain().bfloat16(), (ROWS, CLASSES),
             lambda m, x, y: entropy(m(x.bfloat16()), y), ROWS, CLASSES),
    "mapping": (Named, (halves(ROWS), CLASSES), lambda m, x, y: entropy(m(halves(x)), y), ROWS,
                CLASSES),
    "nested": (Named, ({"batch": halves(ROWS)}, CLASSES),
               lambda m, x, y: entropy(m(halves(x)), y), ROWS, CLASSES),
    "object": (Returning, (ROWS, CLASSES), lambda m, x, y: entropy(m(x).logits, y), ROWS, CLASSES),
    "compiled": (lambda: torch.compile(plain(), backend="eager"), (ROWS, CLASSES),
                 lambda m, x, y: entropy(m(x), y), ROWS, CLASSES),
}  # fmt: skip


def train(case, *, is_watched):
    make, probe, loss, x, y = case
    torch.manual_seed(1)
    model, watcher = make(), None
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=0.05, momentum=0.9)
    if is_watched:
        watcher = dynagram.watch(model, probe, every=2, quantities=QUANTITIES)
    losses = []
    for _ in range(4):
        rows = torch.randint(0, len(x), (4,))
        optimizer.zero_grad()
        value = loss(model, x[rows], y[rows])
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return watcher, model, losses


@pytest.mark.parametrize("name", CASES)
def test_recorded_and_unchanged(name):
    _, alone, losses = train(CASES[name], is_watched=False)
    watcher, watched, same = train(CASES[name], is_watched=True)
    watcher.close()
    assert losses == same
    for one, other in zip(alone.state_dict().values(), watched.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert watcher.failures == []
    values = watcher.last.values
    assert watcher.last.step == 4
    assert {("loss", ""), ("kernel_drift", "")} <= set(values)
    # The projection behind attention is computed by the attention itself, not as a module.
    seen = [layer for layer in watcher.layers if not layer.endswith("out_proj")]
    for layer in seen:
        assert {("activation", layer), ("gradient", layer), ("weight_norm", layer)} <= set(values)
    if name == "frozen":
        assert values["kernel_share", "2"] == 0.0
        assert values["update_norm", "2"] == 0.0


def test_what_cannot_be_watched_is_refused_in_a_line():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.ones(6, 2))

        def forward(self, x):
            return x @ self.W

    for model, probe in (
        (Bare(), ROWS), (Named(), ROWS), (Named(), halves(ROWS) | {"left": ROWS[:, :2]}),
        (plain(), {"a": ROWS, "b": 3}), (plain(), [ROWS]),
    ):  # fmt: skip
        with pytest.raises(DynagramError) as caught:
            dynagram.watch(model, probe)
        assert "\n" not in str(caught.value)


def test_a_class_for_every_pixel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 1))
    x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 5, (8, 6, 6))
    with dynagram.watch(model, (x, y), samples=8) as watcher:
        assert watcher.failures == []
    expected = float(nn.functional.cross_entropy(model(x).detach(), y))
    assert watcher.last.values["loss", ""] == pytest.approx(expected, rel=1e-5)
    assert ("linearity", "0") in watcher.last.values
