"""What finite width does: networks of one ensemble differ, by V/(nK²) ~ depth/width."""

import numpy as np

from dynagram.networks import MLP
from dynagram.theory.criticality import critical_initialisation, single_input

WIDTH = 100
DEPTHS = np.array([2, 5, 10, 20, 50])

print(f"relative variance of the signal's size, width {WIDTH}")
print("depth      " + "".join(f"{depth:9d}" for depth in DEPTHS))
slopes = {}
for name in ("relu", "tanh", "gelu"):
    point = critical_initialisation(name)
    flow = single_input(MLP([1] * (int(DEPTHS[-1]) + 1), name, C_b=point.C_b, C_W=point.C_W), 1.0)
    relative = flow.V / flow.K**2 / WIDTH
    print(f"{name:10} " + "".join(f"{value:9.4f}" for value in relative[DEPTHS - 1]))
    slopes[name] = (relative[-1] - relative[-2]) * WIDTH

print("growth per layer, times the width:", {k: round(float(v), 3) for k, v in slopes.items()})
# 5 for ReLU at every depth (5.130); 2/3 for the family of tanh once it is deep (5.131).
assert abs(slopes["relu"] - 5.0) < 1e-9
assert abs(slopes["tanh"] - 2.0 / 3.0) < 0.01
