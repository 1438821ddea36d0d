"""Time and memory of an order-1/n prediction of trained outputs against the number of samples.

`python benchmarks/trained_size.py [--samples 16] [--depth 4]`: as many training as test inputs, at
the default accuracy. No peer offers the order 1/n of trained networks.
"""

import argparse
import resource
import time

import numpy as np

from dynagram.networks import MLP
from dynagram.theory.training.finite import predict_trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--depth", type=int, default=4)
    options = parser.parse_args()
    n = options.samples
    x = np.random.default_rng(0).standard_normal((2 * n, 8))
    network = MLP([8, *[256] * (options.depth - 1), 1], "tanh", C_b=0.0, C_W=1.0)
    wall, cpu = time.perf_counter(), time.process_time()
    found = predict_trained(network, x[:n], np.sin(x[:n, :1]), x[n:], algorithm="flow")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    size, error = (float(np.sqrt(np.mean(v**2))) for v in (found.mean_correction, found.mean_error))
    what = f"{n} + {n} samples, depth {options.depth}"
    print(f"{what}: {wall:.0f} s ({cpu:.0f} s of CPU), {peak:.1f} GB")
    print(f"mean correction {size:.3f} ± {error:.3f} (numerical), rms over test points")


if __name__ == "__main__":
    main()
