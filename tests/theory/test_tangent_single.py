"""Single-input tangent tensors against golden numbers, the book's other forms and exact limits."""

import jax
import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import joint_average
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    mean_square,
    parallel_susceptibility,
    perpendicular_source,
    perpendicular_susceptibility,
    single_input_tangents,
)

LAYERS = np.arange(1, 51)
CRITICAL = {"C_b": 0.0, "lambda_b": 0.8 / LAYERS, "lambda_W": 1.5, "C_W": 1.0}
CASES = {
    "tanh": CRITICAL,
    "sin": CRITICAL,
    "relu": {"C_b": 0.0, "C_W": 2.0, "lambda_b": 0.7, "lambda_W": 1.9},
    "gelu": {"C_b": 0.173, "C_W": 1.983, "lambda_b": 0.7, "lambda_W": 1.9},
}
# K, Theta, V, D, F, B, A of one input with mean square 1, eight digits.
GOLDEN = """
tanh 2 0.39429449 2.0595684 0.097523738 -0.10225366 0.17261719 1.8065837 0.13949971
tanh 3 0.23645041 1.9323494 0.067807494 -0.10288973 0.19138704 2.8497881 0.20941189
tanh 10 0.058011848 1.6800704 0.018588728 -0.091804877 0.19507611 8.470507 0.7611131
tanh 50 0.010430738 1.5673187 0.0034465565 -0.088035169 0.1926746 39.576446 4.3299601
sin 2 0.43233236 2.3541341 0.12046302 -0.096370418 0.28740355 2.3419336 0.077096335
sin 10 0.092181139 2.3819817 0.050090069 -0.16303843 0.47656837 18.112548 0.9029756
sin 50 0.019466364 2.3453203 0.01240851 -0.18119472 0.55872661 91.998158 5.1495254
relu 2 2 5.2 20 24.2 10.4 13.52 34.69
relu 3 2 7.8 40 72.6 31.2 67.6 163.57
relu 10 2 26 180 1089 468 3853.2 8701.05
relu 50 2 130 980 29645 12740 546546 1208695.2
gelu 2 2.1569402 5.1379109 22.407509 27.702652 11.266303 13.347585 39.42644
gelu 10 2.1643644 23.394292 197.80532 1498.2165 469.87725 3007.0395 13839.222
gelu 50 2.1990921 77.949432 987.52085 51086.881 9082.6034 146838.89 3116379.4
"""
# Two inputs, unequal widths, everything different in every layer: both diagonal entries, 9 digits.
TWO_INPUTS = np.array([[1.0, 0.5, -0.7, 0.3], [0.4, -1.1, 0.2, 0.9]])
UNEQUAL = """
relu 2 K 1.0338625 1.191325 Theta 2.5033375 2.673475 V 3.47663334 4.91362628 A 1.97604886 2.56312979
relu 3 V 7.87048002 10.8310585 A 13.7234964 17.4663073 D 8.59887624 11.5894542
relu 3 F 5.53287886 7.02168862 B 10.7903368 12.5960204
relu 4 B 25.5215902 29.6409845 A 42.787249 54.9908157 D 20.1618917 27.0304412 H1 0 0 G1 0 0
tanh 2 D -0.117512129 -0.144970328 F 0.144674354 0.15701284 B 0.767428456 0.887842481 H1 0 0
tanh 3 V 0.284734128 0.292276737 A 1.68131942 1.87545059 G1 -0.0814118006 -0.0814169735
tanh 3 D -0.655143872 -0.694981866 F 0.550466061 0.55875887 H1 0.032799609 0.0463914852
tanh 4 K 0.522699356 0.529566828 Theta 3.13443123 3.13369522 G1 -0.16136973 -0.158716736
tanh 4 V 0.211731941 0.213202927 A 3.91056632 4.10437833 D -0.778033364 -0.79070809
tanh 4 F 0.534577117 0.532484258 B 11.6047552 11.7450105 H1 0.168347018 0.199264021
"""
# dNTK and ddNTK components [0000], eight digits, equal widths.
THIRD = """
tanh 2 F 0.09178984 A 0.02022546 B 0.31459319 P -0.08276723 Q -0.04040269
tanh 2 R -0.34681134 S 0.22678458 T 0.02474007 U 0.08158772
tanh 3 F 0.08140650 A 0.02373356 B 0.53673825 P -0.16694504 Q -0.04865332
tanh 3 R -1.11511751 S 0.84474566 T 0.04892374 U 0.22015960
tanh 4 P -0.35975898 Q -0.12404045 R -2.39314293 S 1.63577369 T 0.15012354 U 0.40806529
gelu 3 F 0.27243694 A 1.26736526 B 0.36798104 P 0.06076387 Q 0.37450237
gelu 3 R -0.17475741 S 0.54037570 T 0.63340890 U 0.11458920
"""


