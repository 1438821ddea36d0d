"""Neural collapse NC1-NC4 of a layer's features, in one streamed pass, with shuffled labels beside.

Class means μ_c, their centre μ_G (each class counted once), Σ_W the covariance within classes, Σ_B
that of the class means. NC1 tr(Σ_W Σ_B⁺)/C; NC2 the spread of the norms of μ_c − μ_G and the mean
distance of their cosines from −1/(C−1); NC3 the distance of the classifier's rows from the means,
both centred over classes and scaled to norm 1; NC4 how often the classifier and the nearest class
mean disagree. All are 0 at collapse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from dynagram.errors import InvalidValueError
from dynagram.observables._nulls import Null
from dynagram.observables.gram._linearity import check_labels

_SHUFFLES = 16


@dataclass(frozen=True)
class Collapse:
    """The measures of neural collapse, each 0 at collapse, and each with shuffled labels.

    **Arguments:**

    - `within`: NC1.
    - `norms`, `angles`: NC2.
    - `duality`: NC3; None without a classifier.
    - `disagreement`: NC4; None without a second look at the features.
    - `within_null`, …: the same with shuffled labels.
    """

    within: float
    within_null: Null
    norms: float
    norms_null: Null
    angles: float
    angles_null: Null
    duality: float | None = None
    duality_null: Null | None = None
    disagreement: float | None = None
    disagreement_null: Null | None = None


class CollapseTracker:
    """Class means and covariance within classes of streamed features.

    `add` takes batches; `measures` gives NC1 and NC2, with a classifier W NC3, and `disagreement`
    NC4 on features seen again. Beside the true labels it carries 16 shufflings of them, drawn
    from `seed` batch by batch, which give the nulls. Memory 8 (n² + 17 C n) bytes.

    **Arguments:**

    - `classes`, `features`: C and n.
    - `seed`: of the shufflings.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> tracker = CollapseTracker(3, 5)
    >>> tracker.add(np.eye(5)[labels] + 0.01 * rng.normal(size=(300, 5)), labels)
    >>> measures = tracker.measures()
    >>> bool(measures.within < 1e-3 < measures.within_null.mean), bool(measures.angles < 0.01)
    (True, True)
    """

    def __init__(self, classes: int, features: int, *, seed: int = 0):
        if classes < 2:
            raise InvalidValueError("classes", classes, "at least 2 needed")
        self._rng = np.random.default_rng(seed)
        self._counts = np.zeros(classes)
        self._means = np.zeros((classes, features))
        self._within = np.zeros((features, features))
        self._shuffled_sums = np.zeros((_SHUFFLES, classes, features))
        self._shuffled_counts = np.zeros((_SHUFFLES, classes))

    def add(self, h: Float[np.ndarray, "samples n"], labels: Int[np.ndarray, " samples"]) -> None:
        """Count a batch."""
        h, labels = self._checked(h, labels)
        for c in np.unique(labels):
            rows = h[labels == c]
            m, n = len(rows), self._counts[c]
            mean = rows.mean(axis=0)
            step = mean - self._means[c]
            deviations = rows - mean
            # Merged, not subtracted: at collapse the scatter is tiny against the means.
            self._within += deviations.T @ deviations + np.outer(step, step) * (n * m / (n + m))
            self._means[c] += step * (m / (n + m))
            self._counts[c] += m
        for k in range(_SHUFFLES):
            shuffled = self._rng.permutation(labels)
            np.add.at(self._shuffled_sums[k], shuffled, h)
            self._shuffled_counts[k] += np.bincount(shuffled, minlength=len(self._counts))

    def measures(self, W: Float[np.ndarray, "C n"] | None = None) -> Collapse:
        """NC1, NC2 and, with the classifier's weights W, NC3 of all that was added."""
        if np.any(self._counts == 0):
            missing = [int(c) for c in np.flatnonzero(self._counts == 0)]
            raise InvalidValueError("labels", missing, "these classes have no sample")
        if W is not None and W.shape != self._means.shape:
            raise InvalidValueError("shape of W", W.shape, f"expected {self._means.shape}")
        values = self._values(self._means, self._within, W)
        total = self._within + _scatter(self._means, self._counts)
        nulls = []
        for means, counts in self._shuffled_means():
            nulls.append(self._values(means, total - _scatter(means, counts), W))
        within, norms, angles, duality = (_null(column) for column in zip(*nulls, strict=True))
        return Collapse(
            within=values[0],
            within_null=within,
            norms=values[1],
            norms_null=norms,
            angles=values[2],
            angles_null=angles,
            duality=values[3] if W is not None else None,
            duality_null=duality if W is not None else None,
        )

    def disagreement(
        self, h: Float[np.ndarray, "samples n"], decisions: Int[np.ndarray, " samples"]
    ) -> tuple[float, Null]:
        """NC4: the fraction of rows where the nearest class mean is not the network's `decisions`,
        and the same with the means of shuffled labels."""
        h, decisions = self._checked(h, decisions)
        fraction = float(np.mean(_nearest(h, self._means) != decisions))
        shuffled = [np.mean(_nearest(h, means) != decisions) for means, _ in self._shuffled_means()]
        return fraction, _null(shuffled)

    def _shuffled_means(self) -> list[tuple[np.ndarray, np.ndarray]]:
        pairs = zip(self._shuffled_sums, self._shuffled_counts, strict=True)
        return [(sums / counts[:, None], counts) for sums, counts in pairs]

    def _checked(self, h: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = check_labels(labels)
        classes, features = self._means.shape
        if h.shape != (labels.size, features):
            raise InvalidValueError("shape of h", h.shape, f"expected ({labels.size}, {features})")
        if labels.max() >= classes:
            raise InvalidValueError("labels", int(labels.max()), f"expected 0 to {classes - 1}")
        return np.asarray(h, dtype=np.float64), labels

    def _values(
        self, means: np.ndarray, within: np.ndarray, W: np.ndarray | None
    ) -> tuple[float, float, float, float]:
        classes = len(means)
        centred = means - means.mean(axis=0)
        # Σ_B⁺ by the SVD of the centred means, whose rank is C − 1 at most.
        _, s, Vt = np.linalg.svd(centred / np.sqrt(classes), full_matrices=False)
        resolved = s > 1e-10 * s[0] if s[0] > 0 else np.zeros(s.size, dtype=bool)
        if not np.any(resolved):
            raise InvalidValueError("features", "equal class means", "collapse has no meaning here")
        resolved[classes - 1 :] = False
        projected = Vt[resolved] @ within @ Vt[resolved].T / self._counts.sum()
        first = float(np.sum(np.diag(projected) / s[resolved] ** 2)) / classes
        lengths = np.linalg.norm(centred, axis=1)
        norms = float(np.std(lengths) / np.mean(lengths))
        directions = centred / np.maximum(lengths, 1e-300)[:, None]
        cosines = (directions @ directions.T)[np.triu_indices(classes, 1)]
        angles = float(np.mean(np.abs(cosines + 1.0 / (classes - 1))))
        duality = float("nan")
        if W is not None:
            rows = W - W.mean(axis=0)
            difference = rows / np.linalg.norm(rows) - centred / np.linalg.norm(centred)
            duality = float(np.linalg.norm(difference))
        return first, norms, angles, duality


def collapse(
    h: Float[np.ndarray, "samples n"],
    labels: Int[np.ndarray, " samples"],
    W: Float[np.ndarray, "C n"],
    b: Float[np.ndarray, " C"] | None = None,
    *,
    seed: int = 0,
) -> Collapse:
    """NC1-NC4 of features held in memory, with the classifier z = W h + b on them.

    **Arguments:**

    - `h`: features (samples, n).
    - `labels`: integers 0..C−1.
    - `W`, `b`: weights (C, n) and biases of the classifier.
    - `seed`: of the shuffled labels.

    **Returns:** `Collapse`, all measures of it.

    >>> labels = np.arange(30) % 3
    >>> simplex = np.eye(3) - 1 / 3
    >>> measures = collapse(simplex[labels], labels, 5 * simplex)
    >>> [round(v, 6) for v in (measures.within, measures.norms, measures.angles, measures.duality)]
    [0.0, 0.0, 0.0, 0.0]
    >>> measures.disagreement
    0.0
    """
    tracker = CollapseTracker(W.shape[0], W.shape[1], seed=seed)
    tracker.add(h, labels)
    measures = tracker.measures(W)
    logits = h @ W.T + (0.0 if b is None else b)
    wrong, null = tracker.disagreement(h, np.argmax(logits, axis=1))
    return replace(measures, disagreement=wrong, disagreement_null=null)


def _scatter(means: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Σ_c m_c (μ_c − μ)(μ_c − μ)ᵀ around the mean of all samples."""
    centred = means - counts @ means / counts.sum()
    return (centred * counts[:, None]).T @ centred


def _nearest(h: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The index of the class mean nearest to each row."""
    return np.argmin(np.sum(means**2, axis=1)[None, :] - 2.0 * h @ means.T, axis=1)


def _null(values: object) -> Null:
    array = np.array(values, dtype=np.float64)
    return Null(float(np.mean(array)), float(np.std(array, ddof=1)))
