"""Tangent tensors of a tanh network, predicted and measured; what is left halves with the width."""

import numpy as np

from dynagram import MLP, predict, simulate

LETTERS = ("S", "T", "U")
x = np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]])

residuals = {}
print("tensor  width  predicted  measured        all entries differ by")
for width in (16, 32):
    network = MLP([3, width, width, 2], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    theory = predict(network, x, LETTERS)
    ensemble = simulate(network, x, LETTERS, members=8000)
    for name in LETTERS:
        predicted, value, error = theory[name][-1], ensemble[name][-1], ensemble.error(name)[-1]
        # Statistical errors add their squares to that of the difference; take them off again.
        square = np.sum((value - predicted) ** 2 - error**2)
        difference = np.sqrt(max(square, 0.0)) / np.linalg.norm(predicted)
        residuals[name, width] = difference
        measured = f"{value.flat[0]:.3f} ± {error.flat[0]:.3f}"
        row = f"{name:6} {width:6d} {predicted.flat[0]:10.3f}  {measured}"
        print(f"{row:47} {100 * difference:6.1f} %")

for name in LETTERS:  # the next order in 1/n
    assert 1.5 < residuals[name, 16] / residuals[name, 32] < 2.5
