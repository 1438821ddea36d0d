"""The MLP specification: validation, round trip through TOML, initialisation, forward pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagram.activations import registered
from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, BlockChain, check_inputs


def refusal(expected: type[DynagramError], call) -> str:
    """The message of the refusal, which must be one line."""
    with pytest.raises(expected) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def network(**changes) -> MLP:
    given = {"widths": (4, 5, 5, 5, 1), "activation": "tanh", "C_b": 0.1, "C_W": 1.2} | changes
    return MLP(**given)


class TestSpecification:
    def test_scalars_are_broadcast_and_kinds_of_number_agree(self):
        plain = MLP((3, 4, 2), "relu", 0.0, 2.0)
        assert plain.C_W == (2.0, 2.0)
        assert plain.lambda_b == plain.lambda_W == (1.0, 1.0)
        other = MLP(
            np.array([3, 4, 2]), "relu", np.float32(0), np.array([2, 2]), lambda_b=jnp.ones(2)
        )
        assert other == plain
        assert hash(other) == hash(plain)
        assert all(type(value) is float for value in other.C_W + other.C_b + other.lambda_b)
        assert all(type(width) is int for width in other.widths)

    def test_frozen_and_replaceable(self):
        net = network()
        with pytest.raises(dataclasses.FrozenInstanceError):
            net.widths = (1, 1)  # pyright: ignore[reportAttributeAccessIssue]
        changed = dataclasses.replace(net, C_W=[1.0, 2.0, 3.0, 4.0])
        assert changed.C_W == (1.0, 2.0, 3.0, 4.0)
        assert changed.C_b == net.C_b
        assert changed != net

    def test_depth_and_number_of_parameters(self):
        assert network().depth == 4
        assert network().number_of_parameters == 91  # book (2.7)
        params = network().draw(jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 91

    def test_repr_is_short_and_makes_the_same_network(self):
        net = network(C_b=[0.0, 0.1, 0.1, 0.1])
        assert "C_b=[0.0, 0.1, 0.1, 0.1], C_W=1.2," in repr(net)
        assert eval(repr(net), {"MLP": MLP}) == net

    @pytest.mark.parametrize(
        ("changes", "error", "says"),
        [
            ({"widths": (4, 0, 1)}, InvalidValueError, "n_1 of widths = 0: a width must be"),
            ({"widths": (4, -3, 1)}, InvalidValueError, "n_1 of widths = -3"),
            ({"widths": (4, 2.5, 1)}, InvalidTypeError, "n_1 of widths = 2.5"),
            ({"widths": (4, 3.0, 1)}, InvalidTypeError, "integer"),
            ({"widths": (4, True)}, InvalidTypeError, "n_1 of widths = True"),
            ({"widths": (4,)}, InvalidValueError, "at least input and output"),
            ({"widths": ()}, InvalidValueError, "at least input and output"),
            ({"widths": 4}, InvalidTypeError, "sequence"),
            ({"widths": "4-5-1"}, InvalidTypeError, "sequence"),
            ({"widths": np.ones((2, 2), int)}, InvalidTypeError, "n_0 of widths = [1, 1]"),
            ({"activation": "tahn"}, InvalidValueError, "did you mean tanh"),
            ({"activation": 3}, InvalidTypeError, "name or a callable"),
            ({"activation": None}, InvalidTypeError, "name or a callable"),
            ({"C_b": -0.1}, InvalidValueError, "C_b = -0.1: a variance must be ≥ 0"),
            ({"C_b": [0, 0, -1, 0]}, InvalidValueError, "C_b of layer 3 = -1.0"),
            ({"C_b": float("nan")}, InvalidValueError, "finite"),
            ({"C_W": 0.0}, InvalidValueError, "does not depend on the input"),
            ({"C_W": [1, 1, 1, -2]}, InvalidValueError, "C_W of layer 4 = -2.0"),
            ({"C_W": float("inf")}, InvalidValueError, "C_W = inf: must be finite"),
            ({"C_W": [1, 1]}, InvalidValueError, "4 expected, 2 given"),
            ({"C_W": np.ones((4, 2))}, InvalidTypeError, "C_W of layer 1 = [1.0, 1.0]"),
            ({"C_W": "1.0"}, InvalidTypeError, "real number"),
            ({"C_W": None}, InvalidTypeError, "real number"),
            ({"C_W": True}, InvalidTypeError, "real number"),
            ({"C_W": 1 + 1j}, InvalidTypeError, "real number"),
            ({"C_W": 10**400}, InvalidTypeError, "real number"),
            ({"lambda_b": -1.0}, InvalidValueError, "lambda_b = -1.0: a learning rate"),
            ({"lambda_W": [1.0] * 5}, InvalidValueError, "4 expected, 5 given"),
            ({"lambda_W": float("nan")}, InvalidValueError, "finite"),
        ],
    )
    def test_bad_values_are_refused_in_one_line(self, changes, error, says):
        assert says in refusal(error, lambda: network(**changes))


class TestCritical:
    @pytest.mark.parametrize(
        ("name", "C_b", "C_W"),
        [
            ("relu", 0.0, 2.0),
            ("leaky_relu(0.5)", 0.0, 1.6),
            ("tanh", 0.0, 1.0),
            ("gelu", 0.1729223907560673, 1.983058257437547),  # K* = (3 + √17)/2 (5.104)
        ],
    )
    def test_the_preferred_critical_point(self, name, C_b, C_W):
        net = MLP.critical((3, 5, 5, 1), name, lambda_b=0.5)
        np.testing.assert_allclose(net.C_b, [C_b] * 3, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(net.C_W, [C_W] * 3, rtol=1e-9)
        assert (net.lambda_b, net.lambda_W) == ((0.5,) * 3, (1.0,) * 3)

    def test_activations_without_one_are_refused(self):
        says = refusal(InvalidValueError, lambda: MLP.critical((3, 5, 1), "softplus"))
        assert "no critical initialisation" in says


class TestToml:
    @pytest.mark.parametrize("name", registered())
    def test_every_registered_activation_survives(self, name):
        net = network(activation=name)
        again = MLP.from_toml(net.to_toml())
        z = np.linspace(-2.0, 2.0, 9)
        np.testing.assert_array_equal(again.activation.values(z), net.activation.values(z))
        assert again.to_toml() == net.to_toml()

    def test_equal_after_a_round_trip(self):
        net = network(activation="relu")
        assert MLP.from_toml(net.to_toml()) == net

    positive = st.floats(1e-300, 1e300)
    non_negative = st.floats(0.0, 1e300)

    @given(
        widths=st.lists(st.integers(1, 10**9), min_size=4, max_size=4),
        C_b=st.lists(non_negative, min_size=3, max_size=3),
        C_W=st.lists(positive, min_size=3, max_size=3),
        rates=st.tuples(non_negative, non_negative),
    )
    @settings(deadline=None)
    def test_numbers_are_read_back_exactly(self, widths, C_b, C_W, rates):
        net = MLP(widths, "tanh", C_b, C_W, *rates)
        assert MLP.from_toml(net.to_toml()) == net

    def test_one_number_where_the_layers_agree(self):
        text = network(C_b=[0.0, 0.5, 0.5, 0.5]).to_toml()
        assert "C_b = [0.0, 0.5, 0.5, 0.5]\nC_W = 1.2\n" in text

    def test_other_tables_are_ignored(self):
        text = "[training]\nsteps = 3\n" + network().to_toml()
        assert MLP.from_toml(text) == network()

    def test_an_anonymous_callable_cannot_be_written(self):
        net = network(activation=lambda z: jnp.tanh(2 * z))
        assert "package.module:function" in refusal(InvalidValueError, net.to_toml)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("[network]\nwidths = [2, 1", "cannot be read"),
            ("[data]\nn = 1", "no [network] table"),
            ("network = 3", "no [network] table"),
            ("[network]\nwidths = [2, 1]", "'activation, C_b, C_W': this key must be given"),
            (network().to_toml() + "lambda = 1.0\nseed = 2\n", "'lambda, seed': unknown key"),
            (network().to_toml().replace("1.2", "-1.2"), "C_W = -1.2"),
            (network().to_toml().replace("1.2", "nan"), "finite"),
        ],
    )
    def test_bad_text_is_refused_in_one_line(self, text, says):
        assert says in refusal(InvalidValueError, lambda: MLP.from_toml(text))


class TestInit:
    def test_shapes_dtypes_and_reproducibility(self, getkey):
        net, key = network(), getkey()
        params = net.draw(key)
        assert [layer.W.shape for layer in params] == [(5, 4), (5, 5), (5, 5), (1, 5)]
        assert [layer.b.shape for layer in params] == [(5,), (5,), (5,), (1,)]
        assert params[0].W.dtype == jnp.float64
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(net.draw(key, "float32")))
        again = jax.jit(net.draw)(key)
        for first, second in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-15)

    def test_variances_are_those_of_the_book(self, getkey):
        net = MLP((50, 200, 40), "tanh", [0.3, 2.0], [1.5, 0.7])
        draws = jax.vmap(net.draw)(jax.random.split(getkey(), 400))
        for index, layer in enumerate(draws):
            n_in = net.widths[index]
            for array, variance in ((layer.b, net.C_b[index]), (layer.W, net.C_W[index] / n_in)):
                values = np.asarray(array).reshape(-1)
                standardised = values / np.sqrt(variance)
                assert abs(standardised.mean()) * np.sqrt(values.size) < 4
                assert abs((standardised**2).mean() - 1) / np.sqrt(2 / values.size) < 4
                assert abs((standardised**4).mean() - 3) / np.sqrt(96 / values.size) < 4

    def test_no_two_tensors_share_their_numbers(self, getkey):
        params = MLP((3, 3, 3, 3), "tanh", 1.0, 1.0).draw(getkey())
        numbers = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(params)])
        assert np.unique(numbers).size == numbers.size

    def test_zero_bias_variance_gives_zero_biases(self, getkey):
        params = network(C_b=[0.0, 1.0, 0.0, 1.0]).draw(getkey())
        assert [bool(np.any(np.asarray(layer.b))) for layer in params] == [False, True, False, True]

    def test_bad_dtypes_are_refused(self, getkey):
        key = getkey()
        assert "floating" in refusal(InvalidValueError, lambda: network().draw(key, "int32"))
        with jax.enable_x64(False):
            says = refusal(InvalidValueError, lambda: network().draw(key, "float64"))
            assert network().draw(key)[0].W.dtype == jnp.float32
        assert "64-bit JAX is off" in says


class TestApply:
    def test_equals_the_definition_neuron_by_neuron(self, getkey):
        net = network(widths=(3, 4, 2), activation="relu", C_b=0.5)
        params = net.draw(getkey())
        x = np.array([[1.0, -2.0, 0.5], [0.0, 0.3, 4.0]])
        first, second = net.preactivations(params, x)
        for alpha in range(2):
            for i in range(4):
                expected = params[0].b[i] + sum(params[0].W[i, j] * x[alpha, j] for j in range(3))
                assert float(first[alpha, i]) == pytest.approx(float(expected), rel=1e-14)
            for i in range(2):
                signal = [max(float(first[alpha, j]), 0.0) for j in range(4)]
                expected = params[1].b[i] + sum(params[1].W[i, j] * signal[j] for j in range(4))
                assert float(second[alpha, i]) == pytest.approx(float(expected), rel=1e-14)
        np.testing.assert_array_equal(net.apply(params, x), second)

    def test_depth_one_is_linear(self, getkey):
        net = MLP((3, 2), "tanh", 1.0, 1.0)
        (layer,) = net.draw(getkey())
        x = np.arange(6.0).reshape(2, 3)
        expected = x @ np.asarray(layer.W).T + np.asarray(layer.b)
        np.testing.assert_allclose(net.apply((layer,), x), expected, rtol=1e-14)

    def test_follows_the_dtype_of_the_parameters(self, getkey):
        net, x = network(), np.ones((2, 4))
        assert net.apply(net.draw(getkey(), "float32"), x).dtype == jnp.float32
        assert net.apply(net.draw(getkey()), x.astype(np.float32)).dtype == jnp.float64

    def test_transforms(self, getkey):
        net, x = network(), np.linspace(-1.0, 1.0, 12).reshape(3, 4)
        ensemble = jax.vmap(net.draw)(jax.random.split(getkey(), 6))
        outputs = jax.jit(jax.vmap(net.apply, in_axes=(0, None)))(ensemble, x)
        assert outputs.shape == (6, 3, 1)
        fifth = jax.tree.map(lambda leaf: leaf[4], ensemble)
        np.testing.assert_allclose(outputs[4], net.apply(fifth, x), rtol=1e-13)
        gradient = jax.grad(lambda params: net.apply(params, x).sum())(fifth)
        np.testing.assert_allclose(gradient[-1].b, [3.0], rtol=1e-14)

    def test_bad_inputs_and_parameters_are_refused_in_one_line(self, getkey):
        net = network()
        params = net.draw(getkey())
        x = np.ones((2, 4))
        assert "expected (samples, 4)" in refusal(
            InvalidValueError, lambda: net.apply(params, np.ones(4))
        )
        assert "(2, 5)" in refusal(InvalidValueError, lambda: net.apply(params, np.ones((2, 5))))
        assert "network has 4" in refusal(InvalidValueError, lambda: net.apply(params[:2], x))
        swapped = (params[1], *params[1:])
        assert "in layer 1" in refusal(InvalidValueError, lambda: net.apply(swapped, x))


class TestCheckInputs:
    def test_good_inputs_become_float64(self):
        inputs = check_inputs(np.ones((2, 3), np.float32), 3)
        assert inputs.dtype == np.float64
        assert check_inputs(jnp.ones((1, 3)), 3).shape == (1, 3)

    @pytest.mark.parametrize(
        ("x", "error", "says"),
        [
            (np.ones(3), InvalidValueError, "shape of x = (3,): expected (samples, 3)"),
            (np.ones((2, 4)), InvalidValueError, "shape of x = (2, 4)"),
            (np.ones((0, 3)), InvalidValueError, "at least one sample"),
            (5.0, InvalidValueError, "shape of x = ()"),
            ([[0, 0, 0], [0, np.nan, 0]], InvalidValueError, "x[1, 1] = nan: not finite"),
            ([[0, 0, np.inf]], InvalidValueError, "x[0, 2] = inf"),
            ([[1, 2, 3], [1, 2]], InvalidTypeError, "rectangular"),
            ([["a", "b", "c"]], InvalidTypeError, "reals"),
            (np.ones((2, 3), complex), InvalidTypeError, "reals"),
            (None, InvalidTypeError, "reals"),
        ],
    )
    def test_bad_inputs_are_refused_in_one_line(self, x, error, says):
        assert says in refusal(error, lambda: check_inputs(x, 3))


class TestSkips:
    """Blocks z' = b + Wσ(z) + γz between hidden layers (B.3)."""

    widths = (3, 7, 7, 7, 5, 2)

    def network(self, **changes) -> MLP:
        given = {"activation": "tanh", "C_b": 0.1, "C_W": 1.2, "skip": [0.5, -2, 0]}
        return MLP(**{"widths": self.widths, **given, **changes})

    def test_forward_pass_is_the_printed_recursion(self, getkey):
        net, x = self.network(), np.array([[1.0, -0.5, 0.3], [0.2, 2.0, -1.0]])
        params = net.draw(getkey(), dtype=jnp.float64)
        z = [np.asarray(params[0].b) + x @ np.asarray(params[0].W).T]
        for layer, gamma in zip(params[1:], (0.5, -2.0, 0.0, 0.0), strict=True):
            step = np.asarray(layer.b) + np.tanh(z[-1]) @ np.asarray(layer.W).T
            z.append(step + (gamma * z[-1] if gamma else 0.0))
        found = net.preactivations(params, x)
        for mine, wanted in zip(found, z, strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-13)
        np.testing.assert_array_equal(net.apply(params, x), found[-1])

    def test_without_skips_it_is_the_plain_network(self, getkey):
        net, plain = self.network(skip=0.0), MLP(self.widths, "tanh", 0.1, 1.2)
        assert net == plain
        assert not net.has_skips
        assert "skip" not in net.to_toml() + repr(net)
        params = self.network().draw(key := getkey())
        for mine, wanted in zip(
            jax.tree.leaves(params), jax.tree.leaves(plain.draw(key)), strict=True
        ):
            np.testing.assert_array_equal(mine, wanted)

    def test_specification_is_hashable_and_survives_toml(self):
        net = self.network()
        assert net == self.network()
        assert hash(net) == hash(self.network())
        assert net != self.network(skip=0)
        assert MLP.from_toml(net.to_toml()) == net
        assert eval(repr(net)) == net
        assert net.skip_of_layers == (0.0, 0.5, -2.0, 0.0, 0.0)
        assert net.number_of_parameters == self.network(skip=0).number_of_parameters

    def test_critical_initialisation(self):
        net = MLP.critical([2, 4, 4, 4, 1], "tanh", skip=[0.5, 0.8])
        assert pytest.approx((1.0, 0.75, 0.36, 1.0)) == net.C_W
        assert net.C_b == (0.0,) * 4
        assert "skip of block 1 = 1.0: criticality needs γ² < 1" in refusal(
            InvalidValueError, lambda: MLP.critical([2, 4, 4, 1], "tanh", skip=1)
        )
        assert "no critical initialisation" in refusal(
            InvalidValueError, lambda: MLP.critical([2, 4, 4, 1], "sigmoid", skip=0.5)
        )

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"skip": [0.5, 0.5]}, "one per block: 3 expected, 2 given"),
            ({"skip": [0.5, 0.5, 0.5]}, "layer 4 goes from 7 to 5 neurons"),
            ({"skip": float("nan")}, "must be finite"),
            ({"skip": "0.5"}, "expected a real number"),
            ({"widths": (3, 7, 2), "skip": 0.5}, "a block joins two hidden layers"),
        ],
    )
    def test_bad_values_are_refused_in_one_line(self, changes, says):
        assert says in refusal(DynagramError, lambda: self.network(**changes))


def test_chain_of_general_blocks(getkey):
    def init(key):
        return jax.random.normal(key, (4, 4), dtype=jnp.float64)

    chain = BlockChain(init, lambda W, z: jnp.tanh(z @ W.T), (0.5, 2.0), (0.9, -1.0))
    params = chain.init(getkey())
    z = np.ones((3, 4))
    first = 0.5 * np.tanh(z @ np.asarray(params[0]).T) + 0.9 * z
    second = 2.0 * np.tanh(first @ np.asarray(params[1]).T) - first
    fields = chain.fields(params, jnp.asarray(z))
    np.testing.assert_allclose(fields[1], first, rtol=1e-13)
    np.testing.assert_allclose(chain.apply(params, jnp.asarray(z)), second, rtol=1e-13)
    assert not np.array_equal(params[0], params[1])
    with pytest.raises(DynagramError, match="one ξ per block"):
        BlockChain(init, lambda _, z: z, (1.0,), (0.5, 0.5))
