"""The sextic coupling of several inputs at leading order, from V and the six-point vertex.

Beyond the quartic term (4.44) the action of a layer has u^(ab)(cd)(ef)/24 Σ_ijk z_ia z_ib z_jc z_jd
z_ke z_kf, of order 1/n² (A.55). The density is an average of N(0, Ĝ) over Ĝ; the third cumulant of
its exponent is −κ₃/48 in S, and what two fluctuations leave of the second-order term of Ĝ⁻¹ is
+⅛ V G⁻¹ V: u = 3 sym(V G⁻¹ V) − ½ κ₃ with indices raised by G, −½κ₃/G⁶ + 3V²/G⁷ for one input.
Derivation: docs/derivations/next-order.md (D6.11).
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.statistics._correlators import MetricCumulants
from dynagram.theory.statistics._couplings import inverse


def sextic_coupling(cumulants: MetricCumulants) -> Float[np.ndarray, "a a a a a a"]:
    """u^(ab)(cd)(ef) at leading order, 1/n², of the action of any number of neurons.

    **Arguments:**

    - `cumulants`: G, V and the six-point vertex of a layer, from `metric_cumulants` of a
        `next_order`; G must be regular.

    **Returns:** u with upper indices, symmetric inside and between its pairs. Cost: N⁷.

    >>> one = MetricCumulants(
    ...     2 * np.ones((1, 1)), 3 * np.ones((1,) * 4), fan_in=10, six_point=5 * np.ones((1,) * 6))
    >>> float(sextic_coupling(one).item())              # (3·9/2⁷ − 5/2⁷)/10²
    0.00171875
    """
    if cumulants.six_point is None:
        raise InvalidValueError("six_point", None, "needed: use the cumulants of `next_order`")
    upper = inverse(cumulants.G, "G")
    V = cumulants.V
    bent = _symmetrised(np.einsum("bcef,cd,dagh->abefgh", V, upper, V, optimize=True))
    u = (3.0 * bent - 0.5 * cumulants.six_point) / cumulants.fan_in**2
    for _ in range(6):  # every index in turn, to the end
        u = np.moveaxis(np.tensordot(u, upper, axes=(0, 0)), -1, 5)
    return u


def _symmetrised(tensor: np.ndarray) -> np.ndarray:
    """Averaged over the order of the three pairs and the two orders inside each."""
    total = np.zeros_like(tensor)
    for order in permutations(range(3)):
        for flips in np.ndindex(2, 2, 2):
            axes = []
            for pair, flip in zip(order, flips, strict=True):
                axes += [2 * pair + flip, 2 * pair + 1 - flip]
            total += tensor.transpose(axes)
    return total / 48.0
