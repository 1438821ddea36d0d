"""The quartic action of a layer (4.44), (4.80), its couplings and first-order averages with it.

S = ½ g^ab Σ_i z_ia z_ib − ⅛ v^(ab)(cd) Σ_ij z_ia z_ib z_jc z_jd, written for some number of the
neurons of a layer. The couplings follow from K, V and G^{1} (4.81)-(4.83), (4.108)-(4.109) and run
with the number of neurons kept (4.100)-(4.103); what is measured does not depend on it. With v > 0
the action is unbounded below: it is meant for first order in v, as used here, and no further.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._pairs import matrix_to_pairs, pair_indices, pairs_to_matrix
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._families import PairFamily, TwoPoint, contract, curvature

Matrix = Float[np.ndarray, "a a"]
FourIndex = Float[np.ndarray, "a a a a"]
_WORST_CONDITION = 1e12


@dataclass(frozen=True, eq=False)
class QuarticAction:
    """Couplings of the action of `neurons` neurons: `quadratic` g^ab and `quartic` v^(ab)(cd).

    Averages are to first order in v. `metric` is the metric (4.47); the connected four-point
    function is Σ over the three pairings of δδ `vertex` (4.48).
    """

    quadratic: Float[np.ndarray, "a a"]
    quartic: Float[np.ndarray, "a a a a"]
    neurons: int

    def __post_init__(self) -> None:
        if self.neurons < 1:
            raise InvalidValueError("neurons", self.neurons, "an action needs at least one neuron")

    @functools.cached_property
    def propagator(self) -> Float[np.ndarray, "a a"]:
        """g_ab, the inverse of the quadratic coupling."""
        return inverse(self.quadratic, "quadratic coupling")

    @functools.cached_property
    def vertex(self) -> Float[np.ndarray, "a a a a"]:
        """v_(ab)(cd), the quartic coupling with all indices lowered by g."""
        return _transported(self.quartic, self.propagator)

    @functools.cached_property
    def metric(self) -> Float[np.ndarray, "a a"]:
        """E[z_ia z_ib] = g + ½v[n g g g + 2 g g g] (4.47)."""
        direct, crossed = _traces(self.vertex, self.quadratic)
        return self.propagator + 0.5 * self.neurons * direct + crossed

    def pair_average(self, sigma: Activation) -> Float[np.ndarray, "a a"]:
        """E[σ_ia σ_ib] on one neuron (4.61), in the form without moments of z.

        With F = ⟨σσ⟩_g it is F + ∂F·(E[zz] − g) + ½ ∂²F:v.

        >>> from dynagram.activations import activation
        >>> action = leading_action(np.eye(1), np.full((1, 1, 1, 1), 2.0), fan_in=100, neurons=1)
        >>> action.pair_average(activation("linear")).round(3)     # 1 + (n + 2)/2 · 0.02
        array([[1.03]])
        """
        averages = TwoPoint(sigma, self.propagator)
        family = PairFamily.of(averages, 0, 0)
        shift = family.propagate(matrix_to_pairs(self.metric - self.propagator))
        bent = contract(curvature(averages, 0), _on_pairs(self.vertex))
        return pairs_to_matrix(family.value + shift + bent)

    def pair_covariance(self, sigma: Activation) -> Float[np.ndarray, "a a a a"]:
        """Cov[σ_ia σ_ib, σ_jc σ_jd] on two different neurons (4.63): v contracted with ∂F ∂F.

        >>> from dynagram.activations import activation
        >>> action = leading_action(np.eye(1), np.full((1, 1, 1, 1), 2.0), fan_in=100, neurons=2)
        >>> action.pair_covariance(activation("relu")).item()      # (1/2)² v
        0.005
        """
        family = PairFamily.of(TwoPoint(sigma, self.propagator), 0, 0)
        both = family.propagate(family.propagate(_on_pairs(self.vertex)).T)
        return pairs_to_matrix(pairs_to_matrix(both, 0), 2)


def leading_action(
    G: Float[np.ndarray, "a a"], V: Float[np.ndarray, "a a a a"], *, fan_in: int, neurons: int
) -> QuarticAction:
    """g^ab = G^ab and v = V/n_{ℓ−1} with indices raised by G: leading order (4.81)-(4.83).

    **Arguments:**

    - `G`: the metric, regular.
    - `V`: the four-point vertex V_(ab)(cd), indices in this order.
    - `fan_in`: n_{ℓ−1}, the width of the layer below.
    - `neurons`: how many neurons of the layer the action is written for.

    **Returns:** a `QuarticAction`.

    >>> action = leading_action(4 * np.eye(1), np.full((1, 1, 1, 1), 64.0), fan_in=50, neurons=1)
    >>> action.quadratic.item(), action.quartic.item()             # 1/G, V/(n G⁴)
    (0.25, 0.005)
    """
    inverse_G = inverse(G, "G")
    return QuarticAction(inverse_G, _transported(V / _checked(fan_in), inverse_G), neurons)


def next_action(
    K: Float[np.ndarray, "a a"],
    V: Float[np.ndarray, "a a a a"],
    G1: Float[np.ndarray, "a a"],
    *,
    fan_in: int,
    neurons: int,
) -> QuarticAction:
    """The couplings of `neurons` neurons to order 1/n_{ℓ−1} (4.109): `metric` is K + G^{1}/n.

    g^ab = K^ab + (1/n)[−K^ac K^bd G^{1}_cd + K_cd (½ neurons V^(ab)(cd) + V^(ac)(bd))], so the
    quadratic coupling depends on how many neurons are kept and the observables do not.

    **Arguments:**

    - `K`: the kernel, regular.
    - `V`: the four-point vertex V_(ab)(cd), indices in this order.
    - `G1`: G^{1}, the 1/n part of the metric.
    - `fan_in`: n = n_{ℓ−1}, the width of the layer below.
    - `neurons`: how many neurons of the layer the action is written for.

    **Returns:** a `QuarticAction`.

    >>> one = np.ones((1, 1))
    >>> action = next_action(one, 2 * np.ones((1, 1, 1, 1)), 0 * one, fan_in=100, neurons=4)
    >>> action.quadratic.item()                                    # 1 + (neurons/2 + 1)·0.02
    1.06
    """
    inverse_K, n = inverse(K, "K"), _checked(fan_in)
    raised = _transported(V, inverse_K)
    direct, crossed = _traces(raised, K)
    shift = 0.5 * neurons * direct + crossed - inverse_K @ G1 @ inverse_K
    return QuarticAction(inverse_K + shift / n, raised / n, neurons)


def next_propagator(
    K: Float[np.ndarray, "a a"],
    V: Float[np.ndarray, "a a a a"],
    G1: Float[np.ndarray, "a a"],
    *,
    fan_in: int,
    neurons: int,
) -> Float[np.ndarray, "a a"]:
    """g_ab = K_ab + (1/n)[G^{1}_ab − K^cd (½ neurons V_(ab)(cd) + V_(ac)(bd))] (4.108).

    **Arguments:**

    - `K`: the kernel, regular.
    - `V`: the four-point vertex V_(ab)(cd), indices in this order.
    - `G1`: G^{1}, the 1/n part of the metric.
    - `fan_in`: n = n_{ℓ−1}, the width of the layer below.
    - `neurons`: how many neurons of the layer the action is written for.

    **Returns:** g_ab, the inverse of `next_action(...).quadratic` up to O(1/n²).

    >>> one = np.ones((1, 1))
    >>> next_propagator(one, 2 * np.ones((1, 1, 1, 1)), 0 * one, fan_in=100, neurons=4).item()
    0.94
    """
    direct, crossed = _traces(V, inverse(K, "K"))
    return K + (G1 - 0.5 * neurons * direct - crossed) / _checked(fan_in)


def running_quadratic(G: float, V: float, *, fan_in: int, neurons: int) -> float:
    """g_m of one input from 1/g_m = G − ((m + 2)/2) V/(n_{ℓ−1}G), m = `neurons` kept (4.102).

    Whatever the width of the layer itself. The quartic coupling is V/(n_{ℓ−1}G⁴) (4.103).

    **Arguments:**

    - `G`: the metric of the input.
    - `V`: its four-point vertex.
    - `fan_in`: n_{ℓ−1}, the width of the layer below.
    - `neurons`: m; refused where 1/g_m is not > 0.

    **Returns:** g_m.

    >>> running_quadratic(1.0, 2.0, fan_in=100, neurons=1)
    1.0309278350515465
    """
    propagator = G - 0.5 * (neurons + 2) * V / (_checked(fan_in) * G)
    if propagator <= 0:
        raise InvalidValueError(
            "neurons", neurons, f"too many for fan_in = {fan_in}: first order in V fails"
        )
    return 1.0 / propagator


def integrated_out(g: float, v: float, *, neurons: int, kept: int) -> float:
    """g_m = g_n − ((n − m)/2) v/g_n: n = `neurons` reduced to m = `kept`, one input (4.100).

    **Arguments:**

    - `g`: g_n, the quadratic coupling of n neurons.
    - `v`: the quartic coupling.
    - `neurons`: n.
    - `kept`: m, 1 to n.

    **Returns:** g_m.

    >>> integrated_out(1.0, 0.02, neurons=5, kept=1)
    0.96
    """
    if not 1 <= kept <= neurons:
        raise InvalidValueError("kept", kept, f"expected 1 to {neurons} neurons")
    return g - 0.5 * (neurons - kept) * v / g


def inverse(matrix: Matrix, name: str) -> Matrix:
    """The inverse of a covariance by Cholesky; refused when it is singular to rounding.

    >>> inverse(np.array([[4.0, 0.0], [0.0, 16.0]]), "K").tolist()
    [[0.25, 0.0], [0.0, 0.0625]]
    """
    from scipy.linalg import cho_factor, cho_solve

    eigenvalues = np.linalg.eigvalsh(matrix)
    if eigenvalues[0] * _WORST_CONDITION <= eigenvalues[-1] or eigenvalues[-1] <= 0:
        raise InvalidValueError(
            f"smallest eigenvalue of {name}",
            float(eigenvalues[0]),
            "singular: inputs are repeated or collinear, or more than n_0 + 1; drop some, or use "
            "the forms without an inverse in `predict`",
        )
    solved = cho_solve(cho_factor(matrix, lower=True), np.eye(matrix.shape[0]))
    return 0.5 * (solved + solved.T)


def _checked(fan_in: int) -> int:
    if fan_in < 1:
        raise InvalidValueError("fan_in", fan_in, "expected a positive number of neurons")
    return fan_in


def _transported(tensor: FourIndex, metric: Matrix) -> FourIndex:
    """All four indices contracted with `metric`: raises or lowers them (4.83), (4.120)."""
    return np.einsum(
        "abcd,ae,bf,cg,dh->efgh", tensor, metric, metric, metric, metric, optimize=True
    )


def _on_pairs(tensor: FourIndex) -> Float[np.ndarray, "pair pair"]:
    """v_(ab)(cd) on the upper pairs (ab) and (cd)."""
    a, b = pair_indices(tensor.shape[0])
    return tensor[a, b][:, a, b]


def _traces(tensor: FourIndex, metric: Matrix) -> tuple[Matrix, Matrix]:
    """The two ways to contract a vertex with one metric: V_(ab)(cd) g^cd and V_(ac)(bd) g^cd."""
    return np.einsum("abcd,cd->ab", tensor, metric), np.einsum("acbd,cd->ab", tensor, metric)
