"""Hidden representations after inference: how targets move them, at order 1/n (6.90)-(6.104).

Given targets, hidden layers are weighted by p(y | Ĝ)/p(y) = 1 + ½ M·ΔĜ + … (6.93)-(6.96), so
an observable O moves by ½ M·E[ΔĜ^(L) O] (6.99). By E[ΔĜ^(L) | z^(ℓ)] = X^(L−1)…X^(ℓ+1) ΔĜ^(ℓ+1),
X = ∂K^(ℓ+1)/∂K^(ℓ), every hidden layer moves at order 1/n; the book's footnote 35 has 1/n² for all
but the last, which is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._pairs import matrix_to_pairs, pair_indices, pair_numbers, pairs_to_matrix
from dynagram.data import Data
from dynagram.errors import InvalidTypeError
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.gaussian._four_point import wick_covariance
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory.bayes._evidence import ACCURACY, require_vertex
from dynagram.theory.bayes._solve import training_kernel
from dynagram.theory.bayes._terms import Dual
from dynagram.training import Posterior


@dataclass(frozen=True, eq=False)
class RepresentationShift:
    """Posterior minus prior mean of hidden-layer products at order "1/n", layers ℓ = 1..L−1.

    `activations` is the coefficient of 1/n_ℓ in the shift of (1/n_ℓ) Σ_j σ_j;a σ_j;b (6.104),
    `preactivations` that in the shift of z_j;a z_j;b of a single neuron. `source` is
    M = Σ_i y_i y_i − n_L K̃⁻¹ with raised indices: without it nothing moves.
    """

    widths: tuple[int, ...]
    activations: Float[np.ndarray, "layer a b"]
    preactivations: Float[np.ndarray, "layer a b"]
    source: Float[np.ndarray, "train train"]

    @property
    def activation_shift(self) -> Float[np.ndarray, "layer a b"]:
        """The shift of the activation products at the actual widths."""
        return self.activations / np.array(self.widths)[:, None, None]

    @property
    def preactivation_shift(self) -> Float[np.ndarray, "layer a b"]:
        """The shift of the preactivation products at the actual widths."""
        return self.preactivations / np.array(self.widths)[:, None, None]


def representation_shift(
    network: MLP,
    data: Data,
    posterior: Posterior,
    *,
    accuracy: float | None = None,
    seed: int = 0,
) -> RepresentationShift:
    """How observing the targets moves every hidden layer, on the training and then test inputs.

    At infinite width nothing moves (6.69)-(6.71).

    **Arguments:**

    - `network`, `posterior`: as in `log_evidence`.
    - `data`: training inputs and targets, and test inputs if there are any.
    - `accuracy`, `seed`: as in `predict`.

    **Returns:** `RepresentationShift`; sample axes are [train…, test…]. Cost: V of all samples, and
    N² log-linear work per layer.

    >>> net = MLP([1, 50, 50, 50, 1], "relu", C_b=0.0, C_W=2.0)
    >>> data = Data(np.sqrt([[0.5]]), np.sqrt([[3.0]]))                          # K = 1, Y = 3
    >>> shift = representation_shift(net, data, Posterior())
    >>> shift.activations.ravel().round(6)            # 5/2 per layer: V = 5ℓ, M = Y/K² − 1/K
    array([2.5, 5. , 7.5])
    """
    if not isinstance(network, MLP):
        allowed = "the hidden layers of networks of blocks are not predicted: expected an MLP"
        raise InvalidTypeError("network", type(network).__name__, allowed)
    data.check(network)
    require_vertex(network, "what observing targets does to hidden layers")
    samples, N = data.inputs, data.x.shape[0]
    accuracy = ACCURACY if accuracy is None else accuracy
    prediction = predict(network, samples, ("K", "V"), accuracy=accuracy, seed=seed)
    K, V = prediction["K"], prediction["V"]
    kernel = training_kernel(K[-1, :N, :N], posterior, x=data.x, y=data.y)
    M = Dual.of(kernel, data.y).M
    weights = _as_functional(M, samples.shape[0])
    first, second = pair_indices(samples.shape[0])
    activations, preactivations = [], []
    for layer in range(network.depth - 1, 0, -1):  # ℓ; arrays of layer ℓ + 1 have index ℓ
        C_W, ratio = network.C_W[layer], _ratio(network, layer)
        vertex = V[layer][first, second][:, first, second]
        activations.append(pairs_to_matrix(0.5 / C_W * (vertex @ weights)))
        family = PairFamily.of(TwoPoint(network.activation, K[layer - 1]), 0, 0)
        weights = C_W * pulled_back(family, weights)
        below = V[layer - 1][first, second][:, first, second]
        single = wick_covariance(K[layer - 1]) + ratio * below
        preactivations.append(pairs_to_matrix(0.5 * (single @ weights)))
    return RepresentationShift(
        network.widths[1:-1], np.stack(activations[::-1]), np.stack(preactivations[::-1]), M
    )


def pulled_back(
    family: PairFamily, weights: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """The transpose of `family.propagate`: Σ_A weights_A ∂⟨f_A⟩/∂K_C on upper pairs C.

    >>> from dynagram.activations import activation
    >>> linear = PairFamily.of(TwoPoint(activation("linear"), np.eye(2)), 0, 0)
    >>> pulled_back(linear, np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    number = pair_numbers(int(family.second.max(initial=0)) + 1)
    a, b = family.first, family.second
    result = np.zeros_like(weights)
    for column, place in enumerate((number[a, b], number[a, a], number[b, b])):
        np.add.at(result, place, weights * family.jacobian[:, column])
    return result


def _as_functional(M: np.ndarray, samples: int) -> Float[np.ndarray, " pair"]:
    """Σ_ab M^ab K_ab as a sum over upper pairs of all samples: off-diagonal entries count twice."""
    full = np.zeros((samples, samples))
    full[: M.shape[0], : M.shape[0]] = M
    return matrix_to_pairs(2.0 * full - np.diag(np.diagonal(full)))


def _ratio(network: MLP, layer: int) -> float:
    """n_ℓ/n_{ℓ−1}; layer 1 does not fluctuate as a whole."""
    return network.widths[layer] / network.widths[layer - 1] if layer > 1 else 0.0
