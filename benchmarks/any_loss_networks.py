"""Networks trained on any loss, by a loop written here in plain JAX: what D13 is compared with.

    python benchmarks/any_loss_networks.py benchmarks/any_loss_problems FOLDER --minutes 7
    python benchmarks/any_loss_networks.py benchmarks/any_loss_problems FOLDER --quick

Needs JAX and NumPy only. A problem, written by `any_loss_agreement.py problems`, holds inputs,
targets, K, Θ and the training. What finite width changes is measured in two levels:

- `trained`: networks after training less the path that their own initial outputs and NTK, held
  fixed, would have taken. All of it is of order 1/n in every network: some hundred are enough.
- `drawn`: that path less the one at infinite width, with Θ and with initial outputs from N(0, K):
  given its hidden layers, with their covariance G = LLᵀ, the initial outputs of a network are Lξ
  with independent normal ξ, and the same ξ with the root of K is its partner at infinite width. It
  is of order 1/√n with a mean of order 1/n, and needs many networks, but no training.

The two means add up to E[·] at width n less E[·] at infinite width, nothing left out. Means and
standard errors of outputs, of their products about the mean at infinite width, of losses, of their
squares, of the accuracy and of the NTK of the test inputs are written for every width and moment.
"""

import argparse
import concurrent.futures
import itertools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_enable_x64", True)  # for the roots of G and K; networks are in float32

LEVELS = ("trained", "drawn")
# Numbers that the weights, or the products of outputs, of a group of networks may hold.
NUMBERS = {"gpu": 2**32, "cpu": 2**24}


