"""The γ basis and the small-separation recursions against the exact two-input map."""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    critical_initialisation,
    from_gamma,
    separation_vertex,
    small_separation,
    to_gamma,
    vertex_from_gamma,
    vertex_to_gamma,
)
from dynagram.theory.criticality._two_inputs import separation_vertex_slopes

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "criticality_classes.json").read_text("utf-8")
)
STEP = 0.125
NODES = STEP * np.arange(-80, 81)
WEIGHTS = STEP * np.exp(-(NODES**2) / 2) / np.sqrt(2 * np.pi)
PLANE = WEIGHTS[:, None] * WEIGHTS[None, :]


class ExactPair:
    """One layer of the exact two-input map, smooth σ: kernel, Jacobian and source of V."""

    def __init__(self, name, kernel):
        sigma, root = activation(name), np.linalg.cholesky(kernel)
        u, v = np.meshgrid(NODES, NODES, indexing="ij")
        z = root[0, 0] * u, root[1, 0] * u + root[1, 1] * v
        # d[sample][order]
        self.d = [[sigma.values(x, order) for order in range(3)] for x in z]

    @staticmethod
    def mean(values):
        return float(np.sum(PLANE * values))

    def components(self):
        """F_[a]: the γ components of σ_ασ_β."""
        p, m = self.d[0][0], self.d[1][0]
        return [(p + m) ** 2 / 4, (p * p - m * m) / 2, (p - m) ** 2 / 4]

    def kernel(self, C_b, C_W):
        p, m = self.d[0][0], self.d[1][0]
        averages = [[self.mean(p * p), self.mean(p * m)], [self.mean(p * m), self.mean(m * m)]]
        return C_b + C_W * np.array(averages)

    def jacobian(self, C_W):
        """J_ac = (C_W/2) Σ γ^[c]_αβ ⟨∂_α∂_β F_[a]⟩ in the γ basis."""
        (p, p1, p2), (m, m1, m2) = self.d
        square_p, square_m = 2 * (p1 * p1 + p * p2), 2 * (m1 * m1 + m * m2)
        cross = p1 * m1
        hessians = [
            ((square_p + 2 * p2 * m) / 4, cross / 2, (square_m + 2 * p * m2) / 4),
            (square_p / 2, 0 * cross, -square_m / 2),
            ((square_p - 2 * p2 * m) / 4, -cross / 2, (square_m - 2 * p * m2) / 4),
        ]
        rows = []
        for pp, pm, mm in hessians:
            a, b, c = self.mean(pp), self.mean(pm), self.mean(mm)
            rows.append([a + 2 * b + c, a - c, a - 2 * b + c])
        return C_W / 2 * np.array(rows)

    def source(self, C_W):
        F = self.components()
        means = [self.mean(x) for x in F]
        return C_W**2 * np.array(
            [[self.mean(F[a] * F[b]) - means[a] * means[b] for b in range(3)] for a in range(3)]
        )


def exact_flow(name, kernel, depth, C_b, C_W):
    """γ components of K and V for layers 1..depth, equal widths."""
    K, V = [kernel], [np.zeros((3, 3))]
    for _ in range(depth - 1):
        layer = ExactPair(name, K[-1])
        J = layer.jacobian(C_W)
        V.append(layer.source(C_W) + J @ V[-1] @ J.T)
        K.append(layer.kernel(C_b, C_W))
    return to_gamma(np.array(K)), np.array(V)


def test_gamma_components_of_a_kernel():
    """(5.17)-(5.19), and there and back."""
    K = np.array([[0.9, 0.4], [0.4, 0.6]])
    zero, one, two = to_gamma(K)
    assert zero == pytest.approx((0.9 + 0.6 + 0.8) / 4, rel=1e-15)
    assert one == pytest.approx((0.9 - 0.6) / 2, rel=1e-15)
    assert two == pytest.approx((0.9 + 0.6 - 0.8) / 4, rel=1e-15)
    np.testing.assert_allclose(from_gamma(to_gamma(K)), K, rtol=1e-15)


