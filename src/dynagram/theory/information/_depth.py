"""Is this depth right for this width, and what would skips change? L/n against r* (A.73), (B.36).

r* is where the information shared by two halves of the output stops growing with L/n at next-to-
leading order. It is a scale, not a law: `dynagram reproduce depth-digits` compares it with trained
networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.theory.information._aspect import optimal_aspect_ratio, optimal_skip
from dynagram.theory.skips import residual_critical, residual_flow

# A skip to show the effect of where none is called for.
_EXAMPLE = 0.5


@dataclass(frozen=True)
class SkipAdvice:
    """What a skip γ in every block between hidden layers would change, at criticality.

    `wanted` says whether L/n exceeds the r* of the plain network; only then is `skip` the γ* for
    which r* = L/n (B.37), else it is an example. `published_skip` is what the book's vertex would
    give. `C_b` and `C_W` are those of the blocks; the first and last layer keep the plain ones.
    `fluctuation` is √(V/n)/K at the output, the spread of the signal between draws.
    """

    wanted: bool
    skip: float
    published_skip: float
    C_b: float
    C_W: float
    nu: float
    r_star: float
    fluctuation: float
    plain_fluctuation: float

    def __str__(self) -> str:
        spread = (
            f"the signal of one draw would differ from the mean by {self.fluctuation:.2g} of "
            f"itself instead of {self.plain_fluctuation:.2g}"
        )
        if not self.wanted:
            return (
                f"no skip is called for, as L/n is below r*; with γ = {self.skip:g} in every block "
                f"{spread}, and r* would be {self.r_star:.2g}"
            )
        return (
            f"with γ = {_told(self.skip)} in every block between hidden layers, C_b = "
            f"{self.C_b:.4g} and C_W = {self.C_W:.4g} there, r* is this L/n, and {spread} (the "
            f"book's vertex would give γ = {_told(self.published_skip)})"
        )


def _told(skip: float) -> str:
    """γ with as many digits as 1 − γ needs.

    >>> _told(0.98220011), _told(0.99998528)
    ('0.9822', '0.9999853')
    """
    return f"{skip:.{max(4, 2 + math.ceil(-math.log10(1.0 - skip)))}g}"


def skip_advice(network: MLP, mean_square: float) -> SkipAdvice:
    """Skips for a critical network with equal hidden widths, on inputs with this (1/n_0) Σ x².

    Raises `InvalidValueError` where there is no block or ν(γ) is not known. Cost: a second or two
    for the root of ν(γ), milliseconds per layer.

    >>> net = MLP.critical([8, *[64] * 9, 2], "relu")
    >>> print(round(skip_advice(net, 1.0).skip, 4))
    0.9649
    """
    require_plain(network, "advice on skips")
    sigma, depth, width = network.activation, network.depth, network.widths[1]
    if depth < 3:
        raise InvalidValueError("depth", depth, "blocks with skips need at least 3 layers")
    outputs, ratio = network.widths[-1], depth / width
    gamma, printed = (
        optimal_skip(sigma, ratio, outputs, vertex=v) for v in ("corrected", "published")
    )
    wanted = gamma > 0.0
    shown = gamma if wanted else _EXAMPLE
    point = residual_critical(sigma, shown)
    K1 = network.C_b[0] + network.C_W[0] * mean_square

    def spread(skip: float) -> float:
        flow = residual_flow(MLP.critical(network.widths, sigma, skip=skip), K1)
        return math.sqrt(float(flow.V[-1]) / width) / float(flow.K[-1])

    best = optimal_aspect_ratio(sigma, outputs, skip=shown)
    return SkipAdvice(
        wanted=wanted,
        skip=shown,
        published_skip=printed,
        C_b=point.C_b,
        C_W=point.C_W,
        nu=best.nu,
        r_star=best.r_star,
        fluctuation=spread(shown),
        plain_fluctuation=spread(0.0),
    )
