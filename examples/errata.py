"""Where the printed book and the numbers disagree: each line computes one of docs/errata.md."""

import numpy as np

from dynagram import predict
from dynagram.activations import activation
from dynagram.gaussian import moment
from dynagram.networks import MLP
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
flow = single_input(MLP([1] * (depth + 1), "tanh", C_b=0.0, C_W=1.0), 1.0, c_W1=2 / 3)
law = float(metric_law(point, np.array([1.0]), renormalised=True)[0])
line("(5.143)", "ℓ G1 at large ℓ, tanh", 2 / 3 * (3 * a2 - a1**2) / (-a1) ** 3, law)
line("", f"from the recursion, ℓ = {depth}", None, depth * float(flow.G1[-1]))
assert abs(depth * float(flow.G1[-1]) / law - 1) < 2e-3

# (∞.177): the last P of the second square bracket lacks λ_W. The ddNTK is cubic in the learning
# rates, so R must grow 27-fold when they are tripled; the form as printed does not.
R = {}
for rate in (1.0, 3.0):
    network = MLP([1, 50, 50, 2], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0, lambda_W=rate)
    found = predict(network, [[1.0]], ("K", "P", "R"))
    slopes = float(moment(activation("tanh"), found["K"][1, 0, 0], (1, 1)))
    lacking = (rate - 1.0) * slopes**2 * found["P"][1].item()
    R[rate] = found["R"][2].item(), found["R"][2].item() - lacking
line(
    "(∞.177)",
    "R at 3λ over 27 R at λ, tanh",
    R[3.0][1] / R[1.0][1] / 27,
    R[3.0][0] / R[1.0][0] / 27,
)
assert abs(R[3.0][0] / R[1.0][0] / 27 - 1) < 1e-12

# Chapter 8, footnote 6: F of deeper layers is said to have no symmetry. F_abcd = F_cdab holds.
network = MLP([3, 20, 30, 40, 2], "gelu", C_b=0.1, C_W=1.5)
F = predict(network, np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]]), ("F",))["F"][-1]
violated = float(np.max(np.abs(F - F.transpose(2, 3, 0, 1))) / np.max(np.abs(F)))
line("ch. 8, note 6", "|F_abcd - F_cdab|/|F|, layer 4", None, violated)
assert violated < 1e-12
