"""A two-layer network learns a product: its Gram matrix and its features along the way."""

import numpy as np

from dynagram.observables.gram import (
    GramTracker,
    gram_law,
    gram_similarity,
    held_out_linearity,
)

rng = np.random.default_rng(0)
x = rng.normal(size=(600, 12))
y = np.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1)  # one target needs features, one does not
train, test = slice(0, 400), slice(400, 600)

W, V = rng.normal(size=(64, 12)) * np.sqrt(2 / 12), rng.normal(size=(2, 64)) / 8
start, tracker, eta, worst = W.copy(), GramTracker(W), 0.05, 0.0

print("step   loss   cosine ΣVC, ΔGram  null         missed   linearity  null")
for step in range(1, 1201):
    z = x[train] @ W.T
    h = np.maximum(z, 0)
    residual = (h @ V.T - y[train]) / 400  # of the loss ½ mean (f − y)²
    delta = (residual @ V) * (z > 0)
    gradient, g = delta.T @ x[train], delta @ W
    tracker.add(x[train], g)
    tracker.step(eta)
    moved = W - eta * gradient
    law = gram_law(W, gradient, x[train], g, eta).total
    gram = W.T @ W
    worst = max(worst, np.linalg.norm(moved.T @ moved - gram - law) / np.linalg.norm(gram))
    W, V = moved, V - eta * residual.T @ h
    if step in (10, 100, 400, 1200):
        found = tracker.record(W)
        features = np.maximum(x @ W.T, 0)
        linear = held_out_linearity(features[train], y[train], features[test], y[test])
        loss = 0.5 * np.mean(np.sum((features[train] @ V.T - y[train]) ** 2, axis=1))
        null = found.cosine.null
        print(
            f"{step:4d}  {loss:5.3f}   {found.cosine.value:8.4f}          "
            f"{null.mean:5.2f} ± {null.deviation:.2f}  {100 * found.remainder:5.2f} %   "
            f"{linear.score:6.3f}    {linear.null.mean:6.3f} ± {linear.null.deviation:.3f}"
        )

print("Gram law of every step, with its remainder, violated by less than 1e-12:", worst < 1e-12)
same = gram_similarity(start.T @ start, W.T @ W)
print(f"Gram now and at the start: cosine {same.value:.3f}, random directions", end=" ")
print(f"{same.null.mean:.3f} ± {same.null.deviation:.3f}")
assert worst < 1e-12
