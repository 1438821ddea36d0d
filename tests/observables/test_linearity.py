"""Target linearity against scikit-learn, its nulls, streaming; the surrogate and its null."""

import itertools

import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.observables.gram._factor import FeatureFactor
from dynagram.observables.gram._linearity import (
    TrivialLinearityWarning,
    held_out_linearity,
    one_hot,
    target_linearity,
)
from dynagram.observables.gram._surrogate import target_surrogate

rng = np.random.default_rng(11)


def r_squared(y, predicted):
    return 1 - np.sum((y - predicted) ** 2) / np.sum((y - y.mean(axis=0)) ** 2)


def relu_features(samples, widths, x=None, seed=0):
    """An untrained ReLU network's last hidden layer, with dead and nearly dead units."""
    local = np.random.default_rng(seed)
    h = local.normal(size=(samples, widths[0])) if x is None else x
    for n_in, n_out in itertools.pairwise(widths):
        h = np.maximum(h @ local.normal(size=(n_in, n_out)) * np.sqrt(2 / n_in), 0)
    return h


@pytest.mark.parametrize("targets", [1, 4])
def test_equals_the_r_squared_of_scikit_learn(targets):
    linear_model = pytest.importorskip("sklearn.linear_model")
    h = rng.normal(size=(150, 12)) * 10.0 ** rng.uniform(-2, 2, 12) + 5.0
    y = np.tanh(h[:, :targets]) + rng.normal(size=(150, targets))
    fitted = linear_model.LinearRegression().fit(h, y)
    assert target_linearity(h, y).score == pytest.approx(r_squared(y, fitted.predict(h)), abs=1e-10)


def test_dead_and_repeated_units_change_nothing():
    h, y = rng.normal(size=(90, 10)), rng.normal(size=(90, 3))
    plain = target_linearity(h, y)
    broken = np.concatenate([h, np.zeros((90, 2)), h[:, :3], np.full((90, 1), 7.0)], axis=1)
    found = target_linearity(broken, y)
    assert (plain.rank, found.rank) == (10, 10)
    assert found.score == pytest.approx(plain.score, abs=1e-12)
    ridge = held_out_linearity(broken[:60], y[:60], broken[60:], y[60:])
    assert np.isfinite(ridge.score)


def test_more_features_than_samples_is_flagged():
    h, y = rng.normal(size=(20, 30)), rng.normal(size=20)
    with pytest.warns(TrivialLinearityWarning, match="independent targets give 1.000"):
        found = target_linearity(h, y)
    assert found.trivial
    assert found.score == pytest.approx(1.0, abs=1e-12)
    assert (found.rank, found.null.mean) == (19, 1.0)
    ridge = held_out_linearity(h[:14], y[:14], h[14:], y[14:])
    assert not ridge.trivial
    assert ridge.score < 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("M", "p", "classes"), [(300, 60, 10), (150, 100, 2)])
def test_in_sample_null_of_shuffled_labels(M, p, classes):
    h = relu_features(M, (8, p))
    y = one_hot(rng.integers(0, classes, M), classes)
    draws = [target_linearity(h, y[rng.permutation(M)]) for _ in range(200)]
    scores = np.array([found.above_null for found in draws])
    assert draws[0].null.mean == pytest.approx(draws[0].rank / (M - 1), rel=1e-12)
    assert abs(scores.mean()) < 3 / np.sqrt(200)
    assert 0.85 < scores.std() < 1.15
    assert np.max(np.abs(scores)) < 4.5


@pytest.mark.parametrize("widths", [(8, 60), (8, 200), (6, 64, 64, 64)])
def test_held_out_null_of_shuffled_labels(widths):
    """Untrained deep ReLU features hold nearly dead units: least squares fails there, ridge not."""
    h, y = relu_features(220, widths), one_hot(rng.integers(0, 10, 220), 10)
    found = []
    for seed in range(40):
        y = y[rng.permutation(220)]
        found.append(held_out_linearity(h[:150], y[:150], h[150:], y[150:], seed=seed))
    scores = np.array([f.score for f in found])
    null = np.mean([f.null.mean for f in found])
    deviation = np.mean([f.null.deviation for f in found])
    assert abs(scores.mean() - null) < 3 * deviation * np.sqrt(1 / 40 + 1 / 960)
    assert 0.7 * deviation < scores.std() < 1.4 * deviation
    expected = -(1 / 150 + 1 / 70)
    assert expected * 1.5 < null < expected * 0.8
    assert scores.min() > -0.2


def test_held_out_least_squares_formula_is_what_ridge_avoids():
    """E R² = 1 − m/(m−1) (M+1)(M−2)/(M(M−p−2)) for Gaussian features without a penalty."""
    M, m, p = 120, 60, 40
    plain, ridge = [], []
    for _ in range(150):
        h, y = rng.normal(size=(M + m, p)), rng.normal(size=(M + m, 1))
        weights = np.linalg.lstsq(np.c_[np.ones(M), h[:M]], y[:M], rcond=None)[0]
        plain.append(r_squared(y[M:], np.c_[np.ones(m), h[M:]] @ weights))
        ridge.append(held_out_linearity(h[:M], y[:M], h[M:], y[M:]).score)
    expected = 1 - m / (m - 1) * (M + 1) * (M - 2) / (M * (M - p - 2))
    assert abs(np.mean(plain) - expected) < 3 * np.std(plain) / np.sqrt(150)
    assert np.mean(ridge) > -0.1 > expected


