"""Measured tangent-kernel tensors: layer-2 values are exact at any width, and exact limits."""

import numpy as np
import pytest

from dynagram.ensembles import simulate
from dynagram.ensembles.initial import sample_tangents
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP

OF_NTK = ("K", "V", "Theta", "A", "B", "D", "F")
OF_DNTK = ("P", "Q")
OF_DDNTK = ("R", "S", "T", "U")
X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
C_B, C_W = [0.10, 0.20, 0.15, 0.05], [1.1, 1.3, 0.9, 1.2]
LAMBDA_B, LAMBDA_W = [0.3, 0.5, 0.2, 0.4], [0.7, 0.6, 0.9, 0.8]


def standard(sigma, widths):
    """A network at the setting of the golden numbers."""
    depth = len(widths) - 1
    return MLP(widths, sigma, C_B[:depth], C_W[:depth], LAMBDA_B[:depth], LAMBDA_W[:depth])


def second_layer(net, x):
    """The tensors of layer 2, exact at any n_1, by the trapezoid rule in whitened coordinates."""
    n_0, C, rate = net.widths[0], net.C_W[1], net.lambda_W[1]
    K = net.C_b[0] + net.C_W[0] / n_0 * x @ x.T
    Th = net.lambda_b[0] + net.lambda_W[0] / n_0 * x @ x.T
    line = np.arange(-8.4, 8.41, 0.2)
    white = np.stack([axis.ravel() for axis in np.meshgrid(line, line)], axis=1)
    weights = np.exp(-0.5 * np.sum(white**2, axis=1))
    weights /= weights.sum()
    z = white @ np.linalg.cholesky(K).T
    s, s1, s2, s3 = (net.activation.values(z, order) for order in range(4))

    def mean(*factors):
        letters = "abcd"[: len(factors)]
        parts = ",".join(f"p{letter}" for letter in letters)
        return np.einsum(f"p,{parts}->{letters}", weights, *factors, optimize=True)

    def product(equation, *factors):
        return np.einsum(equation, *factors, optimize=True)

    omega = rate * product("pa,pb->pab", s, s) + C * Th * product("pa,pb->pab", s1, s1)
    metric = product("pa,pb->pab", s, s)
    spread = omega - product("p,pab->ab", weights, omega)
    metric_spread = metric - mean(s, s)
    # Equations are written for the digits of the reference: 1234 are a b c d, 0123 likewise.
    source = C**2 * product("abcd,ab,ac,bd->abcd", mean(s2, s2, s1, s1), Th, Th, Th)
    P = C**2 * product("abcd,ab,ac->abcd", mean(s2, s1, s1, s), Th, Th)
    T = rate**2 * product("abcd,ab->abcd", mean(s1, s1, s, s), Th)
    # ⟨σ1'σ2''σ3σ4'⟩Θ21Θ24 and, with 1↔2 and 3↔4, its partner
    T += rate * C * product("abcd,ba,bd->abcd", mean(s1, s2, s, s1), Th, Th)
    T += rate * C * product("badc,ab,ac->abcd", mean(s1, s2, s, s1), Th, Th)
    T += source
    R = rate * C * product("abcd,ac,ad->abcd", mean(s2, s, s1, s1), Th, Th)
    R += C**2 * product("abcd,ab,ac,ad->abcd", mean(s3, s1, s1, s1), Th, Th, Th)
    return {
        "K": net.C_b[1] + C * mean(s, s),
        "V": C**2 * product("p,pab,pcd->abcd", weights, metric_spread, metric_spread),
        "Theta": net.lambda_b[1] + product("p,pab->ab", weights, omega),
        "A": product("p,pab,pcd->abcd", weights, spread, spread),
        "B": C**2 * product("abcd,ab,cd->acbd", mean(s1, s1, s1, s1), Th, Th),
        "D": C * product("p,pab,pcd->abcd", weights, metric_spread, spread),
        "F": C**2 * product("abcd,cd->acbd", mean(s, s, s1, s1), Th),
        "P": P,
        "Q": P + rate * C * product("abcd,ac->abcd", mean(s1, s, s1, s), Th),
        "R": R,
        "S": rate * C * product("abcd,ac,bd->abcd", mean(s1, s1, s1, s1), Th, Th) + source,
        "T": product("abcd->acdb", T),
        "U": product("abcd->adbc", source),
    }


def assert_agrees(found, name, expected, smallest_error):
    """|z| < 4 everywhere, and an error small enough for the comparison to mean something."""
    value, error = found[name][-1], found.error(name)[-1]
    assert value.shape == expected.shape
    assert np.max(np.abs((value - expected) / error)) < 4
    assert np.max(error) < smallest_error * np.max(np.abs(expected))


