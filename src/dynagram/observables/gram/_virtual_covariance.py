"""Virtual covariance: how features would move by their own gradients, and the Gram with them.

With h̃_i = h_i − η g_i, VC = Σ_i (h̃_i h̃_iᵀ − h_i h_iᵀ) = −η (gᵀH + Hᵀg) + η² gᵀg. One gradient step
W' = W − η ∂𝓛/∂W − ηλ W, λ the decoupled weight decay, changes the Gram by exactly

    W'ᵀW' − WᵀW = VC + η² (∂Wᵀ∂W − gᵀg) − (2ηλ − η²λ²) WᵀW + η²λ (gᵀH + Hᵀg).

The loss must be the one whose gradient moves W: with a mean loss g_i carries the 1/M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.observables._nulls import Alignment, Null, normalised
from dynagram.observables.gram._gram import check_pair, check_rows, gram_similarity


def virtual_covariance(
    h: Float[np.ndarray, "rows n_in"], g: Float[np.ndarray, "rows n_in"], eta: float
) -> Float[np.ndarray, "n_in n_in"]:
    """VC = −η (gᵀH + Hᵀg) + η² gᵀg of one step, summed over the rows.

    **Arguments:**

    - `h`, `g`: features and their gradients, a sample a row.
    - `eta`: η.

    **Returns:** (n_in, n_in). Cost 3·rows·n_in².

    >>> virtual_covariance(np.array([[1.0, 0.0]]), np.array([[0.0, -2.0]]), 0.5).tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """
    products = Products.zero(h.shape[1])
    products.add(h, g)
    return products.virtual_covariance(eta)


@dataclass(eq=False)
class Products:
    """Σ gᵀH and Σ gᵀg in float64, fed by as many batches as one step of the optimiser sees."""

    mixed: Float[np.ndarray, "n_in n_in"]
    squared: Float[np.ndarray, "n_in n_in"]

    @classmethod
    def zero(cls, n_in: int) -> Products:
        """Nothing seen yet."""
        return cls(np.zeros((n_in, n_in)), np.zeros((n_in, n_in)))

    def add(self, h: Float[np.ndarray, "rows n_in"], g: Float[np.ndarray, "rows n_in"]) -> None:
        """Count a batch of rows; a batch of a mean loss comes with the 1/M of the whole."""
        h, g = np.asarray(h, dtype=np.float64), np.asarray(g, dtype=np.float64)
        check_rows(self.mixed, h, g)
        self.mixed += g.T @ h
        self.squared += g.T @ g

    @property
    def symmetric(self) -> Float[np.ndarray, "n_in n_in"]:
        """gᵀH + Hᵀg."""
        return self.mixed + self.mixed.T

    def virtual_covariance(self, eta: float) -> Float[np.ndarray, "n_in n_in"]:
        """−η (gᵀH + Hᵀg) + η² gᵀg."""
        return eta * eta * self.squared - eta * self.symmetric


@dataclass(frozen=True, eq=False)
class GramLaw:
    """The terms of the Gram's change in one gradient step; they add up to `total`.

    **Arguments:**

    - `virtual`, `remainder`, `decay`: as in `gram_law`.
    """

    virtual: Float[np.ndarray, "n_in n_in"]
    remainder: Float[np.ndarray, "n_in n_in"]
    decay: Float[np.ndarray, "n_in n_in"]

    @property
    def total(self) -> Float[np.ndarray, "n_in n_in"]:
        """W'ᵀW' − WᵀW as the law gives it."""
        return self.virtual + self.remainder + self.decay


def gram_law(
    W: Float[np.ndarray, "n_out n_in"],
    gradient: Float[np.ndarray, "n_out n_in"],
    h: Float[np.ndarray, "rows n_in"],
    g: Float[np.ndarray, "rows n_in"],
    eta: float,
    *,
    weight_decay: float = 0.0,
) -> GramLaw:
    """What one gradient step of rate `eta` does to WᵀW, in three exact terms.

    `virtual` is VC; `remainder` is η²(∂Wᵀ∂W − gᵀg), the O(η²) by which the Gram does not follow
    it; `decay` holds all terms with the decoupled weight decay.

    **Arguments:**

    - `W`, `gradient`: weights and ∂𝓛/∂W before the step.
    - `h`, `g`: features and their gradients, a sample a row.
    - `eta`: η.
    - `weight_decay`: λ, decoupled.

    **Returns:** `GramLaw`.

    >>> W, h, delta = np.array([[2.0]]), np.array([[1.0]]), np.array([[0.5]])
    >>> law = gram_law(W, delta.T @ h, h, delta @ W, 0.1)
    >>> round(float(law.total[0, 0]), 12) == round((2.0 - 0.05) ** 2 - 4.0, 12)
    True
    """
    check_pair(W, gradient, "gradient")
    check_rows(W, h, g)
    products = Products.zero(W.shape[1])
    products.add(h, g)
    virtual = products.virtual_covariance(eta)
    remainder = eta * eta * (gradient.T @ gradient - products.squared)
    shrink = eta * weight_decay
    decay = (shrink * shrink - 2.0 * shrink) * (W.T @ W) + eta * shrink * products.symmetric
    return GramLaw(virtual, remainder, decay)


@dataclass(frozen=True, eq=False)
class GramRecord:
    """A run up to now: Σ_t VC_t, the Gram's change, and what the first says of the second.

    **Arguments:**

    - `steps`: how many were taken.
    - `virtual`, `change`: Σ_t VC_t and the change of the Gram.
    - `cosine`, `pearson`: of the two, the first with its null.
    - `remainder`: ‖change − Σ VC‖/‖change‖, of order η for gradient descent over a fixed time.
    - `explained`: the R² of the entries of the change when they are predicted by Σ VC.
    """

    steps: int
    virtual: Float[np.ndarray, "n_in n_in"]
    change: Float[np.ndarray, "n_in n_in"]
    cosine: Alignment
    pearson: float
    remainder: float
    explained: float


class GramTracker:
    """Accumulates the virtual covariance of one layer along a run, in float64.

    `add` takes the features and gradients of a batch before the step, several times for several
    batches; `step` closes the step at rate η. `record(W)` compares the sum with the change of
    the Gram since the start, whatever optimiser made it. Cost per step 2·rows·n_in².

    **Arguments:**

    - `W`: the weights at the start.

    >>> W, h = np.array([[1.0, 0.5]]), np.array([[1.0, -1.0], [0.5, 2.0]])
    >>> tracker = GramTracker(W)
    >>> for _ in range(100):
    ...     delta = h @ W.T - 1.0                       # loss ½ Σ (W h − 1)²
    ...     tracker.add(h, delta @ W)
    ...     tracker.step(0.001)
    ...     W = W - 0.001 * delta.T @ h
    >>> found = tracker.record(W)
    >>> found.steps, round(found.cosine.value, 3), round(found.remainder, 3)
    (100, 1.0, 0.001)
    """

    def __init__(self, W: Float[np.ndarray, "n_out n_in"]):
        self._start = np.array(W, dtype=np.float64)
        self._virtual = np.zeros((W.shape[1], W.shape[1]))
        self._products = Products.zero(W.shape[1])
        self._steps = 0

    def add(self, h: Float[np.ndarray, "rows n_in"], g: Float[np.ndarray, "rows n_in"]) -> None:
        """Features and their gradients of a batch of the coming step."""
        self._products.add(h, g)

    def step(self, eta: float) -> None:
        """The optimiser takes its step at rate `eta`."""
        self._virtual += self._products.virtual_covariance(eta)
        self._products = Products.zero(self._virtual.shape[0])
        self._steps += 1

    def record(self, W: Float[np.ndarray, "n_out n_in"]) -> GramRecord:
        """The comparison at the weights `W` reached after the last step."""
        check_pair(self._start, W, "W")
        if self._steps == 0:
            raise InvalidValueError("steps", 0, "nothing to compare before the first step")
        after = np.asarray(W, dtype=np.float64)
        change = after.T @ after - self._start.T @ self._start
        if not np.all(np.isfinite(change)):
            raise NonFiniteError("the weights are not finite: the run diverged, lower its rate")
        cosine = gram_similarity(change, self._virtual)
        error = float(np.linalg.norm(change - self._virtual))
        spread = float(np.linalg.norm(change - np.mean(change)))
        return GramRecord(
            steps=self._steps,
            virtual=self._virtual.copy(),
            change=change,
            cosine=cosine,
            pearson=_pearson(change, self._virtual),
            remainder=error / float(np.linalg.norm(change)),
            explained=1.0 - (error / spread) ** 2 if spread > 0 else float("nan"),
        )


def stationarity(
    W: Float[np.ndarray, "n_out n_in"], gradient: Float[np.ndarray, "n_out n_in"]
) -> Alignment:
    """The cosine of WᵀW with −(gᵀH + Hᵀg), the direction in which the data push it now.

    It is 1 where training with weight decay λ has come to rest, for there 2λ WᵀW = −(gᵀH + Hᵀg);
    positive where the loss makes the layer's directions grow, negative where it shrinks them.
    By the feature learning equation gᵀH = Wᵀ ∂𝓛/∂W, so the gradient is all that is needed.

    The null keeps weights and gradient but turns the gradient at random among the n_out outputs:
    mean 0, deviation √2 ‖∂W 𝒢 Wᵀ‖/(‖𝒢‖ √(‖W‖²‖∂W‖² + ‖∂W Wᵀ‖²)), the spread of the
    denominator left out. An untrained network need not be at it: its random outputs are errors
    of their own, which the gradient shrinks.

    **Arguments:**

    - `W`, `gradient`: weights and ∂𝓛/∂W.

    **Returns:** `Alignment`.

    >>> W = np.diag([2.0, 1.0])
    >>> round(stationarity(W, -0.1 * W).value, 6)              # at rest with λ = 0.1
    1.0
    """
    check_pair(W, gradient, "gradient")
    gram, mixed = W.T @ W, W.T @ gradient
    pushed = -(mixed + mixed.T)
    norm = float(np.linalg.norm(gram) * np.linalg.norm(pushed))
    output_side = gradient @ W.T
    size = np.sum(W**2) * np.sum(gradient**2) + np.sum(output_side**2)
    spread = np.linalg.norm(gradient @ gram @ W.T) * np.sqrt(2.0 / size) if size > 0 else 0.0
    gram_norm = float(np.linalg.norm(gram))
    deviation = float(spread) / gram_norm if gram_norm > 0 else 0.0
    found = normalised(float(np.sum(gram * pushed)), Null(0.0, 0.0), norm, "the weight gradient")
    return Alignment(found.value, Null(0.0, deviation))


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    """Correlation of the entries."""
    x, y = first - np.mean(first), second - np.mean(second)
    norm = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.sum(x * y)) / norm if norm > 0 else float("nan")
