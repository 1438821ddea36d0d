"""Why not Gauss-Hermite: errors of ⟨σ²⟩_K with as many nodes as it takes, against ours."""

import numpy as np

from dynagram.activations import activation
from dynagram.gaussian import moment

ROUNDING = 1e-14  # below this the last bits differ, and differ from machine to machine


def gauss_hermite(sigma, K, nodes):
    t, w = np.polynomial.hermite_e.hermegauss(nodes)
    return float(np.sum(w * sigma.values(np.sqrt(K) * t) ** 2) / np.sqrt(2 * np.pi))


def shown(error):
    return f"{error:10.1e}" if error > ROUNDING else f"{'rounding':>10}"


print("relative difference from dynagram's value")
print(f"{'activation':10} {'K':>5} {'32 nodes':>10} {'64 nodes':>10} {'200 nodes':>10}")
errors = {}
for name, K in (("gelu", 1.0), ("tanh", 1.0), ("tanh", 10.0), ("elu", 1.0), ("softsign", 1.0)):
    sigma = activation(name)
    exact = float(moment(sigma, K, (0, 0)))
    errors[name, K] = [abs(gauss_hermite(sigma, K, n) / exact - 1) for n in (32, 64, 200)]
    print(f"{name:10} {K:5.1f} " + " ".join(map(shown, errors[name, K])))

# Both agree where Gauss-Hermite converges; it fails at large K and at kinks.
assert errors["gelu", 1.0][1] < ROUNDING
assert errors["tanh", 10.0][1] > 1e-6
assert errors["elu", 1.0][2] > 1e-6
