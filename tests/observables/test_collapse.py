"""Neural collapse: exact at a simplex, by definition elsewhere, at the null for shuffled labels."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.observables._collapse import CollapseTracker, collapse

rng = np.random.default_rng(9)


def simplex(classes, features):
    Q = np.linalg.qr(rng.normal(size=(features, features)))[0]
    return (np.eye(classes) - 1 / classes) @ Q[:classes]


def test_collapsed_features_measure_zero():
    means = 4 * simplex(5, 12)
    labels = rng.permutation(np.arange(200) % 5)
    h = means[labels] + 100.0  # a large common mean costs no digits
    found = collapse(h, labels, 0.3 * means, b=-0.3 * means @ np.full(12, 100.0))
    assert 0 <= found.within < 1e-20
    assert max(found.norms, found.angles, found.duality) < 1e-12
    assert found.disagreement == 0.0
    assert found.within_null.mean > 1
    assert found.disagreement_null.mean > 0.5


def test_measures_by_their_definitions():
    labels = rng.integers(0, 4, 120)
    h, W = rng.normal(size=(120, 7)) + rng.normal(size=(4, 7))[labels], rng.normal(size=(4, 7))
    means = np.array([h[labels == c].mean(axis=0) for c in range(4)])
    centred = means - means.mean(axis=0)
    within = np.cov((h - means[labels]).T, bias=True)
    between = centred.T @ centred / 4
    found = collapse(h, labels, W)
    expected = np.trace(within @ np.linalg.pinv(between, rcond=1e-8)) / 4
    assert found.within == pytest.approx(expected, rel=1e-9)
    norms = np.linalg.norm(centred, axis=1)
    assert found.norms == pytest.approx(norms.std() / norms.mean(), rel=1e-12)
    cosines = [centred[a] @ centred[b] / norms[a] / norms[b] for a in range(4) for b in range(a)]
    assert found.angles == pytest.approx(np.mean(np.abs(np.array(cosines) + 1 / 3)), rel=1e-12)
    rows = W - W.mean(axis=0)
    gap = np.linalg.norm(rows / np.linalg.norm(rows) - centred / np.linalg.norm(centred))
    assert found.duality == pytest.approx(gap, rel=1e-12)
    nearest = np.argmin(((h[:, None] - means[None]) ** 2).sum(axis=2), axis=1)
    assert found.disagreement == np.mean(nearest != np.argmax(h @ W.T, axis=1))


def test_batches_add_up():
    labels, h = rng.integers(0, 3, 90), rng.normal(size=(90, 5)) + 50
    whole, parts = CollapseTracker(3, 5), CollapseTracker(3, 5)
    whole.add(h, labels)
    for rows in np.split(np.arange(90), [7, 8, 60]):
        parts.add(h[rows], labels[rows])
    a, b = whole.measures(), parts.measures()
    assert (a.within, a.norms, a.angles) == pytest.approx((b.within, b.norms, b.angles), rel=1e-9)
    assert a.duality is None


def test_labels_that_mean_nothing_are_at_the_null():
    scores = []
    for seed in range(40):
        h, labels = rng.normal(size=(100, 8)) @ rng.normal(size=(8, 8)), rng.integers(0, 4, 100)
        found = collapse(h, labels, rng.normal(size=(4, 8)), seed=seed)
        scores.append(
            [
                found.within_null.score(found.within),
                found.norms_null.score(found.norms),
                found.angles_null.score(found.angles),
                found.duality_null.score(found.duality),
                found.disagreement_null.score(found.disagreement),
            ]
        )
    scores = np.array(scores)
    assert np.all(np.abs(scores.mean(axis=0)) < 4 * scores.std(axis=0) / np.sqrt(40))
    assert np.all(scores.std(axis=0) < 1.8)


def test_refusals():
    with pytest.raises(InvalidValueError, match="classes = 1"):
        CollapseTracker(1, 3)
    tracker = CollapseTracker(3, 2)
    with pytest.raises(InvalidValueError, match="expected 0 to 2"):
        tracker.add(np.ones((1, 2)), np.array([3]))
    tracker.add(rng.normal(size=(4, 2)), np.array([0, 1, 0, 1]))
    with pytest.raises(InvalidValueError, match=r"labels = \[2\]: these classes have no sample"):
        tracker.measures()
    with pytest.raises(InvalidValueError, match="equal class means"):
        collapse(np.ones((4, 2)), np.array([0, 1, 0, 1]), np.ones((2, 2)))
