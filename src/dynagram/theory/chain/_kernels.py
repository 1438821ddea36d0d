"""K and Θ of networks of blocks at infinite width."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.networks._chain import Chain
from dynagram.theory.chain._predict import chain_tensors


def chain_kernels(
    network: Chain, x: Float[np.ndarray, "samples n_0"], *, seed: int = 0
) -> tuple[Float[np.ndarray, "a b"], Float[np.ndarray, "a b"]]:
    """K and Θ of the output for all (sample, position)."""
    found = chain_tensors(network, x, ("K", "Theta"), seed=seed)
    return found.values["K"], found.values["Theta"]
