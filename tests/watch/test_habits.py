"""Habits of models that a pass of the watcher could disturb: training stays as it is, bit for bit.

Weights made from others, weights and inputs written to by `forward`, states in plain attributes,
generators of their own, losses with buffers.
"""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, prune  # noqa: E402

import dynagram.watch  # noqa: E402
from dynagram.errors import DynagramError  # noqa: E402

G = torch.Generator().manual_seed(0)
X, Y = torch.randn(24, 6, generator=G), torch.randint(0, 3, (24,), generator=G)
IDS = torch.randint(0, 500, (24, 6), generator=G)


def followed(first):
    return nn.Sequential(first, nn.ReLU(), nn.Linear(12, 3))


class Noise(nn.Module):
    def forward(self, W):
        return W * (1 + 0.1 * torch.rand_like(W))


class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, W):
        self.calls.add_(1)
        return W * (1 + 0.01 * self.calls)


def made(parametrisation, name="weight"):
    layer = nn.Linear(6, 12)
    parametrize.register_parametrization(layer, name, parametrisation)
    return followed(layer)


def pruned():
    model = followed(nn.Linear(6, 12))
    prune.random_unstructured(model[0], "weight", 0.5)
    return model


class Habit(nn.Module):
    """Two layers, and something that happens between them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)
        self.hidden, self.calls, self.penalty = None, 0, 0.0
        self.numbers = [torch.Generator().manual_seed(3)]
        self.torch_numbers = torch.Generator().manual_seed(3)
        self.numpy_numbers, self.python_numbers = np.random.default_rng(0), random.Random(0)

    def between(self, z):
        return z

    def forward(self, x):
        return self.last(torch.relu(self.between(self.first(x))))


class Stateful(Habit):
    def between(self, z):
        z = z if self.hidden is None else z + self.hidden.mean(0)
        self.hidden = z.detach() / 2
        return z


class Counting(Habit):
    def between(self, z):
        self.calls += 1
        return z * (1 + 0.1 * self.calls)


class Drawing(Habit):
    def between(self, z):
        kept = torch.rand(z.shape, generator=self.torch_numbers) > 0.2
        return z * kept + self.numpy_numbers.normal() + self.python_numbers.random()


class Clipped(Habit):
    def forward(self, x):
        with torch.no_grad():
            self.first.weight.mul_(0.9)
        return super().forward(x)


class ClippedData(Habit):
    def forward(self, x):
        self.first.weight.data.mul_(0.9)
        return super().forward(x)


class Greedy(Habit):
    def forward(self, x):
        return super().forward(x.mul_(0.9))


class MadeLate(Habit):
    def between(self, z):
        if self.hidden is None:
            self.hidden = nn.Linear(12, 12)
        return self.hidden(z)


class Autocast(Habit):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        return super().forward(x).float()


HABITS = {
    "spectral norm": lambda: followed(parametrizations.spectral_norm(nn.Linear(6, 12))),
    "weight norm": lambda: followed(parametrizations.weight_norm(nn.Linear(6, 12))),
    "orthogonal": lambda: followed(parametrizations.orthogonal(nn.Linear(6, 12))),
    "old spectral norm": lambda: followed(nn.utils.spectral_norm(nn.Linear(6, 12))),
    "random weight": lambda: made(Noise()),
    "counted weight": lambda: made(Count()),
    "counted bias": lambda: made(Count(), "bias"),
    "pruned": pruned,
    "max_norm": lambda: nn.Sequential(
        nn.Embedding(500, 2, max_norm=0.5), nn.Flatten(), nn.Linear(12, 3)
    ),
    "scripted part": lambda: nn.Sequential(torch.jit.script(nn.Linear(6, 12)), nn.Linear(12, 3)),
} | {kind.__name__: kind for kind in Habit.__subclasses__()}  # fmt: skip


def train(make, *, is_watched, every=2, loss=None, penalty=None, x=X, **options):
    """Everything that training leaves, and the watcher."""
    torch.manual_seed(0)
    model, watcher = make(), None
    x = IDS if isinstance(model, nn.Sequential) and isinstance(model[0], nn.Embedding) else x
    criterion = loss() if loss else nn.functional.cross_entropy
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if is_watched:
        options |= {"loss": criterion} if loss else {}
        watcher = dynagram.watch(model, (x, Y), every=every, **options)
    losses = []
    for _ in range(5):
        rows = torch.randint(0, len(x), (8,))
        optimizer.zero_grad()
        before = penalty(model) if penalty else 0.0
        value = criterion(model(x[rows]), Y[rows]) + before
        value.backward(retain_graph=penalty is not None)
        optimizer.step()
        losses.append(value.detach())
    if watcher is not None:
        watcher.close()
    left = [*model.state_dict().values(), *losses, *(p.grad for p in model.parameters())]
    left += [*criterion.state_dict().values()] if loss else []
    left += [torch.rand(2), *(torch.tensor(part.training) for part in model.modules())]
    return left, watcher


def same(one, other):
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HABITS)
def test_a_habit_is_left_as_it_is(name):
    alone, _ = train(HABITS[name], is_watched=False)
    watched, watcher = train(HABITS[name], is_watched=True)
    assert same(alone, watched)
    assert watcher.failures == []
    assert watcher.last.step == 4


def test_a_weight_that_is_made_is_recorded_as_it_acts():
    torch.manual_seed(0)
    model = HABITS["spectral norm"]()
    with dynagram.watch(model, (X, Y), every=1) as watcher:
        pass
    values = watcher.last.values
    with torch.no_grad():
        assert values["weight_norm", "0"] == pytest.approx(float(model.eval()[0].weight.norm()))
    assert {("activation", "0"), ("gradient", "0"), ("effective_rank", "0")} <= set(values)
    # Its kernel is not that of the weight, nor is its balance with the next layer conserved.
    assert not {("kernel_share", "0"), ("imbalance", "0"), ("update_norm", "0")} & set(values)


def test_a_penalty_between_the_steps_goes_to_the_model():
    """Of what the last pass of training left in attributes, not of the watcher's pass."""

    def penalty(model):
        return model[0].weight.mean()  # as the pass before left it

    alone, _ = train(pruned, is_watched=False, every=1, penalty=penalty)
    watched, _ = train(pruned, is_watched=True, every=1, penalty=penalty)
    assert same(alone, watched)


