"""Numbers that keep a record cheap, the same for every framework."""

from __future__ import annotations

_ROWS = 256  # samples times tokens of the output that gradients are taken of
_POSITIONS = 4096  # samples times positions of the widest layer
_FEATURE_ROWS = 64  # for linear read-outs: samples times tokens
_FEWEST = 4  # but so many samples at least
FIRST_ITERATIONS, ITERATIONS = 12, 2  # of the power method, which goes on where it was


def other_samples(count: int, samples: int) -> int:
    """How many further samples of a probe there are to confirm with: about as many, or none.

    >>> other_samples(64, 32), other_samples(50, 32), other_samples(40, 32)
    (32, 18, 0)
    """
    rest = min(count - samples, samples)
    return rest if 2 * rest >= samples else 0


def sample_counts(count: int, samples: int, tokens: int, positions: int = 1) -> tuple[int, int]:
    """How many samples of a probe gradients are taken of, and how many linear read-outs see.

    **Arguments:**

    - `count`: samples in the probe.
    - `samples`: the most that are wanted.
    - `tokens`: of the output, for each sample.
    - `positions`: of the layer that has most of them.

    >>> sample_counts(256, 32, 1), sample_counts(256, 32, 64), sample_counts(256, 32, 1, 256)
    ((32, 64), (4, 4), (16, 32))
    """
    fits = max(_FEWEST, _ROWS // tokens), max(_FEWEST, _POSITIONS // positions)
    reads = max(_FEWEST, _FEATURE_ROWS // tokens), max(_FEWEST, 2 * _POSITIONS // positions)
    return min(samples, count, *fits), min(count, *reads)
