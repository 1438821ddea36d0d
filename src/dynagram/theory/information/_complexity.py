"""Model complexity (Epilogue): how many numbers fix the outputs of trained networks.

A truncation at order 1/n^k needs data-dependent tensors with up to 2k + 2 sample indices: O(N_D²)
numbers at infinite width (ε.14), O(N_D⁴) at 1/n (ε.15), O(N_D⁶) at 1/n² (ε.23). The printed
(ε.25), O(N_D^{2k}), disagrees with these three. The six-point vertex (ε.20) itself is U of
`dynagram.theory.criticality.single_input(..., next_order=True)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagram.errors import InvalidValueError

# The data-dependent tensors of four samples at order 1/n (ε.13).
FOUR_SAMPLE_TENSORS = ("V", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")


@dataclass(frozen=True)
class ComplexityCount:
    """Numbers needed at order 1/n^`order`: `leading_power` of N_D, and exact independent entries.

    `printed_power` is that of the printed (ε.25), which disagrees. `independent` counts symmetric
    kernels and vertices once per distinct entry: y, K and Θ at infinite width, V on top at order
    1/n, the six-point vertex at 1/n².
    """

    order: int
    leading_power: int
    printed_power: int
    independent: dict[str, int]


def complexity_count(samples: int, *, train: int, outputs: int, order: int = 0) -> ComplexityCount:
    """Count for a data set of N_D = `samples`, N_A = `train` of them with targets.

    **Arguments:**

    - `samples`: N_D, the number of all samples.
    - `train`: N_A, how many of them have targets, 1 to N_D.
    - `outputs`: n_L.
    - `order`: k ≥ 0, of the truncation at 1/n^k.

    **Returns:** a `ComplexityCount`.

    >>> count = complexity_count(100, train=60, outputs=1)
    >>> count.leading_power, sum(count.independent.values())       # n_L N_A + N_D(N_D + 1)
    (2, 10160)
    >>> complexity_count(3, train=1, outputs=1, order=2).independent
    {'y': 1, 'K': 6, 'Theta': 6, 'V': 21, 'six-point vertex': 56}
    """
    if not 1 <= train <= samples:
        raise InvalidValueError("train", train, f"expected 1 to {samples} samples")
    if outputs < 1 or order < 0:
        raise InvalidValueError("outputs, order", (outputs, order), "expected ≥ 1 and ≥ 0")
    pairs = samples * (samples + 1) // 2
    independent = {"y": outputs * train, "K": pairs, "Theta": pairs}
    if order >= 1:
        independent["V"] = pairs * (pairs + 1) // 2
    if order >= 2:
        independent["six-point vertex"] = pairs * (pairs + 1) * (pairs + 2) // 6
    return ComplexityCount(order, 2 * order + 2, max(2 * order, 2), independent)
