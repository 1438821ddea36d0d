"""The mean NTK during training, at order 1/n: what feature learning does to it on average.

E Ĥ_12(t) = Θ_12 + (1/n) [H1 − E(dH_1;2A + dH_2;1A) a_A + …], from the same coefficients a, b that
move outputs: docs/derivations/any-loss.md (D13.6). For a squared error under gradient descent this
is the mean of (∞.102); one network's NTK fluctuates by n^{−1/2} around it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.theory.training._contraction import Tensors

Kernel = Float[np.ndarray, "time sample sample outputs outputs"]


@float64
def kernel_change(
    tensors: Tensors, coefficients: dict[str, np.ndarray], rows: slice
) -> dict[str, Kernel]:
    """Coefficients of 1/n_{L−1} in the mean NTK of the samples `rows`, by part.

    `coefficients` are "ua" (time, sample, outputs, train, outputs), "aa" and "b" (time, train,
    outputs, train, outputs). Cost: N_B² N_A N n_L² and N_B² N_A² n_L² for every moment.
    """
    ua, aa, b = (coefficients[name] for name in ("ua", "aa", "b"))
    train, every = slice(0, aa.shape[1]), slice(None)
    same = np.eye(aa.shape[2])
    slots = {"r": rows, "a": train, "x": every}

    def block(name: str, pattern: str) -> np.ndarray:
        return np.asarray(tensors[name])[tuple(slots[slot] for slot in pattern)]

    def sum_(rule: str, *factors: np.ndarray) -> np.ndarray:
        return np.einsum(rule, *factors, optimize=True)

    first = (
        sum_("pqax,txiaj->tpqij", block("P", "rrax"), ua)
        + sum_("pqax,txkak,ij->tpqij", block("Q", "rrax"), ua, same)
        + sum_("paqx,txjai->tpqij", block("Q", "rarx"), ua)
    )
    second = (
        sum_("pqab,takbk,ij->tpqij", block("R", "rraa"), aa, same)
        + sum_("pabq,taibj->tpqij", block("R", "raar"), aa)
        + sum_("pbqa,tajbi->tpqij", block("R", "rara"), aa)
    )
    crossed = (
        sum_("pqab,takbk,ij->tpqij", block("S", "rraa"), aa, same)
        + sum_("pabq,taibj->tpqij", block("T", "raar"), aa)
        + sum_("pbqa,tajbi->tpqij", block("U", "rara"), aa)
    )
    history = (
        sum_("paqb,taibj->tpqij", block("S", "rara"), b)
        + sum_("pqba,takbk,ij->tpqij", block("T", "rraa"), b, same)
        + sum_("pbaq,tajbi->tpqij", block("U", "raar"), b)
    )
    shift = np.einsum("pq,ij->pqij", np.asarray(tensors["H1"])[rows, rows], same)
    return {
        "H1": np.broadcast_to(shift, first.shape).copy(),
        "dNTK": -_both(first),
        "ddI": 0.5 * _both(second),
        "ddII": crossed + _both(history),
    }


def _both(kernel: Kernel) -> Kernel:
    """X_12 + X_21, outputs with their samples."""
    return kernel + kernel.transpose(0, 2, 1, 4, 3)
