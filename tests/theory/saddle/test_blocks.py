"""The exact block flow: against the full network, and the golden numbers of figure 5's setting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.theory.saddle import (
    BlockNetwork,
    Coordinates,
    SymmetricNetwork,
    block_escape,
    block_path,
    block_velocity,
    chain_moment,
    fastest_growth,
    leading_block_time,
    leading_escape_time,
    loop_gain,
    next_to_leading_escape_time,
    profile_escape_times,
    reduced_escape_time,
)
from dynagram.theory.saddle._block_law import drive_constant
from dynagram.theory.saddle._blocks import block_loss
from dynagram.theory.saddle._profiles import profile_integral, profile_rates

FIGURE_5 = {"depth": 4, "betas": (1, 0.3, 0.08), "block_size": 20}


def figure_5(**options):
    return BlockNetwork("tanh", **FIGURE_5, spacing=0.42, **options)


def test_chain_moment_by_quadrature():
    """E[gσ(g) σ'(ρg) σ'(ρσ(ρg))]/E[gσ(g)], three layers of tanh; α^{L−1} = 1 at ρ = 0."""
    g, w = np.polynomial.hermite_e.hermegauss(120)
    w, rho = w / w.sum(), 0.4
    slopes = 1 / np.cosh(rho * g) ** 2 / np.cosh(rho * np.tanh(rho * g)) ** 2
    weight = w * g * np.tanh(g)
    expected = np.sum(weight * slopes) / np.sum(weight)
    assert chain_moment("tanh", 3, rho) == pytest.approx(expected, rel=1e-6)
    assert chain_moment("tanh", 3, rho, weighted=False) == pytest.approx(np.sum(w * slopes))
    assert chain_moment("tanh", 3, 0.0) == pytest.approx(1.0)


# --- against the full network --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigma", "outputs", "rates", "sizes"),
    [("tanh", "sum", "block", 3), ("gelu", "per mode", "uniform", (2, 4))],
)
def test_reduced_steps_are_steps_of_the_full_network(sigma, outputs, rates, sizes):
    """The classical Runge-Kutta method on all weights and on the coordinates: equal weights."""
    small = BlockNetwork(
        sigma, depth=4, betas=(1.2, 0.7), block_size=sizes, outputs=outputs, rates=rates,
        spacing=1.0,
    )  # fmt: skip
    key = np.random.default_rng(3)
    start = jax.tree.map(lambda x: x + 0.2 * key.standard_normal(x.shape), small.aligned(0.5))
    model = small.embedded(start, n_0=2)
    full, params = model.network, model.params
    problem = small.problem()
    x, w, y = (jnp.asarray(part) for part in (problem.g, problem.w, problem.y))
    speeds = [rate / n for rate, n in zip(full.lambda_W, full.widths[:-1], strict=True)]

    def full_velocity(theta):
        def loss(theta):
            return 0.5 * jnp.sum(w * jnp.sum((full.apply(theta, x) - y) ** 2, axis=1))

        gradient = jax.grad(loss)(theta)
        return tuple(
            layer._replace(b=0 * layer.b, W=-speed * layer.W)
            for layer, speed in zip(gradient, speeds, strict=True)
        )

    def march(velocity, state, h, steps):
        def add(a, b, c):
            return jax.tree.map(lambda p, q: p + c * q, a, b)

        for _ in range(steps):
            k1 = velocity(state)
            k2 = velocity(add(state, k1, h / 2))
            k3 = velocity(add(state, k2, h / 2))
            k4 = velocity(add(state, k3, h))
            total = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
            state = add(state, total, h)
        return state

    t, steps = 0.05, 6
    reduced = march(lambda s: block_velocity(small, s), start, t, steps)
    s = small.N_B * t  # matrix time of one step
    moved = march(jax.jit(full_velocity), params, s, steps)
    expected = small.embedded(reduced, n_0=2).params
    assert np.max(np.abs(reduced.A1 - start.A1)) > 1e-3
    for found, wanted in zip(moved, expected, strict=True):
        np.testing.assert_allclose(found.W, wanted.W, rtol=1e-12, atol=1e-14)


def test_one_block_is_the_symmetric_network():
    one = BlockNetwork("tanh", depth=4, betas=(1.3,), block_size=16)
    twin = SymmetricNetwork("tanh", (0.1, 0.2, 0.3, 0.4), width=16, beta=1.3)
    np.testing.assert_allclose(1.3 * one.K, twin.K, rtol=1e-14)
    state = one.aligned(np.array([[0.1], [0.2], [0.3], [0.4]]))
    X = np.array(twin.scales)
    drive = twin.K * np.prod(X) / X
    speed = block_velocity(one, state)
    found = np.concatenate([part.reshape(-1) for part in speed])
    np.testing.assert_allclose(found / drive, 1.0, atol=0.15)  # leading order
    small = block_velocity(one, jax.tree.map(lambda part: 0.01 * part, state))
    found = np.concatenate([part.reshape(-1) for part in small])
    np.testing.assert_allclose(found / (1e-6 * drive), 1.0, atol=2e-5)


# --- golden numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("open_layers", "coordinates", "time"),
    [
        ((), 12, 72.816800),
        ((1, 2), 24, 65.539627),
        ((2, 3), 24, 57.443440),
        ((1, 2, 3), 30, 53.386497),
    ],
)
def test_escape_of_every_closure(open_layers, coordinates, time):
    network = figure_5(open_layers=open_layers)
    assert network.coordinates == coordinates
    found = block_escape(network, network.aligned(0.05), 0.3)
    assert float(found.time) == pytest.approx(time, abs=1.1e-6)
    moved = found.state.A1 - np.diag(np.diag(found.state.A1))
    assert (np.max(np.abs(moved)) > 0) == (1 in open_layers)


@pytest.mark.slow
def test_exact_escape_to_its_digits():
    network = figure_5()
    start = network.aligned(0.05)
    assert round(network.K, 12) == 2.708797387633
    assert round(block_loss(network, start), 7) == 0.2161289
    for level, time in ((0.1, 41.698286), (0.5, 55.529628)):
        assert round(float(block_escape(network, start, level).time), 6) == time
    end = block_escape(network, start, 0.3).state
    expected = [
        [0.3, 0.07443, 0.01956],
        [0.134015, 0.088857, 0.010498],
        [0.092245, 0.027518, 0.056763],
    ]
    np.testing.assert_allclose(end.A1, expected, atol=6e-6)
    np.testing.assert_allclose(end.a[0], [0.255748, 0.204591, 0.188308], atol=6e-7)
    assert round(block_loss(network, end), 7) == 0.1693770
    # The leading law of a single mode, with blocks of 20, is off by a third.
    single = SymmetricNetwork.balanced("tanh", depth=4, width=20, scale=0.05)
    assert round(leading_escape_time(single, 0.3), 6) == 71.782572
    assert round(next_to_leading_escape_time(single, 0.3), 6) == 72.760824


@pytest.mark.slow
def test_one_joint_escape_of_the_loss_and_of_every_mode():
    network = figure_5()
    start = network.aligned(0.05)
    half = block_escape(network, start, 0.5, quantity="loss")
    assert round(float(half.time), 4) == 54.0872
    path = block_path(network, start, [0.0, float(half.time), 54.3, 54.6])
    np.testing.assert_allclose(path.loss[1], 0.5 * path.loss[0], rtol=1e-7)
    # s_k = ½ at 54.4337, 54.4054, 54.2606: all three within 0.2 of one another.
    assert np.all(path.linear[1] < 0.5)
    assert np.all(path.linear[3] > 0.5)
    assert np.argmax(path.linear[2]) == 2
    assert np.all(path.cubic[3] < path.linear[3])  # specialization comes later


def test_other_learning_rates():
    network = figure_5(rates="width")
    found = block_escape(network, network.aligned(0.05), 0.3)
    assert float(found.time) == pytest.approx(111.454639, abs=1.1e-6)


def test_one_output_per_mode_keeps_the_diagonal_for_odd_activations():
    for sigma, kept in (("tanh", True), ("gelu", False)):
        network = BlockNetwork(sigma, depth=3, betas=(1, 0.5), block_size=5, outputs="per mode")
        speed = block_velocity(network, network.aligned(0.3))
        off = max(
            np.max(np.abs(part - part * np.eye(2))) for part in (speed.A1, speed.A[0], speed.a)
        )
        assert (off < 1e-15) == kept
    # With a single output they are driven as hard as the diagonal: (62), (64) corrected.
    network = BlockNetwork("tanh", depth=4, betas=(1, 0.5), block_size=5)
    e = 0.01
    speed = block_velocity(network, network.aligned(e))
    drive = network.K * e**3
    np.testing.assert_allclose(speed.A1[1, 0] / drive, 1.0, atol=5e-4)
    np.testing.assert_allclose(speed.A1[0, 1] / (0.5 * drive), 1.0, atol=5e-4)
    for layer in speed.A:
        np.testing.assert_allclose(layer[1, 0] / drive, 1.0, atol=5e-4)
        np.testing.assert_allclose(layer[0, 1] / (0.5 * drive), 1.0, atol=5e-4)


# --- the leading law of blocks, profiles, growth -------------------------------------------------


def test_drive_only_flow():
    network = figure_5()
    pattern = network.aligned(1.0)
    assert round(drive_constant(network, pattern, 6.0), 8) == 0.35625735
    assert drive_constant(network, pattern) == pytest.approx(0.365692515, abs=5e-9)
    assert round(drive_constant(network.closed((1, 2)), pattern), 6) == 0.448603
    assert drive_constant(network.closed(()), pattern) == pytest.approx(0.5, rel=1e-11)
    # The law against the exact flow: −1.46 % at ε = 0.05.
    law = leading_block_time(network, pattern, 0.05, 0.3)
    assert round(100 * (law / 53.386497 - 1), 2) == -1.46
    single = SymmetricNetwork.balanced("tanh", depth=4, width=20, scale=0.05)
    ratio = law / leading_escape_time(single, 0.3)
    assert round(next_to_leading_escape_time(single, 0.3) * ratio, 3) == 53.324
    shallow = BlockNetwork("tanh", depth=2, betas=(1,), block_size=4)
    with pytest.raises(InvalidValueError, match="no finite limit"):
        drive_constant(shallow, shallow.aligned(1.0))


def test_leading_law_of_unequal_blocks():
    """With one output per mode, block a is a chain of width N_B whose first scale is √(n_a/N_B)."""
    options = {"depth": 4, "betas": (1, 0.4), "outputs": "per mode"}
    network = BlockNetwork("tanh", block_size=(2, 6), **options)
    assert network.N_B == 4
    law = leading_block_time(network, network.aligned(1.0), 0.01, 0.3)
    chain = SymmetricNetwork("tanh", [0.01 * np.sqrt(0.5), 0.01, 0.01, 0.01], width=4)
    assert law == pytest.approx(leading_escape_time(chain, 0.3 * np.sqrt(0.5)), rel=1e-9)
    equal = BlockNetwork("tanh", block_size=(4, 4), **options)
    assert equal == BlockNetwork("tanh", block_size=4, **options)
    assert abs(leading_block_time(equal, equal.aligned(1.0), 0.01, 0.3) / law - 1) > 0.02
    with pytest.raises(InvalidValueError, match="one per mode"):
        BlockNetwork("tanh", depth=4, betas=(1, 0.4), block_size=(1, 2, 3))
    with pytest.raises(InvalidValueError, match="equal blocks"):
        profile_rates(BlockNetwork("tanh", depth=4, betas=(1, 0.4), block_size=(2, 6)), 0.1)


def test_profiles_hold_for_a_start_at_zero():
    for depth, exact in ((2, np.arcsinh(2.5)), (3, np.arctan(2.5)), (4, 2.5 / np.sqrt(1 + 2.5**2))):
        assert profile_integral(depth, 2.5) == pytest.approx(exact, rel=1e-13)
    one = BlockNetwork("tanh", depth=4, betas=(1.0,), block_size=20)
    law = profile_escape_times(one, 0.05, 2.0)[0]
    assert law == profile_integral(4, 2.0) / profile_rates(one, 0.05)[0]
    zero = SymmetricNetwork("tanh", [1e-12, 0.05, 0.05, 0.05], width=20)
    assert law == pytest.approx(leading_escape_time(zero, 0.1), rel=1e-9)
    assert law == pytest.approx(reduced_escape_time(zero, 0.1), rel=5e-3)
    # From a balanced start the same formula is off by more than a factor 2.
    balanced = SymmetricNetwork.balanced("tanh", depth=4, width=20, scale=0.05)
    assert round(law / reduced_escape_time(balanced, 0.1), 2) == 2.37


def test_growth_rises_with_the_closure():
    network = figure_5()
    start = network.aligned(0.05)
    unit = network.K * 0.05**2
    closures = {(): 2.98475, (1,): 3.05559, (1, 2): 3.38884, (1, 2, 3): 4.25904}
    for layers, expected in closures.items():
        found = fastest_growth(network.closed(layers), start)
        assert round(found.eigenvalue / unit, 5) == expected
        np.testing.assert_allclose(found.matrix, found.matrix.T, atol=1e-12 * unit)
    # f is homogeneous of degree L − 1 there: J x = 3 dx/dt.
    speed, x = block_velocity(network, start), np.concatenate([p.reshape(-1) for p in start])
    flat = np.concatenate([part.reshape(-1) for part in speed])
    np.testing.assert_allclose(found.matrix @ x, 3 * flat, rtol=0.02)


def test_schur_perron_criterion():
    random = np.random.default_rng(0)
    decided = []
    for _ in range(500):
        n, m = random.integers(1, 5, size=2)
        A, D = random.uniform(0.1, 2, n), random.uniform(0.1, 2, m)
        B, C = random.uniform(0, 0.8, (n, m)), random.uniform(0, 0.8, (m, n))
        found = loop_gain(A, B, C, D)
        assert found.unstable == (found.eigenvalue > 0)
        J = np.block([[-np.diag(A), B], [C, -np.diag(D)]])
        np.testing.assert_allclose(J @ found.vector, found.eigenvalue * found.vector, atol=1e-10)
        assert np.all(found.vector > -1e-9)
        decided.append(found.unstable)
        if n > 1:  # a principal part of J has a smaller Perron root
            assert loop_gain(A[1:], B[1:], C[:, 1:], D).eigenvalue < found.eigenvalue
    assert 0.2 < np.mean(decided) < 0.9
    with pytest.raises(InvalidValueError, match="decay rates must be > 0"):
        loop_gain(np.zeros(1), np.ones((1, 1)), np.ones((1, 1)), np.ones(1))
    with pytest.raises(InvalidValueError, match="couplings must be ≥ 0"):
        loop_gain(np.ones(1), -np.ones((1, 1)), np.ones((1, 1)), np.ones(1))


def test_refusals():
    network = figure_5()
    with pytest.raises(InvalidValueError, match="layers 1 to 3"):
        figure_5(open_layers=(4,))
    with pytest.raises(InvalidValueError, match="expected 'sum' or 'per mode'"):
        figure_5(outputs="both")
    with pytest.raises(InvalidValueError, match="counted from 1 to 3"):
        block_escape(network, network.aligned(0.05), 0.3, mode=4)
    with pytest.raises(InvalidValueError, match="too many for a grid"):
        BlockNetwork("tanh", depth=3, betas=(1, 1, 1, 1), block_size=2).problem()
    with pytest.raises(InvalidValueError, match="smooth σ"):
        BlockNetwork("relu", depth=3, betas=(1, 1), block_size=2).problem()
    assert isinstance(network.aligned(0.1), Coordinates)
