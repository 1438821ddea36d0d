"""Series of entropies and information against numerical integration, and the exact mixtures."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import digamma, gammaln, kve

from dynagram.errors import DynagramError
from dynagram.theory.information import (
    ScaleMixture,
    entropy,
    mutual_information,
    relative_variance,
    running_couplings,
    sampled_information,
    several_inputs_entropy,
    several_inputs_information,
    tripartite_information,
)

FAMILIES = ("lognormal", "gamma", "inverse_gamma", "two_point")
GAUSSIAN = 0.5 * math.log(2 * math.pi * math.e)


def series(family, quantity, powers, xs):
    """Coefficients of x^powers[0], x^powers[1], … of an exact quantity, by a fit at small x."""
    values = np.array([quantity(getattr(ScaleMixture, family)(x)) for x in xs])
    scale = xs[-1]
    table = np.array([[(x / scale) ** power for power in powers] for x in xs])
    rows = np.array(xs) ** powers[0]  # relative weights
    fit = np.linalg.lstsq(table / rows[:, None], values / rows, rcond=None)[0]
    return fit / scale ** np.array(powers, dtype=float)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_entropy_coefficients(family, m):
    """x²: −(m² + 2m)/16, x³: (m³ + 10m² + 16m)/48, whatever the third cumulant of Ĝ."""
    second, third, *_ = series(
        family,
        lambda mix: mix.entropy(m) - m * GAUSSIAN,
        (2, 3, 4, 5),
        np.linspace(0.0006, 0.006, 7),
    )
    assert second == pytest.approx(-(m**2 + 2 * m) / 16, rel=1e-3)
    assert third == pytest.approx((m**3 + 10 * m**2 + 16 * m) / 48, rel=1e-2)
    written = [float(entropy(0.1, neurons=m, order=order)) for order in ("leading", "next")]
    assert third == pytest.approx((written[1] - written[0]) / 1e-3, rel=1e-2)
    x = 0.01
    exact = getattr(ScaleMixture, family)(x).entropy(m)
    assert float(entropy(x, neurons=m)) == pytest.approx(exact, abs=30 * m**3 * x**4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), (2, 3)])
def test_mutual_information_coefficients(family, first, second):
    found = series(
        family,
        lambda mix: mix.mutual_information(first, second),
        (2, 3, 4, 5),
        np.linspace(0.0006, 0.006, 7),
    )
    product = first * second
    assert found[0] == pytest.approx(product / 8, rel=1e-3)
    assert found[1] == pytest.approx(-product * (20 + 3 * first + 3 * second) / 48, rel=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_tripartite_coefficient(family):
    found = series(
        family,
        lambda mix: mix.tripartite_information(1, 1, 2),
        (3, 4, 5),
        np.linspace(0.001, 0.006, 6),
    )
    wanted = float(tripartite_information(1.0, first=1, second=1, third=2))
    assert wanted == pytest.approx(0.25)
    assert found[0] == pytest.approx(wanted, rel=1e-2)


def test_exact_information_of_the_lognormal():
    """Monotone, without the maximum of the series."""
    table = {
        0.05: 2.577e-4, 0.1: 8.783e-4, 4 / 26: 1.791e-3, 0.2: 0.00270, 0.3: 0.00490,
        0.45: 0.00843, 1.0: 0.0208, 2.0: 0.0382, 5.0: 0.0688, 10.0: 0.0951,
    }  # fmt: skip
    for x, value in table.items():
        found = ScaleMixture.lognormal(x).mutual_information(1, 1)
        assert found == pytest.approx(value, rel=3e-3)
    assert float(mutual_information(4 / 26, first=1, second=1)) == pytest.approx(9.862e-4, rel=1e-4)
    assert float(mutual_information(6.01 / 26, first=1, second=1)) < 0


def test_exact_information_of_the_gamma():
    for x, one, two in ((0.01, 1.1995e-5, 4.7538e-5), (0.1, 9.2143e-4, None)):
        mixture = ScaleMixture.gamma(x)
        assert mixture.mutual_information(1, 1) == pytest.approx(one, rel=5e-5)
        if two is not None:
            assert mixture.mutual_information(2, 2) == pytest.approx(two, rel=5e-5)
    assert float(mutual_information(0.01, first=1, second=1)) == pytest.approx(1.1958e-5, rel=1e-4)
    assert float(mutual_information(0.01, first=2, second=2)) == pytest.approx(4.7333e-5, rel=1e-4)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("x", [0.02, 0.5, 5.0])
def test_student_density_is_known_in_closed_form(m, x):
    """An inverse-gamma variance of shape a gives a multivariate t of 2a degrees of freedom."""
    mixture, a = ScaleMixture.inverse_gamma(x, G=1.7), 2 + 1 / x
    nu, scale = 2 * a, 1.7 * (a - 1) / a
    log_beta = gammaln(nu / 2) - gammaln((nu + m) / 2)
    closed = log_beta + 0.5 * m * math.log(nu * math.pi * scale)
    closed += 0.5 * (nu + m) * (digamma((nu + m) / 2) - digamma(nu / 2))
    assert mixture.mean == pytest.approx(1.7, rel=1e-9)
    assert mixture.relative_variance == pytest.approx(x, rel=1e-6)
    assert mixture.entropy(m) == pytest.approx(closed, rel=1e-9, abs=1e-9)


def test_gamma_by_the_density_of_a_linear_network():
    """One hidden layer of n linear neurons: p(z) is a Bessel function, integrated by scipy."""
    n = 6
    k = 0.5 * (n - 1)

    def density(z):
        t = abs(z) * math.sqrt(n)
        return math.sqrt(n / math.pi) * (t / 2) ** k * kve(k, t) * math.exp(-t) / math.gamma(n / 2)

    total = 2 * quad(density, 0, 40)[0]
    assert total == pytest.approx(1.0, rel=1e-9)
    S = -2 * quad(lambda z: density(z) * math.log(density(z)), 0, 40, epsabs=1e-12)[0]
    assert ScaleMixture.gamma(2 / n).entropy(1) == pytest.approx(S, rel=1e-9)


def test_a_real_layer():
    """Layer 5 of a ReLU network of width 256 from samples of its Ĝ: x = 0.0803, I = 6.07e-4."""
    rng, n = np.random.default_rng(3), 256
    metric = np.ones(2000)
    for _ in range(4):
        on = rng.binomial(n, 0.5, size=metric.size)
        metric = metric * 2.0 / n * rng.chisquare(on)
    x = float(relative_variance(n * ((1 + 5 / n) ** 4 - 1), 1.0, fan_in=n))
    assert x == pytest.approx(0.0803, rel=2e-3)
    found = sampled_information(metric, first=1, second=1, batches=8)
    assert abs(float(found.value) - 6.07e-4) < 4 * float(found.standard_error)
    assert float(found.standard_error) < 0.2 * 6.07e-4


@pytest.mark.parametrize("m", [1, 2, 5])
def test_couplings_give_back_the_metric_and_the_vertex(m):
    """(A.58), (A.61) with the couplings of (A.59), (A.63) give G and x up to O(x³)."""
    G = 1.3

    def moments(x, u):
        g, v = running_couplings(x, neurons=m, G=G, sextic=u)
        d = g - 1 / G
        second = (
            G - d * G**2 + (m + 2) / 2 * v * G**3 + d**2 * G**3
            - (m + 2) * (m + 4) / 4 * u * G**4 - 3 * (m + 2) / 2 * d * v * G**4
            + (m + 2) * (m + 3) / 2 * v**2 * G**5
        )  # fmt: skip
        fourth = (
            G**2 - 2 * d * G**3 + 3 * d**2 * G**4 + (m + 3) * v * G**4
            - (m + 4) ** 2 / 2 * u * G**5 - 4 * (m + 3) * d * v * G**5
            + (5 * m**2 + 34 * m + 60) / 4 * v**2 * G**6
        )  # fmt: skip
        return second / G - 1, fourth / G**2 - 1 - x

    for small in (1e-3, 1e-4):
        errors = moments(small, 0.7 * small**2)
        assert max(map(abs, errors)) < 60 * (m + 2) ** 3 * small**3
    assert max(map(abs, moments(1e-3, 0.0))) > 0


def test_several_inputs_of_a_linear_network():
    """m neurons on N inputs and N neurons on m inputs are the same matrix of a linear network."""

    def linear(N):
        G = np.eye(N)
        V = np.einsum("ac,bd->abcd", G, G) + np.einsum("ad,bc->abcd", G, G)
        return G, V

    fan_in = 50
    for N, m in ((2, 1), (3, 2), (4, 3)):
        one = several_inputs_entropy(*linear(N), fan_in=fan_in, neurons=m)
        two = several_inputs_entropy(*linear(m), fan_in=fan_in, neurons=N)
        assert one == pytest.approx(two, rel=1e-12)
        straight = several_inputs_information(*linear(N), fan_in=fan_in, first=2, second=m)
        assert straight == pytest.approx(2 * m * (2 * N**2 + 2 * N) / (8 * fan_in**2))
    # A change of basis over inputs changes nothing but the volume.
    G, V = linear(3)
    A = np.array([[1.0, 0.3, 0.0], [0.2, 2.0, 0.1], [0.5, 0.0, 0.7]])
    moved = np.einsum("abcd,ea,fb,gc,hd->efgh", V, A, A, A, A)
    same = several_inputs_information(A @ G @ A.T, moved, fan_in=9, first=1, second=1)
    assert same == pytest.approx(several_inputs_information(G, V, fan_in=9, first=1, second=1))


def test_refusals():
    for call, words in (
        (lambda: entropy(0.1, neurons=0), "neurons = 0"),
        (lambda: entropy(0.1, neurons=1, order="all"), "expected leading or next"),
        (lambda: relative_variance(1.0, 1.0, fan_in=0), "fan_in = 0"),
        (lambda: ScaleMixture.lognormal(0.0), "must be > 0"),
        (lambda: ScaleMixture.two_point(1.0), "x < 1"),
        (lambda: ScaleMixture(np.array([1.0]), np.array([0.5])), "sum of weights"),
        (lambda: ScaleMixture(np.array([-1.0]), np.array([1.0])), "variances > 0"),
        (lambda: ScaleMixture.gamma(0.1).entropy(0), "neurons = 0"),
        (lambda: sampled_information(np.ones(3), first=1, second=1), "at least 64"),
    ):
        with pytest.raises(DynagramError, match=words):
            call()