def test_second_layer_formulas_are_those_of_the_golden_numbers():
    found = second_layer(standard("tanh", (3, 8, 2)), X)
    golden = {
        "F": (0.09178984, -0.00572578, -0.00578295),
        "A": (0.02022546, 0.00900562, 0.00800368),
        "B": (0.31459319, 0.07064621, 0.06823448),
        "P": (-0.08276723, 0.00023758, -0.02408157),
        "Q": (-0.04040269, 0.01487375, -0.00976180),
        "R": (-0.34681134, -0.00282247, -0.07201322),
        "S": (0.22678458, 0.03239181, 0.05321456),
        "T": (0.02474007, -0.00506636, 0.01169583),
        "U": (0.08158772, -0.00021414, -0.00020980),
    }
    for name, values in golden.items():
        tensor = found[name]
        entries = tensor[0, 0, 0, 0], tensor[0, 1, 1, 1], tensor[0, 0, 1, 0]
        np.testing.assert_allclose(entries, values, rtol=0, atol=6e-9)
    means = (*found["K"][0], *found["Theta"][0])
    np.testing.assert_allclose(means, (0.63129194, 0.16709089, 1.16941475, 0.59882375), atol=6e-9)


@pytest.mark.parametrize("sigma", ["tanh", "gelu"])
def test_ntk_tensors_of_layer_two(sigma):
    net = standard(sigma, (3, 8, 3))
    expected = second_layer(net, X)
    found = simulate(net, X, OF_NTK, members=60000, seed=5)
    for name in OF_NTK:
        assert_agrees(found, name, expected[name], 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", ["tanh", "gelu"])
def test_dntk_and_ddntk_tensors_of_layer_two(sigma):
    net = standard(sigma, (3, 8, 2))
    expected = second_layer(net, X)
    found = simulate(net, X, OF_DNTK + OF_DDNTK, members=40000, seed=6)
    for name in OF_DNTK + OF_DDNTK:
        assert_agrees(found, name, expected[name], 0.05)


def test_deep_linear_network_closed_forms():
    """(∞.46)-(∞.48) at ℓ = L = 2, where they hold at any width; R and U vanish in each member."""
    b, W, K = 0.8, 1.4, float(X[0] @ X[0]) / 3
    net = MLP([3, 6, 3], "linear", C_b=0.0, C_W=1.0, lambda_b=b / 2, lambda_W=W / 2)
    found = simulate(net, X[:1], OF_DDNTK, members=20000, seed=1)
    factor = 4 * 3 / (12 * 8)
    assert_agrees(found, "S", np.full((1,) * 4, factor * (b + W * K) ** 2 * W), 0.02)
    assert_agrees(found, "T", np.full((1,) * 4, factor * (b + W * K) * W**2 * K), 0.02)
    for zero in ("R", "U"):
        assert found[zero].item() == 0.0
        assert found.error(zero).item() == 0.0


def test_next_order_of_the_mean():
    """H1 = n (E H − Θ) is 0 at layer 2 in the mean, and shifts with Θ."""
    net = standard("tanh", (3, 8, 2))
    theta = second_layer(net, X)["Theta"]
    found = simulate(net, X, ("Theta", "H1"), members=5000, seed=2)
    np.testing.assert_allclose(found["H1"], 8 * (found["Theta"] - theta), rtol=1e-9)
    np.testing.assert_allclose(found.error("H1"), 8 * found.error("Theta"), rtol=1e-12)
    assert np.max(np.abs(found["H1"] / found.error("H1"))) < 4


@pytest.mark.slow
def test_last_layer_trained_alone():
    """Then Ĥ_ij = δ_ij Ĝ: A = D = V, Θ = K, and the others are 0, in every member."""
    net = MLP([3, 5, 4, 3], "tanh", 0.2, 1.5, lambda_b=[0, 0, 0.2], lambda_W=[0, 0, 1.5])
    found = simulate(net, X, ("K", "V", "Theta", *"ADBFPQSTU"), members=200, seed=3)
    for name in "AD":
        np.testing.assert_allclose(found[name][0], found["V"][-1], rtol=1e-10)
        np.testing.assert_allclose(found.error(name)[0], found.error("V")[-1], rtol=1e-8)
    np.testing.assert_allclose(found["Theta"][0], found["K"][-1], rtol=1e-12)
    for name in "BFPQSTU":
        assert np.max(np.abs(found[name])) == 0.0


def test_one_layer_does_not_fluctuate():
    net = MLP([3, 2], "tanh", 0.2, 1.5, lambda_b=0.3, lambda_W=0.9)
    found = simulate(net, X, OF_NTK + OF_DNTK, members=64, seed=3)
    np.testing.assert_allclose(found["Theta"][0], 0.3 + 0.3 * X @ X.T, rtol=1e-12)
    for name in "VABDFPQ":
        assert np.max(np.abs(found[name])) == 0.0
        assert np.max(found.error(name)) == 0.0


def test_metric_tensors_are_those_of_the_same_members():
    """K and V are measured on the networks of the tangent tensors, whatever else is asked."""
    net = standard("tanh", (3, 7, 6, 2))
    found = simulate(net, X, ("K", "V", "D"), members=1280, seed=9)
    alone = simulate(net, X, ("K", "V"), members=1280, seed=9, sampler="weights")
    for name in ("K", "V"):
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-10)
        np.testing.assert_allclose(found.error(name), alone.error(name), rtol=1e-8)


