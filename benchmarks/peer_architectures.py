"""K and Θ of architectures by neural-tangents; runs in the peer's environment, see `peer.py`.

Reads a JSON request (`inputs`, `layers`, `samples`, `repeats`) from the first argument and prints
a JSON answer. Every weight has C_W = λ_W and every bias C_b = λ_b, the peer's convention.
"""

import json
import resource
import sys
import types

from peer import measure

C_W, C_B = 1.7, 0.1


def build(stax, jnp, layers: list):
    """The layers as the peer writes them."""
    made = []
    for kind, *options in layers:
        variances = {"W_std": C_W**0.5, "b_std": C_B**0.5}
        if kind == "conv":
            size, padding = options
            made.append(stax.Conv(16, (size, size), padding=padding.upper(), **variances))
        elif kind == "dense":
            made.append(stax.Dense(16, **variances))
        elif kind == "flatten":
            made += [stax.Flatten(), stax.Dense(1, **variances)]
        elif kind == "pool":
            made.append(stax.AvgPool((options[0],) * 2, strides=(options[0],) * 2))
        elif kind == "average":
            made.append(stax.GlobalAvgPool())
        elif kind == "norm":
            made.append(stax.LayerNorm(axis=-1))
        elif kind == "residual":
            branch = stax.serial(*build(stax, jnp, options[0]))
            made += [stax.FanOut(2), stax.parallel(branch, stax.Identity()), stax.FanInSum()]
        elif kind == "uniform-attention":
            made.append(stax.GlobalSelfAttention(
                16, n_chan_key=16, n_chan_val=16, n_heads=4, linear_scaling=True,
                W_key_std=0.0, W_query_std=0.0, W_value_std=C_W**0.5, W_out_std=C_W**0.5,
            ))  # fmt: skip
        elif kind == "tanh":
            slope = lambda z: 1.0 - jnp.tanh(z) ** 2  # noqa: E731
            made.append(stax.ElementwiseNumerical(jnp.tanh, deg=options[0], df=slope))
        else:
            made.append({"relu": stax.Relu, "erf": stax.Erf, "gelu": stax.Gelu,
                         "sin": stax.Sin}[kind]())  # fmt: skip
    return made


def _worker(request: dict) -> dict:
    # An empty module stands in for the TensorFlow bridge, which nothing here uses.
    sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
    import jax

    jax.config.update("jax_enable_x64", True)
    import numpy as np
    from neural_tangents import stax

    shape = (request["samples"], *request["inputs"])
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal(shape))
    _, _, kernel = stax.serial(*build(stax, jax.numpy, request["layers"]))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    compiled = jax.jit(lambda a: kernel(a, None, ("nngp", "ntk")))
    result, times = measure(lambda: jax.block_until_ready(compiled(x)), request["repeats"])
    if request.get("all"):
        return {"K": np.asarray(result.nngp).tolist(), "Theta": np.asarray(result.ntk).tolist()}
    values = {"K": float(result.nngp[0, 1]), "Theta": float(result.ntk[0, 1])}
    return times | values | {"base_MB": base}


if __name__ == "__main__":
    try:
        answer = _worker(json.loads(sys.argv[1]))
    except Exception as error:  # the report shows what failed
        answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
    answer["peak_MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(answer))
