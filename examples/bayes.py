"""Bayesian inference with a finite network: infinite width, order 1/n and the exact posterior."""

import numpy as np

from dynagram.ensembles._exact_posterior import (
    exact_posterior,
    finite_posterior,
    representation_shift,
)
from dynagram.networks import MLP

x = 1.3 * np.array([[1.0, 0.4, -0.3], [0.2, -1.1, 0.7]])
y = np.array([[0.9, 0.3], [-0.5, 1.1]])
test_x = 1.3 * np.array([[0.9, -0.2, 0.5]])

print("width  quantity          infinite       1/n     exact (± s.e.)")
gaps = {}
for width in (10, 40):
    network = MLP([3, width, 2], "sin", C_b=0.1, C_W=1.6)
    theory = finite_posterior(network, x, y, test_x)
    exact = exact_posterior(network, x, y, test_x, members=20_000, seed=0)
    evidence, covariance = theory.log_evidence, theory.covariance
    rows = {
        "log evidence": (evidence.infinite, evidence.value, exact.log_evidence, ()),
        "mean of z_0": (theory.mean_infinite[0, 0], theory.mean[0, 0], exact.mean, (0, 0)),
        "variance of z_0": (
            theory.covariance_infinite[0, 0, 0, 0], covariance[0, 0, 0, 0],
            exact.covariance, (0, 0, 0, 0),
        ),
        "wiring z_0, z_1": (0.0, covariance[0, 0, 0, 1], exact.covariance, (0, 0, 0, 1)),
    }  # fmt: skip
    for name, (infinite, first, found, place) in rows.items():
        value, error = found.value[place], found.standard_error[place]
        gaps[name, width] = abs(first - value), error
        print(f"{width:5d}  {name:16} {infinite:9.4f} {first:9.4f} {value:9.4f} ± {error:.4f}")
    print(f"       1/n at this width: {theory.regime.verdict}")

# What the order 1/n leaves falls with the square of the width: by 16, or below the noise.
for name in rows:
    (narrow, _), (wide, error) = gaps[name, 10], gaps[name, 40]
    assert wide < narrow / 8 + 4 * error

shift = representation_shift(network, x, y)
print("shift of σσ in the hidden layer, in units of 1/n:")
print(np.round(shift.activations[0], 4).tolist())
