"""Streaming moments against direct formulas, exact merging, and honest standard errors."""

import itertools
import math

import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.results._estimate import Moments


def chi_square_cumulant(order: int, degrees: int) -> float:
    return 2.0 ** (order - 1) * math.factorial(order - 1) * degrees


def assert_same(left, right, rtol=1e-10):
    for name in ("mean", "covariance", "third_cumulant"):
        a, b = getattr(left, name)(), getattr(right, name)()
        # Entries of very different size share a tensor: rounding is relative to the largest.
        np.testing.assert_allclose(a.value, b.value, rtol, rtol * np.abs(b.value).max())
        np.testing.assert_allclose(a.standard_error, b.standard_error, rtol)
        assert a.count == b.count


def test_values_are_the_unbiased_sample_cumulants():
    g = np.random.default_rng(1).gamma(2.0, size=(37, 3)) @ np.array(
        [[1.0, 0.3, 0.0], [0.0, 1.0, -0.5], [0.2, 0.0, 2.0]]
    )
    moments = Moments.from_samples(g, order=3)
    d, n = g - g.mean(axis=0), len(g)
    np.testing.assert_allclose(moments.mean().value, g.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.covariance().value, np.cov(g.T), rtol=1e-12)
    third = moments.third_cumulant().value
    for i, j, k in itertools.product(range(3), repeat=3):
        expected = n / ((n - 1) * (n - 2)) * math.fsum(d[:, i] * d[:, j] * d[:, k])
        assert third[i, j, k] == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_the_error_of_a_mean_is_the_textbook_one():
    g = np.random.default_rng(2).normal(size=(60, 2, 3))
    single = Moments.from_samples(g, order=1, batches=60).mean()
    np.testing.assert_allclose(single.standard_error, g.std(axis=0, ddof=1) / 60**0.5, rtol=1e-12)
    # Ten batches of six: member m belongs to batch m mod 10.
    batched = Moments.from_samples(g, order=1, batches=10).mean()
    means = g.reshape(6, 10, 2, 3).mean(axis=0)
    np.testing.assert_allclose(
        batched.standard_error, means.std(axis=0, ddof=1) / 10**0.5, rtol=1e-12
    )


def test_the_joint_error_of_a_mean_serves_sums_over_components():
    """The error of Σ c_i ⟨g_i⟩ is that of the mean of Σ c_i g_i, a component of its own."""
    rng = np.random.default_rng(11)
    g = rng.normal(size=(1000, 3)) @ rng.normal(size=(3, 3))
    c = np.array([1.0, -2.0, 0.5])
    moments = Moments.from_samples(np.concatenate([g, (g @ c)[:, None]], axis=1), order=1)
    joint, error = moments.error_of_mean(), moments.mean().standard_error
    np.testing.assert_allclose(np.sqrt(np.diagonal(joint)), error, rtol=1e-10)
    np.testing.assert_allclose(c @ joint[:3, :3] @ c, error[3] ** 2, rtol=1e-10)


def test_a_scalar_observable_has_a_mean():
    estimate = Moments.from_samples(np.arange(10.0), order=1).mean()
    assert estimate.value.shape == ()
    assert float(estimate.value) == 4.5
    assert float(estimate.standard_error) == pytest.approx(np.arange(10.0).std(ddof=1) / 10**0.5)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_merging_chunks_of_any_size_equals_one_pass(offset):
    g = offset + np.random.default_rng(3).gamma(1.5, size=(700, 2, 3))
    whole = Moments.from_samples(g, order=3, batches=16)
    merged, at = None, 0
    for size in (1, 5, 130, 16, 301, 247):
        chunk = Moments.from_samples(g[at : at + size], order=3, batches=16, first=at)
        merged, at = (chunk if merged is None else merged.merge(chunk)), at + size
    assert at == 700
    assert_same(merged, whole, rtol=1e-10 if offset == 0.0 else 1e-8)
    # The origin makes the offset harmless: the same numbers without it.
    plain = Moments.from_samples(g - offset, order=3, batches=16)
    np.testing.assert_allclose(whole.covariance().value, plain.covariance().value, rtol=1e-9)


def test_merging_is_symmetric():
    g = np.random.default_rng(4).gamma(1.5, size=(90, 2))
    a = Moments.from_samples(g[:40], order=3, batches=8)
    b = Moments.from_samples(g[40:], order=3, batches=8, first=40)
    assert_same(a.merge(b), b.merge(a))


def test_a_constant_component_has_no_error_at_all():
    g = np.random.default_rng(5).normal(size=(300, 2))
    g[:, 0] = 0.1
    moments = Moments.from_samples(g[:100], order=3).merge(
        Moments.from_samples(g[100:], order=3, first=100)
    )
    assert moments.mean().value[0] == 0.1
    for estimate in (moments.mean(), moments.covariance(), moments.third_cumulant()):
        assert np.all(estimate.standard_error[0] == 0.0)
    assert np.all(moments.covariance().value[0] == 0.0)
    assert np.all(moments.third_cumulant().value[0] == 0.0)


