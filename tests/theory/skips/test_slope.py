"""ν(γ): the table of checked numbers, and the vertex of deep networks."""

import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.networks import MLP
from dynagram.theory.criticality import critical_initialisation
from dynagram.theory.skips import residual_critical, residual_flow, vertex_slope

TABLE = {  # γ: K* = 0, linear, ReLU as printed, ReLU corrected
    0.0: (0.666667, 2.0, 5.0, 5.0),
    0.2: (0.665600, 1.996800, 4.761600, 5.941339),
    0.4: (0.649600, 1.948800, 4.065600, 6.502601),
    0.5: (0.625000, 1.875000, 3.562500, 6.496313),
    0.6: (0.580267, 1.740800, 2.969600, 6.196091),
    0.8: (0.393600, 1.180800, 1.569600, 4.328291),
    0.9: (0.229267, 0.687800, 0.796100, 2.535855),
    0.95: (0.123663, 0.370988, 0.399506, 1.369561),
    0.99: (0.026269, 0.078808, 0.079996, 0.291045),
}


@pytest.mark.parametrize("skip", TABLE)
def test_table(skip):
    origin, linear, printed, corrected = TABLE[skip]
    assert vertex_slope("tanh", skip) == pytest.approx(origin, abs=6e-7)
    assert vertex_slope("sin", skip, vertex="published") == pytest.approx(origin, abs=6e-7)
    for vertex in ("corrected", "published"):
        assert vertex_slope("linear", skip, vertex=vertex) == pytest.approx(linear, abs=6e-7)
    assert vertex_slope("relu", skip, vertex="published") == pytest.approx(printed, abs=6e-7)
    assert vertex_slope("relu", skip) == pytest.approx(corrected, abs=6e-7)


def test_other_checked_numbers():
    assert vertex_slope("relu", -0.5) == pytest.approx(2.553752, abs=6e-7)
    assert vertex_slope("leaky_relu(0.1)", 0.5) == pytest.approx(6.315102, abs=6e-7)
    assert vertex_slope("leaky_relu(0.3)", 0.5) == pytest.approx(5.096033, abs=6e-7)
    assert vertex_slope("relu", 0.25) == pytest.approx(6.132863, abs=6e-7)
    assert vertex_slope("relu", 0.75) == pytest.approx(4.987300, abs=6e-7)
    # Not monotone: a maximum at 0.448823, back at 5 at 0.748917; 4(3 + log 2)(1 − γ²) near 1.
    near = [vertex_slope("relu", 0.448823 + step) for step in (-1e-3, 0.0, 1e-3)]
    assert near[1] == pytest.approx(6.530898, abs=6e-7)
    assert max(near) == near[1]
    assert vertex_slope("relu", 0.748917) == pytest.approx(5.0, abs=1e-5)
    close = 0.9999
    limit = 4 * (3 + np.log(2)) * (1 - close**2)
    assert vertex_slope("relu", close) == pytest.approx(limit, rel=1e-3)
    assert vertex_slope("gelu") == pytest.approx(4.904226, abs=6e-7)
    assert vertex_slope("swish") == pytest.approx(4.923187, abs=6e-7)


@pytest.mark.parametrize(
    ("name", "skip", "depth"),
    [("relu", 0.8, 150), ("relu", -0.7, 150), ("leaky_relu(0.3)", 0.4, 60), ("gelu", 0.7, 100)],
)
def test_growth_per_layer_of_deep_networks(name, skip, depth):
    """Scale-invariant networks anywhere, GELU where K = K*: V/K² grows by ν a layer."""
    point = residual_critical(name, skip)
    K = 1.0 if point.K_star is None else point.K_star
    for vertex in ("corrected", "published"):
        net = MLP([1] * (depth + 2), name, point.C_b, point.C_W, skip=skip)
        flow = residual_flow(net, K, vertex=vertex)
        growth = (flow.V[depth - 1] - flow.V[depth - 2]) / K**2
        # K* repels on one side: rounding of K shows in the last digits.
        assert growth == pytest.approx(vertex_slope(name, skip, vertex=vertex), rel=1e-6)


@pytest.mark.parametrize(("skip", "lK", "slope"), [(0.5, 0.66667, 0.62500), (0.8, 1.38889, 0.3936)])
def test_class_of_tanh(skip, lK, slope):
    """1/K grows by (−a_1)(1 − γ²) a layer (B.32), V/K² by (2/3)(1 − γ⁴) (B.35)."""
    depth, half = 600, 300
    net = MLP([1] * (depth + 2), "tanh", 0.0, 1 - skip**2, skip=skip)
    flow = residual_flow(net, 1.0, vertex="published")
    inverse, ratio = 1.0 / flow.K[:depth], (flow.V / flow.K**2)[:depth]
    assert (inverse[-1] - inverse[half]) / (depth - 1 - half) == pytest.approx(1 / lK, rel=0.01)
    assert (ratio[-1] - ratio[half]) / (depth - 1 - half) == pytest.approx(slope, rel=0.01)


def test_corrected_vertex_of_tanh_tends_to_the_printed_one():
    """The error of (B.26) is of relative order K² for odd smooth σ."""
    gaps, net = [], MLP([1] * 6, "tanh", 0.0, 0.75, skip=0.5)
    for K in (0.04, 0.01):
        V = [residual_flow(net, K, vertex=vertex).V[3] for vertex in ("corrected", "published")]
        gaps.append(abs(V[0] / V[1] - 1))
    assert 1e-8 < gaps[1] < gaps[0] < 0.02
    assert gaps[0] / gaps[1] == pytest.approx(16, rel=0.5)


def test_critical_points_with_skip():
    gelu, swish = residual_critical("gelu", 0.5), residual_critical("swish", -0.5)
    assert gelu.C_b == pytest.approx(0.75 * 0.17292239, abs=1e-8)
    assert pytest.approx(0.75 * 1.98305826, abs=1e-8) == gelu.C_W
    assert gelu.K_star == pytest.approx((3 + np.sqrt(17)) / 2, rel=1e-12)
    assert swish.C_b == pytest.approx(0.75 * 0.55514317, abs=1e-8)
    assert pytest.approx(0.75 * 1.98800468, abs=1e-8) == swish.C_W
    assert swish.plain == critical_initialisation("swish")
    flow = residual_flow(MLP.critical([1] * 7, "gelu", skip=0.5), gelu.K_star)
    np.testing.assert_allclose(flow.K, gelu.K_star, rtol=1e-12)
    np.testing.assert_allclose(flow.chi_parallel, 1.0, rtol=1e-10)
    np.testing.assert_allclose(flow.chi_perpendicular, 1.0, rtol=1e-10)


def test_refusals():
    with pytest.raises(DynagramError, match="criticality needs γ² < 1"):
        vertex_slope("relu", 1.0)
    with pytest.raises(DynagramError, match="expected corrected or published"):
        vertex_slope("relu", 0.5, vertex="guessed")
    with pytest.raises(DynagramError, match="no critical initialisation"):
        vertex_slope("sigmoid", 0.5)