def test_gamma_components_of_a_vertex():
    rng = np.random.default_rng(7)
    components = rng.normal(size=(4, 3, 3))
    components = components + components.transpose(0, 2, 1)
    vertex = vertex_from_gamma(components)
    assert vertex.shape == (4, 2, 2, 2, 2)
    np.testing.assert_allclose(vertex, vertex.transpose(0, 2, 1, 3, 4), rtol=1e-14)
    np.testing.assert_allclose(vertex, vertex.transpose(0, 3, 4, 1, 2), rtol=1e-14)
    np.testing.assert_allclose(vertex_to_gamma(vertex), components, rtol=1e-13, atol=1e-14)
    # midpoint: V_[0][0] is the average over all sixteen entries
    np.testing.assert_allclose(vertex.mean(axis=(1, 2, 3, 4)), components[:, 0, 0], atol=1e-14)


def test_the_exact_map_of_these_tests_has_the_golden_values():
    kernel = np.array([[0.9, 0.4], [0.4, 0.6]])
    K, V = exact_flow("tanh", kernel, 6, 0.05, 1.1)
    for layer, *wanted in GOLDEN["two_inputs_tanh"]["rows"]:
        upper = V[layer - 1][np.triu_indices(3)]
        np.testing.assert_allclose([*K[layer - 1], *upper], wanted, atol=2e-12)


def _pair(name, K00, delta, C_b, C_W, depth):
    """Exact and expanded γ components for x ± δx/2 with x·δx ≠ 0, relative to the first layer."""
    one, two = 0.6 * delta, 0.5 * delta**2
    kernel = from_gamma(np.array([K00, one, two]))
    exact, _ = exact_flow(name, kernel, depth, C_b, C_W)
    flow = small_separation(
        MLP([1] * (depth + 1), name, C_b=C_b, C_W=C_W), K00, delta_1=one, delta_2=two
    )
    return exact, flow


@pytest.mark.parametrize(
    ("name", "K00", "C_b", "C_W"),
    [
        ("tanh", 0.8, 0.0, 1.0),
        ("sin", 0.5, 0.1, 1.3),
        ("gelu", 1.5, 0.17, 1.98),
        ("swish", 0.7, 0.1, 2.2),
    ],
)
def test_delta_recursions_are_right_to_second_order(name, K00, C_b, C_W):
    """What is left falls by 4 (relative to the component) when the separation halves."""
    errors = []
    for delta in (0.08, 0.04, 0.02):
        exact, flow = _pair(name, K00, delta, C_b, C_W, 4)
        errors.append(
            [
                np.abs((exact[1:, 0] - flow.K00[1:]) / flow.delta_0[1:] - 1),
                np.abs(exact[1:, 1] / flow.delta_1[1:] - 1),
                np.abs(exact[1:, 2] / flow.delta_2[1:] - 1),
            ]
        )
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    np.testing.assert_allclose(ratios, 4.0, rtol=0.15)
    assert np.max(errors[-1]) < 0.02


def test_the_source_h_is_needed():
    """Without it the squared distance is off by much more than the expansion's error."""
    exact, flow = _pair("tanh", 0.8, 0.02, 0.0, 1.0, 4)
    bare = small_separation(MLP([1] * 5, "tanh", C_b=0.0, C_W=1.0), 0.8, delta_2=0.5 * 0.02**2)
    assert np.all(np.abs(flow.delta_2 / exact[:, 2] - 1)[1:] < 2e-3)
    assert np.all(np.abs(bare.delta_2 / exact[:, 2] - 1)[1:] > 0.02)


def test_thirty_layers_of_tanh():
    exact, flow = _pair("tanh", 1.0, 1e-3, 0.0, 1.0, 30)
    assert np.max(np.abs(exact[:, 2] / flow.delta_2 - 1)) < 3e-6
    assert np.max(np.abs(exact[:, 1] / flow.delta_1 - 1)) < 3e-6


def test_small_separation_of_many_samples():
    together = small_separation(
        MLP([1] * 6, "gelu", C_b=0.1, C_W=1.8),
        np.array([0.5, 2.0]),
        delta_1=0.1,
        delta_2=0.2,
        delta_0=0.3,
    )
    for i, K in enumerate((0.5, 2.0)):
        alone = small_separation(
            MLP([1] * 6, "gelu", C_b=0.1, C_W=1.8), K, delta_1=0.1, delta_2=0.2, delta_0=0.3
        )
        for field in ("K00", "delta_0", "delta_1", "delta_2"):
            np.testing.assert_allclose(
                getattr(together, field)[:, i], getattr(alone, field), rtol=1e-11
            )


