"""A network on a plateau: forecast its escape, train it, and try what a rescaled layer would do."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dynagram import forecast, load_weights
from dynagram.data import load_data
from dynagram.observables import find_plateaus
from dynagram.training import GradientDescent, Training

RATE = 0.025
rng = np.random.default_rng(1)
x = rng.normal(size=(512, 8))
y = np.tanh(x[:, :1])
sizes = [(32, 8), (32, 32), (32, 32), (1, 32)]
weights = [0.12 * rng.normal(size=s) * np.sqrt(2 / s[1]) for s in sizes]

with tempfile.TemporaryDirectory() as folder:  # as `dynagram forecast` reads them
    net, batch = Path(folder) / "net.npz", Path(folder) / "batch.npz"
    np.savez(net, **{f"W{i}": w for i, w in enumerate(weights, start=1)})
    np.savez(batch, x=x, y=y)
    model, data = load_weights(net, "tanh", skip=0.0), load_data(batch)


def losses(model, steps=1500):
    """The mean squared error before every step of full-batch gradient descent."""

    def step(model, _):
        value, slope = jax.value_and_grad(lambda one: jnp.mean((one(x) - y) ** 2))(model)
        pairs = zip(model.params, slope.params, strict=True)  # there are no biases to train
        return model.with_params(tuple(p._replace(W=p.W - RATE * g.W) for p, g in pairs)), value

    start = jax.tree.map(jnp.float32, model)
    return np.asarray(jax.jit(lambda one: jax.lax.scan(step, one, length=steps)[1])(start))


answer = forecast(model, data, Training(GradientDescent(RATE), loss="mean"))
curve = losses(model)
low, high = answer.interval
print(f"bottleneck layers    {answer.bottleneck}")
print(f"forecast escape      {answer.escape_step:.0f} steps ({low:.0f} to {high:.0f})")
print(f"measured             {int(np.argmax(curve <= answer.escape_loss))} steps")
first = find_plateaus(curve.astype(float))[0]
print(f"plateau in the curve {first.start:.0f} to {first.end:.0f}")
best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
layers = list(model.params)
layers[best.layer - 1] = layers[best.layer - 1]._replace(W=2.0 * layers[best.layer - 1].W)
measured = int(np.argmax(losses(model.with_params(tuple(layers))) <= answer.escape_loss))
print(f"layer {best.layer} times 2       forecast {best.escape_step:.0f}, measured {measured}")
