"""The average gradient outer product and the neural feature ansatz WᵀW ∝ AGOP^(1/2).

For the input h of layer ℓ, AGOP = (1/M) Σ_a Σ_i (∂f_i;a/∂h)(∂f_i;a/∂h)ᵀ. With J^(ℓ) = ∂f/∂z^(ℓ) it
is Wᵀ S W, S = (1/M) Σ_a J_aᵀJ_a: the weights stand on both sides of it, so that even weights which
never saw data correlate with it. The null therefore turns S at random and leaves W as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Model, Params
from dynagram.networks._model import takes_model
from dynagram.observables._nulls import Alignment, Null
from dynagram.observables.tangents._signals import check_differentiable, network_gradients

_ROTATIONS = 16
_NUMBERS_AT_ONCE = 2**24


@takes_model
def backward_covariances(model: Model, x: np.ndarray) -> tuple[Float[np.ndarray, "n_l n_l"], ...]:
    """S^(ℓ) = (1/M) Σ_a J^(ℓ)_aᵀ J^(ℓ)_a of every layer, in batches.

    **Arguments:**

    - `model`: the network and its weights.
    - `x`: inputs (M, n_0), one per row.

    **Returns:** S^(1), …, S^(L), the last the unit matrix. Cost per sample and layer
    n_L n_ℓ (n_ℓ + n_{ℓ-1}); memory of a batch 2²⁴ numbers.

    >>> from dynagram.networks import MLP
    >>> S = backward_covariances(MLP([2, 3, 1], "relu", 0.0, 2.0).init(seed=0), np.ones((5, 2)))
    >>> [s.shape for s in S], float(S[-1][0, 0])
    ([(3, 3), (1, 1)], 1.0)
    """
    network = model.network
    check_differentiable(network, 1, "the gradient of the output")
    rows = max(1, _NUMBERS_AT_ONCE // (network.widths[-1] * sum(network.widths)))
    totals = [np.zeros((n, n)) for n in network.widths[1:]]
    for start in range(0, len(x), rows):
        J = _jacobians(network, model.params, x[start : start + rows])
        for total, of_layer in zip(totals, J, strict=True):
            flat = np.asarray(of_layer, dtype=np.float64).reshape(-1, of_layer.shape[-1])
            total += flat.T @ flat
    return tuple(total / len(x) for total in totals)


@functools.partial(jax.jit, static_argnums=0)
def _jacobians(network: Architecture, params: Params, x: ArrayLike) -> tuple[Array, ...]:
    return network_gradients(network, params, x).J


@takes_model
def agop(model: Model, x: np.ndarray) -> tuple[Float[np.ndarray, "n n"], ...]:
    """AGOP of what enters every weight matrix, the first being that of the inputs.

    **Arguments:**

    - `model`: the network and its weights.
    - `x`: inputs (M, n_0), one per row.

    **Returns:** one matrix (n_{ℓ-1}, n_{ℓ-1}) for each ℓ = 1..L; cost as `backward_covariances`.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "linear", C_b=0.0, C_W=2.0).init(seed=0)
    >>> slope = np.asarray(model.params[1].W @ model.params[0].W)
    >>> bool(np.allclose(agop(model, np.ones((5, 2)))[0], slope.T @ slope))
    True
    """
    weights = [np.asarray(layer.W, dtype=np.float64) for layer in model.params]
    covariances = backward_covariances(model, x)
    return tuple(W.T @ S @ W for W, S in zip(weights, covariances, strict=True))


def function_agop(
    function: Callable[[Array], Array], x: Float[np.ndarray, "samples n"], *, batch: int = 64
) -> Float[np.ndarray, "n n"]:
    """AGOP of any JAX function of one input vector.

    **Arguments:**

    - `function`: f(x_a) → (outputs,).
    - `x`: inputs (M, n), one per row.
    - `batch`: how many rows at a time.

    **Returns:** (n, n).

    >>> function_agop(lambda v: jnp.array([v[0] * v[1]]), np.array([[1.0, 2.0]])).tolist()
    [[4.0, 2.0], [2.0, 1.0]]
    """
    shape = jax.eval_shape(function, jax.ShapeDtypeStruct(x.shape[1:], x.dtype))
    if not isinstance(shape, jax.ShapeDtypeStruct) or shape.ndim != 1:
        got = getattr(shape, "shape", type(shape).__name__)
        raise InvalidValueError("shape of f(x)", got, "expected (outputs,) for one input vector")
    jacobians = jax.jit(jax.vmap(jax.jacrev(function)))
    total = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(x), batch):
        rows = np.asarray(jacobians(jnp.asarray(x[start : start + batch])), dtype=np.float64)
        flat = rows.reshape(-1, x.shape[1])
        total += flat.T @ flat
    return total / len(x)


@dataclass(frozen=True)
class FeatureAnsatz:
    """Correlation of the entries, as published, and cosine, of WᵀW with AGOP^(1/2).

    **Arguments:**

    - `pearson`, `cosine`: both with their null.
    """

    pearson: Alignment
    cosine: Alignment


def feature_ansatz(
    W: Float[np.ndarray, "n_out n_in"], S: Float[np.ndarray, "n_out n_out"], *, seed: int = 0
) -> FeatureAnsatz:
    """How well WᵀW ∝ (WᵀSW)^(1/2) holds, with its null.

    The null, mean and deviation over 16 draws, replaces S by QSQᵀ with uniformly random rotations
    Q: gradients of the same sizes that know nothing of this layer's weights. Untrained weights
    are close to it, and it is far from 0.

    **Arguments:**

    - `W`: the weight matrix of a layer.
    - `S`: that of the layer from `backward_covariances`.
    - `seed`: of the rotations.

    **Returns:** `FeatureAnsatz`. Cost 17·(n_out³ + n_in³).

    >>> W = np.diag([2.0, 1.0, 0.5])
    >>> round(feature_ansatz(W, W @ W).cosine.value, 6)          # AGOP = 𝒢²: the ansatz is exact
    1.0
    """
    if S.shape != (W.shape[0], W.shape[0]):
        raise InvalidValueError("shape of S", S.shape, f"expected {(W.shape[0],) * 2}")
    gram = W.T @ W
    rng = np.random.default_rng(seed)
    similarities = _similarities(gram, W.T @ S @ W)
    turned = []
    for _ in range(_ROTATIONS):
        Q = random_rotation(W.shape[0], rng)
        turned.append(_similarities(gram, W.T @ (Q @ S @ Q.T) @ W))
    means, deviations = np.mean(turned, axis=0), np.std(turned, axis=0, ddof=1)
    pearson, cosine = (
        Alignment(float(similarities[k]), Null(float(means[k]), float(deviations[k])))
        for k in (0, 1)
    )
    return FeatureAnsatz(pearson, cosine)


def random_rotation(n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n"]:
    """A uniformly distributed orthogonal matrix.

    >>> Q = random_rotation(3, np.random.default_rng(0))
    >>> bool(np.allclose(Q @ Q.T, np.eye(3)))
    True
    """
    Q, R = np.linalg.qr(rng.standard_normal((n, n)))
    return Q * np.sign(np.diag(R))  # without the signs QR would favour some rotations


def _similarities(gram: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Pearson correlation and cosine of 𝒢 with the square root of AGOP."""
    values, vectors = np.linalg.eigh(gradient)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    results = []
    for a, b in ((gram - np.mean(gram), root - np.mean(root)), (gram, root)):
        norm = float(np.linalg.norm(a) * np.linalg.norm(b))
        results.append(float(np.sum(a * b)) / norm if norm > 0 else float("nan"))
    return np.array(results)
