"""The signals of the layers of a JAX model and the gradients of a loss, for given parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.live._jax_trace import as_program, evaluate, layer_of
from dynagram.live._steps import Probe

_WEIGHTED = ("linear", "conv", "embedding")


def probe_jax(
    model: Any, x: Any, params: Any
) -> Callable[[Mapping[str, np.ndarray], float | None], Probe]:
    """As `probe_torch`, for a function of (params, x), an equinox or flax module or a `Model`."""
    with jax.enable_x64(True):
        program = as_program(model, x, params)
        batch = np.asarray(x)
        owners = {name: layer_of(name) for name in program.names}

    def run(leaves: Any) -> Any:
        seen: dict[int, tuple[str, Any]] = {}

        def visit(number: int, op: str, names: Any, inputs: Any, value: Any, about: Any) -> Any:
            about.pop("constants", ())
            biased = op == "add" and names and len(inputs) == 1 and inputs[0] in seen
            if biased:
                seen.pop(inputs[0])
            if biased or (op in _WEIGHTED and names):
                seen[number] = (layer_of(names[0]), value)
            return value

        rows = jnp.asarray(batch, jnp.float64) if batch.dtype.kind == "f" else jnp.asarray(batch)
        output = evaluate(program, leaves, rows, visit, want_value=True)
        return output.reshape(-1, output.shape[-1])[-1, 0], dict(seen.values())

    def probe(values: Mapping[str, np.ndarray], target: float | None) -> Probe:
        with jax.enable_x64(True):
            leaves = [jnp.asarray(values[name], jnp.float64) for name in program.names]
            f, signals = run(leaves)
            slopes: dict[str, np.ndarray] = {}
            if target is not None:
                made = jax.grad(lambda leaves: 0.5 * (run(leaves)[0] - target) ** 2)(leaves)
                slopes = {n: np.asarray(g) for n, g in zip(program.names, made, strict=True)}
            arrays = {name: np.asarray(signal) for name, signal in signals.items()}
            return Probe(arrays, float(f), slopes, owners)

    return probe