def test_separation_vertex_is_the_limit_of_the_exact_one():
    """Perpendicular pair, tanh critical: differences fall tenfold with d, V22 the worst."""
    worst = []
    for d in (1e-3, 1e-4):
        # the midpoint input's kernel is 1: K_[0] = 1, K_[1] = 0, K_[2] = d at the first layer
        _, V = exact_flow("tanh", from_gamma(np.array([1.0, 0.0, d])), 12, 0.0, 1.0)
        small = separation_vertex(MLP([1] * 13, "tanh", C_b=0.0, C_W=1.0), 1.0, distance=d)
        pairs = ((0, 0, small.V00), (0, 2, small.V02), (1, 1, small.V11), (2, 2, small.V22))
        worst.append([np.max(np.abs(V[1:, a, b] / own[1:] - 1)) for a, b, own in pairs])
        np.testing.assert_allclose(V[:, 0, 1], 0.0, atol=1e-15)
        np.testing.assert_allclose(V[:, 1, 2], 0.0, atol=1e-15)
    np.testing.assert_allclose(np.array(worst[0]) / worst[1], 10.0, rtol=0.1)
    assert np.all(np.array(worst[1]) < 2e-3)


def test_separation_vertex_scales_with_the_distance_and_the_widths():
    run = {"C_b": 0.1, "C_W": 1.3}
    unit = separation_vertex(MLP([1] * 6, "gelu", **run), 0.8)
    double = separation_vertex(MLP([1] * 6, "gelu", **run), 0.8, distance=2.0)
    np.testing.assert_allclose(double.V02, 2 * unit.V02, rtol=1e-13)
    np.testing.assert_allclose(double.V22, 4 * unit.V22, rtol=1e-13)
    # Only the ratios n_ℓ/n_{ℓ-1} matter, not n_0, and what comes from below is linear in them.
    at = [
        separation_vertex(MLP((n_0, 20, 20 * ratio, 5), "gelu", **run), 0.8)
        for n_0, ratio in ((1, 1), (7, 2), (40, 3))
    ]
    for field in ("V00", "V02", "V11", "V22"):
        one, two, three = (getattr(vertex, field) for vertex in at)
        np.testing.assert_allclose(one, getattr(unit, field)[:3], rtol=1e-13)
        np.testing.assert_allclose(two[:2], one[:2], rtol=1e-13)
        np.testing.assert_allclose(three[2] - two[2], two[2] - one[2], rtol=1e-12)
        assert abs(two[2] - one[2]) > 0.1 * abs(one[2])


def test_scale_invariant_vertex_is_linear_in_depth():
    point, layer = critical_initialisation("leaky_relu(0.2)"), np.arange(9)
    vertex = separation_vertex(
        MLP([1] * 10, "leaky_relu(0.2)", C_b=0.0, C_W=point.C_W), 1.7, distance=0.1
    )
    slopes = separation_vertex_slopes(point)
    units = {"V00": 1.7**2, "V02": 1.7 * 0.1, "V11": 1.7 * 0.1, "V22": 0.1**2}
    for name, slope in slopes.items():
        np.testing.assert_allclose(getattr(vertex, name), slope * layer * units[name], rtol=1e-12)
    assert separation_vertex_slopes(critical_initialisation("relu"))["V11"] == 8.0


@pytest.mark.parametrize("name", ["tanh", "sin", "perturbed_identity(0.5,-1)"])
def test_vertex_slopes_of_the_smooth_class(name):
    point, depth = critical_initialisation(name), 8000
    vertex = separation_vertex(MLP([1] * (depth + 1), name, C_b=0.0, C_W=point.C_W), 0.7)
    K, d = vertex.K[-1], vertex.distance[-1]
    measured = {
        "V00": vertex.V00[-1] / K**2,
        "V02": vertex.V02[-1] / (K * d),
        "V11": vertex.V11[-1] / (K * d),
        "V22": vertex.V22[-1] / d**2,
    }
    for key, slope in separation_vertex_slopes(point).items():
        assert measured[key] / depth == pytest.approx(slope, abs=4e-3), key


def test_refusals():
    for function in (small_separation, separation_vertex):
        with pytest.raises(InvalidValueError, match="need a kernel > 0"):
            function(MLP([1] * 4, "elu", C_b=0.0, C_W=1.0), 0.0)
        with pytest.raises(InvalidValueError, match="for networks without skips only"):
            function(MLP([1] * 4, "tanh", C_b=0.0, C_W=1.0, skip=0.5), 1.0)
    with pytest.raises(InvalidValueError, match="half-stable"):
        separation_vertex_slopes(critical_initialisation("gelu"))
