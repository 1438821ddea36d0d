"""Training ensembles: against PyTorch, with the number of members, and in memory.

1 000 MLPs 8-32-32-1 (tanh), 1 000 full-batch steps of SGD on 16 samples, float32 for all (it is
PyTorch's default). The peers are a plain PyTorch loop over networks, timed on five and scaled;
`torch.func` (functional_call, grad, vmap over all members), timed on 200 steps and scaled; and
JAX written the obvious way (vmap of grad in a scan). Wall time is what counts on a quiet machine;
CPU time is printed because it still means something on a busy one. Wide networks, of which a few
fill the machine, are trained against JAX written the obvious way alone. Run
`python benchmarks/ensembles.py`, or one part with `--part training|wide|scaling|memory`.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time

import numpy as np
from peer import HERE

MEMBERS, STEPS, ETA = 1000, 1000, 0.05
WIDTHS = [8, 32, 32, 1]
LOOP_MEMBERS = 5
# Hidden width and members of networks 64-n-n-1 that are trained for a few steps on 64 samples.
WIDE = [(256, 16), (512, 8), (1024, 4)]
FEW_STEPS = 200


def data(samples: int = 16, features: int = WIDTHS[0]):
    x = np.random.default_rng(0).standard_normal((samples, features))
    return x, np.sin(x[:, :1])


def network(widths=WIDTHS):
    from dynagram import MLP

    # One rate for all tensors, as in PyTorch: λ_b = 1 and λ_W = n_{ℓ-1}.
    return MLP(widths, "tanh", C_b=0.0, C_W=1.0, lambda_b=1.0, lambda_W=widths[:-1])


def training(steps: int = STEPS, eta: float = ETA, **more):
    from dynagram import GradientDescent, Training

    more = {"record": 2} | more
    return Training(GradientDescent(eta), steps=steps, loss="mean", dtype="float32", **more)


def clock(function, repeats: int) -> dict:
    """Best of `repeats` after one call to warm up, which is given apart."""
    start = time.perf_counter()
    function()
    first = time.perf_counter() - start
    wall, cpu = [], []
    for _ in range(repeats):
        start, busy = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - busy)
    return {"first_s": first, "wall_s": min(wall), "cpu_s": min(cpu)}


# --- the contestants ----------------------------------------------------------------------------


def ours(members: int = MEMBERS, repeats: int = 3, net=None, how=None, samples=None) -> dict:
    from dynagram import Data, train

    net, how, samples = net or network(), how or training(), Data(*(samples or data()))
    last = {}

    def run():
        last["loss"] = train(net, samples, how, members=members)["loss"][:, -1]

    times = clock(run, repeats)
    return times | {"loss": float(np.median(last["loss"]))}


def jax_by_the_book(
    repeats: int = 2, members: int = MEMBERS, net=None, steps=STEPS, eta=ETA, samples=None
) -> dict:
    import jax
    import jax.numpy as jnp

    net = net or network()
    x, y = (jnp.asarray(a, jnp.float32) for a in samples or data())
    gradient = jax.vmap(jax.grad(lambda p: jnp.mean((net.apply(p, x) - y) ** 2)))

    @jax.jit
    def train(params):
        step = lambda p, _: (jax.tree.map(lambda a, g: a - eta * g, p, gradient(p)), None)  # noqa: E731
        return jax.lax.scan(step, params, None, length=steps)[0]

    params = jax.vmap(net.draw)(jax.random.split(jax.random.key(0), members))
    return clock(lambda: jax.block_until_ready(train(params)), repeats)


def torch_model():
    import torch

    layers = []
    for n_in, n_out in itertools.pairwise(WIDTHS):
        layer = torch.nn.Linear(n_in, n_out)
        torch.nn.init.normal_(layer.weight, std=n_in**-0.5)
        torch.nn.init.zeros_(layer.bias)
        layers += [layer, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def torch_loop() -> dict:
    """As one would write it; the time of a few networks, scaled to all."""
    import torch

    torch.manual_seed(0)
    x, y = (torch.tensor(a, dtype=torch.float32) for a in data())
    losses = []

    def run():
        for _ in range(LOOP_MEMBERS):
            model = torch_model()
            optimiser = torch.optim.SGD(model.parameters(), lr=ETA)
            for _ in range(STEPS):
                optimiser.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimiser.step()
            losses.append(loss.item())

    times = {name: value * MEMBERS / LOOP_MEMBERS for name, value in clock(run, 2).items()}
    return times | {"loss": float(np.median(losses))}


def torch_vmap() -> dict:
    """torch.func on all members at once; a fifth of the steps, scaled: every step is the same."""
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    torch.manual_seed(0)
    x, y = (torch.tensor(a, dtype=torch.float32) for a in data())
    models = [torch_model() for _ in range(MEMBERS)]
    start, buffers = stack_module_state(models)
    base = torch_model().to("meta")

    def loss(params, state):
        return torch.nn.functional.mse_loss(functional_call(base, (params, state), (x,)), y)

    gradient = vmap(grad(loss))

    def run():
        params = {name: value.detach().clone() for name, value in start.items()}
        with torch.no_grad():
            for _ in range(STEPS // 5):
                slope = gradient(params, buffers)
                for name, value in params.items():
                    value.sub_(slope[name], alpha=ETA)

    return {name: 5 * value for name, value in clock(run, 2).items()}


# --- the parts ----------------------------------------------------------------------------------


def part_training() -> dict:
    contestants = {"ours": ours, "JAX, vmap and scan": jax_by_the_book, "torch.func": torch_vmap,
                   "PyTorch loop": torch_loop}  # fmt: skip
    report = {}
    for name, contestant in contestants.items():
        report[name] = contestant()
        row, base = report[name], report["ours"]
        ratios = [row[key] / base[key] for key in ("wall_s", "cpu_s")]
        print(
            f"{name:20s} wall {row['wall_s']:7.2f} s  cpu {row['cpu_s']:7.2f} s   "
            f"ratio to ours: wall {ratios[0]:6.2f}, cpu {ratios[1]:6.2f}",
            flush=True,
        )
    first = report["ours"]["first_s"] - report["ours"]["wall_s"]
    print(f"ours, compilation and imports, once: {first:.1f} s")
    return report


def best_of(rounds: list[dict]) -> dict:
    """The best times of several rounds; the first call is that of the first."""
    return rounds[0] | {key: min(row[key] for row in rounds) for key in ("wall_s", "cpu_s")}


def part_wide() -> dict:
    """Never slower than the obvious way; ours draws, records and stores the networks besides."""
    rows = []
    for width, members in WIDE:
        net, samples = network([64, width, width, 1]), data(64, 64)
        how, mine, obvious = training(FEW_STEPS, eta=0.01), [], []
        for _ in range(3):  # by turns: a second of others on the machine would decide
            mine.append(ours(members, 3, net, how, samples))
            obvious.append(jax_by_the_book(3, members, net, FEW_STEPS, 0.01, samples))
        mine, obvious = best_of(mine), best_of(obvious)
        rows.append({"width": width, "members": members, "ours": mine, "JAX": obvious})
        ratios = [obvious[key] / mine[key] for key in ("wall_s", "cpu_s")]
        print(f"width {width:4d}, {members:2d} members: JAX, vmap and scan takes "
              f"{ratios[0]:.2f} times our wall time, {ratios[1]:.2f} times our CPU time",
              flush=True)  # fmt: skip
    return {"rows": rows}


def part_scaling() -> dict:
    """Seconds per member should not depend on how many there are."""
    rows = []
    for members in (250, 500, 1000, 2000, 4000):
        row = {"members": members} | ours(members, repeats=2)
        rows.append(row)
        per = {key: 1e3 * row[key] / members for key in ("wall_s", "cpu_s")}
        print(f"{members:5d} members: {row['wall_s']:6.2f} s, per member "
              f"{per['wall_s']:.3f} ms wall, {per['cpu_s']:.3f} ms cpu", flush=True)  # fmt: skip
    return {"rows": rows}


MEMORY = """
import resource, sys
sys.path.insert(0, {here!r})
from ensembles import data, network, training
from dynagram import Data, train
found = train(network(), Data(*data()), training(50, record=10), members={members},
              keep_members=False, observables=["loss", "outputs"])
assert found.estimates["loss"].count == {members}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def part_memory() -> dict:
    """Peak memory of a process that trains M members and keeps mean and covariance of z."""
    rows = []
    for members in (2000, 8000, 32000):
        script = MEMORY.format(here=str(HERE), members=members)
        child = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        rows.append({"members": members, "peak_MB": int(child.stdout)})
        print(f"{members:6d} members: peak {rows[-1]['peak_MB']} MB", flush=True)
    return {"rows": rows}


PARTS = {
    "training": part_training,
    "wide": part_wide,
    "scaling": part_scaling,
    "memory": part_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    options = parser.parse_args()
    path = HERE / "results" / "ensembles.json"
    path.parent.mkdir(exist_ok=True)
    report = json.loads(path.read_text()) if path.exists() else {}
    cores = len(os.sched_getaffinity(0))
    report["machine"] = {"cores": cores, "processor": platform.processor() or platform.machine()}
    for name in options.part or PARTS:
        load = os.getloadavg()[0]
        print(f"--- {name} ({cores} cores, load {load:.1f})", flush=True)
        report[name] = PARTS[name]() | {"load": load}
        path.write_text(json.dumps(report, indent=1))
    print(f"written to benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
