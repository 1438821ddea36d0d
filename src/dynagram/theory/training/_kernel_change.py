"""The mean NTK during training, at order 1/n: what feature learning does to it on average.

E Ĥ_12(t) = Θ_12 + (1/n) [H1 − E(dH_1;2A + dH_2;1A) a_A + …], from the same coefficients a, b that
move outputs: docs/derivations/any-loss.md (D13.6). For a squared error under gradient descent this
is the mean of (∞.102); one network's NTK fluctuates by n^{−1/2} around it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from dynagram._arrays import Array, array_namespace
from dynagram._precision import float64
from dynagram.results._estimate import Estimate
from dynagram.theory.training._contraction import Tensors
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._path_statistics import Statistics
from dynagram.theory.training._tensors import OutputTensors

Kernel = Float[np.ndarray, "time sample sample outputs outputs"]
# "ua" (time, sample, outputs, train, outputs), "aa" and "b" (time, train, outputs, train, outputs).
Coefficients = dict[str, Float[np.ndarray, "time _ outputs train outputs"]]


@float64
def kernel_change(
    tensors: Tensors, coefficients: Coefficients, rows: slice | Int[np.ndarray, " row"]
) -> dict[str, Kernel]:
    """Coefficients of 1/n_{L−1} in the mean NTK of the samples `rows`, by part.

    `coefficients` are E[u a], E[a a] and E[b]. Cost: N_B² N_A N n_L² and N_B² N_A² n_L² for every
    moment. Memory: one tensor of N⁴ numbers and blocks of N_B² N_A N.
    """
    ua, aa, b = (coefficients[name] for name in ("ua", "aa", "b"))
    same = np.eye(aa.shape[2])
    slots = {"r": rows, "a": slice(0, aa.shape[1]), "x": slice(None)}

    def blocks(name: str, *patterns: str) -> list[Array]:
        whole = tensors[name]
        return [_block(whole, [slots[slot] for slot in pattern]) for pattern in patterns]

    def sum_(rule: str, block: Array, *factors: np.ndarray) -> np.ndarray:
        # Where the tensors are: a block is as large as a tensor, the sums are small.
        return np.asarray(array_namespace(block).einsum(rule, block, *factors, optimize=True))

    (P,), (Q, Q_2) = blocks("P", "rrax"), blocks("Q", "rrax", "rarx")
    first = (
        sum_("pqax,txiaj->tpqij", P, ua)
        + sum_("pqax,txkak,ij->tpqij", Q, ua, same)
        + sum_("paqx,txjai->tpqij", Q_2, ua)
    )
    R, R_2, R_3 = blocks("R", "rraa", "raar", "rara")
    second = (
        sum_("pqab,takbk,ij->tpqij", R, aa, same)
        + sum_("pabq,taibj->tpqij", R_2, aa)
        + sum_("pbqa,tajbi->tpqij", R_3, aa)
    )
    S, S_2 = blocks("S", "rraa", "rara")
    T, T_2 = blocks("T", "raar", "rraa")
    U, U_2 = blocks("U", "rara", "raar")
    crossed = (
        sum_("pqab,takbk,ij->tpqij", S, aa, same)
        + sum_("pabq,taibj->tpqij", T, aa)
        + sum_("pbqa,tajbi->tpqij", U, aa)
    )
    history = (
        sum_("paqb,taibj->tpqij", S_2, b)
        + sum_("pqba,takbk,ij->tpqij", T_2, b, same)
        + sum_("pbaq,tajbi->tpqij", U_2, b)
    )
    shift = np.einsum("pq,ij->pqij", np.asarray(tensors["H1"])[rows][:, rows], same)
    return {
        "H1": np.broadcast_to(shift, first.shape).copy(),
        "dNTK": -_both(first),
        "ddI": 0.5 * _both(second),
        "ddII": crossed + _both(history),
    }


def squared_coefficients(
    basis: Eigenbasis,
    decays: Sequence[Decay],
    targets: Float[np.ndarray, "train outputs"],
    K: Float[np.ndarray, "sample sample"],
) -> Coefficients:
    """E[u a], E[a a] and E[b] of a squared error, at every moment, in closed form.

    In eigendirections of the training NTK a = f(h) ε and b_ab = (1 − ηh_a) D[0, h_a, σ_ab] ε_aε_b,
    with ε = z(0) − y, E[u ε] = 1 and E[ε ε] = K + yy: docs/derivations/any-loss.md (D13.18).
    """
    h, turn = basis.h, basis.basis
    n, outputs = targets.shape
    same, nothing = np.eye(outputs), np.zeros((K.shape[0] - n, n))
    square = np.einsum("ab,ij->aibj", K[:n, :n], same) + np.einsum("ai,bj->aibj", targets, targets)
    turned = np.einsum("ca,db,aibj->cidj", turn, turn, square, optimize=True)
    rows: dict[str, list[np.ndarray]] = {"ua": [], "aa": [], "b": []}
    for decay in decays:
        gain, eta = decay.gain(h), decay.eta
        dual = (turn.T * gain) @ turn
        rows["ua"].append(np.einsum("xa,ij->xiaj", np.concatenate([dual, nothing]), same))
        both = h[:, None] + h - eta * h[:, None] * h
        # Newton's leap has arrived before its displacement could be felt: b = 0.
        late = (1.0 - eta * h[:, None]) * decay(0.0, h[:, None], both) * (not decay.leaps)
        for name, scalars in (("aa", gain[:, None] * gain), ("b", late)):
            product = np.einsum("cd,cidj->cidj", scalars, turned)
            rows[name].append(np.einsum("ca,db,cidj->aibj", turn, turn, product, optimize=True))
    return {name: np.stack(values) for name, values in rows.items()}


def kernel_estimates(
    tensors: OutputTensors,
    groups: Sequence[Coefficients],
    Theta: Float[np.ndarray, "sample sample"],
    rows: slice | Int[np.ndarray, " row"],
    width: int,
) -> dict[str, Estimate]:
    """The mean NTK of the samples `rows` at every moment, and what changes it, with errors.

    "ntk" is the mean NTK at this width, "ntk_change" the coefficient of 1/n in it, and "ntk_drift"
    what training changes in its trace, relative to Θ: H1, which is there before, is not counted.
    `groups` are coefficients of several scramblings, or exact ones alone.
    """
    parts = [kernel_change(tensors.mode(0), group, rows) for group in groups]
    outputs = groups[0]["aa"].shape[2]
    mean = {name: np.mean([group[name] for group in groups], axis=0) for name in groups[0]}
    totals = np.stack([sum(part.values()) for part in parts])
    change = Statistics.of(totals)
    moved = Statistics.of(np.stack([_traces(part) for part in parts]))
    squares = [change.error**2, moved.error**2]
    for index, mode in enumerate(tensors.all_modes()):
        if index > 0:  # linear in the tensors: made of a deviation it is its own
            deviation = kernel_change(mode, mean, rows)
            squares[0] = squares[0] + sum(deviation.values()) ** 2
            squares[1] = squares[1] + _traces(deviation) ** 2
    error, moved_error = (np.sqrt(square) for square in squares)
    frozen = np.einsum("pq,ij->pqij", Theta[rows][:, rows], np.eye(outputs))
    scale = width * np.einsum("ppii->", frozen)
    return {
        "ntk": Estimate(frozen[None] + change.value / width, error / width, 0),
        "ntk_change": Estimate(change.value, error, 0),
        "ntk_drift": Estimate(moved.value / scale, moved_error / scale, 0),
    }


def _block(tensor: Array, slots: Sequence[slice | Int[np.ndarray, " row"]]) -> Array:
    """The entries of a tensor at some samples in every slot."""
    for axis, slot in enumerate(slots):
        tensor = tensor[(*[slice(None)] * axis, slot)]
    return tensor


def _traces(parts: dict[str, Kernel]) -> Float[np.ndarray, " time"]:
    """Of what training changes, over samples and outputs."""
    moved = sum(part for name, part in parts.items() if name != "H1")
    return np.einsum("tppii->t", moved)


def _both(kernel: Kernel) -> Kernel:
    """X_12 + X_21, outputs with their samples."""
    return kernel + kernel.transpose(0, 2, 1, 4, 3)
