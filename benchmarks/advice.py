"""Advice against what engineers do: untuned `dynagram.advice` with tuned initialisations.

A cell is a network (depth, width, activation, skip), a task, an optimizer and a batch size. The
competitors are PyTorch's default, Kaiming, Xavier and orthogonal initialisation, each with the
best of 7 learning rates, chosen after the fact on the same networks; ours is
`dynagram.advice.initialise` with `advise_rates`, nothing tuned. Judged is the training loss after
a fixed number of steps, a geometric mean over seeds. Losses below a thousandth of chance count as
that: such a network has learned its task, and the ratio of two of them says nothing.

    python benchmarks/advice.py --minutes 20            # sizes for two cores
    python benchmarks/advice.py --minutes 8 --large     # sizes for a GPU

Cells are drawn at random from the grid by `--seed`, none twice. The rules of
docs/derivations/advice.md were made with other cells (seeds 0 and 11); the recorded results are
from seed 5.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SAMPLES, INPUTS, OUTPUTS, BATCH, STEPS = 512, 64, 10, 64, 100
ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "silu": jax.nn.silu,
    "sin": jnp.sin,
}
NAMES = list(ACTIVATIONS)
TASKS = ("digits", "classes", "regression")
# Adam?, β, weight decay; the grid of rates spans what is in use, by a factor of about three.
OPTIMIZERS = {
    "sgd": (False, 0.0, 0.0, np.geomspace(3e-3, 3.0, 7)),
    "momentum": (False, 0.9, 0.0, np.geomspace(1e-3, 1.0, 7)),
    "adam": (True, 0.9, 0.0, np.geomspace(1e-4, 1e-1, 7)),
    "adamw": (True, 0.9, 0.01, np.geomspace(1e-4, 1e-1, 7)),
}
COMPETITORS = ("default", "kaiming", "xavier", "orthogonal")
SHAPES = [(4, 64), (8, 64), (8, 128), (16, 64), (24, 64)]
LARGE = [(24, 128), (8, 256), (48, 64), (16, 512), (4, 1024), (64, 128), (32, 256), (4, 64)]


# --- tasks ------------------------------------------------------------------------------------


def make_tasks() -> dict[str, tuple]:
    """name → x (padded to `INPUTS` columns), y (padded to `OUTPUTS`), squared error?, columns."""
    from dynagram.data import digits

    rng = np.random.default_rng(0)
    images = digits()
    chosen = rng.permutation(len(images.x))[:SAMPLES]
    x = images.x[chosen]
    tasks = {"digits": ((x - x.mean()) / x.std(), np.eye(10)[images.labels[chosen]], False, 64)}
    x = rng.normal(size=(SAMPLES, 32))
    hidden = np.tanh(1.5 * x @ rng.normal(size=(32, 24)) / math.sqrt(32))
    labels = (hidden @ rng.normal(size=(24, 10))).argmax(axis=1)
    tasks["classes"] = (x, np.eye(10)[labels], False, 32)
    x = rng.uniform(-1.7, 1.7, size=(SAMPLES, 16))
    y = np.sin(0.5 * x @ rng.normal(size=(16, 12))) @ rng.normal(size=(12, 1))
    tasks["regression"] = (x, (y - y.mean()) / y.std(), True, 16)
    return {
        name: (_padded(x, INPUTS), _padded(y, OUTPUTS), squared, columns)
        for name, (x, y, squared, columns) in tasks.items()
    }


def _padded(a: np.ndarray, columns: int) -> jax.Array:
    return jnp.asarray(np.pad(a, ((0, 0), (0, columns - a.shape[1]))), jnp.float32)


# --- networks: one compiled program per depth and width ----------------------------------------


def apply(params, x, activation, skip):
    def sigma(z):
        return lax.switch(activation, list(ACTIVATIONS.values()), z)

    def block(z, layer):
        W, b = layer
        return skip * z + sigma(z) @ W.T + b, None

    z = x @ params["W_in"].T + params["b_in"]
    z, _ = lax.scan(block, z, (params["W"], params["b"]))
    return sigma(z) @ params["W_out"].T + params["b_out"]


def loss_of(z, y, squared):
    entropy = -jnp.mean(jnp.sum(y * jax.nn.log_softmax(z), axis=-1))
    return jnp.where(squared, jnp.mean((z[:, 0] - y[:, 0]) ** 2), entropy)


def stacked(layers):
    """Layers (b, W) of ℓ = 1..L as the arrays of `apply`."""
    (b_in, W_in), *middle, (b_out, W_out) = layers
    W, b = jnp.stack([W for _, W in middle]), jnp.stack([b for b, _ in middle])
    return {"W_in": W_in, "b_in": b_in, "W": W, "b": b, "W_out": W_out, "b_out": b_out}


def per_layer(values, inputs=1.0):
    """One number a layer, in the shapes of `stacked`; weights of the first layer × `inputs`."""
    first, *middle, last = (jnp.float32(v) for v in values)
    middle = jnp.stack(middle)
    return {
        "W_in": inputs * first, "b_in": first, "W": middle[:, None, None], "b": middle[:, None],
        "W_out": last, "b_out": last,
    }  # fmt: skip


def draw(name, seed, depth, width, columns):
    """A competitor: standard deviations and biases as in torch.nn.init."""
    keys = iter(jax.random.split(jax.random.key(seed), 2 * depth))
    sizes = [columns, *[width] * (depth - 1), OUTPUTS]
    layers = []
    for n_in, n_out in itertools.pairwise(sizes):
        W_key, b_key = next(keys), next(keys)
        b = jnp.zeros(n_out)
        if name == "default":
            W, b = (
                jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) / math.sqrt(n_in)
                for key, shape in ((W_key, (n_out, n_in)), (b_key, (n_out,)))
            )
        elif name == "orthogonal":
            W = jax.nn.initializers.orthogonal()(W_key, (n_out, n_in))
        else:
            variance = 2.0 / n_in if name == "kaiming" else 2.0 / (n_in + n_out)
            W = math.sqrt(variance) * jax.random.normal(W_key, (n_out, n_in))
        layers.append((b, W))
    b, W = layers[0]
    layers[0] = (b, jnp.pad(W, ((0, 0), (0, INPUTS - columns))))
    return stacked(layers)


@functools.partial(jax.jit, static_argnames="steps")
def train(params, rates, x, y, batches, activation, skip, squared, adam, beta, decay, *, steps):
    """The loss on all samples after training, for many runs at once.

    `params`, `rates`: trees with a leading axis of runs; `batches`: (runs, steps, batch).
    """

    def one(params, rate, batches):
        def objective(p, i):
            return loss_of(apply(p, x[i], activation, skip), y[i], squared)

        def step(state, moment):
            p, m, v = state
            t, i = moment
            g = jax.grad(objective)(p, i)
            m = jax.tree.map(lambda m, g: beta * m + jnp.where(adam, 1 - beta, 1.0) * g, m, g)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            first, second = 1 - beta ** (t + 1), 1 - 0.999 ** (t + 1)

            def move(p, m, v, r):
                scaled = (m / first) / (jnp.sqrt(v / second) + 1e-8) + decay * p
                return p - r * jnp.where(adam, scaled, m)

            return (jax.tree.map(move, p, m, v, rate), m, v), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        times = jnp.arange(steps, dtype=jnp.float32)
        (p, _, _), _ = lax.scan(step, (params, zeros, zeros), (times, batches))
        return loss_of(apply(p, x, activation, skip), y, squared)

    return jax.vmap(one)(params, rates, batches)


@jax.jit
def curvature(params, roots, x, y, activation, skip, squared, key):
    """2/λ_max and Σ|g|/sᵀGs as `dynagram.observables._curvature`, layers in one loop."""
    scaled = jax.tree.map(lambda p, r: p / r, params, roots)

    def outputs(q):
        return apply(jax.tree.map(lambda a, r: a * r, q, roots), x, activation, skip)

    z, push = jax.linearize(outputs, scaled)
    pull = jax.linear_transpose(push, scaled)

    def objective(z):
        return loss_of(z, y, squared)

    def gauss_newton(v):
        return pull(jax.jvp(jax.grad(objective), (z,), (push(v),))[1])[0]

    def dot(a, b):
        return sum(
            jnp.vdot(s, t) for s, t in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        )

    def iterate(v, _):
        image = gauss_newton(v)
        size = jnp.sqrt(dot(image, image))
        return jax.tree.map(lambda a: a / jnp.maximum(size, 1e-30), image), size

    start = jax.tree.map(lambda a: jax.random.normal(key, a.shape), scaled)
    _, sizes = lax.scan(iterate, start, None, length=40)
    g = pull(jax.grad(objective)(z))[0]
    signs = jax.tree.map(jnp.sign, g)
    return 2.0 / sizes[-1], dot(g, signs) / dot(signs, gauss_newton(signs))


def advised(
    cell, seed, x, y, squared, columns, batch, budget=4.0,
    *, competitor=None, is_equal=False, is_in_units=True,
):  # fmt: skip
    """Our network, the rates of its layers and what their inputs make of the first one's.

    Nothing here depends on how training goes.
    """
    from dynagram.advice import initialise
    from dynagram.advice._initialise import layer_point
    from dynagram.advice._rates import input_share, layer_shares, rate_fraction
    from dynagram.networks._mlp import Architecture

    depth, width, name, _, optimizer, is_mini, skip = cell
    sizes = [columns, *[width] * (depth - 1), OUTPUTS]
    architecture = Architecture(sizes, name, skip=float(skip))
    model = initialise(architecture, x[:, :columns], seed=seed, budget=budget)
    layers = [(b, W) for b, W in model.params]
    b, W = layers[0]
    layers[0] = (b, jnp.pad(W, ((0, 0), (0, x.shape[1] - columns))))
    params = (
        stacked(layers) if competitor is None else draw(competitor, seed, depth, width, columns)
    )
    is_adam = optimizer.startswith("adam")
    chi = 1.0 if is_equal or is_adam else layer_point(architecture, budget).amplification
    shares = layer_shares(chi, architecture.skip_of_layers)
    mean_square = float(jnp.mean(x[:, :columns] ** 2))
    inputs = input_share(mean_square, columns, width, is_adam=is_adam) if is_in_units else 1.0
    units = (shares, inputs) if is_adam else (np.sqrt(shares), math.sqrt(inputs))
    stable, sign = curvature(
        params, per_layer(*units), x[batch], y[batch], NAMES.index(name), float(skip),
        squared, jax.random.key(seed),
    )  # fmt: skip
    step = float(sign if is_adam else stable)
    return params, rate_fraction(optimizer, is_mini) * step * shares, inputs


# --- cells ------------------------------------------------------------------------------------


def run_cell(cell, tasks, seeds, factors=(1.0,)):
    """All runs of a cell in one program: ours at `factors` times the rates that are advised."""
    factors = list(factors)
    depth, width, name, task, optimizer, is_mini, skip = cell
    x, y, squared, columns = tasks[task]
    adam, beta, decay, grid = OPTIMIZERS[optimizer]
    runs, labels = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        size = BATCH if is_mini else SAMPLES
        batches = np.stack([rng.permutation(SAMPLES)[:size] for _ in range(STEPS)])
        for competitor in COMPETITORS:
            params = draw(competitor, seed, depth, width, columns)
            for rate in grid:
                runs.append((params, per_layer(np.full(depth, rate)), batches))
                labels.append((competitor, seed))
        params, layers, inputs = advised(cell, seed, x, y, squared, columns, batches[0])
        for factor in factors:
            runs.append((params, per_layer(factor * layers, inputs), batches))
            labels.append(("ours", seed))
    params, rates, batches = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    losses = np.asarray(
        train(
            params, rates, x, y, batches, NAMES.index(name), float(skip), squared, adam, beta,
            decay, steps=STEPS,
        )
    )  # fmt: skip
    chance = 1.0 if squared else math.log(10.0)
    row = {"cell": cell, "chance": chance}
    for who in (*COMPETITORS, "ours"):
        values = [
            [loss for loss, label in zip(losses, labels, strict=True) if label == (who, seed)]
            for seed in range(seeds)
        ]
        logs = np.log(np.clip(np.nan_to_num(values, nan=1e6, posinf=1e6), 1e-12, 1e6))
        is_ours = who == "ours"
        best = factors.index(1.0) if is_ours else int(logs.mean(axis=0).argmin())
        error = logs[:, best].std(ddof=1) / math.sqrt(seeds) if seeds > 1 else 0.0
        usual = logs[:, best if is_ours else _default(optimizer, grid)]
        row[who] = {
            "loss": float(np.exp(logs[:, best].mean())), "log_error": float(error),
            "rate": None if is_ours else float(grid[best]),
            "untuned": float(np.exp(usual.mean())),
            "losses": [float(f"{loss:.4g}") for loss in np.exp(logs.mean(axis=0))],
        }  # fmt: skip
    return row


def _default(optimizer, grid):
    """The rate of the grid next to what is used without a thought."""
    usual = {"sgd": 0.1, "momentum": 0.03, "adam": 1e-3, "adamw": 1e-3}[optimizer]
    return int(np.abs(np.log(grid / usual)).argmin())


def draw_cells(shapes, seed):
    rng, seen = np.random.default_rng(1000 + seed), set()
    while True:
        for shape in shapes:
            cell = (
                *shape, str(rng.choice(NAMES)), str(rng.choice(TASKS)),
                str(rng.choice(list(OPTIMIZERS))), bool(rng.random() < 0.4),
                bool(rng.random() < 0.25),
            )  # fmt: skip
            if cell not in seen:
                seen.add(cell)
                yield cell


def judged(row):
    floor = 1e-3 * row["chance"]
    best = min(max(row[c]["loss"], floor) for c in COMPETITORS)
    untuned = min(max(row[c]["untuned"], floor) for c in COMPETITORS)
    ours = max(row["ours"]["loss"], floor)
    return ours / best, ours / untuned, ours / row["chance"], best / row["chance"]


def transferred(rows):
    """Log loss of the best competitor whose rate was tuned on the other cells of its optimizer."""
    values = np.zeros(len(rows))
    for index, row in enumerate(rows):
        others = [r for r in rows if r is not row and r["cell"][4] == row["cell"][4]]
        floor = 1e-3 * row["chance"]
        choices = []
        for competitor in COMPETITORS:
            if others:
                logs = [
                    np.log(np.maximum(r[competitor]["losses"], 1e-3 * r["chance"])) for r in others
                ]
                rate = int(np.mean(logs, axis=0).argmin())
                choices.append(max(row[competitor]["losses"][rate], floor))
        values[index] = math.log(min(choices, default=math.nan))
    return values


def summary(rows):
    ratios, against_untuned, ours, best = np.array([judged(row) for row in rows]).T
    learned = best < 0.5
    strictly = [
        all(row["ours"]["loss"] < row[who]["untuned"] for who in COMPETITORS) for row in rows
    ]
    lines = [
        f"{len(rows)} cells",
        f"within 10 % of the best tuned competitor, or better: {_share(ratios <= 1.1)}",
        f"geometric mean of ours / best tuned: {np.exp(np.log(ratios).mean()):.2f}",
        f"lower than every untuned default, to the last digit: {_share(strictly)}",
        f"not higher, losses below a thousandth of chance being equal: "
        f"{_share(against_untuned <= 1.0)}",
        "untrained (above half of chance) where some competitor trains: "
        f"{np.sum(learned & (ours > 0.5))} of {learned.sum()}",
        f"diverged: {np.sum(ours > 2.0)}",
        *_transfer_lines(rows),
    ]
    for optimizer in OPTIMIZERS:
        chosen = np.array([row["cell"][4] == optimizer for row in rows])
        if chosen.any():
            lines.append(f"  {optimizer}: {np.mean(ratios[chosen] <= 1.1):.0%} of {chosen.sum()}")
    for is_mini, text in ((False, "full batch"), (True, "mini-batch")):
        chosen = np.array([row["cell"][5] is is_mini for row in rows])
        if chosen.any():
            lines.append(f"  {text}: {np.mean(ratios[chosen] <= 1.1):.0%} of {chosen.sum()}")
    return "\n".join(lines)


def _share(values):
    share = np.mean(values)
    return f"{share:.0%} ± {math.sqrt(share * (1 - share) / len(values)):.0%}"


def _transfer_lines(rows):
    logs = transferred(rows)
    seen = np.isfinite(logs)
    if not seen.any():
        return []
    best, ours = (
        np.array([math.log(max(loss(row), 1e-3 * row["chance"])) for row in rows])
        for loss in (lambda r: min(r[c]["loss"] for c in COMPETITORS), lambda r: r["ours"]["loss"])
    )
    return [
        "loss over the best tuned one, geometric mean: "
        f"{np.exp(np.mean((logs - best)[seen])):.2f} for the best competitor at a rate tuned on "
        f"other networks, {np.exp(np.mean((ours - best)[seen])):.2f} for ours"
    ]


def figure(rows, path):
    """Ours over the best tuned, a dot per network, against its depth."""
    import altair as alt

    values = [
        {
            "depth": row["cell"][0] * math.exp(0.12 * math.sin(7.0 * index)),
            "ratio": max(judged(row)[0], 1e-3),
            "kind": "residual" if row["cell"][6] else "plain",
            "steps": "64 samples in a step" if row["cell"][5] else "all data in a step",
        }
        for index, row in enumerate(rows)
    ]
    dots = (
        alt.Chart(alt.Data(values=values))
        .mark_point(filled=True, size=45, opacity=0.75)
        .encode(
            x=alt.X("depth:Q", title="depth").scale(type="log", domain=[3, 80]),
            y=alt.Y("ratio:Q", title="loss / best tuned").scale(type="log", domain=[1e-3, 20]),
            color=alt.Color("kind:N", title=None).scale(range=["#1f77b4", "#d95f02"]),
            shape=alt.Shape("kind:N", title=None),
        )
    )
    line = alt.Chart(alt.Data(values=[{"one": 1.0}])).mark_rule(color="#555").encode(y="one:Q")
    panels = [
        (dots.transform_filter(alt.datum.steps == name) + line).properties(
            title=name, width=300, height=240
        )
        for name in ("all data in a step", "64 samples in a step")
    ]
    alt.hconcat(*panels).configure(background="white").save(path)
    print(f"written to {path}")


ABLATIONS = ("as advised", "equal rates", "half the step", "twice the step", "budget 1",
             "budget 16", "Kaiming, same rule", "orthogonal, same rule")  # fmt: skip


def ablate(tasks, depth=24, width=64):
    """Loss after descent on digits with everything as advised but one."""
    x, y, squared, columns = tasks["digits"]
    everything = jnp.arange(SAMPLES)
    batches = jnp.broadcast_to(everything, (STEPS, SAMPLES))
    for name in ("tanh", "relu", "gelu"):
        cell = (depth, width, name, "digits", "sgd", False, False)
        common = (NAMES.index(name), 0.0, squared, False, 0.0, 0.0)
        for change in ABLATIONS:
            budget = {"budget 1": 1.0, "budget 16": 16.0}.get(change, 4.0)
            losses = []
            for seed in range(3):
                params, rates, inputs = advised(
                    cell, seed, x, y, squared, columns, everything, budget,
                    competitor=change.split(",")[0].lower() if "same rule" in change else None,
                    is_equal="equal" in change or "same rule" in change,
                )  # fmt: skip
                factor = {"half the step": 0.5, "twice the step": 2.0}.get(change, 1.0)
                steps = per_layer(factor * rates, inputs)
                runs = jax.tree.map(lambda a: a[None], (params, steps, batches))
                losses.append(float(train(*runs[:2], x, y, runs[2], *common, steps=STEPS)[0]))
            text = " ".join(f"{loss:.2g}" for loss in losses)
            print(f"{name:5} {change:22} {text}", flush=True)


def compare_inputs(tasks, depth=16, width=64):
    """Loss on digits in other units, shifted and copied, with (D15.6) and without."""
    x, y, squared, _ = tasks["digits"]
    everything = jnp.arange(SAMPLES)
    batches = jnp.broadcast_to(everything, (1, STEPS, SAMPLES))
    pixels = x - x.min()
    given = {"standardised": x, "as pixels": 16.0 * pixels / pixels.max(), "shifted": x + 5.0,
             "each 16 times": jnp.repeat(x, 16, axis=1)}  # fmt: skip
    for name, optimizer in itertools.product(("tanh", "relu"), ("sgd", "adam")):
        cell = (depth, width, name, "digits", optimizer, False, False)
        adam, beta, decay, _ = OPTIMIZERS[optimizer]
        for what, inputs in given.items():
            texts = []
            for is_in_units in (False, True):
                losses = []
                for seed in range(2):
                    params, rates, share = advised(
                        cell, seed, inputs, y, squared, inputs.shape[1], everything,
                        is_in_units=is_in_units,
                    )  # fmt: skip
                    runs = jax.tree.map(lambda a: a[None], (params, per_layer(rates, share)))
                    losses += train(
                        *runs, inputs, y, batches, NAMES.index(name), 0.0, squared, adam, beta,
                        decay, steps=STEPS,
                    ).tolist()  # fmt: skip
                texts.append(" ".join(f"{loss:.2g}" for loss in losses))
            print(f"{name} {optimizer:4} {what:13} {texts[1]:17} without {texts[0]}", flush=True)


def scaling(tasks):
    """How the advised rates go with width and depth, on digits: powers fitted to four sizes."""
    from dynagram.advice import advise_rates, initialise
    from dynagram.data import Data
    from dynagram.networks._mlp import Architecture

    x, y, _, columns = tasks["digits"]
    data = Data(np.asarray(x), np.asarray(y))
    sizes = {"width": [(8, n) for n in (64, 128, 256, 512)],
             "depth": [(L, 128) for L in (4, 8, 16, 32)]}  # fmt: skip
    for name, optimizer in itertools.product(("tanh", "relu"), ("sgd", "adam")):
        for what, shapes in sizes.items():
            last, middle = [], []
            for depth, width in shapes:
                network = Architecture([columns, *[width] * (depth - 1), OUTPUTS], name)
                model = initialise(network, data.x)
                rates = advise_rates(model, data, loss="cross-entropy", optimizer=optimizer).layers
                last.append(rates[-1])
                middle.append(rates[depth // 2])
            grid = np.log([shape[what == "width"] for shape in shapes])
            powers = [np.polyfit(grid, np.log(r), 1)[0] for r in (last, middle)]
            told = ", ".join(f"{rate:.2g}" for rate in last)
            print(
                f"{name} {optimizer:4} {what}: rates of the last layer {told}; "
                f"power {powers[0]:.2f}, of the middle layer {powers[1]:.2f}"
            )


def transfer(tasks, seeds):
    """A competitor tuned on a small network of digits, carried to a wider and to a deeper one."""
    small, larger = (4, 32), {"wider": (4, 128), "deeper": (16, 32)}
    for name, optimizer in itertools.product(("tanh", "relu"), ("sgd", "adam")):
        rest = (name, "digits", optimizer, False, False)
        tuned = run_cell((*small, *rest), tasks, seeds)
        who = min(COMPETITORS, key=lambda c: tuned[c]["loss"])
        at = int(np.argmin(tuned[who]["losses"]))
        for word, shape in larger.items():
            row = run_cell((*shape, *rest), tasks, seeds)
            best = min(COMPETITORS, key=lambda c: row[c]["loss"])
            told = [
                f"{label} {row[c]['loss'] if rate is None else row[c]['losses'][rate]:.3g}"
                for label, c, rate in (
                    (f"{who} at the rate of {small[0]}×{small[1]}", who, at),
                    (f"best tuned here ({best})", best, None), ("ours, untuned", "ours", None),
                )
            ]  # fmt: skip
            error = math.exp(row["ours"]["log_error"])
            print(f"{name} {optimizer:4} {word} {shape[0]}×{shape[1]}: {'; '.join(told)} "
                  f"(times or over {error:.2f})", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--large", action="store_true", help="sizes for a GPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3, help="networks per cell and rate")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    parser.add_argument("--read", type=Path, help="summarise a recorded file instead")
    parser.add_argument("--figure", type=Path, help="with --read: also draw it")
    parser.add_argument("--ablate", action="store_true", help="one ingredient changed at a time")
    parser.add_argument("--scaling", action="store_true", help="rates against width and depth")
    parser.add_argument("--inputs", action="store_true", help="inputs in other units")
    parser.add_argument("--transfer", action="store_true", help="rates carried to other sizes")
    options = parser.parse_args()
    if options.read:
        rows = json.loads(options.read.read_text())
        print(summary(rows))
        if options.figure:
            figure(rows, options.figure)
        return
    if options.scaling:
        scaling(make_tasks())
        return
    if options.inputs:
        compare_inputs(make_tasks())
        return
    if options.transfer:
        transfer(make_tasks(), options.seeds)
        return
    if options.ablate:
        ablate(make_tasks())
        return
    tasks, rows, start = make_tasks(), [], time.monotonic()
    for cell in draw_cells([*SHAPES, *LARGE] if options.large else SHAPES, options.seed):
        row = run_cell(cell, tasks, options.seeds)
        rows.append(row)
        ratio = judged(row)[0]
        text = " ".join(f"{c} {row[c]['loss']:.2g}" for c in (*COMPETITORS, "ours"))
        print(f"{time.monotonic() - start:5.0f} s", *cell, f"| {text} | {ratio:.2f}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1))
        if time.monotonic() - start > 60 * options.minutes:
            break
    print(summary(rows))


if __name__ == "__main__":
    main()