def test_ridge_minimises_generalised_cross_validation():
    """The same criterion by dense matrices and a fine search over the penalty."""
    h, h_test = rng.normal(size=(60, 25)), rng.normal(size=(30, 25))
    truth = rng.normal(size=(25, 2)) / 5
    y, y_test = (a @ truth + rng.normal(size=(len(a), 2)) for a in (h, h_test))
    found = held_out_linearity(h, y, h_test, y_test)
    centred, target = h - h.mean(axis=0), y - y.mean(axis=0)
    largest = np.linalg.norm(centred, 2) ** 2

    def fit(penalty):
        weights = np.linalg.solve(
            centred.T @ centred + penalty * largest * np.eye(25), centred.T @ target
        )
        smoother = centred @ np.linalg.solve(
            centred.T @ centred + penalty * largest * np.eye(25), centred.T
        )
        residual = np.sum((target - centred @ weights) ** 2)
        return residual / (59 - np.trace(smoother)) ** 2, weights

    criterion, weights = fit(found.penalty)
    predicted = (h_test - h.mean(axis=0)) @ weights + y.mean(axis=0)
    assert found.score == pytest.approx(r_squared(y_test, predicted), abs=1e-10)
    assert criterion <= min(fit(c)[0] for c in np.geomspace(1e-6, 1e3, 400)) * 1.02
    assert found.above_null > 3


def test_streamed_batches_give_the_same_scores():
    h, y = relu_features(500, (6, 40)), rng.normal(size=(500, 3))
    y[:, 0] += h[:, 0]
    fitted, scored = FeatureFactor(), FeatureFactor()
    for rows in np.split(np.arange(400), [1, 50, 333]):
        fitted.add(h[rows], y[rows])
    for rows in np.split(np.arange(400, 500), 5):
        scored.add(h[rows], y[rows])
    whole = target_linearity(h[:400], y[:400])
    assert target_linearity(fitted).score == pytest.approx(whole.score, abs=1e-12)
    held_out = held_out_linearity(h[:400], y[:400], h[400:], y[400:])
    assert held_out_linearity(fitted, None, scored).score == pytest.approx(held_out.score, abs=1e-9)
    np.testing.assert_allclose(fitted.feature_mean, h[:400].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(fitted.target_mean, y[:400].mean(axis=0), rtol=0, atol=1e-14)
    W = rng.normal(size=(7, 40))
    assert target_surrogate(W, fitted).value == pytest.approx(
        target_surrogate(W, h[:400], y[:400]).value, rel=1e-11
    )


def test_surrogate_by_its_definition():
    h, y, W = rng.normal(size=(50, 6)) + 1, rng.normal(size=(50, 3)), rng.normal(size=(4, 6))
    centred = y - y.mean(axis=0)
    found = target_surrogate(W, h, y)
    value = np.trace(centred.T @ h @ W.T @ W @ h.T @ centred) / 3 / np.sum((h @ W.T) ** 2)
    assert found.value == pytest.approx(value, rel=1e-12)
    H = h - h.mean(axis=0)
    K, Y = H @ W.T @ W @ H.T, centred @ centred.T
    cosine = np.sum(K * Y) / np.linalg.norm(K) / np.linalg.norm(Y)
    assert found.alignment.value == pytest.approx(cosine, rel=1e-12)


def test_surrogate_of_shuffled_targets_is_at_its_null():
    h, W = relu_features(150, (8, 30)), rng.normal(size=(20, 30))
    y = one_hot(rng.integers(0, 5, 150), 5)
    found = [target_surrogate(W, h, y[rng.permutation(150)]).alignment for _ in range(300)]
    scores = np.array([a.score for a in found])
    assert abs(scores.mean()) < 3 * scores.std() / np.sqrt(300)
    assert 0.85 < scores.std() < 1.15
    related = target_surrogate(W, h, h[:, :5])
    assert related.alignment.score > 10


def test_refusals():
    h, y = np.ones((5, 2)), np.arange(5.0)
    with pytest.raises(InvalidValueError, match="rows of h and y"):
        target_linearity(h, y[:4])
    with pytest.raises(InvalidValueError, match="do not vary"):
        target_linearity(rng.normal(size=(5, 2)), np.ones(5))
    with pytest.raises(InvalidValueError, match="h = 'nan or infinite'"):
        target_linearity(h * np.nan, y)
    with pytest.raises(InvalidTypeError, match="array of reals"):
        target_linearity(h, np.array(["a"] * 5))
    with pytest.raises(InvalidValueError, match="targets are needed"):
        target_linearity(h)
    with pytest.raises(InvalidValueError, match="holds its targets"):
        target_linearity(FeatureFactor.of(h, y), y)
    with pytest.raises(InvalidValueError, match="no batch"):
        target_linearity(FeatureFactor())
    with pytest.raises(InvalidValueError, match="features and targets of the test set"):
        held_out_linearity(h, y, np.ones((5, 3)), y)
    factor = FeatureFactor.of(h, y)
    with pytest.raises(InvalidValueError, match="as in the first batch"):
        factor.add(np.ones((5, 3)), y)
    with pytest.raises(InvalidValueError, match="shape of W"):
        target_surrogate(np.ones((2, 3)), h, y)
    with pytest.raises(InvalidValueError, match="labels"):
        one_hot(np.array([0.0, 1.0]))
    with pytest.raises(InvalidValueError, match="expected 0 to 1"):
        one_hot(np.array([0, 2]), 2)
    with pytest.raises(InvalidValueError, match="≥ 0"):
        one_hot(np.array([0, -1]))


def test_constant_features_know_nothing():
    found = target_linearity(np.full((30, 4), 3.3), rng.normal(size=30))
    assert (found.rank, found.score) == (0, pytest.approx(0.0, abs=1e-12))
    y = rng.normal(size=30)
    ridge = held_out_linearity(np.full((20, 4), 3.3), y[:20], np.full((10, 4), 3.3), y[20:])
    assert ridge.score <= 0.0
    assert ridge.penalty == np.inf
