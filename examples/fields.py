"""A network trained without its weights, the laws of deeper fields, and where each one ends."""

import numpy as np

from dynagram.observables.fields import (
    CollectiveTransport,
    activation_overlaps,
    collective_kernel,
    fields,
    fixed_readout,
    kernel_terms,
    layer_shares,
    metric_statistics,
    transport_operator,
)
from dynagram.theory.fields import anchored_run, descend, simulate_one_layer

rng = np.random.default_rng(0)
n_0, N, M = 10, 64, 30
x, unseen = rng.standard_normal((M, n_0)), rng.standard_normal((20, n_0))
y = (x[:, 0] * x[:, 1] > 0).astype(float)
first = rng.standard_normal((N, n_0)) * np.sqrt(2 / n_0)

# One hidden layer: preactivations and input overlaps are a closed dynamics.
eta, steps = 2.0, 500
model = fixed_readout([first])
start = fields(model, x)
run = simulate_one_layer(start, y, eta=eta, steps=steps, unseen=fields(model, unseen))
truth = descend(model, x, y, eta=eta, steps=steps)
test = fields(truth.model, unseen).output
wrong = max(
    np.max(np.abs(run.losses / truth.losses - 1)), np.max(np.abs(run.unseen_outputs[-1] - test))
)
print(f"one hidden layer, {run.flips.sum()} mask flips on the way")
print(f"  loss from weights         {truth.losses[-1]:.6f}")
print(f"  loss from fields          {run.losses[-1]:.6f}   the same: {wrong < 1e-9}")

# Equation (50) of the source keeps u only. Where u = 0 the sign of v is lost.
u, Q = np.array(start.u[1]), activation_overlaps(start)[0]
for _ in range(steps):
    a, r = u > 0, u.mean(axis=1) - y
    u = np.maximum(u - 2 * eta / M * a * (Q @ (a * r[:, None])), 0.0)
print(f"  loss from activations     {np.mean((u.mean(axis=1) - y) ** 2):.6f}   not the same")
assert wrong < 1e-9

# Three hidden layers: the kernel by layers, a metric, the transport of conjugate fields.
deeper = [rng.standard_normal((N, N)) * np.sqrt(2 / N) for _ in range(2)]
model = fixed_readout([first, *deeper])
state = fields(model, x)
K = collective_kernel(state)
shares = ", ".join(f"{share:.2f}" for share in layer_shares(kernel_terms(state))[:-1])
metric = metric_statistics(state, 2, [0], [1])
print("three hidden layers")
print(f"  largest stable step       {M / np.linalg.eigvalsh(K)[-1]:.2f}")
print(f"  layers' shares of tr K    {shares}")
print(
    f"  G between samples 0 and 1 {metric.coactive[0]:.0f} units in common, effective rank "
    f"{metric.effective_rank[0]:.1f} (random rows {metric.effective_rank_null[0]:.1f})"
)
top = CollectiveTransport(state, 1).top_eigenvalues(1)[0, 0]
pair = transport_operator(state, 1, [0], [1]).top_singular_values(1)[0, 0]
print(f"  top of M_1                {top:.2f} for all samples, {pair:.2f} for samples 0 and 1")

# From an anchor every 20 steps: how far do frozen masks carry?
print("error of r after 1, 5, 20 steps from an anchor, in % of how far r moved")
for carried in ("weights", "fields", "kernel"):
    found = anchored_run(model, x, y, eta=0.5, steps=100, every=20, carried=carried)
    error, change = found.residual_error, found.residual_change
    parts = [100 * error[found.at(k)].mean() / change[found.at(k)].mean() for k in (1, 5, 20)]
    print(f"  {carried:8} " + " ".join(f"{part:6.1f}" for part in parts))
