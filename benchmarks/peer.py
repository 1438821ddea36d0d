"""The peer's environment and a worker that times neural-tangents inside it.

As a module (in dynagram's environment): `peer_python()` makes the environment if needed and
`ask(python, request)` runs one measurement in a process of its own, so that running out of memory
loses that measurement only. As a script (in the peer's environment): reads a JSON request from
the first argument and prints a JSON answer.
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
import types
from pathlib import Path

HERE = Path(__file__).parent
PEER = HERE / ".peer"
PINS = ["jax==0.4.25", "jaxlib==0.4.25", "numpy<2", "scipy<1.13", "ml_dtypes<0.5", "frozendict"]


def peer_python(given: str | None = None) -> str:
    """The interpreter of the peer's environment, made on first use."""
    python = Path(given) if given else PEER / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "neural-tangents==0.6.5"], check=True)
        subprocess.run([*pip, *PINS], check=True)
    return str(python)


def ask(python: str, request: dict, timeout: float = 600.0, worker: str = "peer.py") -> dict:
    """The worker's answer, or {"error": …} when it failed, ran out of memory or of time."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JAX_ENABLE_X64")}
    try:
        child = subprocess.run(
            [python, str(HERE / worker), json.dumps(request)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {timeout:.0f} s"}
    lines = child.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else {"error": f"exit code {child.returncode}"}


def measure(function, repeats: int) -> tuple[object, dict]:
    """Result, and seconds of the first call and of the best later one (wall and CPU).

    `repeats` calls or more: short ones go on for half a second, so that one of them is undisturbed.
    """
    start = time.perf_counter()
    result = function()
    first = time.perf_counter() - start
    wall, cpu = [], []
    until = time.perf_counter() + 0.5
    while len(wall) < repeats or time.perf_counter() < until:
        start, busy = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - busy)
    times = {"first_s": first, "wall_s": min(wall), "cpu_s": min(cpu)}
    return result, times


def inputs(samples: int, features: int = 64):
    """The inputs both sides use."""
    import numpy as np

    return np.random.default_rng(0).standard_normal((samples, features))


def _worker(request: dict) -> dict:
    # An empty module stands in for the TensorFlow bridge, which nothing here uses.
    sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
    import jax

    jax.config.update("jax_enable_x64", True)
    import neural_tangents as nt
    from neural_tangents import stax

    x = jax.numpy.asarray(inputs(request["samples"]))
    activations = {"relu": stax.Relu, "erf": stax.Erf}
    C_W, degree = request["C_W"], request.get("degree")

    def nonlinearity():
        if degree is None:
            return activations[request["activation"]]()
        slope = lambda z: 1.0 - jax.numpy.tanh(z) ** 2  # noqa: E731
        return stax.ElementwiseNumerical(jax.numpy.tanh, deg=degree, df=slope)

    def dense(width):
        return stax.Dense(width, W_std=math.sqrt(C_W), b_std=None)

    layers = []
    for _ in range(request["hidden"]):
        layers += [dense(512), nonlinearity()]
    init, apply, kernel = stax.serial(*layers, dense(request["outputs"]))
    if request["kind"] == "kernels":
        compiled = jax.jit(lambda a: kernel(a, None, ("nngp", "ntk")))
        result, times = measure(lambda: jax.block_until_ready(compiled(x)), request["repeats"])
        values = {"K": [float(v) for v in result.nngp[0, :2]]}
        values["Theta"] = [float(v) for v in result.ntk[0, :2]]
        return times | values
    _, parameters = init(jax.random.PRNGKey(0), x.shape)
    implementation = nt.NtkImplementation[request["implementation"]]
    compiled = jax.jit(
        nt.empirical_ntk_fn(apply, trace_axes=(), vmap_axes=0, implementation=implementation)
    )
    run = lambda: jax.block_until_ready(compiled(x, None, parameters))  # noqa: E731
    result, times = measure(run, request["repeats"])
    return times | {"shape": list(result.shape)}


if __name__ == "__main__":
    try:
        answer = _worker(json.loads(sys.argv[1]))
    except Exception as error:  # the report shows what failed
        answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
    answer["peak_MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(answer))
