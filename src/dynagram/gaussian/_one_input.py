"""The Gaussian averages the single-input theory is built of, exact for scale-invariant σ (5.60).

Everything in this package reads ⟨σ^m⟩_K, ⟨σ'²⟩_K and ⟨σσ''⟩_K from here: in chunks, so that
thousands of layers fit in memory, and checked, so that nothing non-finite leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._quadrature import UNDERFLOW, check_variance, standard_nodes
from dynagram.gaussian._scalar import kernel_derivative, moment, moment_derivative

ActivationLike = str | Callable[..., Any] | Activation
_CHUNKS = (2**12, 2**15, 2**18)
_DECADES = 10.0 ** np.arange(9)


def slopes(sigma: Activation) -> tuple[float, float] | None:
    """(a₊, a₋) when σ(z) = a₊z for z ≥ 0 and a₋z for z < 0 (5.59), else None.

    >>> from dynagram.activations import activation
    >>> slopes(activation("leaky_relu(0.2)"))
    (1.0, 0.2)
    """
    bent_elsewhere = any(kink.location != 0.0 for kink in sigma.kinks)  # relu6, for one
    if sigma.homogeneity is None or sigma.homogeneity.degree != 1 or bent_elsewhere:
        return None
    return sigma.homogeneity.plus, -sigma.homogeneity.minus


def required_slopes(activation: ActivationLike) -> tuple[float, float]:
    """`slopes` of an activation that has to be scale-invariant."""
    sigma = resolve(activation)
    pair = slopes(sigma)
    if pair is None:
        raise InvalidValueError("activation", sigma.name, "expected a scale-invariant activation")
    return pair


def even_slope(sigma_slopes: tuple[float, float], power: int) -> float:
    """A_m = (a₊^m + a₋^m)/2 (5.61), (5.114)."""
    plus, minus = sigma_slopes
    return 0.5 * (plus**power + minus**power)


def power_average(
    sigma: Activation, K: Float[np.ndarray, "*shape"], power: int, derivative: int = 0
) -> Float[np.ndarray, "*shape"]:
    """d^k/dK^k ⟨σ^m⟩_K for even m = `power` and k = `derivative` ≤ 4; g(K) is m = 2, k = 0 (5.49).

    Cost: a few passes over 200-800 nodes per K.

    >>> from dynagram.activations import activation
    >>> float(power_average(activation("relu"), np.array(3.0), 4))
    13.5
    """
    pair = slopes(sigma)
    if pair is not None:
        half = power // 2
        factor = (
            math.prod(range(1, power, 2)) * even_slope(pair, power) * math.perm(half, derivative)
        )
        return np.asarray(factor * K ** max(half - derivative, 0))
    if derivative == 0:
        return joint_average(sigma, K, (0,) * power)
    label = f"d^{derivative}/dK^{derivative} ⟨σ^{power}⟩"
    return _averaged(
        sigma, K, label, lambda chunk: kernel_derivative(sigma, chunk, derivative, power=power)
    )


def slope_average(
    sigma: Activation, K: Float[np.ndarray, "*shape"], derivative: int = 0
) -> Float[np.ndarray, "*shape"]:
    """⟨σ'²⟩_K, or its k-th derivative in K, k ≤ 2: χ⊥/C_W (5.51) and 2h/C_W (5.52).

    >>> from dynagram.activations import activation
    >>> round(float(slope_average(activation("tanh"), np.array(1.0))), 12)
    0.464402902448
    """
    pair = slopes(sigma)
    if pair is not None:
        return np.full(np.shape(K), even_slope(pair, 2) if derivative == 0 else 0.0)
    if derivative == 0:
        return joint_average(sigma, K, (1, 1))
    if not sigma.is_smooth and np.any(K == 0.0):
        raise InvalidValueError(
            "K", 0.0, f"d⟨σ'²⟩/dK of {sigma.name} need not exist at 0: take K > 0"
        )
    _require_slopes(sigma)
    # ½⟨(σ'²)''⟩ keeps its digits as K → 0, which ⟨σ'² He₂⟩/2K does not.
    found = _averaged(
        sigma,
        K,
        f"d^{derivative}/dK^{derivative} ⟨σ'²⟩",
        lambda chunk: moment_derivative(sigma, chunk, (1, 1), derivative, on_function=derivative),
    )
    return np.where(np.abs(found) < UNDERFLOW, 0.0, found)


def joint_average(
    sigma: Activation, K: Float[np.ndarray, "*shape"], orders: tuple[int, ...], hermite: int = 0
) -> Float[np.ndarray, "*shape"]:
    """⟨Π σ^(p_i)(z) He_m(z/√K)⟩_K, p = `orders`, m = `hermite`, refused when not finite.

    >>> from dynagram.activations import activation
    >>> round(float(joint_average(activation("sin"), np.array(1.0), (0, 2))), 12)
    -0.432332358382
    """
    if any(orders):
        _require_slopes(sigma)
    label = "⟨" + " ".join(f"σ^({p})" for p in orders) + (f" He_{hermite}⟩" if hermite else "⟩")
    return _averaged(sigma, K, label, lambda chunk: moment(sigma, chunk, orders, hermite=hermite))


def _require_slopes(sigma: Activation) -> None:
    if sigma.jumps:
        raise InvalidValueError(
            "activation", sigma.name, "σ jumps, so σ' is a delta and averages of σ'² do not exist"
        )


def _averaged(
    sigma: Activation, K: np.ndarray, label: str, average: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """`average` over chunks of similar K that fit the cache, refused when not finite.

    The number of nodes grows with the largest K of a chunk: a few large K must not make many
    small ones expensive. Chunks have three sizes, so that σ is compiled for three shapes.
    """
    flat = check_variance(K).reshape(-1)
    order = np.argsort(flat)
    values = np.empty(flat.size)
    with np.errstate(all="ignore"):
        for part in np.split(order, np.searchsorted(flat[order], _DECADES)):
            if part.size == 0:
                continue
            nodes = standard_nodes(sigma, flat[part[-1:]])[0].shape[1]
            size = next((c for c in _CHUNKS if part.size * nodes <= c), _CHUNKS[-1])
            rows = part.size if size == _CHUNKS[0] else max(1, size // nodes)
            for start in range(0, part.size, rows):
                piece = part[start : start + rows]
                filled = np.pad(flat[piece], (0, rows - piece.size), mode="edge")
                values[piece] = average(filled)[: piece.size]
    if not np.all(np.isfinite(values)):
        where = float(flat[np.argmin(np.isfinite(values))])
        remedy = "take K smaller" if where > 0.0 else "take K > 0"
        raise NonFiniteError(f"{label} of {sigma.name} leaves float64 at K = {where:g}: {remedy}")
    return values.reshape(np.shape(K))
