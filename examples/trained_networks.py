"""What trained networks output: infinite width, the first 1/n correction, and 512 trained ones."""

from dynagram import MLP, Data, GradientDescent, Training, predict_outputs, train

network = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
data = Data([[1.0, -0.4, 0.7]], [0.9], test_x=[[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
how = Training(GradientDescent(0.3))

prediction = predict_outputs(network, data, how)
ensemble = train(network, data, how, members=512, pairs=True)

print("test  infinite width  with 1/n   measured")
for t in range(len(data.test_x)):
    mean, error = ensemble.mean[t, 0], ensemble.error[t, 0]
    infinite, corrected = prediction.mean_infinite[t, 0], prediction.mean[t, 0]
    print(f"{t:4} {infinite:15.4f} {corrected:9.4f}   {mean:.4f} ± {error:.4f}")
