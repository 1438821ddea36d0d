"""Depth laws against the exact recursion, class by class, and the errata of the chapter."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    critical_initialisation,
    fit_offset,
    kernel_law,
    metric_law,
    parallel_law,
    perpendicular_law,
    renormalised_weight_variance,
    semi_critical_law,
    single_input,
    vertex_law,
)
from dynagram.theory.criticality._flow import kernel_flow

DEEP = 8000
NOT_ODD = "perturbed_identity(0.5,-1)"


@pytest.fixture(scope="module")
def flows():
    """Exact critical flows from K^(1) = 0.7, bare and renormalised, computed once."""
    cache = {}

    def at(name, depth=DEEP):
        if (name, depth) not in cache:
            point = critical_initialisation(name)
            both = (
                single_input(MLP([1] * (depth + 1), name, C_b=0.0, C_W=point.C_W), 0.7, c_W1=c)
                for c in (0.0, point.exponents.c_W1 or 0.0)
            )
            cache[name, depth] = (point, *both)
        return cache[name, depth]

    return at


@pytest.mark.slow
def test_tanh_at_64000_layers():
    """K and V against their laws, and G^{1} with the renormalised C_W: 1.23611 but for log ℓ/ℓ."""
    flow = single_input(MLP([1] * 64001, "tanh", C_b=0.0, C_W=1.0), 0.7, c_W1=2 / 3)
    assert flow.G1[-1] * 64000 == pytest.approx(1.2358, abs=6e-5)
    assert 2 * flow.K[999] * 1000 == pytest.approx(1.00303564, abs=6e-9)
    assert 2 * flow.K[-1] * 64000 == pytest.approx(1.00007438, abs=6e-9)
    assert flow.V[999] / (flow.K[999] ** 2 * 1000) == pytest.approx(0.664345, abs=6e-7)
    assert flow.V[-1] / (flow.K[-1] ** 2 * 64000) == pytest.approx(0.666612, abs=6e-7)


@pytest.mark.parametrize("name", ["tanh", "sin", "arctan", NOT_ODD])
def test_laws_of_the_smooth_class(name, flows):
    """(5.94), (5.97), (5.99), (5.127): ℓ₀ fitted at the last layer, then no freedom is left."""
    point, flow, _ = flows(name)
    offset = fit_offset(point, float(DEEP), float(flow.K[-1]))
    layers = np.array([500.0, 1000.0, 2000.0, 4000.0])
    at = layers.astype(int) - 1
    K_error = np.abs(kernel_law(point, layers, offset=offset) / flow.K[at] - 1)
    V_error = np.abs(vertex_law(point, layers, offset=offset) / flow.V[at] - 1)
    assert np.all(K_error < 6.0 * (np.log(layers) / layers) ** 2)
    assert K_error[1] < 3e-5
    assert V_error[1] < 3e-4
    # Without the logarithm the law is only good to 1/ℓ: the test has to see that.
    assert np.abs(1 / (-point.constants.a1 * layers) / flow.K[at] - 1)[1] > 10 * K_error[1]
    assert np.all(K_error[1:] < K_error[:-1] / 2.5)
    assert np.all(V_error[1:] < V_error[:-1] / 2.5)
    # up to their constants: ratios between two depths
    for law, exact in (
        (parallel_law, flow.parallel_gain),
        (perpendicular_law, flow.perpendicular_gain),
    ):
        predicted = law(point, layers, offset=offset)
        assert exact is not None
        drift = (exact[at] / predicted)[1:] / (exact[at] / predicted)[:-1] - 1
        # the 1/ℓ terms the law leaves to its constant change by less than 3/ℓ per doubling
        assert np.all(np.abs(drift) < 3.0 / layers[1:])


def test_kernel_law_holds_its_second_order_logarithms():
    """(K·(−a₁)ℓ − law)ℓ² tends to a constant: no log ℓ or log² ℓ of that order is left."""
    point, depth = critical_initialisation("arctan"), 64000
    flow = kernel_flow(activation("arctan"), np.array([0.7]), np.zeros(depth), np.ones(depth))[:, 0]
    offset = fit_offset(point, float(depth), float(flow[-1]))
    layers = np.array([250.0, 500.0, 1000.0, 2000.0, 4000.0])
    leading = 1 / (-point.constants.a1 * layers)
    exact = flow[layers.astype(int) - 1]
    left = (exact - kernel_law(point, layers, offset=offset)) / leading * layers**2
    assert np.ptp(left) < 0.5
    # the smallest logarithm of that order, rX, moves by five times that
    assert 2 * point.constants.r**2 * np.log(16.0) > 5 * 0.5


def test_parallel_and_perpendicular_exponents(flows):
    point, flow, _ = flows("tanh")
    for gain, p in ((flow.parallel_gain, 2.0), (flow.perpendicular_gain, 1.0)):
        local = np.log(gain[DEEP // 2 - 1] / gain[-1]) / np.log(2.0)
        assert local == pytest.approx(p, abs=2e-3)
    assert (point.exponents.p_parallel, point.exponents.p_perpendicular) == (2.0, 1.0)


# (exact at ℓ = 64000, ours, the book's (5.143)) of G^{1}ℓ with the renormalised weight variance
RENORMALISED = {
    "tanh": (1.2358, 1.23611, 1.08333),
    "sin": (2.2214, 2.22222, 0.66667),
    "arctan": (1.3192, 1.31944, 1.58333),
}


@pytest.mark.parametrize("name", RENORMALISED)
def test_next_order_metric(name, flows):
    """(5.134) bare, and the erratum to (5.143) renormalised."""
    point, bare, tuned = flows(name)
    layers = np.array([DEEP / 2, DEEP])
    at = layers.astype(int) - 1
    np.testing.assert_allclose(bare.G1[at], metric_law(point, layers), rtol=2e-3)
    measured = tuned.G1[at] * layers
    predicted = float(metric_law(point, np.array([1.0]), renormalised=True)[0])
    assert predicted == pytest.approx(RENORMALISED[name][1], abs=6e-6)
    # log ℓ/ℓ away, and closing
    assert abs(measured[1] - predicted) < 6.0 * np.log(DEEP) / DEEP
    assert abs(measured[1] - predicted) < 0.6 * abs(measured[0] - predicted)
    a1, a2 = point.constants.a1, point.constants.a2
    printed = 2 / 3 * (3 * a2 - a1**2) / (-a1) ** 3
    assert printed == pytest.approx(RENORMALISED[name][2], abs=6e-6)
    assert abs(measured[1] - printed) > 0.1


# V/(K²ℓ), G^{1}/(Kℓ) at ℓ = 40000
KINKED = {
    "elu": (0.6665, -0.2499),
    "softsign": (0.6666, -0.2500),
    "selu": (0.8909, -0.3340),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINKED)
def test_laws_of_the_kinked_class(name, flows):
    point, bare, tuned = flows(name)
    layers = np.array([float(DEEP)])
    kernel, vertex, metric = bare.K[-1], bare.V[-1], bare.G1[-1]
    assert kernel == pytest.approx(kernel_law(point, layers)[0], rel=3e-3)
    assert vertex / kernel**2 / DEEP == pytest.approx(KINKED[name][0], abs=5e-4)
    assert vertex == pytest.approx(vertex_law(point, layers)[0], rel=6e-3)
    assert metric / kernel / DEEP == pytest.approx(KINKED[name][1], abs=5e-4)
    assert metric == pytest.approx(metric_law(point, layers)[0], rel=4e-3)
    # The renormalised metric falls like ℓ^{-2}: G^{1}/K stays put.
    half = DEEP // 2 - 1
    assert abs(tuned.G1[-1] / tuned.K[-1] / (tuned.G1[half] / tuned.K[half]) - 1) < 0.05
    for gain, p in ((bare.parallel_gain, 3.0), (bare.perpendicular_gain, 2.0)):
        assert np.log2(gain[half] / gain[-1]) == pytest.approx(p, abs=5e-3)


@pytest.mark.slow
def test_slope_kink_without_curvature_jump_has_its_own_constants():
    """S = 3.08 replaces 2: V/K² → (S/3)ℓ, G^{1} → S/(6a₁), cancelled by c_W^{1} = (S/3)C_W."""

    def bent_sine(z):
        return jnp.where(z > 0, jnp.sin(z), 0.5 * jnp.sin(z))

    point = critical_initialisation(bent_sine)
    depth = 4000
    run = {"C_b": 0.0, "C_W": point.C_W}
    bare = single_input(MLP([1] * (depth + 1), bent_sine, **run), 0.7)
    tuned = single_input(MLP([1] * (depth + 1), bent_sine, **run), 0.7, c_W1=point.exponents.c_W1)
    layers = np.array([float(depth)])
    assert bare.K[-1] == pytest.approx(kernel_law(point, layers)[0], rel=5e-3)
    assert bare.V[-1] == pytest.approx(vertex_law(point, layers)[0], rel=0.01)
    assert bare.G1[-1] == pytest.approx(metric_law(point, layers)[0], rel=0.01)
    assert abs(tuned.G1[-1]) < 0.01 * abs(bare.G1[-1])


def test_tuned_law():
    """a₁ = 0: K → 1/√(−2a₂ℓ), V/K² → (2/3)ℓ; perpendicular p = ½ when σ₂ = σ₃ = 0."""

    def tuned(z):
        return z - z**5 / 120

    point, depth = critical_initialisation(tuned), 10000
    flow = single_input(MLP([1] * (depth + 1), tuned, C_b=0.0, C_W=1.0), 0.3)
    assert flow.K[-1] == pytest.approx(kernel_law(point, np.array([float(depth)]))[0], rel=0.01)
    assert flow.V[-1] / flow.K[-1] ** 2 / depth == pytest.approx(2 / 3, rel=0.03)
    half = depth // 2 - 1
    assert np.log2(flow.perpendicular_gain[half] / flow.perpendicular_gain[-1]) == pytest.approx(
        point.exponents.p_perpendicular, abs=0.01
    )
    assert np.log2(flow.parallel_gain[half] / flow.parallel_gain[-1]) == pytest.approx(
        1.5, abs=0.02
    )


def test_tuned_with_curvature_is_no_power_law():
    """σ₂ ≠ 0 leaves b₁ > 0: distances grow like exp(2b₁√(ℓ/(−2a₂)))."""

    def tuned(z):
        return z + z**2 / 2 - z**3 / 8 - z**5 / 24

    point = critical_initialisation(tuned)
    assert point.constants.a1 == 0.0
    flow = single_input(MLP([1] * 20001, tuned, C_b=0.0, C_W=1.0), 0.05)
    log_gain = np.log(flow.perpendicular_gain)
    layers = np.array([2500, 5000, 10000, 20000])
    growth = np.diff(log_gain[layers - 1]) / np.diff(np.sqrt(layers))
    rate = 2 * point.constants.b1 / np.sqrt(-2 * point.constants.a2)
    # a power law would make this fall by √2 per doubling
    np.testing.assert_allclose(growth, rate, rtol=0.15)
    assert np.all(np.abs(growth[1:] - rate) < np.abs(growth[:-1] - rate))


@pytest.mark.slow
def test_half_stable_law():
    """Mish from below: K* − K → 1/(ã₁ℓ), p_perp = b̃₁/ã₁, V → (S/5)K*²ℓ."""
    point, depth = critical_initialisation("mish"), 20000
    flow = single_input(MLP([1] * (depth + 1), "mish", C_b=point.C_b, C_W=point.C_W), 1.2)
    layers = np.array([depth / 2, depth])
    half = depth // 2 - 1
    gap, predicted = flow.K[[half, -1]] - point.K_star, kernel_law(point, layers) - point.K_star
    assert np.all(gap < 0)
    error = np.abs(gap / predicted - 1)
    assert error[1] < 0.03
    assert error[1] < 0.6 * error[0]
    local = np.log2(flow.perpendicular_gain[half] / flow.perpendicular_gain[-1])
    # χ⊥ − 1 follows K − K*, so the exponent is as far from its limit as K is
    assert local == pytest.approx(point.exponents.p_perpendicular, rel=error[0])
    slope = flow.V[-1] / (point.K_star**2 * depth)
    assert slope == pytest.approx(point.exponents.vertex_slope, rel=error[1])


@pytest.mark.parametrize(("name", "start", "reached"), [("gelu", 6.0, 0.87), ("swish", 10.0, 0.22)])
def test_half_stable_laws_are_out_of_reach_for_gelu_and_swish(name, start, reached):
    """(K − K*)(−ã₁)ℓ, 1 in the law, at 2·10⁵ layers: use the recursion, as the notes say."""
    point, depth = critical_initialisation(name), 200_000
    variances = np.full(depth, point.C_b), np.full(depth, point.C_W)
    flow = kernel_flow(activation(name), np.array([start]), *variances)
    scaled = (flow[-1, 0] - point.K_star) * -point.constants.a1_tilde * depth
    assert scaled == pytest.approx(reached, abs=6e-3)
    assert "power laws of the depth set in after" in point.notes[0]


def test_near_K_star_the_vertex_grows_like_S():
    point = critical_initialisation("gelu")
    flow = single_input(MLP([1] * 201, "gelu", C_b=point.C_b, C_W=point.C_W), point.K_star)
    np.testing.assert_allclose(np.diff(flow.V) / point.K_star**2, point.constants.S, rtol=1e-6)


def test_renormalised_weight_variance():
    assert renormalised_weight_variance(critical_initialisation("tanh"), 50) == 1 + 2 / 150
    assert renormalised_weight_variance(critical_initialisation("relu"), 50) == 2.0
    selu = critical_initialisation("selu")
    ratio = renormalised_weight_variance(selu, 10) / selu.C_W - 1
    assert ratio == pytest.approx(0.668263838014 / 10, rel=1e-10)
    with pytest.raises(InvalidValueError, match="no such depth law"):
        renormalised_weight_variance(critical_initialisation("gelu"), 10)
    with pytest.raises(InvalidValueError, match="fan_in = 0"):
        renormalised_weight_variance(selu, 0)


def test_semi_critical_law():
    flow = single_input(MLP([1] * 41, "leaky_relu(0.2)", C_b=0.3, C_W=1 / 0.52), 0.8)
    K, V = semi_critical_law("leaky_relu(0.2)", 0.8, 0.3, np.arange(1.0, 41.0))
    np.testing.assert_allclose(flow.K, K, rtol=1e-13)
    np.testing.assert_allclose(flow.V, V, rtol=1e-12)
    K, V = semi_critical_law("relu", 1.0, 0.5, np.array([1e6]))
    assert V[0] / K[0] ** 2 / 1e6 == pytest.approx(5 / 3, rel=1e-5)


def test_laws_refuse_other_classes():
    layers = np.array([10.0])
    for law in (kernel_law, vertex_law, metric_law):
        with pytest.raises(InvalidValueError, match="scale-invariant"):
            law(critical_initialisation("relu"), layers)
    with pytest.raises(InvalidValueError, match="has no constant"):
        fit_offset(critical_initialisation("elu"), 100.0, 1.0)
    with pytest.raises(InvalidValueError, match="go deeper"):
        fit_offset(critical_initialisation("tanh"), 5.0, 1e-3)
    with pytest.raises(InvalidValueError, match="expected a scale-invariant activation"):
        semi_critical_law("tanh", 1.0, 0.1, layers)


def test_law_without_a_logarithm():
    """r = 0: the offset still carries the input, K = 1/(−a₁(ℓ + offset))."""

    # a₁ = −1 and a₂ = a₁² for σ = z − z³/6 + w z⁵/120 with w/4 + 5/12 = 1
    def function(z):
        return z - z**3 / 6 + (7 / 3) * z**5 / 120

    point = critical_initialisation(function)
    assert point.constants.r == pytest.approx(0.0, abs=1e-12)
    flow = single_input(MLP([1] * 4001, function, C_b=0.0, C_W=1.0), 0.2)
    offset = fit_offset(point, 4000.0, float(flow.K[-1]))
    assert offset == pytest.approx(1 / 0.2 - 1, rel=0.2)
    predicted = kernel_law(point, np.array([500.0]), offset=offset)[0]
    assert flow.K[499] == pytest.approx(predicted, rel=1e-5)
