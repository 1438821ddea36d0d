"""A quadratic model trained by gradient descent, and what the nearly-kernel formula says."""

from itertools import pairwise

import numpy as np

from dynagram.theory.minimal_models import (
    SOLUTIONS,
    QuadraticModel,
    descend,
    nearly_kernel_prediction,
)

rng = np.random.default_rng(0)
features = rng.normal(size=(6, 12)) / np.sqrt(12)  # four training samples, two to predict
meta_features = rng.normal(size=(6, 12, 12)) / 12
meta_features += np.swapaxes(meta_features, 1, 2)
y = rng.normal(size=(4, 1))
eta = 0.5 / np.linalg.eigvalsh(features[:4] @ features[:4].T)[-1]

print("epsilon   trained   kernel method   nearly kernel")
left = []
for epsilon in (0.08, 0.04, 0.02):
    model = QuadraticModel(features, meta_features, epsilon)
    trained = model.outputs(descend(model, y, eta=eta).W)[4:]
    nearly = nearly_kernel_prediction(model.kernel, model.meta_kernel, y, eta=eta)[4:]
    kernel = nearly_kernel_prediction(model.kernel, 0 * model.meta_kernel, y, eta=eta)[4:]
    off = [np.max(np.abs(found - trained)) for found in (kernel, nearly)]
    print(f"{epsilon:7.2f} {trained[0, 0]:9.5f}   off by {off[0]:.5f}   off by {off[1]:.5f}")
    left.append(off[1])
assert all(3.5 < one / two < 4.5 for one, two in pairwise(left))  # ε²

print("how it is trained decides what it learns (epsilon = 0.02):")
for solution in SOLUTIONS:
    step = eta if solution == "gd" else None
    found = nearly_kernel_prediction(
        model.kernel, model.meta_kernel, y, solution=solution, eta=step
    )
    print(f"  {solution:15}{found[4, 0]:9.5f}")
