"""Golden numbers for training at infinite width, from neural-tangents' gradient_descent_mse.

Run with the interpreter of the peer's environment (see peer.py):
.peer/bin/python peer_training.py ../tests/golden/neural_tangents_training.json
"""

import json
import sys
import types
from pathlib import Path

sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import neural_tangents as nt  # noqa: E402
import numpy as np  # noqa: E402

rng = np.random.default_rng(7)
features = rng.normal(size=(7, 12))
Theta = np.round(features @ features.T / 12, 6)
y, initial = np.round(rng.normal(size=(4, 2)), 6), np.round(rng.normal(size=(7, 2)), 6)
predict = nt.predict.gradient_descent_mse(Theta[:4, :4], y, learning_rate=1.0)
times = [0.5, 4.0, 40.0]
answers = [predict(t, initial[:4], initial[4:], Theta[4:, :4]) for t in [*times, None]]
numbers = {
    "about": "gradient_descent_mse of neural-tangents 0.6.5, learning rate 1, by "
    "benchmarks/peer_training.py. Its loss is a mean: its time is τ × samples × outputs.",
    "Theta": Theta.tolist(),
    "targets": y.tolist(),
    "initial": initial.tolist(),
    "times": times,
    "train": [np.asarray(train).tolist() for train, _ in answers],
    "test": [np.asarray(test).tolist() for _, test in answers],
}
Path(sys.argv[1]).write_text(json.dumps(numbers, ensure_ascii=False) + "\n")
