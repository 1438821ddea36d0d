"""Bayesian inference with a finite network: infinite width, order 1/n and the exact posterior."""

import numpy as np

from dynagram import MLP, Data, predict_outputs
from dynagram.ensembles import exact_posterior
from dynagram.theory.bayes import representation_shift
from dynagram.training import Posterior

x = 1.3 * np.array([[1.0, 0.4, -0.3], [0.2, -1.1, 0.7], [0.9, -0.2, 0.5]])
data, how = Data(x[:2], [[0.9, 0.3], [-0.5, 1.1]], test_x=x[2:]), Posterior()

print("width  quantity          infinite       1/n     exact (± s.e.)")
gaps = {}
for width in (10, 40):
    network = MLP([3, width, 2], "sin", C_b=0.1, C_W=1.6)
    theory = predict_outputs(network, data, how)
    exact = exact_posterior(network, data, how, members=20_000, seed=0)
    infinite, evidence = theory.covariance_infinite, theory.about
    rows = {
        "log evidence": (evidence["log_evidence_infinite"], evidence["log_evidence"],
                         exact.estimate("log_evidence"), (0,)),
        "mean of z_0": (theory.mean_infinite[0, 0], theory.mean[0, 0], exact.estimate("mean"),
                        (0, 0)),
        "variance of z_0": (infinite[0, 0, 0, 0], theory.covariance[0, 0, 0, 0],
                            exact.estimate("covariance"), (0, 0, 0, 0)),
        "wiring z_0, z_1": (0.0, theory.covariance[0, 0, 0, 1],
                            exact.estimate("covariance"), (0, 0, 0, 1)),
    }  # fmt: skip
    for name, (limit, first, measured, place) in rows.items():
        value, error = measured.value[place], measured.standard_error[place]
        gaps[name, width] = abs(first - value), error
        print(f"{width:5d}  {name:16} {limit:9.4f} {first:9.4f} {value:9.4f} ± {error:.4f}")
    print(f"       1/n at this width: {theory.regime.verdict}")

# What the order 1/n leaves falls with the square of the width: by 16, or below the noise.
for name in rows:
    (narrow, _), (wide, error) = gaps[name, 10], gaps[name, 40]
    assert wide < narrow / 8 + 4 * error

shift = representation_shift(network, data, how)
print("shift of σσ in the hidden layer, in units of 1/n:")
print(np.round(shift.activations[0, :2, :2], 4).tolist())