class Centred(nn.Module):
    """A loss that keeps a running mean, and draws."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))
        self.norm, self.calls = nn.BatchNorm1d(3), 0

    def forward(self, z, y):
        self.calls += 1
        self.centre.lerp_(z.detach().mean(0), 0.1)
        return nn.functional.cross_entropy(self.norm(z - self.centre) * self.calls, y)


def test_a_loss_with_a_state_keeps_it():
    alone, _ = train(Habit, is_watched=False, loss=Centred)
    watched, watcher = train(Habit, is_watched=True, loss=Centred)
    assert same(alone, watched)
    assert watcher.failures == []


def test_the_probe_is_a_copy():
    x = X.clone()
    with dynagram.watch(Greedy(), (x, Y), every=1) as watcher:
        first = watcher.last.values["loss", ""]
        assert torch.equal(x, X)
    x.zero_()
    with dynagram.watch(Habit(), (X.numpy().astype(">f4"), Y), every=1) as watcher:
        assert watcher.failures == []
    assert first > 0


def test_a_layer_that_was_replaced_is_named_once():
    model = followed(nn.Linear(6, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dynagram.watch(model, (X, Y), every=1) as watcher:
        model[2] = nn.Linear(12, 3)
        for _ in range(3):
            nn.functional.cross_entropy(model(X), Y).backward()
            optimizer.step()
    (line,) = watcher.failures
    assert "layer = '2': is no part of the model any more" in line


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_not_ready_is_the_one_to_blame():
    for model, words in (
        (nn.Sequential(nn.LazyLinear(3)), "model = 'Sequential': has lazy layers"),
        (torch.jit.script(nn.Linear(6, 3)), "TorchScript is not looked into"),
    ):
        with pytest.raises(DynagramError, match=words):
            dynagram.watch(model, (X, Y))
