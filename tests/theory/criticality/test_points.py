"""The classifier against the golden table, on users' callables, and where there is no answer."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    critical_initialisation,
    critical_line,
    critical_points,
    mean_square,
    parallel_susceptibility,
    perpendicular_susceptibility,
    single_input,
)
from dynagram.theory.criticality._points import line_through

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "criticality_classes.json").read_text("utf-8")
)
CRITICAL = [name for name, point in GOLDEN["points"].items() if point is not None]
NOT_CRITICAL = [name for name, point in GOLDEN["points"].items() if point is None]
# K* of SWISH is the root of a function whose slope is 1e-4 of its size: 1e-13 there.
CLOSE = {"rel": 1e-11, "abs": 1e-13}


def assert_matches(got, wanted):
    assert got.kind == wanted["kind"]
    assert got.stability == wanted["stability"]
    for field in ("K_star", "C_b", "C_W"):
        value = getattr(got, field)
        assert value == (None if wanted[field] is None else pytest.approx(wanted[field], **CLOSE))
    for group in ("constants", "exponents"):
        for field, value in wanted[group].items():
            rel = 1e-8 if "tilde" in field or got.kind == "half-stable" else 1e-11
            assert getattr(getattr(got, group), field) == pytest.approx(
                value, rel=rel, abs=1e-13
            ), field


def test_the_table_has_every_activation_of_the_reference():
    assert len(GOLDEN["points"]) == 34


@pytest.mark.parametrize("name", CRITICAL)
def test_classifier_gives_the_golden_point(name):
    wanted, points = GOLDEN["points"][name], critical_points(name)
    assert critical_initialisation(name) is points[0]
    assert_matches(points[0], wanted)
    assert len(points) == 1 + wanted["alternatives"]
    # Exponents the table leaves open are left open.
    for field in ("p_psi", "p_1_bare", "p_1_renormalised", "c_W1"):
        if field not in wanted["exponents"]:
            assert getattr(points[0].exponents, field) is None


@pytest.mark.parametrize("name", GOLDEN["unstable_at_zero"])
def test_unstable_points_at_zero_are_listed_last(name):
    assert_matches(critical_points(name)[-1], GOLDEN["unstable_at_zero"][name])
    assert critical_points(name)[-1].exponents.p_0 is None


@pytest.mark.parametrize("name", NOT_CRITICAL)
def test_no_critical_initialisation_is_said_with_the_reason(name):
    points = critical_points(name)
    assert all(point.stability == "unstable" for point in points)
    assert bool(points) == (name in GOLDEN["unstable_at_zero"])
    with pytest.raises(InvalidValueError, match="no critical initialisation: ") as error:
        critical_initialisation(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sigmoid", "-(σ(0)/σ'(0))² = -4 < 0"),
        ("softplus", "-(σ(0)/σ'(0))² = -1.92181 < 0"),
        ("monomial(2)", "σ'(0) = 0"),
        ("step", "σ jumps, so σ' is a delta"),
        ("sinh", "(C_b, C_W) = (0, 1) is critical at K* = 0 but repels"),
        ("exp", "⟨σσ''⟩_K has no zero for 0.001 ≤ K ≤ 80"),
    ],
)
def test_reasons(name, reason):
    with pytest.raises(InvalidValueError) as error:
        critical_initialisation(name)
    assert reason in str(error.value)


@pytest.mark.parametrize("name", CRITICAL)
def test_points_solve_the_criticality_conditions(name):
    """χ∥ = χ⊥ = 1 and K* = C_b + C_W g(K*) (5.55), (5.56), evaluated afresh."""
    for point in critical_points(name):
        K = 1.3 if point.K_star is None else point.K_star
        assert float(parallel_susceptibility(name, K, point.C_W)) == pytest.approx(1.0, abs=1e-11)
        assert float(perpendicular_susceptibility(name, K, point.C_W)) == pytest.approx(
            1.0, abs=1e-11
        )
        assert point.C_b + point.C_W * float(mean_square(name, K)) == pytest.approx(K, abs=1e-12)


USERS = {
    "tanh": lambda z: jnp.tanh(z),
    "gelu": lambda z: z * jax.scipy.stats.norm.cdf(z),
    "relu": lambda z: jnp.maximum(z, 0.0),
    "swish": lambda z: z / (1 + jnp.exp(-z)),
    "elu": lambda z: jnp.where(z > 0, z, jnp.exp(jnp.minimum(z, 0.0)) - 1),
    "softsign": lambda z: z / (1 + jnp.abs(z)),
}


@pytest.mark.parametrize("name", USERS)
def test_a_users_callable_gives_the_same_point(name):
    mine, known = critical_points(USERS[name]), critical_points(name)
    assert [point.kind for point in mine] == [point.kind for point in known]
    wanted = GOLDEN["points"][name]
    assert_matches(mine[0], wanted)


def test_a_flat_function_has_no_critical_point_and_says_why():
    def flat(z):
        return 0.0 * z + 2.0

    assert critical_points(flat) == ()
    with pytest.raises(InvalidValueError, match="σ' is zero within 12.5 standard deviations for"):
        critical_initialisation(flat)


def test_a_line_is_shown_where_its_slope_can_be_seen():
    (point,) = critical_points(lambda z: jnp.maximum(z - 30.0, 0.0))
    assert point.line == (0.0, math.inf)
    assert point.K_star is not None
    # Seen, and not cut off: 10 of 12.5 standard deviations, and a step of the grid.
    assert (30.0 / 12.5) ** 2 < point.K_star < (30.0 / 10.0) ** 2 * 10 ** (1 / 12)


def test_where_averages_end_nothing_is_critical():
    """Both kinks are far out: a root at (12.5 √K*) = 50/3 had C_W = 4e39 and came first."""
    (point,) = critical_points(lambda z: z * jnp.clip(0.3 * z - 5.0, 0.0, 1.0))
    assert point.K_star == pytest.approx(15.2703992)
    (point,) = critical_points(lambda z: jnp.maximum(z - 20.0, 0.0))
    share = 0.5 * math.erfc(20.0 / math.sqrt(2.0 * point.K_star))  # cut off, it was 20 % too small
    assert point.C_W * share == pytest.approx(1.0, rel=1e-9)


def test_the_far_tail_of_a_bump_is_no_value_at_the_origin():
    """tanh z + e^{−((z − 0.55)/0.05)²} is e^{−121} at 0."""
    point = critical_initialisation(lambda z: jnp.tanh(z) + jnp.exp(-(((z - 0.55) / 0.05) ** 2)))
    assert (point.kind, point.C_b, point.C_W) == ("K*=0", 0.0, pytest.approx(1.0, rel=1e-12))


def test_scale_covariance():
    """σ → sσ divides C_W by s²; σ(z) → σ(sz) does too, and divides K* and C_b by s²."""
    base = critical_initialisation("mish")

    def mish(z):
        return z * jnp.tanh(jax.nn.softplus(z))

    taller = critical_initialisation(lambda z: 3.0 * mish(z))
    faster = critical_initialisation(lambda z: mish(3.0 * z))
    wanted = np.array([base.K_star, base.C_b, base.C_W])
    got = [[point.K_star, point.C_b, point.C_W] for point in (taller, faster)]
    np.testing.assert_allclose(got[0], wanted / [1, 1, 9], rtol=1e-11)
    np.testing.assert_allclose(got[1], wanted / 9, rtol=1e-11)


def test_a_root_that_needs_a_negative_bias_variance_is_refused():
    with pytest.raises(InvalidValueError) as error:
        critical_initialisation(lambda z: 3.0 + jnp.sin(z) - jnp.cos(z))
    assert "of ⟨σσ''⟩_K needs C_b = -" in str(error.value)


def test_hardtanh_is_not_guessed():
    """Linear core: the Taylor series is flat, K falls like 1/(2 log ℓ) and no power law exists."""
    point = critical_initialisation("hardtanh")
    assert (point.kind, point.stability) == ("K*=0 undetermined", "stable")
    assert (point.C_b, point.C_W) == (0.0, 1.0)
    assert point.exponents.p_0 is None
    assert "class undetermined by Taylor data" in point.notes[0]
    K = single_input(MLP([1] * 401, "hardtanh", C_b=0.0, C_W=1.0), 1.0).K
    assert K[-1] < K[199] < K[99]
    assert K[-1] / K[99] > 0.7  # a power law with p ≥ ½ would give at most 0.5


def test_relu6_is_not_scale_invariant():
    point = critical_initialisation(jax.nn.relu6)
    assert (point.kind, point.stability) == ("K*=0 undetermined", "stable")
    assert abs(point.C_W - 2.0) < 1e-12


@pytest.mark.parametrize(
    ("function", "p_perpendicular"),
    [
        (lambda z: z - z**5 / 120, 0.5),
        (lambda z: z + z**2 / 2 - 0.75 * z**3 / 6 - z**5 / 120, None),
    ],
)
def test_tuned_activations(function, p_perpendicular):
    """a₁ = 0, a₂ < 0: p_0 = ½; with σ₂ ≠ 0 distances are no power law."""
    point = critical_initialisation(function)
    assert (point.kind, point.exponents.p_0, point.exponents.p_V) == ("K*=0 tuned", 0.5, 0.0)
    assert point.exponents.p_perpendicular == p_perpendicular


def test_slope_kink_without_a_curvature_jump():
    """s₊t₊ = s₋t₋: K^{3/2} is absent, the K² coefficient of the half lines decides."""
    point = critical_initialisation(lambda z: jnp.where(z > 0, jnp.sin(z), 0.5 * jnp.sin(z)))
    assert (point.kind, point.stability) == ("K*=0", "stable")
    assert abs(point.C_W - 1.6) < 1e-12
    assert point.constants.a1 == pytest.approx(-1.0, rel=1e-12)
    assert point.constants.r is None
    assert point.exponents.vertex_slope == pytest.approx(3.08 / 3, rel=1e-12)
    assert "slopes at 0± differ" in point.notes[-1]


def test_upward_kink_repels():
    points = critical_points(lambda z: jnp.where(z > 0, z + z**2, z))
    assert [(point.kind, point.stability) for point in points] == [("K*=0 kinked", "unstable")]


def test_growing_distances_are_noted():
    point = critical_initialisation("perturbed_identity(1,-0.9)")
    assert point.exponents.p_perpendicular == pytest.approx(0.1 / -0.15, rel=1e-12)
    assert "distances at equal norm grow" in point.notes[0]


def test_points_are_frozen_and_made_of_plain_floats():
    for name in ("swish", "selu", "tanh", "relu"):
        for point in critical_points(name):
            assert type(point.C_W) is float
            values = vars(point.constants).values()
            assert all(value is None or type(value) is float for value in values)
            assert np.all([np.isfinite(v) for v in values if v is not None])
    with pytest.raises(AttributeError):
        critical_initialisation("tanh").C_b = 1.0  # type: ignore[misc]


# --- lines of critical points -----------------------------------------------------------------


def shifted(z):
    return jnp.maximum(z - 0.3, 0.0)


def shifted_leaky(z):
    return jnp.where(z > 0.4, z - 0.4, 0.1 * (z - 0.4))


def softshrink(z):
    return jnp.where(jnp.abs(z) > 0.5, z - 0.5 * jnp.sign(z), 0.0 * z)


@pytest.mark.slow
@pytest.mark.parametrize("function", [shifted, shifted_leaky, softshrink])
def test_every_kernel_is_critical(function):
    """σ is straight between kinks at which it is 0: ⟨σσ''⟩ = 0 at every K."""
    for K_star in (0.2, 1.0, 30.0):
        point = critical_line(function, K_star)
        C_b, C_W = point.C_b, point.C_W
        assert C_b >= 0.0
        assert C_b + C_W * float(mean_square(function, K_star)) == pytest.approx(K_star, rel=1e-12)
        for factor in (parallel_susceptibility, perpendicular_susceptibility):
            assert float(factor(function, K_star, C_W)) == pytest.approx(1.0, abs=1e-12)
        assert line_through(function, C_W).K_star == pytest.approx(K_star, rel=1e-9)
    (preferred,) = critical_points(function)
    assert preferred.K_star == 1.0
    assert critical_initialisation(function) == preferred
    assert "one of a line of critical points" in preferred.notes[0]


def test_a_point_of_the_line_keeps_its_kernel():
    point = critical_line(shifted, 1.0)
    assert (point.C_b, point.C_W) == pytest.approx((0.209450, 2.617194), abs=5e-7)
    assert point.line == (0.0, np.inf)
    network = MLP([1] * 61, shifted, point.C_b, point.C_W)
    np.testing.assert_allclose(single_input(network, 1.0).K, 1.0, rtol=1e-10)


def test_where_the_line_ends():
    """Below its end C_b would be negative."""
    low, high = critical_line(shifted_leaky, 1.0).line
    assert high == np.inf
    assert critical_line(shifted_leaky, 1.0001 * low).C_b == pytest.approx(0.0, abs=1e-4)
    with pytest.raises(InvalidValueError, match="K_star = .* needs C_b = -"):
        critical_line(shifted_leaky, 0.99 * low)
    with pytest.raises(InvalidValueError, match="K_star = -1.0: must be > 0"):
        critical_line(shifted_leaky, -1.0)


def test_without_a_line():
    with pytest.raises(InvalidValueError, match="no line of critical points"):
        critical_line("gelu", 1.0)
    assert line_through("gelu", 2.0) is None

    def too_early(z):
        return jnp.maximum(z + 0.3, 0.0)

    assert critical_points(too_early) == ()
    with pytest.raises(InvalidValueError, match="for every K, but χ⊥ = 1 needs C_b < 0"):
        critical_initialisation(too_early)
