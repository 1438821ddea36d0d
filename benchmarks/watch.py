"""What watching costs: steps with a record every 100 beside the same steps without.

One model is trained through two optimizers by turns of ten steps; one of them is watched. Weights,
memory and caches are those of one training, so that the two differ by the watch alone, and what
others do on the machine meets both. A round is 300 steps of each: it holds every kind of record
once, as dear quantities come in every third. Its overhead is the seconds of the processor, on one
thread, of the watched steps over those of the others, minus one. What is reported is the mean of
the rounds without the fifth that is largest and the fifth that is smallest, with the standard error
of such a mean: single rounds of a busy machine are off by far. Layers, which take turns over the
rounds, differ in their records by less than 0.1 % of a round. `--control` watches nothing: the
overhead that is found then is the benchmark's own.

Memory that is freed is kept by the process. Otherwise it depends on the chance of what lies last on
the heap whether a step gives some of it back and takes it again, and of two runs of one and the
same training one is up to 4 % dearer.
"""

import argparse
import ctypes
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import nn

import dynagram.watch

HERE = Path(__file__).parent
EVERY = 100
KINDS = 3  # of records, by the dear quantities they hold
TURN = 10  # steps
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


def keep_freed_memory() -> None:
    """The allocator of glibc gives no memory back to the system; others stay as they are."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        trim_threshold, mmap_threshold = -1, -3
        adjust(trim_threshold, 2**31 - 1)
        adjust(mmap_threshold, 2**25)


def measure(make, rounds: int, is_control: bool) -> dict:
    """The overhead in some rounds of one model."""
    torch.manual_seed(0)
    model, x, y, batch = make()
    # Without momentum they keep nothing, so that both train the same weights.
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2)]
    order, costs = np.random.default_rng(0), []

    def train(which: int, count: int) -> float:
        return stretch(model, optimizers[which], x, y, batch, count, order)

    for which in (0, 1):
        train(which, TURN)
    watcher, began = None, time.process_time()
    if not is_control:
        probe = x[:256], y[:256]
        watcher = dynagram.watch(model, probe, every=EVERY, optimizer=optimizers[1])
        record = watcher.record

        def timed(*arguments):
            start = time.process_time()
            result = record(*arguments)
            costs.append(time.process_time() - start)
            return result

        watcher.record = timed
    beginning = time.process_time() - began
    train(1, TURN // 2)  # records fall in the middle of a turn, with what they leave behind
    times = np.zeros((rounds, 2))
    for number in range(rounds):
        for turn in range(KINDS * EVERY // TURN):
            for which in (turn % 2, 1 - turn % 2):
                times[number, which] += train(which, TURN)
    if watcher is not None:
        watcher.close()
        assert not watcher.failures, watcher.failures
    plain, watched = times.T
    overheads = watched / plain - 1.0
    return {
        "step_ms": 1e3 * float(np.median(plain)) / (KINDS * EVERY),
        "record_ms": 1e3 * float(np.mean(costs)) if costs else 0.0,
        "first_record_ms": 1e3 * beginning,
        "overhead": float(stats.trim_mean(overheads, 0.2)),
        "error": float(stats.mstats.trimmed_stde(overheads, limits=(0.2, 0.2))),
        "by_records": float(np.sum(costs) / np.sum(plain)),
        "rounds": rounds,
    }


def verdict(overhead: float, error: float) -> str:
    """Whether an overhead is within the target, as far as two standard errors tell."""
    if overhead + 2.0 * error <= TARGET:
        return "yes"
    return "NO" if overhead - 2.0 * error > TARGET else "not resolved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--control", action="store_true", help="watch nothing")
    parser.add_argument("--case", help="a part of the name of one case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    report = {"threads": torch.get_num_threads(), "torch": torch.__version__, "cases": {}}
    for name, make in CASES.items():
        if options.case and options.case not in name:
            continue
        row = report["cases"][name] = measure(make, options.rounds, options.control)
        print(
            f"{name}: a step {row['step_ms']:.2f} ms, a record {row['record_ms']:.1f} ms (the "
            f"first {row['first_record_ms']:.0f} ms), overhead {100 * row['overhead']:.2f} ± "
            f"{100 * row['error']:.2f} %, by the records alone {100 * row['by_records']:.2f} %; "
            f"within {100 * TARGET:.0f} %: {verdict(row['overhead'], row['error'])}",
            flush=True,
        )
    if not options.control:
        path = HERE / "results" / "watch.json"
        if options.case:  # the others stay as they were measured
            report["cases"] = json.loads(path.read_text())["cases"] | report["cases"]
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False))
        print(f"written to {path.name} in benchmarks/results")


if __name__ == "__main__":
    main()
