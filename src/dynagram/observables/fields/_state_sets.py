"""The two sets of fields that the paper calls states (202), (203), bundled, with what they decide.

The residual set {Q^(ℓ-1), S^(ℓ)} gives K and so one step of the residual; it does not say what Q
and S are afterwards. The observable set {u, b, G, 𝒫, 𝓜} gives the steps of u and b as well. Neither
is closed for L ≥ 2: the forward transports still hold the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.observables.fields._operators import FieldOperator
from dynagram.observables.fields._overlaps import conjugate_correlators, moved_overlaps
from dynagram.observables.fields._state import Fields
from dynagram.observables.fields._transport import (
    CollectiveTransport,
    Pullback,
    checked_pairs,
    pullback_metric,
    transport_operator,
)


@dataclass(frozen=True, eq=False)
class ResidualState:
    """{Q^(ℓ-1), S^(ℓ)}, ℓ = 1..L (202): all that one step of the residual needs.

    **Arguments:**

    - `Q`, `S`: [ℓ-1, α, β]; Q with the learning rates of the layers.
    - `readout`: what a trained readout adds to K; zeros for a fixed one.
    """

    Q: Float[np.ndarray, "layer samples samples"]
    S: Float[np.ndarray, "layer samples samples"]
    readout: Float[np.ndarray, "samples samples"]

    @property
    def kernel(self) -> Float[np.ndarray, "samples samples"]:
        """K = Σ_ℓ Q^(ℓ-1) ⊙ S^(ℓ) (172)."""
        return np.sum(self.Q * self.S, axis=0) + self.readout

    def step(
        self, residual: Float[np.ndarray, " samples"], eta: float
    ) -> Float[np.ndarray, " samples"]:
        """r after one step, (1 − (2η/M) K) r (171)."""
        return residual - 2.0 * eta / len(residual) * (self.kernel @ residual)


@dataclass(frozen=True, eq=False)
class ObservableState:
    """{u, b, G, 𝒫, 𝓜} (203) of one network; the operators act without being formed.

    **Arguments:**

    - `fields`: u and b, with the weights that the operators need.
    """

    fields: Fields

    @property
    def u(self) -> tuple[Float[np.ndarray, "samples _"], ...]:
        """u_0 … u_L."""
        return self.fields.u

    @property
    def b(self) -> tuple[Float[np.ndarray, "samples _"], ...]:
        """b_1 … b_L."""
        return self.fields.b

    def G(self, layer: int, alpha: object, beta: object) -> Pullback:
        """G_ℓ^αβ for pairs of samples."""
        return pullback_metric(self.fields, layer, alpha, beta)

    def P(self, layer: int, alpha: object, beta: object, X: FieldOperator) -> Pullback:
        """𝒫_ℓ^αβ[X] for pairs of samples."""
        return Pullback(self.fields, layer, *checked_pairs(self.fields, alpha, beta), X)

    def M(self, layer: int, alpha: object, beta: object) -> FieldOperator:
        """𝓜_ℓ^αβ for pairs of samples."""
        return transport_operator(self.fields, layer, alpha, beta)

    def collective(self, layer: int) -> CollectiveTransport:
        """𝓜_ℓ as one map of the fields of all samples."""
        return CollectiveTransport(self.fields, layer)


def residual_state(fields: Fields) -> ResidualState:
    """The residual set of a network on its samples (202).

    **Arguments:**

    - `fields`: those of a network with one output.

    **Returns:** `ResidualState`. Memory: 2 L M² numbers.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0], [0.0, 2.0]]))
    >>> residual_state(state).kernel.tolist()
    [[5.0, 0.5], [0.5, 1.0]]
    """
    Q, S = moved_overlaps(fields), conjugate_correlators(fields)
    return ResidualState(Q[:-1], S, fields.N * Q[-1])


def observable_state(fields: Fields) -> ObservableState:
    """The observable set of a network on its samples (203).

    **Arguments:**

    - `fields`: those of a network with one output and a fixed readout.

    **Returns:** `ObservableState`; nothing is computed until asked for.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> W = [np.eye(2), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> state = observable_state(fields(fixed_readout(W), np.array([[2.0, 3.0], [1.0, 0.0]])))
    >>> state.G(1, [0], [1]).dense().tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    return ObservableState(fields)