def test_small_samples_are_unbiased():
    """Six members only: the factors 6/5 and 36/20 are far larger than the error of this test."""
    degrees = 3
    g = np.random.default_rng(6).chisquare(degrees, size=(6, 200000, 1))
    moments = Moments.from_samples(g, order=3, batches=6)
    assert_average(moments.covariance().value, chi_square_cumulant(2, degrees))
    assert_average(moments.third_cumulant().value, chi_square_cumulant(3, degrees))


def test_errors_of_gaussian_covariances_are_right_on_average_and_cover():
    """Var of a sample covariance of Gaussians is (C_ii C_jj + C_ij²)/(M − 1)."""
    replicas, members = 1000, 640
    root = np.array([[1.0, 0.0], [0.8, 0.6]])
    exact = root @ root.T
    g = np.random.default_rng(7).normal(size=(members, replicas, 2)) @ root.T
    moments = Moments.from_samples(g)
    covariance, mean = moments.covariance(), moments.mean()
    for i, j in ((0, 0), (0, 1), (1, 1)):
        variance = (exact[i, i] * exact[j, j] + exact[i, j] ** 2) / (members - 1)
        assert_average(covariance.standard_error[:, i, j] ** 2, variance)
        z = (covariance.value - exact) / covariance.standard_error
        assert_coverage(z[:, i, j], bias=0.01)
    assert_average(mean.standard_error[:, 1] ** 2, exact[1, 1] / members)
    assert_coverage(mean.value[:, 1] / mean.standard_error[:, 1], bias=0.005)


def test_errors_of_chi_square_third_cumulants_are_right_on_average_and_cover():
    """Var k₃ = κ₆/M + 9(κ₂κ₄ + κ₃²)/(M−1) + 6Mκ₂³/((M−1)(M−2))."""
    members, degrees = 4000, 20
    generator = np.random.default_rng(8)
    estimates = [
        Moments.from_samples(
            generator.chisquare(degrees, size=(members, 400, 1)), order=3
        ).third_cumulant()
        for _ in range(10)
    ]
    value = np.concatenate([estimate.value.ravel() for estimate in estimates])
    error = np.concatenate([estimate.standard_error.ravel() for estimate in estimates])
    k2, k3, k4, k6 = (chi_square_cumulant(order, degrees) for order in (2, 3, 4, 6))
    variance = k6 / members + 9 * (k2 * k4 + k3**2) / (members - 1)
    variance += 6 * members * k2**3 / ((members - 1) * (members - 2))
    assert_average(value, k3)
    assert_average(error**2, variance)
    # A skewed statistic: its errors are too small a little more often than too large.
    assert_coverage((value - k3) / error, bias=0.015)


def assert_average(values, exact):
    """The average over replicas is `exact`, in a test able to see 3 %."""
    error = values.std(ddof=1) / values.size**0.5
    assert error < 0.03 / 4 * abs(exact)
    assert abs(values.mean() - exact) < 4 * error


def assert_coverage(z, bias):
    """The fractions within 1, 2 and 3 standard errors are normal, up to `bias` and counting."""
    for limit in (1.0, 2.0, 3.0):
        expected = math.erf(limit / 2**0.5)
        counting = (expected * (1 - expected) / z.size) ** 0.5
        assert abs(np.mean(np.abs(z) < limit) - expected) < bias + 3 * counting


def test_bad_requests_name_the_argument():
    g = np.ones((10, 2))
    with pytest.raises(InvalidValueError, match=r"order = 4: expected 1, 2 or 3"):
        Moments.from_samples(g, order=4)
    with pytest.raises(InvalidValueError, match="batches = 1: at least 2"):
        Moments.from_samples(g, batches=1)
    with pytest.raises(InvalidValueError, match="first = -1"):
        Moments.from_samples(g, first=-1)
    with pytest.raises(InvalidValueError, match="shape of samples"):
        Moments.from_samples(np.ones(10), order=2)
    with pytest.raises(InvalidValueError, match="order = 2: sums up to order 3 needed"):
        Moments.from_samples(g).third_cumulant()
    with pytest.raises(InvalidValueError, match="members = 2: without one batch at least 2"):
        Moments.from_samples(g[:2]).covariance()
    with pytest.raises(InvalidValueError, match="moments to merge"):
        Moments.from_samples(g).merge(Moments.from_samples(g, order=3))
    g[3, 1] = np.nan
    with pytest.raises(NonFiniteError, match="member 103 is not finite"):
        Moments.from_samples(g, first=100)