def rows(table):
    return [line.split() for line in table.strip().splitlines()]


@pytest.mark.parametrize("name", CASES)
def test_golden_numbers_at_depth(name):
    flow = single_input_tangents(MLP([1] * 51, name, **CASES[name]), 1.0)
    for _, layer, *values in (row for row in rows(GOLDEN) if row[0] == name):
        got = [getattr(flow, part)[int(layer) - 1] for part in ("K", "Theta", *"VDFBA")]
        np.testing.assert_allclose(got, np.array(values, dtype=float), rtol=7e-8)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_golden_numbers_at_unequal_widths(name):
    C_W = {"relu": (1.7, 1.9, 1.6, 1.8), "tanh": (1.5, 1.3, 1.7, 1.4)}[name]
    network = MLP(
        (4, 64, 128, 192, 1), name, (0.1, 0.2, 0.05, 0.1), C_W,
        (0.5, 1.2, 0.3, 0.8), (1.3, 0.6, 0.9, 1.1),
    )  # fmt: skip
    flow = single_input_tangents(network, np.mean(np.square(TWO_INPUTS), axis=1))
    for _, layer, *entries in (row for row in rows(UNEQUAL) if row[0] == name):
        for part, first, second in zip(*[iter(entries)] * 3, strict=True):
            wanted = [float(first), float(second)]
            np.testing.assert_allclose(
                getattr(flow, part)[int(layer) - 1], wanted, rtol=5.1e-9, atol=1e-13, err_msg=part
            )


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_golden_differentials(name):
    x = np.array([1.0, -0.4, 0.7])
    flow = single_input_tangents(
        MLP(
            [1] * 5,
            name,
            C_b=(0.10, 0.20, 0.15, 0.05),
            C_W=(1.1, 1.3, 0.9, 1.2),
            lambda_b=(0.3, 0.5, 0.2, 0.4),
            lambda_W=(0.7, 0.6, 0.9, 0.8),
        ),
        x @ x / 3,
    )
    for _, layer, *entries in (row for row in rows(THIRD) if row[0] == name):
        for part, value in zip(*[iter(entries)] * 2, strict=True):
            assert getattr(flow, part)[int(layer) - 1] == pytest.approx(float(value), abs=5.1e-9)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("tanh", [(-0.325733, -0.173021), (-1.065962, -0.417314), (-1.320621, -0.579751)]),
        ("gelu", [(0.153545, 1.079101), (0.369089, 2.181751), (0.385812, 1.644999)]),
    ],
)
def test_golden_dntk_at_unequal_widths(name, wanted):
    """P and Q with hidden widths n, 2n, n, which networks of that shape confirmed."""
    x = np.array([1.0, 0.5, -0.7])
    flow = single_input_tangents(
        MLP(
            (3, 9, 18, 9, 2),
            name,
            C_b=(0.2, 0.1, 0.15, 0.05),
            C_W=(1.3, 1.5, 1.2, 1.4),
            lambda_b=(0.7, 0.4, 0.5, 0.3),
            lambda_W=(0.9, 1.1, 0.8, 1.2),
        ),
        x @ x / 3,
    )
    assert flow.P is not None
    assert flow.Q is not None
    np.testing.assert_allclose(np.stack([flow.P, flow.Q], axis=1)[1:], wanted, atol=6e-7)


