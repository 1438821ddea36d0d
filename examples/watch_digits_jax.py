"""The same in JAX with equinox: the watcher is called after every step, outside `jit`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import dynagram
from dynagram.data import digits

data = digits()
x, y = np.asarray(data.x, np.float32) / 8 - 1, np.asarray(data.labels)
model = eqx.nn.MLP(64, 10, 128, 2, key=jax.random.key(0))
optimizer = optax.sgd(0.1)
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def train(model, state, x, y):
    """One step of gradient descent."""

    def loss(model):
        z = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(z, y).mean()

    updates, state = optimizer.update(eqx.filter_grad(loss)(model), state)
    return eqx.apply_updates(model, updates), state


watcher = dynagram.watch(model, (x[:256], y[:256]), every=100, rate=0.1, momentum=0.0)
rng = np.random.default_rng(0)
for _ in range(600):
    rows = rng.integers(0, len(x), 64)
    model, state = train(model, state, jnp.asarray(x[rows]), jnp.asarray(y[rows]))
    watcher(model)

watcher.close()
print(watcher, f"loss {watcher.last.values['loss', '']:.1f}", *watcher.alerts, sep="\n")
