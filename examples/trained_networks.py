"""What trained networks output: infinite width, the first 1/n correction, and 512 trained ones."""

import numpy as np

from dynagram import MLP, Data, GradientDescent, Training, train
from dynagram.theory.training._finite import predict_trained

network = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
x, y = np.array([[1.0, -0.4, 0.7]]), np.array([[0.9]])
tests = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])

prediction = predict_trained(network, x, y, tests, eta=0.3)
how = Training(GradientDescent(eta=0.3))
ensemble = train(network, Data(x, y, tests), how, members=512, pairs=True)

print("test  infinite width  with 1/n   measured")
for t in range(len(tests)):
    mean, error = ensemble.mean[t, 0], ensemble.error[t, 0]
    infinite, corrected = prediction.mean_infinite[t, 0], prediction.mean[t, 0]
    print(f"{t:4} {infinite:15.4f} {corrected:9.4f}   {mean:.4f} ± {error:.4f}")
print(prediction.regime)
