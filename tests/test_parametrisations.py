"""Conversions between conventions, by training: converted networks follow the same trajectory."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP
from dynagram.networks._parametrisations import (
    NTKParametrisation,
    StandardParametrisation,
    from_ntk,
    from_standard,
    maximal_update,
    mean_squared_error_factor,
    to_ntk,
    to_standard,
)

STEPS = 25
X = np.array([[0.3, -1.2, 0.7], [1.1, 0.4, -0.5], [-0.8, 0.9, 0.2], [0.1, 0.6, 1.3]])
Y = np.array([[1.0, -0.5], [0.2, 0.3], [-0.7, 0.9], [0.4, -1.1]])


def half_sum(z):
    return 0.5 * jnp.sum((z - Y) ** 2)


def forward(weights, biases, scale_W, scale_b):
    """tanh network written out, with a multiplier on each tensor."""
    signal = X
    for W, b, m_W, m_b in zip(weights, biases, scale_W, scale_b, strict=True):
        z = signal @ (m_W * W).T + (m_b * b)[None, :]
        signal = jnp.tanh(z)
    return z


def descend(weights, biases, rate_W, rate_b, scale_W=None, scale_b=None, loss=half_sum):
    """Outputs along plain SGD with one rate per tensor, (steps, samples, outputs)."""
    ones = [1.0] * len(weights)
    scale_W, scale_b = scale_W or ones, scale_b or ones

    @jax.jit
    def step(parameters):
        outputs = forward(*parameters, scale_W, scale_b)
        slopes = jax.grad(lambda p: loss(forward(*p, scale_W, scale_b)))(parameters)
        stepped = [
            [
                value - rate * slope
                for value, slope, rate in zip(values, gradient, rates, strict=True)
            ]
            for values, gradient, rates in zip(parameters, slopes, (rate_W, rate_b), strict=True)
        ]
        return stepped, outputs

    parameters, outputs = [list(weights), list(biases)], []
    for _ in range(STEPS):
        parameters, z = step(parameters)
        outputs.append(np.asarray(z))
    return np.stack(outputs)


def book(net: MLP, params, eta: float):
    """Outputs along gradient descent with the book's learning-rate tensor (8.6)."""
    outputs = []

    @jax.jit
    def step(params):
        slopes = jax.grad(lambda p: half_sum(net.apply(p, X)))(params)
        stepped = []
        for index, (layer, slope) in enumerate(zip(params, slopes, strict=True)):
            rate_W = eta * net.lambda_W[index] / net.widths[index]
            rate_b = eta * net.lambda_b[index]
            stepped.append(type(layer)(layer.b - rate_b * slope.b, layer.W - rate_W * slope.W))
        return tuple(stepped), net.apply(params, X)

    for _ in range(STEPS):
        params, z = step(params)
        outputs.append(np.asarray(z))
    return np.stack(outputs)


def assert_same_trajectory(first, second):
    # The loss must have moved far, or agreement would mean nothing.
    assert half_sum(first[-1]) < 0.5 * half_sum(first[0])
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-10)


@pytest.fixture
def network():
    return MLP(
        (3, 7, 5, 2),
        "tanh",
        C_b=[0.1, 0.3, 0.2],
        C_W=[1.5, 0.8, 1.1],
        lambda_b=[0.5, 1.0, 0.3],
        lambda_W=[1.0, 2.0, 0.7],
    )


class TestStandard:
    def test_training_is_the_same(self, network, getkey):
        params = network.draw(getkey())
        standard = to_standard(network, 0.05)
        outputs = descend(
            [layer.W for layer in params],
            [layer.b for layer in params],
            standard.rate_W,
            standard.rate_b,
        )
        assert_same_trajectory(book(network, params, 0.05), outputs)

    def test_the_mean_squared_error_of_other_frameworks(self, network, getkey):
        params = network.draw(getkey())
        standard = to_standard(network, 0.05 * mean_squared_error_factor(*Y.shape))
        outputs = descend(
            [layer.W for layer in params],
            [layer.b for layer in params],
            standard.rate_W,
            standard.rate_b,
            loss=lambda z: jnp.mean((z - Y) ** 2),
        )
        assert_same_trajectory(book(network, params, 0.05), outputs)

    def test_initialisation_is_the_same(self, network, getkey):
        standard = to_standard(network, 0.05)
        keys = jax.random.split(getkey(), 4000)
        for layer, std_b, std_W in zip(
            jax.vmap(network.draw)(keys), standard.std_b, standard.std_W, strict=True
        ):
            for values, std in ((layer.b, std_b), (layer.W, std_W)):
                squares = (np.asarray(values) / std) ** 2
                assert abs(squares.mean() - 1) / math.sqrt(2 / squares.size) < 4

    def test_there_and_back(self, network, getkey):
        again = from_standard(to_standard(network, 0.05), eta=0.2)
        np.testing.assert_allclose(again.C_b, network.C_b, rtol=1e-14)
        np.testing.assert_allclose(again.C_W, network.C_W, rtol=1e-14)
        params = network.draw(getkey())
        # η and λ differ, their product does not.
        assert_same_trajectory(book(network, params, 0.05), book(again, params, 0.2))

    def test_pytorch_defaults(self):
        """U(−1/√n, 1/√n) has variance 1/3n: C_W = 1/3 and, unlike the book, C_b = 1/3n."""
        bound = [1 / math.sqrt(3 * n) for n in (3, 50)]
        net = from_standard(StandardParametrisation((3, 50, 2), "relu", bound, bound, 0.1, 0.1))
        np.testing.assert_allclose(net.C_W, [1 / 3, 1 / 3], rtol=1e-14)
        np.testing.assert_allclose(net.C_b, [1 / 9, 1 / 150], rtol=1e-14)
        np.testing.assert_allclose(net.lambda_W, [0.3, 5.0], rtol=1e-14)
        assert net.lambda_b == (0.1, 0.1)


