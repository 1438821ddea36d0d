"""Networks trained on any loss, by a loop written here in plain JAX: what D13 is compared with.

    python benchmarks/any_loss_networks.py problem.npz measured.npz --widths 64,128 --members 20000

The problem, written by `any_loss_agreement.py`, holds inputs, targets, Θ and the training. Every
network is compared with the frozen path from its own initial outputs: the difference holds all
parts of the correction but "start", and most of the scatter is gone from it. Means and covariances
of the differences, with standard errors, are written for every width and moment.
"""

import argparse
import itertools
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_default_matmul_precision", "highest")


def train_group(about, arrays, n, members, key):
    """Statistics of a group of networks at every moment."""
    x, y, Theta = arrays["x"], arrays["y"], arrays["Theta"]
    n_A, n_L, depth = y.shape[0], y.shape[1], about["depth"]
    widths = [x.shape[1], *[n] * (depth - 1), n_L]
    C_b, C_W, l_b, l_W = (about[k] for k in ("C_b", "C_W", "lambda_b", "lambda_W"))
    eta, momentum, batch = about["eta"], about["momentum"], about["batch"]

    def init(key):
        layers = []
        for fan, out in itertools.pairwise(widths):
            key, k1, k2 = jax.random.split(key, 3)
            W = jnp.sqrt(C_W / fan) * jax.random.normal(k1, (fan, out))
            layers.append((jnp.sqrt(C_b) * jax.random.normal(k2, (out,)), W))
        return layers

    def apply(layers, x):
        for b, W in layers[:-1]:
            x = jnp.tanh(x @ W + b)
        return x @ layers[-1][1] + layers[-1][0]

    def loss(z, y):
        if about["loss"] == "half-sum":
            return 0.5 * jnp.sum((z - y) ** 2)
        return -jnp.sum(y * jax.nn.log_softmax(z)) / z.shape[0]

    slope = jax.grad(lambda layers, x, y: loss(apply(layers, x), y))
    push = jax.grad(loss)
    per_epoch = n_A // batch

    def one(key):
        key, data_key = jax.random.split(key)
        layers = init(key)
        z_0 = apply(layers, x)
        rest = jax.tree.map(jnp.zeros_like, layers)
        a = jnp.zeros((n_A, n_L))

        def step(i, held):
            layers, v, a, w = held
            order = jax.random.permutation(jax.random.fold_in(data_key, i // per_epoch), n_A)
            rows = jax.lax.dynamic_slice_in_dim(order, (i % per_epoch) * batch, batch)
            rows = rows if batch < n_A else jnp.arange(n_A)
            g = slope(layers, x[rows], y[rows])
            v = jax.tree.map(lambda v, g: momentum * v + g, v, g)
            layers = [
                (b - eta * l_b * vb, W - eta * l_W / W.shape[0] * vW)
                for (b, W), (vb, vW) in zip(layers, v, strict=True)
            ]
            z = z_0[:n_A] - Theta[:n_A] @ a
            w = momentum * w + jnp.zeros_like(a).at[rows].add(push(z[rows], y[rows]))
            return layers, v, a + eta * w, w

        def segment(held, bounds):
            held = jax.lax.fori_loop(bounds[0], bounds[1], step, held)
            return held, (apply(held[0], x), z_0 - Theta @ held[2])

        moments = np.array(about["moments"], np.int32)
        bounds = (jnp.asarray(np.append(0, moments[:-1])), jnp.asarray(moments))
        return jax.lax.scan(segment, (layers, rest, a, a), bounds)[1]

    z, frozen = jax.vmap(one)(jax.random.split(key, members))

    def losses(z):
        over = jax.vmap(jax.vmap(loss, (0, None)), (0, None))
        return jnp.stack([over(z[:, :, :n_A], y), over(z[:, :, n_A:], arrays["test_y"])], -1)

    def flat(v):
        return v.reshape(members, v.shape[1], -1)

    def right(v):
        return 1.0 * jnp.mean(jnp.argmax(v[:, :, n_A:], -1) == labels[None, None], -1)

    center = arrays["center"][None]  # the mean at infinite width, about which products are taken
    big, small = flat(z) - center, flat(frozen) - center
    product = jnp.einsum("mti,mtj->mtij", big, big) - jnp.einsum("mti,mtj->mtij", small, small)
    L, L_f = losses(z), losses(frozen)
    rows = {"z": flat(z), "d": flat(z - frozen), "product": product, "loss": L, "loss_d": L - L_f}
    if about["loss"] != "half-sum":
        labels, middle = jnp.argmax(arrays["test_y"], -1), arrays["loss_center"][None]
        rows |= {"accuracy": right(z), "accuracy_d": right(z) - right(frozen)}
        rows["loss_square"] = (L - middle) ** 2
        rows["loss_square_d"] = rows["loss_square"] - (L_f - middle) ** 2
    return {k: (jnp.sum(v, 0), jnp.sum(v * v, 0)) for k, v in rows.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("measured")
    parser.add_argument("--widths", default="64,128,256,512")
    parser.add_argument("--members", type=int, default=20000)
    parser.add_argument("--group", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="at most so long for a width")
    asked = parser.parse_args()
    held = dict(np.load(asked.problem))
    about = json.loads(str(held.pop("about")))
    arrays = {k: jnp.asarray(v, jnp.float32) for k, v in held.items()}
    out = {}
    for n in map(int, asked.widths.split(",")):
        run = jax.jit(lambda key, n=n: train_group(about, arrays, n, asked.group, key))
        start, total, members = time.time(), None, 0
        while members < asked.members and time.time() - start < asked.seconds:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(asked.seed), n), members)
            some = jax.tree.map(lambda v: np.asarray(v, np.float64), run(key))
            total = some if total is None else jax.tree.map(np.add, total, some)
            members += asked.group
        for k, (first, second) in total.items():
            mean = first / members
            out[f"{n}/{k}"] = mean.astype(np.float32)
            error = np.sqrt(np.maximum(second / members - mean**2, 0) / members)
            out[f"{n}/{k}_error"] = error.astype(np.float32)
        out[f"{n}/members"] = members
        print(asked.problem, n, members, f"{time.time() - start:.1f} s", flush=True)
    np.savez_compressed(asked.measured, **out)


if __name__ == "__main__":
    main()
