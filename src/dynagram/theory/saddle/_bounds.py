"""Bounds of the escape time off the symmetric ansatz (Theorem 11, Proposition 22), with constants.

On a plateau all layers are driven by −E[r xᵀ] = C, and ‖W_l‖²/ρ_l grow by the same q(t). Spectral
norms bound the drive from above, hence the time from below; the signal energy tr(PCᵀ), which grows
at least as Π√(1 + q/w_l), bounds the time from above. Both are the integral of the leading law (10)
with other constants. Derivation: docs/derivations/surrogate-flow.md (D4.15)-(D4.17).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynagram.theory.saddle._chain import Chain

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANEL = 0.5  # in units of log(1 + q/w): integrands vary over distances of order 1
# The drive is at least this part of what it was at the start, as in (16).
_DRIVE_LEFT = 0.5


@dataclass(frozen=True)
class EscapeBounds:
    """Times between which the escape lies, and until when the signal is certainly small.

    **Arguments:**

    - `lower`, `upper`: of the escape; `upper` is inf where the signal points the wrong way.
    - `scale`: m_0, the size of a bottleneck layer below which the loss cannot have escaped (50).
    """

    lower: float
    upper: float
    scale: float


def escape_bounds(
    chain: Chain, drive: np.ndarray, fall: float, bottleneck: Sequence[int]
) -> EscapeBounds:
    """Bounds of the flow time in which the loss falls by `fall` (Theorem 11, Proposition 22).

    **Arguments:**

    - `chain`: the network as straight lines.
    - `drive`: C = −E[r xᵀ] on the plateau, (outputs, n_0).
    - `fall`: of the loss, in the units whose gradient r is.
    - `bottleneck`: the small layers, from 1.

    **Returns:** `EscapeBounds`. Cost: a spectral norm per layer.

    >>> chain = Chain.linear([np.full((1, 1), 0.1)] * 3)
    >>> bounds = escape_bounds(chain, np.eye(1), 0.375, (1, 2, 3))
    >>> round(bounds.lower, 3), round(bounds.upper, 3), round(bounds.scale, 3)
    (8.613, 17.8, 0.721)
    """
    strongest = np.linalg.svd(drive, compute_uv=False)
    slope = math.prod(float(np.max(np.abs(gain))) for gain in chain.gains)
    norms = [float(np.linalg.norm(W, 2)) for W in chain.weights]
    moving = [index for index, rate in enumerate(chain.rates) if rate > 0.0]
    fixed = math.prod(norm for index, norm in enumerate(norms) if index not in moving)
    root = math.prod(math.sqrt(chain.rates[index]) for index in moving)
    # ‖P‖ ≤ slope·fixed·root·Π√(x_l + q), and a fall needs ‖P‖ ≥ fall/(Σ singular values).
    needed = fall / (float(np.sum(strongest)) or math.inf)
    squares = np.array([norms[index] ** 2 / chain.rates[index] for index in moving])
    size = slope * fixed * root
    lower = _time(squares, 2.0 * size * float(strongest[0]), size and needed / size)
    energies = np.array(
        [float(np.sum(chain.weights[index] ** 2)) / chain.rates[index] for index in moving]
    )
    signal = float(np.sum(chain.affine_map[0] * drive))
    upper = math.inf
    if signal > 0.0 and np.all(energies > 0.0):
        start = float(np.prod(np.sqrt(energies)))
        enough = (signal + fall / _DRIVE_LEFT) * start / signal
        upper = _time(energies, 2.0 * _DRIVE_LEFT * signal / start, enough)
    r = [layer - 1 for layer in bottleneck]
    others = slope * math.prod(norm for index, norm in enumerate(norms) if index not in r)
    scale = (needed / others) ** (1.0 / len(r)) if others > 0.0 else math.inf
    return EscapeBounds(lower, upper, scale)


def _time(squares: np.ndarray, rate: float, product: float) -> float:
    """∫ dq/(rate Π√(x_l + q)) from 0 until Π√(x_l + q) is `product`."""
    if not rate > 0.0 or not math.isfinite(product):
        return math.inf
    if float(np.prod(np.sqrt(squares))) >= product:
        return 0.0
    end = _reached(squares, product)
    # In u = log(1 + q/x), x the smallest square that is not zero beside the end.
    unit = max(float(np.min(squares)), 1e-12 * end)
    panels = np.linspace(0.0, math.log1p(end / unit), 2 + int(math.log1p(end / unit) / _PANEL))
    half = 0.5 * np.diff(panels)
    u = (panels[:-1] + half)[:, None] + half[:, None] * _NODES
    q = unit * np.expm1(u)
    values = (q + unit) / np.prod(np.sqrt(squares[:, None, None] + q[None]), axis=0)
    return float(np.sum(values @ _WEIGHTS * half)) / rate


def _reached(squares: np.ndarray, product: float) -> float:
    """q with Π√(x_l + q) = product, by bisection of log q."""
    low, high = 0.0, product ** (2.0 / len(squares))
    for _ in range(200):
        middle = 0.5 * (low + high)
        if float(np.sum(0.5 * np.log(np.maximum(squares + middle, 1e-300)))) < math.log(product):
            low = middle
        else:
            high = middle
    return high
