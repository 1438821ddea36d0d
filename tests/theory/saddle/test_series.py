"""Formal expansions of the escape: series, drifts, shells, stages and moments, each against
quadrature, the exact flow or finite differences."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.saddle import (
    BlockNetwork,
    SymmetricNetwork,
    balance_drift,
    escape_shells,
    leading_escape_time,
    normal_form,
    path_degeneracy,
    potential_series,
    reduced_path,
    row_moments,
    stage_functions,
    truncation_roots,
)
from dynagram.theory.saddle._blocks import block_loss
from dynagram.theory.saddle._flow import velocity
from dynagram.theory.saddle._reduced import coordinates, scalar_problem


def network(sigma, scales):
    return SymmetricNetwork(sigma, scales, width=9, beta=1.3)


def potential(sigma, X):
    """Γ = β E[σ(g) f] − ½ E[f²] by Gauss-Hermite quadrature of the chain itself."""
    g, w = np.polynomial.hermite_e.hermegauss(150)
    w = w / w.sum()
    act = network(sigma, X).activation.values
    signal = X[0] * g
    for scale in X[1:]:
        signal = scale * act(signal)
    f = 3.0 * signal
    return float(np.sum(w * (1.3 * act(g) * f - 0.5 * f**2)))


def exact_speed(net):
    with jax.enable_x64(True):
        found = velocity(net.activation, scalar_problem(net), coordinates(net.scales))
        return np.concatenate([np.asarray(part).reshape(-1) for part in found])


# --- the polynomial of the potential ---------------------------------------------------------


@pytest.mark.parametrize(("sigma", "degree", "following"), [("tanh", 7, 8), ("gelu", 5, 6)])
def test_potential_series_misses_the_next_degree_only(sigma, degree, following):
    X = np.array([0.5, 0.4, 0.45])
    errors = []
    for size in (0.25, 0.125):
        terms = potential_series(network(sigma, X), degree)
        series = sum(
            c * np.prod((size * X) ** np.array(e))
            for part in terms.values()
            for e, c in part.items()
        )
        errors.append(series - potential(sigma, size * X))
    assert abs(errors[0]) < 1e-2 * abs(potential(sigma, 0.25 * X))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(following, abs=0.35)


# --- first integrals ---------------------------------------------------------------------------


def kept(sigma, size, degree, spread=4):
    """The largest change of I_i along the exact reduced flow, from scales near 0.3 `size`."""
    start = size * np.array([0.30, 0.27, 0.31, 0.29])
    net = network(sigma, start)
    times = np.array([0.0, 0.35]) / (net.K * 0.3**2 * size**2)
    path = reduced_path(net, times).X
    assert path[1, 0] > 1.2 * path[0, 0]
    form = normal_form(net, degree, spread=spread)
    return np.max(np.abs(form.integrals(path[1]) - form.integrals(path[0])))


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "degrees"), [("tanh", (2, 4, 6)), ("gelu", (2, 3, 4))])
def test_every_degree_of_the_normal_form_slows_the_drift(sigma, degrees):
    """Corrections up to degree n leave a drift of the following degree (n + 2 for odd σ)."""
    step = degrees[-1] - degrees[-2]
    large, small = {"tanh": (0.25, 0.125), "gelu": (0.06, 0.03)}[sigma]
    drifts = {(n, size): kept(sigma, size, n) for n in degrees for size in (large, small)}
    for n in degrees:
        assert np.log2(drifts[n, large] / drifts[n, small]) == pytest.approx(n + step, abs=0.3)
    for low, high in itertools.pairwise(degrees):
        assert drifts[high, small] < 0.1 * drifts[low, small]


def test_normal_form_of_layer_1_is_the_kept_number_of_the_next_order():
    """(D3.5): X_1² − X_L² − κ X_1^{q+1} is kept; a function of D alone may be added."""
    net = network("tanh", (0.05, 0.052, 0.049, 0.051))
    kind = net.activation_class
    kappa = kind.a_q * kind.h_q / (kind.alpha * kind.h)  # 2(q−1)c/((q+1)K), q = 3
    X = np.array(net.scales)
    D = X[:-1] ** 2 - X[-1] ** 2
    expected = D + np.array([-kappa * (X[0] ** 4 - D[0] ** 2), 0.0, 0.0])
    np.testing.assert_allclose(normal_form(net, 4).integrals(X), expected, rtol=1e-12)


def test_scales_of_the_normal_form_grow_by_the_balanced_law():
    """dU_i/dt = Ψ Π_{m≠i} U_m: the speeds of U_i², by differences along the flow, are equal."""
    net = network("tanh", (0.10, 0.11, 0.09, 0.105))
    form, X, v = normal_form(net, 6), np.array(net.scales), exact_speed(net)
    h = 1e-4 / np.max(np.abs(v)) * 0.1
    before, after = (form.coordinates(X + sign * h * v) ** 2 for sign in (-1, 1))
    rates = (after - before) / (2 * h)
    plain = 2 * X * v
    assert np.ptp(rates) < 0.02 * np.ptp(plain)
    U = form.coordinates(X)
    np.testing.assert_allclose(rates, 2 * form.speed(X) * np.prod(U), rtol=1e-4)


def test_even_orders_need_logarithms():
    """n = 2k is resonant: gelu at degree 4, with (D/s²)²; tanh has none from its teacher."""
    assert normal_form(network("gelu", [0.1] * 4), 4).logarithms == (4,)
    assert normal_form(network("tanh", [0.1] * 4), 6).logarithms == ()
    linear = normal_form(network("linear", [0.1] * 4), 6)
    assert all(len(series) == 1 for series in linear.terms)


def test_the_logarithm_is_part_of_the_integral():
    """Unbalanced gelu at small scales: with log s the drift is of degree 5, without it of 4."""
    drifts = {True: [], False: []}
    for size in (0.004, 0.002):
        net = network("gelu", size * np.array([0.36, 0.22, 0.31, 0.30]))
        path = reduced_path(net, np.array([0.0, 0.35]) / (net.K * 0.09 * size**2)).X
        form = normal_form(net, 4, spread=8)
        powers = tuple({k: c for k, c in terms.items() if k[1] == 0} for terms in form.terms)
        for whole in drifts:
            used = form if whole else dataclasses.replace(form, terms=powers)
            moved = used.integrals(path[1]) - used.integrals(path[0])
            drifts[whole].append(np.max(np.abs(moved)))
    orders = {whole: np.log2(large / small) for whole, (large, small) in drifts.items()}
    assert orders == {True: pytest.approx(5, abs=0.1), False: pytest.approx(4, abs=0.2)}


def test_scales_far_from_balance_are_refused():
    form = normal_form(network("tanh", [0.1] * 3), 4)
    with pytest.raises(InvalidValueError, match="the series need"):
        form.integrals([0.1, 0.2, 0.1])
    with pytest.raises(InvalidValueError, match="σ\\(0\\) = 0"):
        potential_series(network("sigmoid", [0.1] * 3), 4)


# --- drifts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", ["tanh", "gelu"])
@pytest.mark.parametrize(("first", "second"), [(1, 2), (4, 1), (2, 4), (3, 4)])
def test_drift_of_two_layers(sigma, first, second):
    errors, rates = [], []
    for size in {"tanh": (0.06, 0.03), "gelu": (0.01, 0.005)}[sigma]:
        net = network(sigma, size * np.array([1.0, 1.2, 0.9, 1.1]))
        X, v = np.array(net.scales), exact_speed(net)
        exact = 2 * X[first - 1] * v[first - 1] - 2 * X[second - 1] * v[second - 1]
        law = balance_drift(net, first, second)
        errors.append(abs(exact / law.rate - 1))
        rates.append(exact)
    q = {"tanh": 3, "gelu": 2}[sigma]
    assert law.order == 4 + (q - 1) * min(first, second)
    assert np.log2(rates[0] / rates[1]) == pytest.approx(law.order, abs=0.15)
    assert errors[1] < 0.05
    assert errors[1] < 0.7 * errors[0]  # ε² for tanh, ε for gelu


def test_homogeneous_layers_do_not_drift():
    assert balance_drift(network("relu", [0.1, 0.2]), 1, 2) is None


# --- shells ------------------------------------------------------------------------------------


def test_shells_add_up_to_the_escape_integral():
    scales = (0.002, 0.002, 0.05, 0.4)
    net = network("tanh", scales)
    shells = escape_shells(scales, 0.3)
    assert shells.layers == (2, 3)
    assert shells.exact.sum() / (2 * net.K) == pytest.approx(
        leading_escape_time(net, 0.3), rel=1e-12
    )
    power = [2 * np.log(0.05 / 0.002) / (0.05 * 0.4), 2 * (1 / 0.05 - 1 / 0.3) / 0.4]
    np.testing.assert_allclose(shells.power, power, rtol=1e-12)


def test_shell_errors_at_the_edges_do_not_shrink_with_the_ratio_of_scales():
    """Against Lemma 19: E_j = 1/√2 − 1 at an edge however far apart the scales are."""
    for eta in (1e-2, 1e-4, 1e-6):
        shells = escape_shells([eta**2, eta**2, eta, 1.0])
        np.testing.assert_allclose(shells.edge_errors[:, 1], np.sqrt(0.5) - 1, atol=2 * eta)
        np.testing.assert_allclose(shells.edge_errors[1, 0], np.sqrt(0.5) - 1, atol=2 * eta)
        assert np.all(np.abs(shells.middle_error) < 4 * eta)


# --- stages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", ["tanh", "gelu"])
def test_forcing_and_drag_by_differences_of_the_loss(sigma):
    net = BlockNetwork(sigma, depth=3, betas=(1, 0.4), block_size=6, spacing=0.5)
    state = net.aligned(0.2)
    found = stage_functions(net, state, 2)
    h, losses = 1e-3, []
    for U in (-h, 0.0, h):
        A1 = np.array(state.A1)
        A1[1, 1] = U
        losses.append(block_loss(net, state._replace(A1=A1)))
    assert found.forcing == pytest.approx((losses[0] - losses[2]) / (2 * h), rel=1e-5)
    curvature = (losses[0] - 2 * losses[1] + losses[2]) / h**2
    assert found.drag == pytest.approx(curvature, rel=1e-5)


@pytest.mark.parametrize("sigma", ["tanh", "gelu"])
def test_leading_forms_of_the_stage(sigma):
    errors = []
    for rho in (0.08, 0.04):
        net = BlockNetwork(sigma, depth=4, betas=(1, 0.4), block_size=6, spacing=0.5)
        found = stage_functions(net, net.aligned(rho), 2)
        errors.append(
            [found.forcing / found.leading_forcing - 1, found.drag / found.leading_drag - 1]
        )
    (forcing, drag), (_, later) = np.abs(errors)
    assert forcing < 1e-6  # a silent block is driven by h_σ alone
    if sigma == "tanh":  # exact for odd σ
        assert drag < 1e-6
    else:
        assert later < 0.03
        assert later < 0.6 * drag


# --- row moments -------------------------------------------------------------------------------


def test_moments_of_rows_move_as_the_hierarchy_says():
    """The rows themselves, moved by quadrature, against J m: closed up to the highest degrees."""
    rng = np.random.default_rng(0)
    w, a = 0.05 * rng.normal(size=(2, 40))
    g, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    inner = np.tanh(w[:, None] * g)
    dw = 1.3 * a * ((1 - inner**2) @ (weights * g * np.tanh(g)))
    da = 1.3 * inner @ (weights * np.tanh(g))
    hierarchy = row_moments("tanh", 8, beta=1.3)
    m = hierarchy.moments(w, a)
    for (p, r), rate in zip(hierarchy.powers, hierarchy.matrix @ m, strict=True):
        if p + r > 2:
            break
        true = np.mean(p * w ** max(p - 1, 0) * a**r * dw + r * w**p * a ** max(r - 1, 0) * da)
        assert rate == pytest.approx(true, rel=1e-6)


def test_roots_of_truncated_moments_grow_without_limit():
    hierarchy = row_moments("tanh", 5)
    roots = [hierarchy.root(n) for n in range(1, 6)]
    np.testing.assert_allclose(roots, 0.605705509602 * np.arange(1, 6), rtol=1e-6)
    coupled = [hierarchy.matrix[i, j] for i, j in np.argwhere(hierarchy.matrix)]
    assert min(coupled) < 0  # tanh: a_3 < 0, against the theorem's hypothesis
    degrees = hierarchy.degrees
    assert np.all(hierarchy.matrix[degrees[:, None] > degrees[None, :]] == 0)


def test_nested_truncations_have_increasing_roots():
    rng = np.random.default_rng(1)
    fall = np.exp(-np.arange(8.0))
    B, C = (rng.uniform(0.1, 1.0, (8, 8)) * np.sqrt(np.outer(fall, fall)) for _ in range(2))
    A, D = rng.uniform(0.1, 0.2, (2, 8))
    roots = truncation_roots(A, B, C, D, range(1, 9))
    assert np.all(np.diff(roots) > 0)
    whole = np.block([[-np.diag(A), B], [C, -np.diag(D)]])
    assert roots[-1] == pytest.approx(np.max(np.linalg.eigvals(whole).real), rel=1e-12)
    with pytest.raises(InvalidValueError, match="sizes"):
        truncation_roots(A, B, C, D, [2, 1])


# --- the linear path at the start ----------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
def test_strength_of_random_paths(outputs):
    """Products of Gaussian matrices: 40 000 draws against the exact distribution."""
    sizes = (3, 5, 4, outputs)
    net = MLP(sizes, "tanh", C_b=0.0, C_W=[1.0, 2.0, 0.5])
    rng, draws = np.random.default_rng(0), 40_000
    path = np.broadcast_to(np.eye(3)[0], (draws, 3))
    for n_in, n_out, C in zip(sizes[:-1], sizes[1:], (1.0, 2.0, 0.5), strict=True):
        path = np.einsum("dij,dj->di", rng.normal(size=(draws, n_out, n_in)), path)
        path = path * np.sqrt(C / n_in)
    size = np.linalg.norm(path, axis=1)
    for level in (0.05, 0.3, 1.0, 2.0):
        found = path_degeneracy(net, level)
        below = np.mean(size < level * found.root_mean_square)
        error = np.sqrt(found.probability * (1 - found.probability) / draws)
        assert abs(below - found.probability) < 4 * error, level
    assert found.root_mean_square**2 == pytest.approx(np.mean(size**2), rel=0.06)
    if outputs == 1:
        small = path_degeneracy(net, 1e-4)
        assert small.probability / 1e-4 == pytest.approx(small.constant, rel=1e-3)


def test_degrees_beyond_the_taylor_series_are_refused():
    with pytest.raises(InvalidValueError, match="degree = 9: expected 1 to 8"):
        row_moments("tanh", 9)
    with pytest.raises(InvalidValueError, match="degree = 12"):
        potential_series(network("tanh", [0.1] * 3), 12)
