"""Numbers that keep a record cheap, the same for every framework."""

from __future__ import annotations

ROWS = 256  # samples times tokens that gradients are taken of
FEWEST = 4  # but so many samples at least
FEATURE_ROWS = 64  # the same for linear read-outs
FIRST_ITERATIONS, ITERATIONS = 12, 2  # of the power method, which goes on where it was