class Networks:
    """Networks of one problem and one width: drawn, trained, and followed by their kernels."""

    def __init__(self, about, arrays, n):
        self.about = about
        self.x, self.y, self.test_y = (
            jnp.asarray(arrays[k], jnp.float32) for k in ("x", "y", "test_y")
        )
        self.K = jnp.asarray(arrays["K"], jnp.float64)
        self.Theta = jnp.asarray(arrays["Theta"], jnp.float32)
        self.center = jnp.asarray(arrays["center"], jnp.float32)
        self.loss_center = jnp.asarray(arrays["loss_center"], jnp.float32)
        self.n_A, self.n_L = self.y.shape
        self.widths = [self.x.shape[1], *[n] * (about["depth"] - 1), self.n_L]
        self.numbers = sum((fan + 1) * out for fan, out in itertools.pairwise(self.widths))
        ends = np.array([0, *about["moments"]], np.int32)
        self.bounds = (jnp.asarray(ends[:-1]), jnp.asarray(ends[1:]))

    # --- one network --------------------------------------------------------------------------

    def draw(self, key):
        layers = []
        for fan, out in itertools.pairwise(self.widths):
            key, first, second = jax.random.split(key, 3)
            W = jax.random.normal(first, (fan, out), jnp.float32)
            b = jax.random.normal(second, (out,), jnp.float32)
            layers.append((b * self.about["C_b"] ** 0.5, W * (self.about["C_W"] / fan) ** 0.5))
        return layers

    def signals(self, layers, x):
        """The inputs of every layer, and the outputs."""
        seen = [x]
        for b, W in layers[:-1]:
            seen.append(jnp.tanh(seen[-1] @ W + b))
        return seen, seen[-1] @ layers[-1][1] + layers[-1][0]

    def apply(self, layers, x):
        return self.signals(layers, x)[1]

    def ntk(self, layers, x):
        """(sample, output, sample, output), layer by layer."""
        seen, _ = self.signals(layers, x)
        back = jnp.broadcast_to(jnp.eye(self.n_L, dtype=jnp.float32), (len(x), self.n_L, self.n_L))
        kernel = 0.0
        for (_, W), signal in reversed(list(zip(layers, seen, strict=True))):
            slope = self.about["lambda_W"] / W.shape[0]
            overlap = self.about["lambda_b"] + slope * signal @ signal.T
            kernel = kernel + overlap[:, None, :, None] * jnp.einsum("aik,bjk->aibj", back, back)
            back = jnp.einsum("aik,mk->aim", back, W) * (1.0 - signal**2)[:, None, :]
        return kernel

    def partner(self, layers, z):
        """Initial outputs at infinite width with the same ξ."""
        last = self.signals(layers, self.x)[0][-1].astype(jnp.float64)
        G = self.about["C_b"] + self.about["C_W"] / last.shape[1] * last @ last.T
        xi = jax.scipy.linalg.solve_triangular(
            jnp.linalg.cholesky(G), z.astype(jnp.float64), lower=True
        )
        return (jnp.linalg.cholesky(self.K) @ xi).astype(jnp.float32)

    # --- its training -------------------------------------------------------------------------

    def loss(self, z, y):
        if self.about["loss"] == "half-sum":
            return 0.5 * jnp.sum((z - y) ** 2)
        return -jnp.sum(y * jax.nn.log_softmax(z)) / z.shape[0]

    def rows(self, key, i):
        """The samples of a step: all, or a batch in an order of its own in every epoch."""
        batch = self.about["batch"]
        if batch == self.n_A:
            return jnp.arange(self.n_A)
        per_epoch = self.n_A // batch
        order = jax.random.permutation(jax.random.fold_in(key, i // per_epoch), self.n_A)
        return jax.lax.dynamic_slice_in_dim(order, (i % per_epoch) * batch, batch)

    def follow(self, start, step, observe):
        """What `observe` sees at the moments, `step(i, m)` the sum that moves m."""
        momentum = self.about["momentum"]

        def advance(i, held):
            memory, velocity = held
            push = step(i, memory)
            if momentum:
                push = velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, push)
            return jax.tree.map(lambda m, g: m + g, memory, push), velocity

        def segment(held, bounds):
            held = jax.lax.fori_loop(bounds[0], bounds[1], advance, held)
            return held, observe(held[0])

        rest = jax.tree.map(jnp.zeros_like, start) if momentum else ()
        return jax.lax.scan(segment, (start, rest), self.bounds)[1]

    def train(self, key, layers):
        """Outputs, and the NTK of the test inputs, at the moments."""
        eta, l_b, l_W = (self.about[k] for k in ("eta", "lambda_b", "lambda_W"))
        slope = jax.grad(lambda p, rows: self.loss(self.apply(p, self.x[rows]), self.y[rows]))

        def step(i, layers):
            g = slope(layers, self.rows(key, i))
            return [(-eta * l_b * b, -eta * l_W / W.shape[0] * W) for b, W in g]

        def observe(layers):
            return self.apply(layers, self.x), self.ntk(layers, self.x[self.n_A :])

        return self.follow(layers, step, observe)

    def path(self, key, z_0, H):
        """Outputs at the moments with the NTK H (sample, output, train, output) held fixed."""
        push = jax.grad(self.loss)

        def outputs(a):
            return z_0 - jnp.einsum("siaj,aj->si", H, a)

        def step(i, a):
            rows = self.rows(key, i)
            force = push(outputs(a)[rows], self.y[rows])
            return self.about["eta"] * jnp.zeros_like(a).at[rows].add(force)

        return self.follow(jnp.zeros((self.n_A, self.n_L), jnp.float32), step, outputs)

    # --- what is measured ---------------------------------------------------------------------

    def trained(self, key):
        key, order = jax.random.split(key)
        layers = self.draw(key)
        z_0, H = self.apply(layers, self.x), self.ntk(layers, self.x)
        z, kernels = self.train(order, layers)
        path = self.path(order, z_0, H[:, :, : self.n_A])
        return self.difference(z, path) | {"ntk": kernels - H[self.n_A :, :, self.n_A :]}

    def drawn(self, key):
        key, order = jax.random.split(key)
        layers = self.draw(key)
        z_0, H = self.apply(layers, self.x), self.ntk(layers, self.x)
        Theta = jnp.einsum("st,ij->sitj", self.Theta, jnp.eye(self.n_L, dtype=jnp.float32))
        path = self.path(order, z_0, H[:, :, : self.n_A])
        frozen = self.path(order, self.partner(layers, z_0), Theta[:, :, : self.n_A])
        shift = (H - Theta)[self.n_A :, :, self.n_A :]
        ntk = jnp.broadcast_to(shift, (len(self.about["moments"]), *shift.shape))
        return self.difference(path, frozen) | {"ntk": ntk}

    def difference(self, above, below):
        """Of all that is measured, between two sets of outputs (moment, sample, output)."""
        seen = [self.functions(z) for z in (above, below)]
        return {name: seen[0][name] - seen[1][name] for name in seen[0]}

    def functions(self, z):
        gap = z.reshape(len(z), -1) - self.center
        sets = [z[:, : self.n_A], z[:, self.n_A :]]
        targets = [self.y, self.test_y]
        loss = jnp.stack(
            [jax.vmap(self.loss, (0, None))(s, y) for s, y in zip(sets, targets, strict=True)], -1
        )
        rows = {"z": z, "product": gap[:, :, None] * gap[:, None, :], "loss": loss}
        rows["loss_square"] = (loss - self.loss_center) ** 2
        if self.about["loss"] != "half-sum":
            labels = jnp.argmax(self.test_y, -1)
            rows["accuracy"] = jnp.mean(jnp.argmax(sets[1], -1) == labels, -1, jnp.float32)
        return rows

    def group(self, device):
        """Networks that are held at a time."""
        products = len(self.about["moments"]) * (len(self.x) * self.n_L) ** 2
        return int(np.clip(NUMBERS[device] // (6 * self.numbers + 4 * products), 8, 8192))

    def program(self, level, members):
        """A function of a seed: sums, and sums of squares, of what is measured over a group.

        No two levels have a network in common, so that their errors are independent.
        """
        one = getattr(self, level)

        def run(seed):
            root = jax.random.fold_in(jax.random.key(seed), LEVELS.index(level))
            seen = jax.vmap(one)(jax.random.split(root, members))
            return {
                k: (jnp.sum(v, 0, jnp.float64), jnp.sum(v * v, 0, jnp.float64))
                for k, v in seen.items()
            }

        return jax.jit(run)


def measure(run, group, members, seconds):
    """Means with standard errors of at least 200 networks, until `seconds` or `members`."""
    start, total, count = time.time(), None, 0
    while count < 200 or (count < members and time.time() - start < seconds):
        some = jax.tree.map(np.asarray, run(jnp.int64(count // group)))
        total = some if total is None else jax.tree.map(np.add, total, some)
        count += group
    found = {}
    for name, (first, second) in total.items():
        mean = first / count
        error = np.sqrt(np.maximum(second / count - mean**2, 0.0) / (count - 1))
        found[name], found[f"{name}_error"] = mean.astype(np.float32), error.astype(np.float32)
    return found, count, time.time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", type=Path)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--minutes", type=float, default=7.0, help="in all")
    parser.add_argument("--cases", default="", help="names separated by commas")
    parser.add_argument("--widths", default="", help="those of the problem unless given")
    parser.add_argument("--members", type=int, default=10**9, help="at most, for every level")
    parser.add_argument("--quick", action="store_true", help="every case, the smallest width")
    parser.add_argument("--threads", type=int, default=8, help="programs compiled at a time")
    asked = parser.parse_args()
    begin = time.time()
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    asked.measured.mkdir(parents=True, exist_ok=True)
    jobs, texts = [], {}
    for file in sorted(asked.problems.glob("*.npz")):
        if asked.cases and file.stem not in asked.cases.split(","):
            continue
        arrays = dict(np.load(file))
        texts[file.stem] = str(arrays.pop("about"))
        about = json.loads(texts[file.stem])
        widths = [int(n) for n in asked.widths.split(",")] if asked.widths else about["widths"]
        for n in widths[:1] if asked.quick else widths:
            networks = Networks(about, arrays, n)
            group = 32 if asked.quick else networks.group(device)
            for level in LEVELS:
                jobs.append((file.stem, n, level, group, networks.program(level, group)))
    members = 200 if asked.quick else asked.members

    def compiled(program):
        return program.lower(jnp.int64(0)).compile()

    with concurrent.futures.ThreadPoolExecutor(asked.threads) as pool:
        waiting = [pool.submit(compiled, job[4]) for job in jobs]
        results: dict[str, dict] = {}
        for index, (case, n, level, group, _) in enumerate(jobs):
            run = waiting[index].result()
            run(jnp.int64(0))["z"][0].block_until_ready()
            left = 60.0 * asked.minutes - (time.time() - begin)
            # Wide networks take longer: their share of what is left grows with the root of n.
            weights = [np.sqrt(job[1]) for job in jobs[index:]]
            share = max(left, 0.0) * weights[0] / sum(weights)
            found, count, seconds = measure(run, group, members, share)
            held = results.setdefault(case, {"about": texts[case]})
            held |= {f"{n}/{level}/{k}": v for k, v in found.items()}
            held[f"{n}/{level}/members"] = count
            np.savez_compressed(asked.measured / f"{case}.npz", **held)
            print(case, n, level, count, f"{seconds:.1f} s", f"{time.time() - begin:.0f} s",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
