"""Tangent kernels: one network's NTK against neural-tangents, and the finite-width tensors.

First part: the full (128, 128, 10, 10) NTK of a 64-512-512-512-10 ReLU network, float64, against
the peer's fastest implementation (structured derivatives). Second part: all finite-width tensors
of a critical tanh network, time against the number of inputs and against depth, with the
numerical error reached. `--samples` and `--depth` run one such case only (for a GPU), with
`--fields` also as a chain of blocks, whose letters all come from one recursion of fields.
"""

import argparse
import json
import time

import numpy as np
from peer import HERE, ask, inputs, measure, peer_python

ALL = ("K", "Theta", "G1", "H1", "V", *"ABDFPQRSTU")


def empirical(repeats: int) -> dict:
    """Our NTK of one network."""
    import jax

    from dynagram import MLP
    from dynagram.observables.tangents import ntk

    network = MLP([64, 512, 512, 512, 10], "relu", 0.0, 2.0, 0.0, 2.0)
    with jax.enable_x64(True):
        model = network.init(seed=0)
        x = jax.numpy.asarray(inputs(128))
        run = lambda: jax.block_until_ready(ntk(model, x))  # noqa: E731
        result, times = measure(run, repeats)
    return times | {"shape": list(np.shape(result))}


def tensors(samples: int, depth: int, accuracy: float) -> dict:
    """All tensors of a critical tanh network: seconds, and the largest relative error."""
    from dynagram import MLP, predict

    x = np.random.default_rng(0).standard_normal((samples, 16))
    network = MLP([16, *[64] * (depth - 1), 2], "tanh", 0.0, 1.0, 0.3, 1.0)
    start = time.perf_counter()
    result = predict(network, x, ALL, accuracy=accuracy)
    seconds = time.perf_counter() - start
    errors = {
        name: float(np.max(result.errors[name][-1]) / np.max(np.abs(result[name][-1])))
        for name in "VABDFPQRSTU"
    }
    return {"samples": samples, "depth": depth, "seconds": seconds, "errors": errors}


def fields(samples: int, depth: int, accuracy: float) -> dict:
    """CPU seconds of all letters of the output, by their recursions and by that of fields."""
    from dynagram import MLP, predict
    from dynagram.networks import Chain
    from dynagram.networks.blocks import Activate, Dense

    x = np.random.default_rng(0).standard_normal((samples, 16))
    hyper = {"C_b": 0.0, "C_W": 1.0, "lambda_b": 0.3, "lambda_W": 1.0}
    hidden = [Dense(64, **hyper), Activate("tanh")] * (depth - 1)
    networks = {
        "letters": MLP([16, *[64] * (depth - 1), 2], "tanh", **hyper),
        "fields": Chain([*hidden, Dense(2, **hyper)], 16),
    }
    seconds, found = {}, {}
    for name, network in networks.items():
        predict(network, x, ALL, accuracy=accuracy)  # compile first
        start = time.process_time()
        found[name] = predict(network, x, ALL, accuracy=accuracy)
        seconds[name] = round(time.process_time() - start, 2)
    apart = max(
        float(np.max(np.abs(found["letters"][n][-1] - found["fields"][n][-1]))) for n in ALL
    )
    return {"samples": samples, "depth": depth, "cpu_seconds": seconds, "largest_difference": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="Python of an environment with neural-tangents 0.6.5")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--accuracy", type=float, default=1e-4)
    parser.add_argument("--fields", action="store_true", help="with --samples: as a chain too")
    options = parser.parse_args()
    if options.samples and options.fields:
        print(json.dumps(fields(options.samples, options.depth, options.accuracy)))
        return
    if options.samples:
        print(json.dumps(tensors(options.samples, options.depth, options.accuracy)))
        return
    report: dict = {"ours": empirical(5)}
    request = {"kind": "empirical", "activation": "relu", "samples": 128, "C_W": 2.0, "hidden": 3,
               "outputs": 10, "repeats": 5, "implementation": "STRUCTURED_DERIVATIVES"}  # fmt: skip
    report["peer"] = ask(peer_python(options.peer), request)
    mine, theirs = report["ours"]["wall_s"], report["peer"].get("wall_s", float("nan"))
    print(f"NTK (128, 128, 10, 10), 0.56 M parameters: ours {mine:.3f} s, peer {theirs:.3f} s, "
          f"ratio {theirs / mine:.2f}")  # fmt: skip
    cases = [(n, 10) for n in (1, 2, 4, 6, 8)] + [(4, depth) for depth in (20, 40)]
    tensors(2, 3, options.accuracy)  # compile first
    report["tensors"] = []
    for samples, depth in cases:
        row = tensors(samples, depth, options.accuracy)
        report["tensors"].append(row)
        worst = max(row["errors"].values())
        case = f"all tensors, {samples} inputs, depth {depth}"
        print(f"{case}: {row['seconds']:.1f} s, largest error {worst:.1e}", flush=True)
    path = HERE / "results" / "ntk.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    _plot(report["tensors"], path.with_suffix(".svg"))
    print(f"written to {path.name} and {path.with_suffix('.svg').name} in benchmarks/results")


def _plot(rows: list[dict], path) -> None:
    """Seconds against inputs at depth 10 (the cost of N⁴) and against depth at four inputs."""
    import altair

    from dynagram.report._export import save

    by_samples = [r for r in rows if r["depth"] == 10]
    by_depth = [r for r in rows if r["samples"] == 4]
    charts = [
        altair.Chart(altair.Data(values=values))
        .mark_line(point=True)
        .encode(
            altair.X(f"{key}:Q", title=title, scale=altair.Scale(type="log")),
            altair.Y("seconds:Q", title="seconds, all tensors", scale=altair.Scale(type="log")),
        )
        .properties(width=300, height=240)
        for key, title, values in (
            ("samples", "inputs N (depth 10)", by_samples),
            ("depth", "depth L (4 inputs)", by_depth),
        )
    ]
    save(charts[0] | charts[1], path, title="Cost of the finite-width tensors")


if __name__ == "__main__":
    main()
