"""The four-point vertex of residual networks: (B.26) as printed, corrected, and measured.

Networks are drawn by the exact law of one input, z' = γz + √Ĝ ε with Ĝ = C_b + C_W mean(σ(z)²),
at widths 64 and 256; the combination (4 V(256) − V(64))/3 removes the next order in 1/n.
"""

import numpy as np

from dynagram.activations import activation
from dynagram.networks import MLP
from dynagram.theory.skips import residual_critical, residual_flow

DEPTH, MEMBERS, BATCHES = 5, 24_000, 24


def measured(name, K1, skip, width, rng):
    """V of the last layer and its standard error: V' = n Cov(h_i, h_k), h = Ĝ + γ²z², i ≠ k."""
    sigma, point = activation(name), residual_critical(name, skip)
    values = []
    for _ in range(BATCHES):
        z = np.sqrt(K1) * rng.standard_normal((MEMBERS // BATCHES, width))
        for _ in range(DEPTH - 1):
            metric = point.C_b + point.C_W * np.mean(sigma.values(z) ** 2, axis=1, keepdims=True)
            h = metric + skip**2 * z**2
            z = skip * z + np.sqrt(metric) * rng.standard_normal(z.shape)
        total = h.sum(axis=1)
        pairs = (total**2 - (h**2).sum(axis=1)) / (width * (width - 1))
        values.append((total / width, pairs))
    mean, pairs = (np.stack(parts) for parts in zip(*values, strict=True))
    found = width * (pairs.mean() - mean.mean() ** 2)
    without = np.arange(BATCHES)[:, None] != np.arange(BATCHES)
    varied = [width * (pairs[keep].mean() - mean[keep].mean() ** 2) for keep in without]
    return found, np.sqrt((BATCHES - 1) * np.var(varied))


print(f"V of layer {DEPTH}, one input, critical C_b and C_W")
print("activation  skip   printed  corrected   measured        printed is off by")
for name, K1, skip in (
    ("relu", 1.0, 0.5),
    ("relu", 1.0, -0.5),
    ("gelu", 2.0, 0.5),
    ("tanh", 0.5, 0.5),
):
    rng = np.random.default_rng(1)
    one, two = (measured(name, K1, skip, width, rng) for width in (64, 256))
    V, error = (4 * two[0] - one[0]) / 3, np.hypot(4 * two[1], one[1]) / 3
    # The layer behind the last block, the output, is not looked at.
    network = MLP.critical([1] * (DEPTH + 2), name, skip=skip)
    printed, corrected = (
        residual_flow(network, K1, vertex=vertex).V[DEPTH - 1]
        for vertex in ("published", "corrected")
    )
    z = {"printed": (printed - V) / error, "corrected": (corrected - V) / error}
    print(
        f"{name:10} {skip:5.1f}  {printed:8.4f}   {corrected:8.4f}   {V:8.4f} ± {error:.4f}"
        f"   {z['printed']:+6.1f} s.e. (corrected {z['corrected']:+.1f})"
    )
    assert abs(z["corrected"]) < 3
    assert (abs(z["printed"]) > 10) == (name != "tanh")
