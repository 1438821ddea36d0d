"""A prediction beside a measurement: K, V and G1 of a tanh network and of 20 000 draws of it."""

import numpy as np

from dynagram import MLP, compare, predict, simulate
from dynagram.theory import next_order

network = MLP.critical([3, 60, 60, 60, 60, 1], "tanh")
x = np.array([[1.0, 1.0, 1.0], [0.0, 1.5, -1.0]])  # nearly orthogonal: hard for the first order

prediction = predict(network, x, ("K", "V", "G1"))
ensemble = simulate(network, x, ("K", "V", "G1"), members=20_000, seed=1)

print(network)
print("variance of a preactivation of sample 0, layer by layer")
print("  predicted", np.round(prediction.metric[:, 0, 0], 4))
print("  measured ", np.round(ensemble["K"][:, 0, 0], 4))
print("  s.e.     ", np.round(ensemble.error("K")[:, 0, 0], 4))


def report(result):
    share = f"{100 * result.fraction_within_3:.1f} % within 3 s.e."
    print(f"{result.name:24} worst z = {result.worst_z:+.2f}, {share}")


agreement = compare(prediction, ensemble)
report(agreement["K"])
report(agreement["V"])

# How networks differ on two unrelated inputs is nearly independent, so the first order of
# V_(00)(11) is small and the next one matters, whatever the verdict on a single input says.
further = next_order(network, x)
V1 = compare(further.vertex, ensemble.estimate("V"), name="V + V1/n, one order more")
report(V1)
entry = (-1, 0, 0, 1, 1)
print(
    f"V_(00)(11) at the output: {prediction['V'][entry]:.5f}, with V1 {further.vertex[entry]:.5f}, "
    f"measured {ensemble['V'][entry]:.5f} ± {ensemble.error('V')[entry]:.5f}"
)

assert agreement["K"].ok()
assert V1.ok()
assert not agreement["V"].ok()  # 20 000 networks are enough to see what the first order leaves out
