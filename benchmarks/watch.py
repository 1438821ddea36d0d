"""What watching costs: training with a record every 100 steps beside the same training without.

Two copies of a model train in short stretches by turns, one of them watched. Stretches are 100
steps, one record each, and are timed by the seconds of the processor on one thread, so that others
on the machine do little to them. The overhead is the sum of the watched stretches over that of the
others, minus one; its error comes from the pairs, and is large on a busy machine. The seconds of
the records alone over those of the plain stretches leave out nothing but the copy of the weights
before a recorded step, and are steadier. Both copies end with the same weights.
"""

import argparse
import copy
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import dynagram.watch

HERE = Path(__file__).parent
EVERY = 100
TARGET = 0.03


class Block(nn.Module):
    """Attention and an MLP on a stream, norms before."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self, words: int = 256, width: int = 128, layers: int = 6, tokens: int = 64):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids):
        place = self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(self.embed(ids) + place)))


def mlp():
    """Four layers of 512 units, batches of 128."""
    sizes = (64, 512, 512, 512, 512, 10)
    layers = [part for n, m in itertools.pairwise(sizes)
              for part in (nn.Linear(n, m), nn.ReLU())]  # fmt: skip
    x, y = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
    return nn.Sequential(*layers[:-1]), x, y, 128


def cnn():
    """Three convolutions with batch norms on 16 × 16 images, batches of 64."""
    layers, channels = [], (3, 16, 32, 64)
    for n, m in itertools.pairwise(channels):
        layers += [nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(), nn.MaxPool2d(2)]
    x, y = torch.randn(2048, 3, 16, 16), torch.randint(0, 10, (2048,))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10)), x, y, 64


def transformer():
    """Six layers of width 128 on 64 tokens, batches of 8."""
    ids = torch.randint(0, 256, (256, 65))
    return Transformer(), ids[:, :-1], ids[:, 1:], 8


CASES = {"4×512 MLP": mlp, "small CNN": cnn, "6-layer transformer": transformer}


def stretch(model, optimizer, x, y, batch, steps, order) -> float:
    """Seconds of some steps, of the processor."""
    start = time.process_time()
    for _ in range(steps):
        rows = order.integers(0, len(x), batch)
        optimizer.zero_grad()
        z = model(x[rows])
        nn.functional.cross_entropy(z.flatten(0, -2), y[rows].flatten()).backward()
        optimizer.step()
    return time.process_time() - start


def measure(make, pairs: int, steps: int) -> dict:
    """The overhead in `pairs` pairs of stretches of two copies of one model."""
    torch.manual_seed(0)
    model, x, y, batch = make()
    models = {False: model, True: copy.deepcopy(model)}
    optimizers = {w: torch.optim.SGD(m.parameters(), lr=0.01) for w, m in models.items()}
    orders = {w: np.random.default_rng(0) for w in models}

    def train(is_watched: bool, count: int) -> float:
        parts = models[is_watched], optimizers[is_watched], x, y, batch
        return stretch(*parts, count, orders[is_watched])

    train(False, 10), train(True, 10)
    began = time.process_time()
    watcher = dynagram.watch(
        models[True], (x[:256], y[:256]), every=steps, optimizer=optimizers[True]
    )
    beginning = time.process_time() - began
    times, costs, record = {False: [], True: []}, [], watcher.record

    def timed(*arguments):
        start = time.process_time()
        result = record(*arguments)
        costs.append(time.process_time() - start)
        return result

    watcher.record = timed
    for pair in range(pairs):
        for is_watched in (pair % 2 == 0, pair % 2 == 1):
            times[is_watched].append(train(is_watched, steps))
    watcher.close()
    assert not watcher.failures, watcher.failures
    weights = zip(models[False].parameters(), models[True].parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)
    plain, watched = np.array(times[False]), np.array(times[True])
    ratios = watched / plain - 1.0
    return {
        "step_ms": 1e3 * float(np.median(plain)) / steps,
        "record_ms": 1e3 * float(np.mean(costs)),
        "first_record_ms": 1e3 * beginning,
        "overhead": float(np.sum(watched) / np.sum(plain) - 1.0),
        "error": float(np.std(ratios, ddof=1) / np.sqrt(len(ratios))),
        "by_records": float(np.sum(costs) / np.sum(plain)),
        "pairs": pairs,
    }


def verdict(overhead: float, error: float) -> str:
    """Whether an overhead is within the target, as far as two standard errors tell."""
    if overhead + 2.0 * error <= TARGET:
        return "yes"
    return "NO" if overhead - 2.0 * error > TARGET else "not resolved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--case", help="a part of the name of one case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = {"threads": torch.get_num_threads(), "torch": torch.__version__, "cases": {}}
    for name, make in CASES.items():
        if options.case and options.case not in name:
            continue
        row = report["cases"][name] = measure(make, options.pairs, EVERY)
        print(
            f"{name}: a step {row['step_ms']:.2f} ms, a record {row['record_ms']:.1f} ms (the "
            f"first {row['first_record_ms']:.0f} ms), overhead {100 * row['overhead']:.2f} ± "
            f"{100 * row['error']:.2f} %, by the records alone {100 * row['by_records']:.2f} %; "
            f"within {100 * TARGET:.0f} %: {verdict(row['overhead'], row['error'])}",
            flush=True,
        )
    if not options.case:
        path = HERE / "results" / "watch.json"
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False))
        print(f"written to {path.name} in benchmarks/results")


if __name__ == "__main__":
    main()
