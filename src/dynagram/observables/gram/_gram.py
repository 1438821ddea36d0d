"""The weight Gram matrix 𝒢 = WᵀW and the feature learning equation (Cha et al., arXiv:2605.06258).

A layer z = W h + b with gradients δ = ∂𝓛/∂z and g = Wᵀδ of one total loss 𝓛; samples are rows. The
feature learning equation Wᵀ ∂𝓛/∂W = gᵀH is exact. A convolution is the same layer on patches: its
weights unfold to (out, in·k·k), its features to (samples·positions, in·k·k), and every patch is a
sample of its own, so that a pixel's gradient is the sum over the patches that hold it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.observables._nulls import Alignment, normalised, rotation_overlap, spectrum_of


def weight_gram(W: Float[np.ndarray, "n_out ..."]) -> Float[np.ndarray, "n_in n_in"]:
    """𝒢 = WᵀW in float64; a convolution (out, in, k, k) is unfolded first.

    **Arguments:**

    - `W`: (n_out, n_in), or a convolution.

    **Returns:** (n_in, n_in). Cost: n_out n_in² multiply-adds; memory 8 n_in² bytes, so 0.8 GB at
    n_in = 10 000.

    >>> weight_gram(np.array([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    matrix = unfold_weights(W)
    return matrix.T @ matrix


def unfold_weights(W: Float[np.ndarray, "n_out ..."]) -> Float[np.ndarray, "n_out n_in"]:
    """(out, in, k, …) as the matrix (out, in·k·…) in float64; a matrix stays itself.

    **Arguments:**

    - `W`: the weights of a layer.

    **Returns:** (n_out, n_in).

    >>> unfold_weights(np.zeros((8, 3, 5, 5))).shape
    (8, 75)
    """
    if W.ndim < 2:
        raise InvalidValueError("shape of W", W.shape, "expected (out, in) or (out, in, k, k)")
    return np.asarray(W, dtype=np.float64).reshape(W.shape[0], -1)


def unfold_features(
    images: Float[np.ndarray, "samples channels height width"],
    kernel: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
) -> Float[np.ndarray, "rows n_in"]:
    """The patches a convolution sees, one per row, in the order of `unfold_weights`.

    **Arguments:**

    - `images`: (samples, channels, height, width).
    - `kernel`, `stride`, `padding`: of the convolution; zeros pad.

    **Returns:** rows over samples, then over positions by lines. Memory: k² times the images.

    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> unfold_features(image, (2, 2)).tolist()
    [[0.0, 1.0, 3.0, 4.0], [1.0, 2.0, 4.0, 5.0], [3.0, 4.0, 6.0, 7.0], [4.0, 5.0, 7.0, 8.0]]
    """
    if min(*kernel, *stride) < 1 or min(padding) < 0:
        raise InvalidValueError(
            "kernel, stride, padding", (kernel, stride, padding), "sizes ≥ 1 and padding ≥ 0 needed"
        )
    margins = ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)
    padded = np.pad(np.asarray(images, dtype=np.float64), margins)
    if padded.shape[2] < kernel[0] or padded.shape[3] < kernel[1]:
        raise InvalidValueError("kernel", kernel, f"larger than the images, {padded.shape[2:]}")
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1]].transpose(0, 2, 3, 1, 4, 5)
    channels = images.shape[1]
    return windows.reshape(-1, channels * kernel[0] * kernel[1])


def feature_learning_residual(
    W: Float[np.ndarray, "n_out n_in"],
    gradient: Float[np.ndarray, "n_out n_in"],
    h: Float[np.ndarray, "rows n_in"],
    g: Float[np.ndarray, "rows n_in"],
) -> float:
    """‖Wᵀ ∂𝓛/∂W − gᵀH‖/‖gᵀH‖: rounding when W, ∂𝓛/∂W, H, g belong to the same loss and pass.

    A number of order 1 says that they do not: a mean loss against a summed one, dropout or batch
    normalisation in another mode, weights used more than once, a step taken in between.

    **Arguments:**

    - `W`, `gradient`: weights and ∂𝓛/∂W.
    - `h`, `g`: features and their gradients, a sample a row.

    **Returns:** one number.

    >>> W, h, delta = np.eye(2), np.array([[1.0, 2.0]]), np.array([[0.5, -1.0]])
    >>> feature_learning_residual(W, delta.T @ h, h, delta @ W)
    0.0
    """
    check_pair(W, gradient, "gradient")
    check_rows(W, h, g)
    expected = g.T @ h
    scale = float(np.linalg.norm(expected))
    difference = float(np.linalg.norm(W.T @ gradient - expected))
    return difference / scale if scale > 0 else difference


def effective_rank(eigenvalues: Float[np.ndarray, " n"]) -> float:
    """(Σλ)²/Σλ²: n when all eigenvalues are equal, 1 when one holds everything.

    **Arguments:**

    - `eigenvalues`: of a symmetric matrix.

    **Returns:** one number; 0 where all are 0.

    >>> effective_rank(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    square = float(np.sum(eigenvalues**2))
    return float(np.sum(eigenvalues)) ** 2 / square if square > 0 else 0.0


def gram_similarity(first: Float[np.ndarray, "n n"], second: Float[np.ndarray, "n n"]) -> Alignment:
    """The cosine ⟨A, B⟩/(‖A‖‖B‖) of two symmetric matrices, with that of random directions.

    Positive matrices always have a positive cosine: the null keeps the eigenvalues of
    both and turns one of them at random, and its mean is tr A tr B/(n‖A‖‖B‖).

    **Arguments:**

    - `first`, `second`: symmetric, of one size.

    **Returns:** `Alignment`.

    >>> found = gram_similarity(np.diag([3.0, 1.0, 0.0]), np.diag([1.0, 0.0, 0.0]))
    >>> round(found.value, 4), round(found.null.mean, 4), round(found.score, 2)
    (0.9487, 0.4216, 2.11)
    """
    if first.shape != second.shape:
        raise InvalidValueError(
            "shapes", (first.shape, second.shape), "both matrices must have the same size"
        )
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    null = rotation_overlap(spectrum_of(first), spectrum_of(second))
    return normalised(float(np.sum(first * second)), null, norm, "a Gram matrix")


def check_pair(W: np.ndarray, other: np.ndarray, name: str) -> None:
    """Refuse an array that does not have the shape of W."""
    if other.shape != W.shape:
        raise InvalidValueError(f"shape of {name}", other.shape, f"expected {W.shape}, that of W")


def check_rows(W: np.ndarray, h: np.ndarray, g: np.ndarray) -> None:
    """Refuse features and their gradients that are not (rows, n_in)."""
    if h.shape[1] != W.shape[1]:
        raise InvalidValueError("shape of h", h.shape, f"expected (rows, {W.shape[1]})")
    if g.shape != h.shape:
        raise InvalidValueError("shape of g", g.shape, f"expected {h.shape}, that of h")
