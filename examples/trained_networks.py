"""What trained networks output: infinite width, the first 1/n correction, and 512 trained ones."""

from dynagram import MLP, Data, predict_outputs
from dynagram.ensembles.trained._measure import measure_trained
from dynagram.training import GradientDescent, Training

network = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
data = Data([[1.0, -0.4, 0.7]], [0.9], test_x=[[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])

prediction = predict_outputs(network, data, Training(GradientDescent(0.3)))
ensemble = measure_trained(network, data.x, data.y, data.test_x, eta=0.3, members=512, seed=0)

print("test  infinite width  with 1/n   measured")
for t in range(len(data.test_x)):
    mean, error = ensemble.mean.value[t, 0], ensemble.mean.standard_error[t, 0]
    infinite, corrected = prediction.mean_infinite[t, 0], prediction.mean[t, 0]
    print(f"{t:4} {infinite:15.4f} {corrected:9.4f}   {mean:.4f} ± {error:.4f}")
print(prediction.regime)
