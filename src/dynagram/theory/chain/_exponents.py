"""Depth laws of residual streams: growth, token similarity and gradients as powers of the depth.

For collapsed tokens a layer adds c_mlp = α²C⟨σ²⟩ and c_att = α²C_O C_v to the mean square of a
normalised stream. With w their shares and χ = C_1⟨σ'²⟩/⟨σ²⟩ (1 + that behind a gate), tokens of a
pre-norm network become alike as 1 − ρ ~ ℓ^−p, p = 1 − w_mlp χ, and gradients grow backward as
(L/ℓ)^ζ, ζ = w_mlp χ + w_att. Behind a norm on the stream 1 − ρ shrinks by a factor per layer
instead (docs/derivations/birth.md, D14.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagram.activations import Activation
from dynagram.errors import InvalidTypeError
from dynagram.gaussian._scalar import moment
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._composite import Blocks, Residual
from dynagram.networks.blocks._linear import Dense
from dynagram.networks.blocks._nonlinear import Activate, Gated, RMSNorm


@dataclass(frozen=True)
class DepthLaw:
    """What a layer does to a normalised stream, and the powers of the depth that follow.

    **Arguments:**

    - `layers`: how many times attention and an MLP come, or residual blocks where only one does.
    - `attention`, `mlp`: c_att and c_mlp, what a layer adds to the mean square of equal tokens.
    - `chi`: χ of the MLPs, None without any.
    - `norm`: "pre" or "post".
    - `collapse`: p of 1 − ρ ~ ℓ^−p (pre), or the factor of 1 − ρ per layer (post).
    - `gradient`: ζ of squared gradients ~ (L/ℓ)^ζ in a pre-norm stream, else None.
    """

    layers: int
    attention: float
    mlp: float
    chi: float | None
    norm: str
    collapse: float
    gradient: float | None

    @property
    def words(self) -> str:
        """What becomes of tokens, in a sentence."""
        if self.norm == "post":
            if self.collapse < 1:
                return f"1 − similarity shrinks by a factor {self.collapse:.3g} per layer"
            return f"1 − similarity grows by a factor {self.collapse:.3g} per layer near equality"
        if self.collapse > 1e-12:
            return f"1 − similarity falls as depth^−{self.collapse:.3g}: tokens become alike"
        if self.collapse > -1e-12:
            return "1 − similarity falls more slowly than any power of the depth"
        return "tokens do not become alike: equal tokens are unstable"


def depth_law(network: Chain) -> DepthLaw | None:
    """The depth law of a network whose residual blocks are norm and attention, norm and MLP.

    **Arguments:**

    - `network`: a `Chain`.

    **Returns:** `DepthLaw`, or None where there are no residual blocks on a normalised stream, or
    blocks of other kinds among them.

    >>> net = Chain.transformer(64, 3, 8, positions=2, outputs=1, hidden_C=(2.0, 2.0))
    >>> law = depth_law(net)
    >>> round(law.chi, 6), round(law.collapse, 5)
    (1.061753, 0.31156)
    """
    if not isinstance(network, Chain):
        raise InvalidTypeError("network", type(network).__name__, "expected a Chain")
    parts: list[tuple[str, float, float]] = []
    places = set()
    for index, block in enumerate(network.blocks):
        if not isinstance(block, Residual):
            continue
        follows = network.blocks[index + 1 : index + 2]
        normed_after = bool(follows) and isinstance(follows[0], RMSNorm)
        for branch in block.branches:
            inner = isinstance(branch[0], RMSNorm)
            part = _increment(branch[1:] if inner else branch)
            last = index == _last_residual(network.blocks)
            if part is None or block.skip != 1.0 or (not inner and not normed_after):
                return None
            # The norm before the readout of a pre-norm network says nothing about its place.
            places.add("pre" if inner else "post")
            if inner and normed_after and not last:
                return None
            kind, increment, chi = part
            parts.append((kind, block.strength**2 * increment, chi))
    if not parts or len(places) > 1:
        return None
    return _law(parts, places.pop())


def _last_residual(blocks: Blocks) -> int:
    return max(i for i, block in enumerate(blocks) if isinstance(block, Residual))


def _law(parts: list[tuple[str, float, float]], norm: str) -> DepthLaw:
    kinds = [kind for kind, _, _ in parts]
    layers = max(kinds.count("attention"), kinds.count("mlp"))
    attention = sum(c for kind, c, _ in parts if kind == "attention") / layers
    mlp = sum(c for kind, c, _ in parts if kind == "mlp") / layers
    weighted = sum(c * chi for kind, c, chi in parts if kind == "mlp") / layers
    chi, total = (weighted / mlp if mlp > 0 else None), attention + mlp
    if norm == "post":
        factor = (1.0 + weighted) / (1.0 + mlp) / (1.0 + attention)
        return DepthLaw(layers, attention, mlp, chi, norm, factor, None)
    if total == 0.0:
        return DepthLaw(layers, attention, mlp, chi, norm, 0.0, 0.0)
    collapse = 1.0 - weighted / total
    return DepthLaw(layers, attention, mlp, chi, norm, collapse, (weighted + attention) / total)


def _increment(branch: Blocks) -> tuple[str, float, float] | None:
    """Kind of a branch on a stream of mean square 1, what it adds for equal tokens, and χ."""
    if len(branch) == 1 and isinstance(branch[0], Attention):
        return "attention", branch[0].C_O * branch[0].C_v, 0.0
    first, act, out = branch[0], branch[len(branch) // 2], branch[-1]
    if type(out) is not Dense or out.C_b != 0.0:
        return None
    if len(branch) == 2 and isinstance(first, Gated):
        square, slope = _moments(first.activation, first.C_W)
        return "mlp", out.C_W * first.C_gate * square, 1.0 + first.C_W * slope / square
    if len(branch) == 3 and type(first) is Dense and first.C_b == 0.0 and isinstance(act, Activate):
        square, slope = _moments(act.activation, first.C_W)
        return "mlp", out.C_W * square, first.C_W * slope / square
    return None


def _moments(sigma: Activation, variance: float) -> tuple[float, float]:
    """⟨σ²⟩ and ⟨σ'²⟩."""
    at = np.array([variance])
    return float(moment(sigma, at, (0, 0))[0]), float(moment(sigma, at, (1, 1))[0])
