"""Fixed points, correlation lengths and phases away from criticality; the curves of Fig. 5.1."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    correlation_length,
    critical_initialisation,
    criticality_curves,
    fixed_points,
    mean_square,
    near_critical,
    phase,
    single_input,
)

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "criticality_classes.json").read_text("utf-8")
)


@pytest.mark.parametrize("row", GOLDEN["fixed_points"]["rows"], ids=str)
def test_golden_fixed_points(row):
    name, C_b, C_W, K, parallel, perpendicular, xi_parallel, xi_perpendicular = row
    (point,) = fixed_points(name, C_b, C_W)
    np.testing.assert_allclose(point.K, K, atol=6e-11)
    assert point.chi_parallel == pytest.approx(parallel, abs=6e-9)
    assert point.chi_perpendicular == pytest.approx(perpendicular, abs=6e-9)
    assert point.xi_parallel == pytest.approx(xi_parallel, abs=6e-7)
    assert point.xi_perpendicular == pytest.approx(xi_perpendicular, abs=6e-7)
    assert point.stability == "attracts"
    assert phase(name, C_b, C_W).verdict == "ordered"


@pytest.mark.parametrize("name", GOLDEN["companions"])
def test_half_stable_points_and_their_companions(name):
    """Footnotes 20, 21: the other fixed point lies at 14.593 (book: 14.5) and 3.035 (book: 3.2)."""
    critical = critical_initialisation(name)
    points = fixed_points(name, critical.C_b, critical.C_W)
    wanted = GOLDEN["companions"][name]
    (touching,) = [point for point in points if "from" in point.stability]
    np.testing.assert_allclose(touching.K, critical.K_star, rtol=1e-10)
    assert touching.stability == critical.stability.removeprefix("half-stable: ")
    others = [point for point in points if point is not touching]
    assert len(others) == (0 if wanted is None else 1)
    for point in others:
        # K is badly conditioned: K' − K has slope 1e-6 here
        np.testing.assert_allclose(point.K, wanted[0], rtol=1e-9)
        assert point.chi_parallel == pytest.approx(wanted[1], abs=6e-10)
        assert point.chi_perpendicular == pytest.approx(wanted[2], abs=6e-10)


def test_the_books_companion_of_gelu_is_not_fixed():
    critical = critical_initialisation("gelu")
    drift = critical.C_b + critical.C_W * float(mean_square("gelu", 3.2)) - 3.2
    assert drift == pytest.approx(-6.8e-6, abs=6e-8)
    ours = critical.C_b + critical.C_W * float(mean_square("gelu", 3.03498143551)) - 3.03498143551
    assert abs(ours) < 1e-13


def test_exponential_approach_has_the_correlation_length():
    """ΔK falls by χ∥ per layer; a perpendicular distance by χ⊥."""
    flow = single_input(MLP([1] * 26, "tanh", C_b=0.05, C_W=0.9), 1.0)
    (point,) = fixed_points("tanh", 0.05, 0.9)
    gap = flow.K - point.K
    assert gap[20] / gap[19] == pytest.approx(point.chi_parallel, rel=1e-4)
    assert flow.perpendicular_gain is not None
    rate = np.log(flow.perpendicular_gain[24] / flow.perpendicular_gain[19]) / 5
    assert -1 / rate == pytest.approx(point.xi_perpendicular, rel=1e-4)


def test_a_fixed_point_far_out_is_found():
    """GELU close to C_W = 2 behaves like ReLU: K* ≈ C_b/(1 − C_W/2)."""
    (point,) = fixed_points("gelu", 1.0, 1.999)
    assert point.K is not None
    assert 1e3 < point.K < 2.1e3
    drift = 1.0 + 1.999 * float(mean_square("gelu", point.K)) - point.K
    assert abs(drift) < 1e-10
    assert phase("gelu", 1.0, 1.999).verdict == "chaotic"


def test_selu_at_its_self_normalising_point():
    zero, one = fixed_points("selu", 0.0, 1.0)
    assert (zero.K, zero.stability) == (0.0, "repels")
    np.testing.assert_allclose(one.K, 1.0, rtol=1e-12)
    assert one.chi_parallel == pytest.approx(0.782647883197, abs=6e-13)
    assert one.chi_perpendicular == pytest.approx(1.07157499246, abs=6e-12)
    assert phase("selu", 0.0, 1.0).verdict == "chaotic"


@pytest.mark.parametrize(
    ("name", "C_b", "C_W", "K1", "verdict"),
    [
        ("tanh", 0.0, 0.5, 1.0, "vanishes"),
        ("tanh", 0.0, 1.0, 1.0, "critical"),
        ("tanh", 0.0, 3.0, 1.0, "chaotic"),
        ("relu", 0.0, 2.0, 1.0, "critical"),
        ("relu", 0.0, 2.1, 1.0, "explodes"),
        ("relu", 0.1, 2.0, 1.0, "explodes"),
        ("relu", 0.0, 1.5, 1.0, "vanishes"),
        ("sinh", 0.0, 1.0, 1.0, "explodes"),
        ("gelu", 0.0, 3.0, 1.0, "explodes"),
        ("cos", 0.0, 4.0, 1.0, "chaotic"),
        ("mish", None, None, 1.0, "critical"),
        ("mish", None, None, 3.0, "explodes"),
        ("gelu", None, None, 1.0, "ordered"),
        ("gelu", None, None, 6.0, "critical"),
        ("swish", None, None, 10.0, "critical"),
        ("swish", None, None, 20.0, "chaotic"),
    ],
)
def test_phases(name, C_b, C_W, K1, verdict):
    """None: at the half-stable critical point, where the verdict depends on the side."""
    if C_b is None:
        point = critical_initialisation(name)
        C_b, C_W = point.C_b, point.C_W
    assert phase(name, C_b, C_W, K1=K1).verdict == verdict


def test_edge_where_only_distances_are_marginal():
    curves = criticality_curves("tanh", np.array([0.5]))
    C_W, C_b = float(curves.perpendicular_C_W[0]), float(curves.perpendicular_C_b[0])
    found = phase("tanh", C_b, C_W)
    assert found.verdict == "edge"
    assert found.fixed_point is not None
    np.testing.assert_allclose(found.fixed_point.K, 0.5, rtol=1e-12)
    assert found.fixed_point.chi_perpendicular == pytest.approx(1.0, abs=1e-12)


def test_a_map_that_turns_over_still_settles():
    """√K g(K) grows with K, so χ∥ ≥ −½ at a fixed point: K overshoots but cannot oscillate."""

    def bump(z):
        return z * jnp.exp(-(z**2) / 2)  # g = K/(1 + 2K)^{3/2}

    found = phase(bump, 0.0, 60.0)
    assert found.verdict == "chaotic"
    assert found.fixed_point is not None
    np.testing.assert_allclose(found.fixed_point.K, (60 ** (2 / 3) - 1) / 2, rtol=1e-11)
    assert -0.5 < found.fixed_point.chi_parallel < 0.0


# K*: (C_W, C_b) on χ⊥ = 1 and on χ∥ = 1, tanh
FIGURE_5_1 = {
    0.01: (1.019711, 0.000001, 1.039910, -0.000197),
    0.1: (1.177569, 0.000832, 1.396552, -0.017609),
    0.5: (1.687975, 0.038041, 3.080430, -0.343041),
    1.0: (2.153303, 0.150965, 5.500620, -1.168864),
    2.0: (2.861162, 0.512265, 11.302451, -3.877),
    5.0: (4.336036, 2.101599, 34.763, -18.237),
}


def test_curves_of_figure_5_1():
    curves = criticality_curves("tanh", np.array(list(FIGURE_5_1)))
    got = np.stack(
        [
            curves.perpendicular_C_W,
            curves.perpendicular_C_b,
            curves.parallel_C_W,
            curves.parallel_C_b,
        ],
        axis=1,
    )
    wanted = np.array(list(FIGURE_5_1.values()))
    digits = np.full(wanted.shape, 6e-7)
    digits[-2:, 2:] = 6e-4
    assert np.all(np.abs(got - wanted) <= digits)
    meeting = criticality_curves("tanh", np.array([0.0]))
    assert (meeting.perpendicular_C_W[0], meeting.parallel_C_W[0]) == (1.0, 1.0)
    assert max(abs(meeting.perpendicular_C_b[0]), abs(meeting.parallel_C_b[0])) < 1e-200


def test_curves_meet_at_the_half_stable_point():
    point = critical_initialisation("gelu")
    curves = criticality_curves("gelu", np.array([point.K_star]))
    np.testing.assert_allclose(curves.perpendicular_C_W, curves.parallel_C_W, rtol=1e-13)
    np.testing.assert_allclose(curves.parallel_C_b, point.C_b, rtol=1e-11)


@pytest.mark.parametrize("name", ["tanh", "perturbed_identity(0.5,-1)"])
@pytest.mark.parametrize("kind", ["excess", "C_b"])
def test_near_critical_scaling(name, kind):
    """Errors of the leading order fall faster than K* itself as criticality is approached."""
    point = critical_initialisation(name)
    errors = []
    for size in (4e-3, 1e-3) if kind == "excess" else (4e-6, 2.5e-7):
        keyword = {kind: size}
        K, parallel, perpendicular = near_critical(point, **keyword)
        C_W = point.C_W * (1 + keyword.get("excess", 0.0))
        points = fixed_points(name, keyword.get("C_b", 0.0), C_W)
        found = next(p for p in points if p.K and p.K < 0.1)
        errors.append(
            np.abs(
                [
                    K / found.K - 1,
                    parallel - found.chi_parallel,
                    perpendicular - found.chi_perpendicular,
                ]
            )
        )
    # K* shrinks fourfold: the relative error of K by 4, those of χ by 16
    np.testing.assert_allclose(errors[0] / errors[1], [4.0, 16.0, 16.0], rtol=0.1)
    assert errors[1][0] < 0.02


def test_near_critical_below():
    assert near_critical(critical_initialisation("tanh"), excess=-0.1) == (0.0, 0.9, 0.9)
    K, *_ = near_critical(critical_initialisation("tanh"), excess=-0.1, C_b=1e-5)
    (point,) = fixed_points("tanh", 1e-5, 0.9)
    np.testing.assert_allclose(K, point.K, rtol=1e-3)
    with pytest.raises(InvalidValueError, match="expected a stable smooth"):
        near_critical(critical_initialisation("elu"), excess=0.1)


def test_correlation_length():
    assert correlation_length(1.0) == math.inf
    assert correlation_length(0.0) == 0.0
    assert correlation_length(1.1) < 0
    with pytest.raises(InvalidValueError, match="C_W = -1.0"):
        fixed_points("tanh", 0.0, -1.0)