def test_symmetries():
    """Exact in every member, hence in the estimates."""
    net = standard("tanh", (3, 6, 2))
    symmetries = {
        "V": ("bacd", "cdab"),
        "A": ("bacd", "cdab"),
        "B": ("badc", "cdab"),
        "D": ("bacd", "abdc"),
        "F": ("cdab",),
        "P": ("acbd",),
        "R": ("abdc",),
        "S": ("badc",),
        "T": ("dcba",),
        "U": ("cdab",),
    }
    found = simulate(net, X, tuple(symmetries), members=128, seed=4)
    for name, orders in symmetries.items():
        tensor = found[name][-1]
        for order in orders:
            swapped = np.einsum(f"abcd->{order}", tensor)
            np.testing.assert_allclose(swapped, tensor, atol=1e-12 * np.max(np.abs(tensor)))


@pytest.mark.slow
def test_fewer_inputs_and_faster_rates():
    """Exact in every member: the entries of one input, and λ → 2λ."""
    net = standard("tanh", (3, 6, 2))
    rates = np.multiply(2, [LAMBDA_B[:2], LAMBDA_W[:2]])
    doubled = MLP(net.widths, "tanh", net.C_b, net.C_W, *rates)
    powers = {"V": 0, "Theta": 1, "D": 1, "F": 1, "A": 2, "B": 2, "P": 2, "Q": 2}
    both, faster, alone = (
        simulate(network, x, tuple(powers), members=128, seed=4)
        for network, x in ((net, X), (doubled, X), (net, X[1:]))
    )
    for name, power in powers.items():
        tensor = both[name][-1]
        tolerance = 1e-12 * np.max(np.abs(tensor))
        entry = tensor[(1,) * tensor.ndim]
        np.testing.assert_allclose(entry, alone[name][-1].item(), atol=tolerance)
        scaled = faster[name][-1] / 2**power
        np.testing.assert_allclose(scaled, tensor, rtol=0, atol=tolerance)


def test_a_member_does_not_depend_on_the_chunks():
    net, wanted = standard("tanh", (3, 5, 2)), ("A", "D", "F", "Q")

    def collected(members, chunk, seed=3):
        options = {"members": members, "seed": seed, "tensors": wanted, "chunk": chunk}
        chunks = list(sample_tangents(net, X, **options))
        return {name: np.concatenate([found[name] for found in chunks]) for name in chunks[0]}

    whole, parts = collected(20, None), collected(20, 7)
    fewer, other = collected(13, 7), collected(20, 7, seed=4)
    assert set(whole) == {"G", "H", "F", "Q"}
    for name, values in whole.items():
        scale = np.max(np.abs(values))
        np.testing.assert_allclose(parts[name], values, rtol=0, atol=1e-13 * scale)
        np.testing.assert_allclose(fewer[name], values[:13], rtol=0, atol=1e-13 * scale)
        everything = np.concatenate([values, other[name]]).reshape(40, -1)
        assert len(np.unique(everything.round(12), axis=0)) == 40


def test_bad_requests_are_refused():
    net = standard("tanh", (3, 5, 2))
    with pytest.raises(InvalidValueError, match="members = 63"):
        simulate(net, X, ("Theta",), members=63)
    with pytest.raises(InvalidValueError, match="tensors = 'Theta,H'"):
        simulate(net, X, ("Theta", "H"))
    with pytest.raises(InvalidValueError, match="number of outputs = 1: B are read off two"):
        simulate(standard("tanh", (3, 5, 1)), X, ("Theta", "B"))
    with pytest.raises(InvalidValueError, match="chunk = 0"):
        sample_tangents(net, X, members=9, seed=0, tensors=("B",), chunk=0)
    with pytest.raises(InvalidValueError, match="tensors = 'V'"):
        sample_tangents(net, X, members=9, seed=0, tensors=("V",))


@pytest.mark.parametrize("name", ["P", "R"])
def test_kinks_are_refused(name):
    with pytest.raises(InvalidValueError, match="does not exist: σ' jumps at z = 0"):
        simulate(standard("relu", (3, 5, 2)), X, (name,), members=64)


def test_relu_with_one_input_has_a_dntk():
    """P = 0 and, at layer 2, Q = λ_W C_W Θ ⟨σ²σ'²⟩ = λ_W C_W Θ K/2."""
    net = standard("relu", (3, 8, 2))
    found = simulate(net, X[:1], OF_DNTK, members=20000)
    K, theta = (b + W / 3 * float(X[0] @ X[0]) for b, W in ((0.10, 1.1), (0.3, 0.7)))
    assert found["P"].item() == 0.0
    assert_agrees(found, "Q", np.full((1,) * 4, 0.6 * 1.3 * theta * K / 2), 0.03)
