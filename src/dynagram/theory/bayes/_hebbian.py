"""Neurons that fire together: how observing some neurons changes what others do (6.72)-(6.78).

At infinite width the neurons of a layer are independent. At finite width a large |z| of one makes
large |z| of the others more likely, because all share the random metric Ĝ. Signs stay
independent at all orders: only magnitudes associate.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.statistics._correlators import MetricCumulants
from dynagram.theory.statistics._couplings import inverse


def conditional_metric(
    cumulants: MetricCumulants, observed: Float[np.ndarray, "neurons a"]
) -> Float[np.ndarray, "a a"]:
    """E[z_a z_b] of any other neuron given the preactivations of m `observed` ones, to order 1/n.

    G_ab + (1/2n) V_(ab)(cd) G^ce G^df (Σ_j ž_je ž_jf − m G_ef); one input: (6.78).

    **Arguments:**

    - `cumulants`: of the layer, from `metric_cumulants(prediction, layer)`.
    - `observed`: (m, samples), one row per observed neuron.

    **Returns:** (samples, samples).

    >>> one = MetricCumulants(np.array([[2.0]]), np.full((1, 1, 1, 1), 3.0), fan_in=10)
    >>> conditional_metric(one, np.array([[4.0]])).round(6)      # 2 + ½ (16 − 2) 3/(10·4)
    array([[2.525]])
    """
    values = np.asarray(observed, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != cumulants.G.shape[0]:
        allowed = f"expected (neurons, {cumulants.G.shape[0]}): one row per observed neuron"
        raise InvalidValueError("shape of observed", values.shape, allowed)
    raised = inverse(cumulants.G, "G")
    excess = values.T @ values - values.shape[0] * cumulants.G
    source = raised @ excess @ raised
    return cumulants.G + np.einsum("abcd,cd->ab", cumulants.V, source) / (2 * cumulants.fan_in)


def association(cumulants: MetricCumulants) -> Float[np.ndarray, " a"]:
    """½ V/(n_{ℓ−1} G²) of each input: the slope of Var(z_2 | z_1) against z_1² (6.78).

    Grows like depth over width: the coefficient is V/(2nK²), 5/2 per layer for ReLU.

    **Arguments:**

    - `cumulants`: of a layer, from `metric_cumulants(prediction, layer)`.

    **Returns:** one number per input.

    >>> one = MetricCumulants(np.array([[2.0]]), np.full((1, 1, 1, 1), 3.0), fan_in=10)
    >>> association(one).item()
    0.0375
    """
    variance = np.diagonal(cumulants.G)
    return np.einsum("aaaa->a", cumulants.V) / (2 * cumulants.fan_in * variance**2)
