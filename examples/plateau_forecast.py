"""A network on a plateau: forecast its escape, train it, and try what a rescaled layer would do.

Writes net.npz and batch.npz, which `dynagram forecast` reads.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dynagram import find_plateaus, forecast

RATE = 0.05
rng = np.random.default_rng(1)
x = rng.normal(size=(512, 8))
y = np.tanh(x[:, :1])
sizes = [(32, 8), (32, 32), (32, 32), (1, 32)]
weights = [0.12 * rng.normal(size=s) * np.sqrt(2 / s[1]) for s in sizes]
np.savez("net.npz", **{f"W{i}": w for i, w in enumerate(weights, start=1)})
np.savez("batch.npz", x=x, y=y)


def losses(weights, steps=1500):
    """The loss before every step of full-batch gradient descent."""

    def loss(weights):
        h = x
        for w in weights[:-1]:
            h = jnp.tanh(h @ w.T)
        return 0.5 * jnp.mean((h @ weights[-1].T - y) ** 2)

    def step(weights, _):
        value, slopes = jax.value_and_grad(loss)(weights)
        return [w - RATE * g for w, g in zip(weights, slopes, strict=True)], value

    return np.asarray(jax.lax.scan(step, [jnp.asarray(w) for w in weights], length=steps)[1])


answer = forecast(weights, (x, y), "tanh", RATE)
curve = losses(weights)
low, high = answer.interval
print(f"bottleneck layers    {answer.bottleneck}")
print(f"forecast escape      {answer.escape_step:.0f} steps ({low:.0f} to {high:.0f})")
print(f"measured             {int(np.argmax(curve <= answer.escape_loss))} steps")
first = find_plateaus(curve.astype(float))[0]
print(f"plateau in the curve {first.start:.0f} to {first.end:.0f}")
best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
scaled = [2.0 * w if i == best.layer else w for i, w in enumerate(weights, start=1)]
measured = int(np.argmax(losses(scaled) <= answer.escape_loss))
print(f"layer {best.layer} times 2       forecast {best.escape_step:.0f}, measured {measured}")