class TestNTK:
    @pytest.fixture
    def tied(self, network):
        return dataclasses.replace(network, lambda_b=network.C_b, lambda_W=network.C_W)

    def train(self, ntk: NTKParametrisation, params):
        scale_W = [s / math.sqrt(n) for s, n in zip(ntk.sigma_W, ntk.widths[:-1], strict=True)]
        depth = len(params)
        return descend(
            [layer.W / s for layer, s in zip(params, scale_W, strict=True)],
            [layer.b / s for layer, s in zip(params, ntk.sigma_b, strict=True)],
            [ntk.rate] * depth,
            [ntk.rate] * depth,
            scale_W,
            list(ntk.sigma_b),
        )

    def test_training_is_the_same(self, tied, getkey):
        params = tied.draw(getkey())
        ntk = to_ntk(tied, 0.05)
        assert ntk.rate == 0.05
        assert_same_trajectory(book(tied, params, 0.05), self.train(ntk, params))

    def test_from_ntk_trains_the_same(self, getkey):
        ntk = NTKParametrisation((3, 7, 5, 2), "tanh", 0.3, [1.2, 1.0, 0.9], rate=0.08)
        net = from_ntk(ntk, eta=0.02)
        params = net.draw(getkey())
        assert_same_trajectory(book(net, params, 0.02), self.train(ntk, params))
        assert to_ntk(net, 0.02).rate == pytest.approx(0.08, rel=1e-14)

    def test_eta_equal_to_the_rate_ties_the_rates_to_the_variances(self):
        net = from_ntk(NTKParametrisation((3, 7, 2), "tanh", 0.5, 1.5, rate=0.1), eta=0.1)
        assert net.lambda_W == net.C_W == (2.25, 2.25)
        assert net.lambda_b == net.C_b == (0.25, 0.25)

    def test_no_bias(self):
        net = MLP((3, 7, 2), "tanh", C_b=0.0, C_W=2.0, lambda_b=0.0, lambda_W=1.0)
        assert to_ntk(net, 0.1).rate == pytest.approx(0.05, rel=1e-14)

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"lambda_W": [1.0, 2.0, 0.7]}, "lambda_b of layer 1"),
            ({"lambda_b": 0.0}, "lambda_b of layer 1 = 0.0"),
            ({"lambda_W": [1.5, 0.8, 1.2]}, "lambda_W of layer 3 = 1.2"),
            ({"C_b": 0.0}, "lambda_b of layer 1 = 0.1"),
        ],
    )
    def test_untied_rates_are_refused_in_one_line(self, tied, changes, says):
        with pytest.raises(InvalidValueError, match="one NTK rate needs") as caught:
            to_ntk(dataclasses.replace(tied, **changes), 0.1)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)


