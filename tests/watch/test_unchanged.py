"""Training is the same bit for bit whether it is watched or not."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram.watch  # noqa: E402


class Noisy(nn.Module):
    """Dropout, batch norm with running statistics, an in-place activation, a buffer that counts."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4 * 6 * 6, 32)
        self.norm1 = nn.BatchNorm1d(32)
        self.out = nn.Linear(32, 10)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        x = self.act(self.norm(self.conv(x.reshape(-1, 1, 8, 8))))
        x = self.drop(x.flatten(1))
        x = torch.tanh(self.norm1(self.fc(x)))
        return self.out(self.drop(x)) + 1e-3 * np.random.rand()  # noqa: NPY002


def train(watched, make, optimizer_class, backend=None, **options):
    """The state of everything after some steps: weights, buffers, moments, random numbers."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    model = make()
    data = torch.randn(64, 64), torch.randint(0, 10, (64,))
    optimizer = optimizer_class(model.parameters(), **options)
    called = model if backend is None else torch.compile(model, backend=backend)
    watcher = None
    if watched:
        watcher = dynagram.watch(called, data, every=2, samples=16)
    losses = []
    for step in range(7):
        rows = torch.randint(0, 64, (24,))
        if step % 3 == 0:  # gradients add up over two batches
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(called(data[0][rows]), data[1][rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if watcher is not None:
        watcher.close()
        assert watcher.failures == []
        assert watcher.last.step == 6
    moments = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    gradients = [p.grad for p in model.parameters()]
    modes = [part.training for part in model.modules()]
    hooks = [len(part._forward_hooks) for part in model.modules()]
    assert not any(hooks)
    noise = [torch.rand(3), torch.tensor(np.random.rand())]  # noqa: NPY002
    return [*model.state_dict().values(), *losses, *moments, *gradients, *noise], modes


SGD = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
ADAMW = (torch.optim.AdamW, {"lr": 1e-2})


@pytest.mark.parametrize(
    ("optimizer", "options", "backend"),
    [
        (*SGD, None),
        (*ADAMW, "aot_eager"),
        pytest.param(*ADAMW, None, marks=pytest.mark.slow),
        pytest.param(*SGD, "eager", marks=pytest.mark.slow),
        pytest.param(*ADAMW, "eager", marks=pytest.mark.slow),
        pytest.param(*SGD, "aot_eager", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_training_is_the_same_to_the_bit(optimizer, options, backend):
    torch._dynamo.reset()
    plain, modes = train(False, Noisy, optimizer, backend, **options)
    watched, watched_modes = train(True, Noisy, optimizer, backend, **options)
    assert modes == watched_modes
    assert len(plain) == len(watched)
    for one, other in zip(plain, watched, strict=True):
        assert torch.equal(one, other)


def test_a_watcher_that_disturbs_is_seen(monkeypatch):
    """The comparison has power: without the protection it fails."""
    import contextlib

    from dynagram.watch import _torch_recorder

    plain, _ = train(False, Noisy, torch.optim.SGD, lr=0.1)
    monkeypatch.setattr(
        _torch_recorder, "quiet", lambda module: contextlib.nullcontext(module.train())
    )
    watched, _ = train(True, Noisy, torch.optim.SGD, lr=0.1)
    assert not all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))


@pytest.mark.slow
def test_the_first_import_draws_nothing():
    """JAX, which is imported on the way, draws from NumPy's generator when it is first loaded.

    In a process of its own also because the checks of types in these tests draw from Python's.
    """
    program = (
        "import random, numpy as np, torch, dynagram; "
        "torch.manual_seed(0); np.random.seed(0); random.seed(0); "
        "model = torch.nn.Linear(3, 2); x = torch.randn(8, 3); "
        "seen = lambda: (np.random.get_state()[1].sum(), np.random.get_state()[2], "
        "hash(random.getstate()), torch.get_rng_state().sum().item()); before = seen(); "
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1); "
        "watcher = dynagram.watch(model, x, every=1); optimizer.step(); watcher.close(); "
        "assert seen() == before, 'drawn from'; assert watcher.last.step == 1"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_graph_that_waits_can_still_go_backward():
    """Buffers and weights are not touched in place: a forward pass before a record stays valid."""
    torch.manual_seed(0)
    model = Noisy()
    data = torch.randn(32, 64), torch.randint(0, 10, (32,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    penalty = (model.norm.running_mean * model.norm.weight).sum()  # holds a buffer
    with dynagram.watch(model, data, every=1) as watcher:
        pass
    assert watcher.last.step == 0
    penalty.backward()
    optimizer.step()


def test_data_parallel_training_is_the_same_to_the_bit(tmp_path):
    from torch import distributed

    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("PyTorch without gloo")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    try:
        states, watcher = [], None
        for is_watched in (False, True):
            torch.manual_seed(0)
            inner = nn.Sequential(
                nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
            )
            model = nn.parallel.DistributedDataParallel(inner)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))
            if is_watched:
                watcher = dynagram.watch(model, (x, y), every=2, optimizer=optimizer)
            for _ in range(5):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            states.append([*inner.state_dict().values(), torch.get_rng_state()])
        assert watcher is not None
        watcher.close()
        assert not watcher.failures
        assert all(torch.equal(one, other) for one, other in zip(*states, strict=True))
    finally:
        distributed.destroy_process_group()
