"""What the next order in 1/n may change in every entry of a tensor, and which entries survive it.

An entry between different inputs may be far smaller than those of single inputs, but what the next
order adds to it is not: it has the size of the inputs' own entries.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from dynagram.results._regime import Judge

# An entry of which the next order may change more than this part is not resolved.
_RESOLVED = 0.5
# Entries below this fraction of the largest vanish by symmetry, and so does what is left out.
_ZERO = 1e-12


def left_out(
    name: str,
    values: np.ndarray,
    K: np.ndarray | None,
    fan_in: np.ndarray | float | int,
    numbers: Mapping[str, float],
) -> np.ndarray:
    """A bound on what the next order changes in the entries of `name`, 0 where none is known.

    Sample axes are the last ones, one layer or several with their `fan_in` before them.

    `numbers` are those of the regime: `entry_share_of_V` (see `entry_share`) multiplies the
    deviations of the two entries that V correlates, `next_order_of_G` the deviations of the signals
    in K, and the square of the NTK's fluctuation the entries of single inputs of its tensors.
    """
    if name in ("K", "G1"):
        if K is None:
            return np.zeros_like(values)
        sizes = np.sqrt(np.abs(np.einsum("...aa->...a", K)))
        bound = numbers.get("next_order_of_G", 0.0) * sizes[..., :, None] * sizes[..., None, :]
        n = np.asarray(fan_in, dtype=np.float64)
        scale = np.where(np.isinf(n), 0.0, n) if name == "G1" else np.ones_like(n)
        return bound * scale.reshape(scale.shape + (1,) * (values.ndim - scale.ndim))
    if np.ndim(values) < 4:
        return np.zeros_like(values)
    if name == "V":
        # V is the covariance of the entries of one network's kernel: these are their deviations.
        deviation = np.sqrt(np.abs(np.einsum("...abab->...ab", values)))
        bound = np.einsum("...ab,...cd->...abcd", deviation, deviation)
        return numbers.get("entry_share_of_V", numbers.get("next_order_of_V", 0.0)) * bound
    size = np.abs(np.einsum("...aaaa->...a", values)) ** 0.25
    bound = np.einsum("...a,...b,...c,...d->...abcd", size, size, size, size)
    return numbers.get("ntk_fluctuation", 0.0) ** 2 * bound


def entry_share(
    V: Float[np.ndarray, "a b c d"], K: Float[np.ndarray, "a b"], n: float | int
) -> float:
    """½ max (2 − δ_ab) V_(ab)(ab)/(n K_aa K_bb): what the next order may change, as a share.

    (D6.13) of docs/derivations/next-order.md: exact for one input of deep linear networks to
    leading order in 1/depth, and elsewhere a rule that the exact V^{1} of tanh, sin and GELU obeys.

    >>> V = 2.0 * np.ones((1, 1, 1, 1))
    >>> entry_share(V, np.ones((1, 1)), 10.0)
    0.1
    """
    variance = np.diagonal(K)
    alive = variance > 0.0
    if not np.any(alive):
        return 0.0
    relative = np.einsum("abab->ab", V)[alive][:, alive] / np.outer(
        variance[alive], variance[alive]
    )
    return 0.5 * float(np.max((2.0 - np.eye(relative.shape[0])) * relative)) / n


def judge_entries(judge: Judge, name: str, entries: np.ndarray, bound: np.ndarray) -> None:
    """Count the entries that the next order may change by more than half, and object to them.

    Entries of a single input are judged by their own numbers.
    """
    if entries.shape[0] < 2:
        return
    size = np.abs(entries)
    lost = (bound > _RESOLVED * size) & (size > _ZERO * np.max(size, initial=0.0))
    judge.numbers[f"unresolved_entries_of_{name}"] = float(np.mean(lost)) if lost.size else 0.0
    if np.any(lost):
        limit = float(np.min(size[~lost], initial=np.inf, where=size[~lost] > 0.0))
        from_here = f"; those from {limit:.2g} on are good" if np.isfinite(limit) else ""
        judge.object(
            1,
            f"{int(np.sum(lost))} of {lost.size} entries of {name} at the output are so small that "
            f"the next order may change them by more than half{from_here}: simulate, or widen the "
            "network",
        )
