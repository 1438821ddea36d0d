"""The one door from ensembles to the theory: kernels that measured corrections are counted from.

G1 = n(E[Ĝ] − K) and H1 = n(E[Ĥ] − Θ) are differences from infinite width, which only the theory
knows. It is imported inside the functions, so that ensembles which need none of it do not load it
and nothing but this module depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP

if TYPE_CHECKING:
    from dynagram.theory._kernels import FrozenKernels
else:
    FrozenKernels = object  # imported when it is needed


def infinite_kernels(network: MLP, x: Float[np.ndarray, "samples n_0"]) -> FrozenKernels:
    """K and Θ of every layer at infinite width, for the samples in the rows of `x`."""
    from dynagram.theory._kernels import frozen_kernels

    return frozen_kernels(network, x)
