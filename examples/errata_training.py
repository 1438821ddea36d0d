"""Where chapters 10, 11 and ∞ of the printed book and the numbers disagree, see docs/errata.md."""

import numpy as np

from dynagram import predict
from dynagram.data import Data
from dynagram.gaussian import two_point_matrix
from dynagram.networks import MLP
from dynagram.theory import frozen_kernels
from dynagram.theory.criticality import robustness_laws, small_separation_ntk
from dynagram.theory.training import newton_step, newton_tensor


def line(equation, quantity, printed, found):
    left = f"printed {printed:8.5f}" if printed is not None else ""
    print(f"{equation:9} {quantity:44} {left:16}   found {found:8.5f}")


print("The Principles of Deep Learning Theory, arXiv:2106.10165v2, chapters 10 to ∞")

# (10.38): the sum in the denominator runs over j, and its summand has the index i.
y = np.array([0.0, 1.0])
line("(10.38)", "probability of y = 1 beside y = 0", 0.5, np.exp(y[1]) / np.exp(y).sum())

# (10.80), (10.81): uniform rates, where Θ ∝ ℓ makes up for ⟨σ''σ''⟩ ∝ 1/ℓ.
depth, lambda_b, lambda_W = 20_000, 1.0, 0.6
flow = small_separation_ntk(
    MLP([1] * (depth + 1), "tanh", 0.0, 1.0, lambda_b, lambda_W), 1.0, distance=1.0
)
delta = depth * float(flow.K_2[-1])  # δ², by (10.71)
laws = robustness_laws("tanh", lambda_b=lambda_b, lambda_W=lambda_W, uniform=True)
line("(10.80)", "δδΘ_[2]/δ², tanh", lambda_W, laws["Theta_2"].coefficient)
line("", f"from the recursion, ℓ = {depth}", None, float(flow.Theta_2[-1]) / delta)
line("(10.81)", "ℓ times robustness/δ²", -4 * lambda_W / lambda_b, laws["robustness"].coefficient)
measured = -2 * depth * float(flow.Theta_2[-1] / flow.Theta_midpoint[-1]) / delta
line("", f"from the recursion, ℓ = {depth}", None, measured)
assert abs(measured / laws["robustness"].coefficient - 1) < 2e-3

# (10.113): a mean between two training inputs of unequal norm, against the exact (10.39).
network, s, step = MLP([3, 8, 8, 8, 1], "tanh", 0.1, 1.3, 0.4, 0.8), 0.3, 0.02
middle, way = np.array([1.0, -0.4, 0.7]), step * np.array([0.6, 0.9, 0.5])
ends = np.stack([middle + way / 2, middle - way / 2])
asked = s * ends[0] + (1 - s) * ends[1]
Theta = frozen_kernels(network, np.stack([*ends, middle, asked]), layers="last").Theta[-1]
target = np.array([0.8 + 0.7 * step, 0.8 - 0.7 * step])  # smooth: y_+ − y_− = O(δ)
straight = s * target[0] + (1 - s) * target[1]
exact = float(Theta[3, :2] @ np.linalg.solve(Theta[:2, :2], target)) - straight
bend = 0.25 * (Theta[0, 0] + Theta[1, 1] + 2 * Theta[0, 1]) - Theta[2, 2]
tilt = 0.5 * (Theta[0, 0] - Theta[1, 1])
apart = 0.25 * (Theta[0, 0] + Theta[1, 1] - 2 * Theta[0, 1])
total, difference = target.sum(), target[0] - target[1]
printed = -s * (1 - s) * 2 * bend / (Theta[2, 2] * apart - tilt**2)
printed *= 2 * apart * total - tilt * difference
rest = -4 * s * (1 - s) * (tilt - (Theta[2, 0] - Theta[2, 1]))
corrected = -2 * s * (1 - s) * bend * (2 * apart * total - tilt * difference)
corrected += 0.5 * rest * (2 * Theta[2, 2] * difference - tilt * total)
corrected /= 4 * Theta[2, 2] * apart - tilt**2
line("(10.113)", "(mean − straight line)/δ², tanh", printed / step**2, corrected / step**2)
line("", f"from (10.39), δ = {step}", None, exact / step**2)
assert abs(corrected / exact - 1) < 0.02

# (11.37): the last line keeps δ_3 where the summed δ belongs. For O = z_0 + z_1 of one neuron:
network = MLP([3, 20, 20, 2], "tanh", 0.1, 1.3, 0.4, 0.8)
tensors = predict(network, np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]]), ("K", "F", "Q"))
F = (network.lambda_W[2] / network.C_W[2]) * tensors["F"][2]
line("(11.37)", "Σ_δ λ_W F_00δ1/C_W, printed as 2F_0001", 2 * F[0, 0, 0, 1], F[0, 0, :, 1].sum())

# (11.51): ⟨σ'_1σ'_2⟩ for ⟨σ'_0σ'_1⟩ in the second term; (11.52) has it right.
slopes = two_point_matrix(network.activation, tensors["K"][1], 1, 1)
Q, wrong = tensors["Q"][2], np.array(tensors["Q"][2])
inherited = network.C_W[2] ** 2 * tensors["Q"][1] * slopes[None, None]
wrong += inherited * (slopes[None, :, :, None] - slopes[:, :, None, None])
line("(11.51)", "Q_1000 of layer 3, tanh", wrong[1, 0, 0, 0], Q[1, 0, 0, 0])

# (∞.65): how far networks are from their targets after the leap of infinite width. Of the mean over
# networks it is true; one network's NTK differs from Θ by 1/√n, and its outputs with it.
data, left = Data([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]], [0.9, -0.5]), {}
for width in (256, 4096):
    drawn = [MLP([3, width, 1], "tanh", 0.1, 1.3, 0.4, 0.8).init(seed=seed) for seed in range(48)]
    leaps = [newton_step(start, data, newton_tensor(start, data, "frozen")) for start in drawn]
    left[width] = np.median([np.linalg.norm(np.asarray(net(data.x)) - data.y) for net in leaps])
power = np.log(left[256] / left[4096]) / np.log(4096 / 256)
line("(∞.65)", "power of 1/n in the error after the leap", 1.0, round(power, 1))
assert 0.35 < power < 0.65
