"""What trained networks output: infinite width, the first 1/n correction, and 512 trained ones."""

import numpy as np
from dynagram.ensembles.trained._measure import measure_trained
from dynagram.theory.training._finite import predict_trained

from dynagram.networks import MLP

network = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
x, y = np.array([[1.0, -0.4, 0.7]]), np.array([[0.9]])
tests = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])

prediction = predict_trained(network, x, y, tests, eta=0.3)
ensemble = measure_trained(network, x, y, tests, eta=0.3, members=512, seed=0)

print("test  infinite width  with 1/n   measured")
for t in range(len(tests)):
    mean, error = ensemble.mean.value[t, 0], ensemble.mean.standard_error[t, 0]
    infinite, corrected = prediction.mean_infinite[t, 0], prediction.mean[t, 0]
    print(f"{t:4} {infinite:15.4f} {corrected:9.4f}   {mean:.4f} ± {error:.4f}")
print(prediction.regime)
