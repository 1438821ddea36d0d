"""Gaussian inputs as a few weighted rows, so that observables of a batch give population values.

A network whose first layer and target see inputs x ~ N(0, I) through the span of a few vectors
only has population averages in as many dimensions: nodes of a quadrature rule in that span take
the place of samples, their weights that of 1/samples.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._normal_grid import gaussian_grid
from dynagram.gaussian._quadrature import shares_nodes, standard_nodes
from dynagram.networks import ActivationLike, checked_activation, checked_number

_SAME_SPAN = 1e-12  # singular values below this, of unit vectors, are rounding


def gaussian_batch(
    vectors: Float[np.ndarray, "vectors n_0"],
    activation: ActivationLike,
    *,
    spacing: float = 0.33,
) -> tuple[Float[np.ndarray, "nodes n_0"], Float[np.ndarray, " nodes"]]:
    """Rows x and weights that stand for x ~ N(0, I): averages of anything read through `vectors`.

    **Arguments:**

    - `vectors`: the rows of the first weight matrix together with the directions of the target.
        They may span three dimensions at most.
    - `activation`: σ, whose kinks the rule must know.
    - `spacing`: of the grid in two or three dimensions for scales up to 1; finer for longer
        vectors.

    **Returns:** rows (nodes, n_0) and their weights, for `small_signal` or `imbalance_drift`. One
    dimension: the rule of `dynagram.gaussian`. Cost: some 200, 2000 or 50 000 rows.

    >>> v = np.eye(6)[:1]                                  # the target sees the first of 6 inputs
    >>> x, weights = gaussian_batch(np.vstack([0.3 * v, v]), "tanh")
    >>> y = np.tanh(x @ v.T)[:, 0]
    >>> x.shape[1], round(float(np.sum(weights * x[:, 0] * y)), 12)          # h_σ
    (6, 0.605705509602)
    """
    sigma = checked_activation(activation)
    spacing = checked_number("spacing", spacing, "must be > 0", positive=True)
    rows = np.asarray(vectors, dtype=np.float64)
    if not np.all(np.isfinite(rows)):
        raise InvalidValueError("vectors", "not finite", "finite numbers needed")
    lengths = np.linalg.norm(rows, axis=1)
    longest = float(np.max(lengths, initial=0.0))
    if longest == 0.0:
        raise InvalidValueError("vectors", "all zero", "at least one direction needed")
    units = rows[lengths > 0] / lengths[lengths > 0, None]
    _, sizes, basis = np.linalg.svd(units, full_matrices=False)
    basis = basis[sizes > _SAME_SPAN * sizes[0]]
    if len(basis) > 3:
        raise InvalidValueError(
            "vectors", f"{len(basis)} directions", "a grid serves 3 at most: sample a batch instead"
        )
    if len(basis) > 1:
        g, w = gaussian_grid(sigma, len(basis), spacing / max(1.0, longest))
        return g @ basis, w
    if not shares_nodes(sigma):
        reason = "a kink away from 0, or a narrow feature, moves with the layer"
        raise InvalidValueError("activation", sigma.name, reason)
    t, weights = standard_nodes(sigma, np.array([max(1.0, longest) ** 2]))
    return t[0][:, None] * basis, weights[0]
