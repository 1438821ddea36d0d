"""Where the printed book and the numbers disagree: each line computes one of docs/errata.md."""

import numpy as np

from dynagram.activations import activation
from dynagram.theory.criticality import (
    critical_initialisation,
    fixed_points,
    mean_square,
    metric_law,
    single_input,
)


def line(equation, quantity, printed, found):
    left = f"printed {printed:8.5f}" if printed is not None else ""
    print(f"{equation:16} {quantity:34} {left:16}   found {found:8.5f}")


print("The Principles of Deep Learning Theory, arXiv:2106.10165v2")

# (4.124)-(4.127): the action of all layers lacks the normaliser ½ log|Ĝ| of each layer. One neuron
# per layer, tanh: the mean square of the second layer with and without it.
t = np.linspace(-10, 10, 4001)
density = np.exp(-(t**2) / 2) / np.exp(-(t**2) / 2).sum()
metric = 0.15 + 1.6 * np.tanh(np.sqrt(0.9) * t) ** 2
without = np.sum(density * metric**1.5) / np.sum(density * metric**0.5)
right = np.sum(density * metric)
line("(4.124)-(4.127)", "E z² of layer 2, n = 1, tanh", without, right)
assert abs(right - 0.750334) < 1e-6

# (5.81): the slope of ⟨σ²⟩ at K = 0 is σ₁² + σ₀σ₂, printed with 2σ₀σ₂.
s0, s1, s2 = activation("softplus").taylor(2)
slope = float(mean_square("softplus", 1e-9, derivative=1))
line("(5.81)", "d⟨σ²⟩/dK at 0, softplus", s1**2 + 2 * s0 * s2, slope)
assert abs(slope - (s1**2 + s0 * s2)) < 1e-8

# Footnotes 20 and 21: the second fixed point at the critical hyperparameters.
for name, footnote, printed in (("swish", 20, 14.5), ("gelu", 21, 3.2)):
    point = critical_initialisation(name)
    others = fixed_points(name, point.C_b, point.C_W)
    other = max((p.K for p in others), key=lambda K, at=point.K_star: abs(K - at))
    line(f"footnote {footnote}", f"second fixed point of {name}", printed, other)

# (5.143): ℓ G^{1} with the renormalised weight variance; a term of V is left out in print.
point = critical_initialisation("tanh")
a1, a2 = point.constants.a1, point.constants.a2
depth = 20_000
flow = single_input("tanh", 1.0, depth, C_b=0.0, C_W=1.0, c_W1=2 / 3)
law = float(metric_law(point, np.array([1.0]), renormalised=True)[0])
line("(5.143)", "ℓ G1 at large ℓ, tanh", 2 / 3 * (3 * a2 - a1**2) / (-a1) ** 3, law)
line("", f"from the recursion, ℓ = {depth}", None, depth * float(flow.G1[-1]))
assert abs(depth * float(flow.G1[-1]) / law - 1) < 2e-3