@pytest.mark.parametrize("name", ["gelu", "elu"])
def test_every_layer_adds_its_own_inverse_width(name):
    """At order 1/n a tensor/n_{L-1} is Σ_ℓ c_ℓ/n_ℓ: three shapes fix the c's, a fourth obeys."""
    shapes = np.array([[20, 50, 30], [70, 10, 40], [30, 30, 90], [15, 80, 25]])
    flows = [
        single_input_tangents(
            MLP(
                (3, *shape, 2),
                name,
                C_b=(0.1, 0.2, 0.0, 0.3),
                C_W=(1.4, 1.2, 1.6, 1.1),
                lambda_b=(0.5, 0.3, 0.8, 0.2),
                lambda_W=(0.7, 1.5, 0.4, 0.9),
            ),
            0.9,
        )
        for shape in shapes.tolist()
    ]
    for part in ("G1", "H1", *"VDFBAPQRSTU"):
        if getattr(flows[0], part) is not None:
            sizes = np.array([getattr(flow, part)[-1] for flow in flows]) / shapes[:, -1]
            coefficients = np.linalg.solve(1.0 / shapes[:3], sizes[:3])
            np.testing.assert_allclose(sizes[3], coefficients @ (1.0 / shapes[3]), rtol=1e-11)


@pytest.mark.parametrize("name", ["tanh", "gelu", "elu", "relu"])
def test_compact_forms_of_D_and_A(name):
    """(9.20), (9.21), which mix the layers, from helper functions of their own."""
    C_W, rate = 1.4, 0.6
    flow = single_input_tangents(
        MLP([1] * 13, name, C_b=0.1, C_W=C_W, lambda_b=0.9, lambda_W=rate), 0.8
    )
    K, Theta, V, D, A = flow.K[:-1], flow.Theta[:-1], flow.V[:-1], flow.D[:-1], flow.A[:-1]
    parallel = parallel_susceptibility(name, K, C_W)
    perpendicular = perpendicular_susceptibility(name, K, C_W)
    h = perpendicular_source(name, K, C_W)
    sigma = MLP((1, 1), name, 0.0, 1.0).activation
    mixed, fourth = (joint_average(sigma, K, o) for o in ((0, 0, 1, 1), (1, 1, 1, 1)))
    M = C_W**2 * mixed - C_W * mean_square(name, K) * perpendicular + 2 * h * parallel * V
    ratio = rate / C_W
    np.testing.assert_allclose(
        flow.D[1:], perpendicular * parallel * D + ratio * flow.V[1:] + Theta * M, rtol=1e-11
    )
    bracket = C_W**2 * fourth - perpendicular**2 + (2 * h) ** 2 * V
    np.testing.assert_allclose(
        flow.A[1:],
        perpendicular**2 * A - ratio**2 * flow.V[1:] + 2 * ratio * flow.D[1:]
        + 4 * h * perpendicular * Theta * D + Theta**2 * bracket,
        rtol=1e-11,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tanh", "gelu", "relu", "elu"])
def test_training_the_last_layer_only(name):
    """λ = C in the last layer, 0 below: the NTK is the kernel, and everything of order dz dz'."""
    C_b, C_W = (0.1, 0.2, 0.05, 0.3), (1.4, 1.2, 1.6, 1.1)
    flow = single_input_tangents(
        MLP(
            (3, 20, 50, 30, 2),
            name,
            C_b=C_b,
            C_W=C_W,
            lambda_b=(0.0, 0.0, 0.0, 0.3),
            lambda_W=(0.0, 0.0, 0.0, 1.1),
        ),
        0.7,
    )
    for part, same in (("Theta", "K"), ("A", "V"), ("D", "V"), ("H1", "G1")):
        np.testing.assert_allclose(getattr(flow, part)[-1], getattr(flow, same)[-1], rtol=1e-12)
    for part in "BFPQRSTU":
        tensor = getattr(flow, part)
        assert tensor is None or np.all(tensor == 0.0)
    assert flow.V[-1] > 0.01


def test_homogeneity_in_the_rates():
    """λ → cλ multiplies each tensor by the power of the NTK it holds."""
    given = {
        "C_b": 0.1,
        "C_W": 1.3,
        "lambda_b": (0.5, 0.2, 0.9, 0.4),
        "lambda_W": (1.0, 2.0, 0.5, 0.7),
    }
    doubled = {k: np.multiply(2.0, v) if "lambda" in k else v for k, v in given.items()}
    one = single_input_tangents(MLP([1] * 5, "gelu", **given), 1.1)
    two = single_input_tangents(MLP([1] * 5, "gelu", **doubled), 1.1)
    powers = {"K": 0, "V": 0, "G1": 0, "Theta": 1, "H1": 1, "D": 1, "F": 1}
    powers |= dict.fromkeys("ABPQ", 2) | dict.fromkeys("RSTU", 3)
    for part, power in powers.items():
        np.testing.assert_allclose(getattr(two, part), 2**power * getattr(one, part), rtol=1e-12)


def test_samples_are_independent_of_each_other():
    squares = np.array([[0.3, 1.0], [2.0, 0.0]])
    given = {"C_b": 0.0, "C_W": 1.5, "lambda_b": 0.4}
    together = single_input_tangents(MLP([1] * 6, "tanh", **given), squares)
    assert together.U is not None
    assert together.U.shape == (5, 2, 2)
    alone = single_input_tangents(MLP([1] * 6, "tanh", **given), 2.0)
    for part in ("K", "Theta", "H1", *"VDFBAPQRSTU"):
        np.testing.assert_allclose(
            getattr(together, part)[:, 1, 0], getattr(alone, part), rtol=1e-11, atol=1e-14
        )


@pytest.mark.parametrize("name", ["tanh", "relu", "selu", "elu"])
def test_a_zero_input_does_not_fluctuate(name):
    """With C_b = 0 its preactivations are 0: all tensors that hold a z vanish."""
    flow = single_input_tangents(MLP([1] * 5, name, C_b=0.0, C_W=1.3, lambda_b=0.4), 0.0)
    for part in ("K", "V", "G1", *"DFPQ"):
        assert np.all(np.abs(getattr(flow, part)) < 1e-100), part
    assert flow.B[-1] > 0.1


def test_rounding_a_kink():
    """softplus(βz)/β → ReLU: P → 0 and the rest tends to the values at the kink, like 1/β."""
    relu = single_input_tangents(MLP([1] * 4, "relu", C_b=0.0, C_W=2.0), 1.0)
    errors = []
    for beta in (16.0, 32.0):
        smooth = single_input_tangents(
            MLP([1] * 4, lambda z, beta=beta: jax.nn.softplus(beta * z) / beta, C_b=0.0, C_W=2.0),
            1.0,
        )
        errors.append([getattr(smooth, k)[-1] - getattr(relu, k)[-1] for k in "PQDFBA"])
    first, second = np.array(errors)
    np.testing.assert_array_less(np.abs(2.0 * second - first), 0.15 * np.abs(second))


def test_what_kinks_take_away():
    given = {"C_b": 0.0, "C_W": 1.0}
    assert single_input_tangents(MLP([1] * 4, "tanh", **given), 1.0).missing == ()
    for name in ("relu", "elu", "selu"):
        flow = single_input_tangents(MLP([1] * 4, name, **given), 1.0)
        assert flow.Q is not None
        assert flow.R is flow.S is flow.T is flow.U is None
        assert len(flow.missing) == 1
    flow = single_input_tangents(MLP([1] * 4, "hardtanh", **given), 1.0)
    assert flow.P is flow.Q is None
    assert np.all(np.isfinite(flow.A))
    assert "P, Q" in flow.missing[0]
    relu = single_input_tangents(MLP([1] * 4, "relu", **given), 1.0)
    assert relu.P is not None
    assert np.all(relu.P == 0.0)


def test_refusals():
    given = {"C_b": 0.0, "C_W": 1.0}
    with pytest.raises(InvalidValueError, match="the NTK does not exist"):
        single_input_tangents(MLP([1] * 4, "step", **given), 1.0)
    with pytest.raises(InvalidValueError, match="for networks without skips only"):
        single_input_tangents(MLP([1] * 4, "tanh", **given, skip=0.5), 1.0)
    with pytest.raises(InvalidValueError, match="mean_square = -1.0"):
        single_input_tangents(MLP([1] * 4, "tanh", **given), -1.0)
    with pytest.raises(NonFiniteError, match="of linear leaves float64 at layer 2"):
        single_input_tangents(MLP([1] * 5, "linear", **given, lambda_W=1e130), 1.0)