class TestMaximalUpdate:
    """Against the form with multipliers (Yang & Hu, arXiv:2011.14522), trained at fixed rates."""

    def test_training_is_that_of_the_form_with_multipliers(self, network, getkey):
        factor, eta = 3, 0.02
        wide = maximal_update(network, (3, 7 * factor, 5 * factor, 2))
        params = wide.draw(getkey())
        # Multipliers √r, 1, 1/√r on W and √r on hidden biases; every rate is that of the base.
        root = math.sqrt(factor)
        scale_W, scale_b = [root, 1.0, 1 / root], [root, root, 1.0]
        base = to_standard(network, eta)
        outputs = descend(
            [layer.W / m for layer, m in zip(params, scale_W, strict=True)],
            [layer.b / m for layer, m in zip(params, scale_b, strict=True)],
            base.rate_W,
            base.rate_b,
            scale_W,
            scale_b,
        )
        assert_same_trajectory(book(wide, params, eta), outputs)
        # In that form every trainable weight has a variance ∝ 1/n in the width n it scales with.
        drawn = np.array(to_standard(wide, eta).std_W) / scale_W
        np.testing.assert_allclose(drawn, np.array(base.std_W) / root, rtol=1e-14)

    def test_the_table_for_plain_tensors(self, network):
        wide = to_standard(maximal_update(network, (3, 70, 20, 2)), 0.1)
        base = to_standard(network, 0.1)
        np.testing.assert_allclose(np.divide(wide.rate_W, base.rate_W), [10, 0.4, 0.25], rtol=1e-14)
        np.testing.assert_allclose(np.divide(wide.rate_b, base.rate_b), [10, 4, 1], rtol=1e-14)
        variances = np.divide(wide.std_W, base.std_W) ** 2
        np.testing.assert_allclose(variances, [1, 0.1, 1 / 16], rtol=1e-14)
        assert wide.std_b == base.std_b

    def test_back_to_the_base_width(self, network):
        again = maximal_update(maximal_update(network, (3, 70, 55, 2)), network.widths)
        for name in ("C_b", "C_W", "lambda_b", "lambda_W"):
            np.testing.assert_allclose(getattr(again, name), getattr(network, name), rtol=1e-14)
        assert maximal_update(network, network.widths) == network

    @pytest.mark.slow
    def test_hidden_features_move_by_the_same_amount_at_every_width(self, getkey):
        """Change of z^(ℓ) in one step: ∝ n^0 in μP, ∝ n^(-1/2) where λ does not vary with n."""
        base = MLP((3, 32, 32, 2), "tanh", C_b=0.0, C_W=1.0)
        widths, key = (32, 128, 512), getkey()

        def movement(net: MLP) -> np.ndarray:
            def one(key):
                params = net.draw(key)
                slopes = jax.grad(lambda p: half_sum(net.apply(p, X)))(params)
                stepped = tuple(
                    type(layer)(
                        layer.b - 0.1 * net.lambda_b[i] * slope.b,
                        layer.W - 0.1 * net.lambda_W[i] / net.widths[i] * slope.W,
                    )
                    for i, (layer, slope) in enumerate(zip(params, slopes, strict=True))
                )
                pairs = zip(
                    net.preactivations(stepped, X), net.preactivations(params, X), strict=True
                )
                return jnp.array([jnp.mean((after - before) ** 2) for after, before in pairs])

            moved = jax.jit(jax.vmap(one))(jax.random.split(key, 24))
            return np.sqrt(np.asarray(moved).mean(axis=0))[:2]

        def exponents(networks) -> np.ndarray:
            sizes = np.log(np.array([movement(net) for net in networks]))
            return np.polyfit(np.log(widths), sizes, 1)[0]

        scaled = exponents(maximal_update(base, (3, n, n, 2)) for n in widths)
        fixed = exponents(dataclasses.replace(base, widths=(3, n, n, 2)) for n in widths)
        np.testing.assert_allclose(scaled, [0.0, 0.0], atol=0.1)
        np.testing.assert_allclose(fixed, [-0.5, -0.5], atol=0.1)

    @pytest.mark.parametrize("widths", [(4, 7, 5, 2), (3, 7, 5, 1), (3, 7, 2), (3, 0, 5, 2)])
    def test_other_changes_are_refused_in_one_line(self, network, widths):
        with pytest.raises(InvalidValueError, match="widths") as caught:
            maximal_update(network, widths)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("eta", [0.0, -0.1, float("nan"), float("inf")])
def test_bad_global_rates_are_refused(network, eta):
    standard = to_standard(network, 1.0)
    for convert in (lambda: to_standard(network, eta), lambda: from_standard(standard, eta=eta)):
        with pytest.raises(InvalidValueError, match="eta = "):
            convert()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: StandardParametrisation((3, 2), "tanh", -1.0, 1.0, 1.0, 1.0), "std_b = -1.0"),
        (lambda: StandardParametrisation((3, 2), "tanh", 0.0, 0.0, 1.0, 1.0), "std_W = 0.0"),
        (lambda: StandardParametrisation((3, 2), "tanh", 0.0, 1.0, -1.0, 1.0), "rate_b = -1.0"),
        (lambda: StandardParametrisation((3, 2), "tanh", 0.0, 1.0, 1.0, [1, 1]), "1 expected, 2"),
        (lambda: StandardParametrisation((3,), "tanh", 0.0, 1.0, 1.0, 1.0), "widths"),
        (lambda: NTKParametrisation((3, 2), "tanh", 0.0, 0.0, 1.0), "sigma_W = 0.0"),
        (lambda: NTKParametrisation((3, 2), "tanh", 0.0, 1.0, -1.0), "rate = -1.0"),
        (lambda: mean_squared_error_factor(0, 3), "samples = 0"),
    ],
)
def test_bad_values_are_refused_in_one_line(make, says):
    with pytest.raises((InvalidValueError, InvalidTypeError)) as caught:
        make()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
