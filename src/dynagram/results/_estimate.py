"""Streaming moments of an ensemble and their standard errors: mean, covariance, third cumulant.

Members are dealt out to batches by their number, member m to batch m mod B, and only the power
sums of each batch are kept. Chunks of members therefore merge by addition, in any sizes, and
nothing needs all members in memory. Every standard error is that of the delete-one-batch
jackknife: with θ₍ᵦ₎ the estimate without batch β, s.e.² = (B−1)/B Σ_β (θ₍ᵦ₎ − θ̄)².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dynagram.errors import InvalidValueError, NonFiniteError

# A standard error from B batches is itself uncertain by 1/√(2(B−1)): 6 % here.
BATCHES = 128
_MOST_SHOWN = 40  # entries in a notebook

_Sums = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """A measured array: its value, its standard error entry by entry, and the number of members.

    A standard error of exactly 0 says that the entry was the same in every member. An estimate of
    one number prints both by one format: `f"{estimate:.3f}"`.
    """

    value: Float[np.ndarray, "*shape"]
    standard_error: Float[np.ndarray, "*shape"]
    count: int

    @classmethod
    def of_samples(cls, samples: object) -> Estimate:
        """Mean over the first axis and its standard error s/√M; nan from a single sample.

        For the few members of an experiment that are all in memory; `Moments` streams many.

        >>> f"{Estimate.of_samples([1.0, 2.0, 3.0]):.3f}"
        '2.000 ± 0.577'
        """
        values = np.asarray(samples, dtype=np.float64)
        if values.ndim == 0 or values.size == 0:
            raise InvalidValueError("shape of samples", values.shape, "expected (members, …)")
        members, mean = values.shape[0], np.asarray(values.mean(axis=0))
        if members == 1:
            return cls(mean, np.full_like(mean, np.nan), 1)
        spread = np.asarray(values.std(axis=0, ddof=1))
        return cls(mean, np.asarray(spread / np.sqrt(members)), members)

    def __repr__(self) -> str:
        members = f"{self.count} member{'' if self.count == 1 else 's'}"
        if self.value.ndim == 0:
            return f"Estimate({self:.4g}; {members})"
        largest = float(np.max(self.standard_error, initial=0.0))
        return f"Estimate(shape {self.value.shape}, errors up to {largest:.2g}; {members})"

    def _repr_html_(self) -> str:
        """The first entries with their errors, for notebooks."""
        from dynagram.results._table import Grid, short

        places = list(np.ndindex(self.value.shape))[:_MOST_SHOWN]
        rows = tuple(
            (str(place or "–"), short(float(self.value[place])),
             short(float(self.standard_error[place]), 2))
            for place in places
        )  # fmt: skip
        left = self.value.size - len(places)
        notes = (f"and {left} more entries",) if left > 0 else ()
        return Grid(("entry", "value", "standard error"), rows, notes).html(repr(self))

    def plot(self) -> Any:
        """The entries in order with bars of two standard errors, as an altair chart."""
        from dynagram.report._charts import Axis, Line, line_chart

        values, errors = self.value.ravel(), 2.0 * np.nan_to_num(self.standard_error.ravel())
        points = {"estimate": Line(np.arange(values.size), values, errors)}
        return line_chart({}, Axis("entry", format="d"), Axis("value"), points=points)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return f"{float(self.value):{spec}} ± {float(self.standard_error):{spec}}"


@dataclass(frozen=True, eq=False)
class Moments:
    """Power sums Σ d, Σ d⊗d, Σ d⊗d⊗d of d = g − origin per batch, up to some order.

    A member's observable g has any shape; its last axis holds the components whose joint
    cumulants are kept, axes before it (layers, say) are carried along. Memory: 128·P^order
    floats. The origin is near the data, so that no digits are lost to a large mean.

    >>> g = np.random.default_rng(0).normal(size=(5000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    >>> head, tail = Moments.from_samples(g[:1200]), Moments.from_samples(g[1200:], first=1200)
    >>> covariance = head.merge(tail).covariance()
    >>> covariance.value.round(2).tolist()
    [[1.01, 0.48], [0.48, 1.2]]
    >>> covariance.standard_error.round(2).tolist()
    [[0.02, 0.02], [0.02, 0.02]]
    """

    origin: Float[np.ndarray, "*axes"]
    counts: Int[np.ndarray, " batches"]
    sums: tuple[Float[np.ndarray, "batches ..."], ...]

    @classmethod
    def from_samples(
        cls,
        samples: Float[np.ndarray, "members ..."],
        *,
        order: int = 2,
        batches: int = BATCHES,
        first: int = 0,
    ) -> Moments:
        """Sums over the rows of `samples`, which are the members `first`, `first` + 1, …

        `order` 1 serves `mean`, 2 also `covariance`, 3 also `third_cumulant`. Cost: 2·P^order
        flop per member. Raises `NonFiniteError` when a member is not finite.
        """
        samples = np.asarray(samples, dtype=np.float64)
        _check_request(samples, order, batches, first)
        finite = np.isfinite(samples)
        if not np.all(finite):
            member = first + int(np.argwhere(~finite)[0][0])
            raise NonFiniteError(f"the observable of member {member} is not finite")
        # The first member as origin makes all sums of a constant component exactly zero.
        origin = np.array(samples[0])
        deviations = _deal(samples - origin, batches, first)
        members = np.arange(first, first + samples.shape[0])
        counts = np.bincount(members % batches, minlength=batches)
        return cls(origin, counts, _power_sums(deviations, order))

    @property
    def count(self) -> int:
        """The number of members seen."""
        return int(self.counts.sum())

    def merge(self, other: Moments) -> Moments:
        """The sums over the members of both: one pass over all of them gives the same numbers."""
        mine = (self.origin.shape, self.counts.shape, len(self.sums))
        theirs = (other.origin.shape, other.counts.shape, len(other.sums))
        if mine != theirs:
            expected = f"shape, batches and order of both must agree, here {mine}"
            raise InvalidValueError("moments to merge", theirs, expected)
        moved = _shifted(other.sums, other.counts, other.origin - self.origin)
        sums = tuple(a + b for a, b in zip(self.sums, moved, strict=True))
        return Moments(self.origin, self.counts + other.counts, sums)

    def mean(self) -> Estimate:
        """The average over members, of the observable's own shape."""
        deviation = self.jackknife(_mean, 1)
        value = np.asarray(self.origin + deviation.value)
        return Estimate(value, deviation.standard_error, deviation.count)

    def error_of_mean(self) -> Float[np.ndarray, "... P P"]:
        """Covariance matrix of the errors of `mean`; its diagonal are the squared errors.

        Components of one member err together: a sum over them needs this matrix.
        """
        filled = np.flatnonzero(self.counts)
        total, count = self.sums[0].sum(axis=0), self.count
        left = (count - self.counts[filled]).reshape(-1, *[1] * total.ndim)
        changes = (total - self.sums[0][filled]) / left - total / count
        changes -= changes.mean(axis=0)
        return (filled.size - 1) / filled.size * np.einsum("b...i,b...j->...ij", changes, changes)

    def covariance(self) -> Estimate:
        """Cov(g_i, g_j), unbiased (divided by members − 1); shape (…, P, P)."""
        return self.jackknife(_covariance, 2)

    def third_cumulant(self) -> Estimate:
        """κ₃(g_i, g_j, g_k), unbiased by the factor M²/((M−1)(M−2)); shape (…, P, P, P).

        The distribution of third powers is skewed: with few members or heavy tails (narrow, deep
        networks) the standard error is more often too small than too large.
        """
        return self.jackknife(_third_cumulant, 3)

    def jackknife(self, statistic: Callable[[int, _Sums], np.ndarray], order: int) -> Estimate:
        """`statistic(members, sums)` of the sums up to `order`, with its delete-one-batch error."""
        if order > len(self.sums):
            raise InvalidValueError("order", len(self.sums), f"sums up to order {order} needed")
        filled = np.flatnonzero(self.counts)
        smallest = self.count - int(self.counts.max())
        if smallest < max(order, 2):
            allowed = f"without one batch at least {max(order, 2)} must be left"
            raise InvalidValueError("members", self.count, allowed)
        sums = self.sums[:order]
        totals = tuple(np.asarray(batches.sum(axis=0)) for batches in sums)
        value = statistic(self.count, totals)
        drift, square = np.zeros_like(value), np.zeros_like(value)
        # One batch at a time, so that the third cumulants of many pairs fit in memory.
        for batch in filled:
            rest = (total - batches[batch] for total, batches in zip(totals, sums, strict=True))
            left = self.count - int(self.counts[batch])
            change = statistic(left, tuple(map(np.asarray, rest))) - value
            drift += change
            square += change * change
        spread = np.maximum(square - drift * drift / filled.size, 0.0)
        error = np.sqrt((filled.size - 1) / filled.size * spread)
        if not (np.all(np.isfinite(value)) and np.all(np.isfinite(error))):
            raise NonFiniteError("a moment left the range of float64: rescale the observable")
        return Estimate(value, np.asarray(error), self.count)


def _check_request(samples: np.ndarray, order: int, batches: int, first: int) -> None:
    if order not in (1, 2, 3):
        raise InvalidValueError("order", order, "expected 1, 2 or 3")
    if batches < 2:
        raise InvalidValueError("batches", batches, "at least 2 needed for a standard error")
    if first < 0:
        raise InvalidValueError("first", first, "members are numbered from 0")
    if samples.ndim < min(order, 2):
        raise InvalidValueError("shape of samples", samples.shape, "expected (members, …, P)")
    if samples.size == 0:
        raise InvalidValueError("shape of samples", samples.shape, "at least one number needed")


def _deal(deviations: np.ndarray, batches: int, first: int) -> np.ndarray:
    """(members, …) → (rounds, batches, …); missing places are 0 and add nothing to the sums."""
    offset = first % batches
    rounds = -(-(offset + deviations.shape[0]) // batches)
    dealt = np.zeros((rounds * batches, *deviations.shape[1:]))
    dealt[offset : offset + deviations.shape[0]] = deviations
    return dealt.reshape(rounds, batches, *deviations.shape[1:])


def _power_sums(dealt: np.ndarray, order: int) -> _Sums:
    sums: list[np.ndarray] = [dealt.sum(axis=0)]
    if order == 1:
        return tuple(sums)
    d = np.ascontiguousarray(np.moveaxis(dealt, 0, -2))  # batches, …, rounds, P
    sums.append(np.swapaxes(d, -1, -2) @ d)
    if order == 3:
        products = (d[..., :, None] * d[..., None, :]).reshape(*d.shape[:-1], -1)
        third = np.swapaxes(products, -1, -2) @ d
        sums.append(third.reshape(*sums[1].shape, d.shape[-1]))
    return tuple(sums)


def _shifted(sums: _Sums, counts: np.ndarray, step: np.ndarray) -> _Sums:
    """The sums of d + step, from those of d."""
    step = step[None]
    n = counts.reshape(-1, *[1] * (step.ndim - 1)).astype(np.float64)
    shifted: list[Any] = [sums[0] + n * step]
    if len(sums) > 1:
        cross = _outer(sums[0], step)
        square = _outer(step, step)
        n = n[..., None]
        shifted.append(sums[1] + cross + np.swapaxes(cross, -1, -2) + n * square)
        if len(sums) > 2:
            mixed = _symmetrised(sums[1], step) + _symmetrised(square, sums[0])
            shifted.append(sums[2] + mixed + n[..., None] * _outer(square, step))
    return tuple(shifted)


def _outer(tensor: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """tensor[…, i, …] vector[…, k] with k appended; both carry the same leading axes."""
    extra = tensor.ndim - vector.ndim + 1
    aligned = vector.reshape(*vector.shape[:-1], *[1] * extra, vector.shape[-1])
    return tensor[..., None] * aligned


def _symmetrised(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """m_ij v_k + m_ik v_j + m_jk v_i for a symmetric m."""
    product = _outer(matrix, vector)
    return product + np.swapaxes(product, -1, -2) + np.moveaxis(product, -1, -3)


def _mean(n: int, sums: _Sums) -> np.ndarray:
    return np.asarray(sums[0] / n)


def _covariance(n: int, sums: _Sums) -> np.ndarray:
    return (sums[1] - _outer(sums[0], sums[0]) / n) / (n - 1)


def _third_cumulant(n: int, sums: _Sums) -> np.ndarray:
    mean, second, third = (total / n for total in sums)
    central = third - _symmetrised(second, mean) + 2.0 * _outer(_outer(mean, mean), mean)
    return central * (n * n / ((n - 1) * (n - 2)))
