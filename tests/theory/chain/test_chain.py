"""The Gram chain against the MLP's own recursions and against numbers computed elsewhere."""

import numpy as np
import pytest

from dynagram import MLP, predict
from dynagram.activations import activation
from dynagram.errors import DynagramError
from dynagram.networks import Chain, as_residual_mlp, load_config
from dynagram.networks.blocks import (
    Activate,
    Attention,
    AveragePool,
    Conv,
    Dense,
    Gated,
    LayerNorm,
    Residual,
    RMSNorm,
)
from dynagram.networks.blocks._block import Shape
from dynagram.theory.chain._fields import LETTER_FIELDS, keys_of
from dynagram.theory.chain._linear import input_register, kernel_sizes
from dynagram.theory.chain._run import Runner, Signal
from dynagram.theory.chain._state import State

LETTERS = ("K", "Theta", "V", "G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
X = np.array([[0.7, -1.1, 0.4], [0.2, 0.9, -0.8], [-0.5, 0.3, 1.2]])
G0 = np.array([[1.0, 0.3], [0.3, 1.4]])


def as_chain(mlp):
    blocks = []
    for layer in range(1, mlp.depth + 1):
        blocks += [Activate(mlp.activation)] if layer > 1 else []
        at = layer - 1
        blocks.append(
            Dense(mlp.widths[layer], mlp.C_W[at], mlp.C_b[at], mlp.lambda_W[at], mlp.lambda_b[at])
        )
    return Chain(blocks, mlp.widths[0])


@pytest.mark.parametrize(
    ("name", "samples"),
    [("tanh", 1), ("tanh", 2), ("tanh", 3), pytest.param("gelu", 2, marks=pytest.mark.slow)],
)
def test_an_mlp_is_a_chain(name, samples):
    mlp = MLP([3, 20, 30, 25, 2], name, C_b=0.1, C_W=1.3, lambda_b=0.4, lambda_W=0.9)
    own = predict(mlp, X[:samples], LETTERS)
    chain = predict(as_chain(mlp), X[:samples], LETTERS)
    for letter in LETTERS:
        expected = own[letter][-1]
        np.testing.assert_allclose(
            chain[letter][0], expected, rtol=0.0, atol=1e-10 * np.abs(expected).max()
        )


def test_relu_is_a_chain():
    mlp = MLP([3, 20, 30, 1], "relu", C_b=0.1, C_W=1.3)
    letters = ("K", "Theta", "V", "G1", "H1", "A", "B", "D", "F")
    own, chain = predict(mlp, X[:2], letters), predict(as_chain(mlp), X[:2], letters)
    for letter in letters:
        expected = own[letter][-1]
        np.testing.assert_allclose(
            chain[letter][0], expected, rtol=0.0, atol=1e-10 * np.abs(expected).max()
        )


def run(blocks, letters, n, *, G=G0, gram="raw", fresh=False, samples=2**10, seed=0):
    """Blocks on a given Gram matrix of two tokens, as the numbers below were computed."""
    keys = keys_of(letters)
    shifts = (0, 1) if "H1" in letters else (0,)
    state = State(keys, 9)
    sizes = kernel_sizes(keys, len(shifts))
    runner = Runner(state, 1, sizes, shifts, 1e-4, seed, samples)
    number = state.new(input_register(G, sizes, 9, shifts))
    out = runner.run(tuple(blocks), Signal(number, Shape((len(G),), n), fresh, gram))
    register = state.registers[out.number]
    a, b = np.triu_indices(register.indices)
    found = {"K": register.K[0][a, b], "G1": n * register.shift[0][0][a, b]}
    if len(shifts) == 2:
        found |= {"Theta": register.K[1][a, b], "H1": n * register.shift[1][0][a, b]}
    for letter in letters:
        if letter in LETTER_FIELDS:
            key, axes = LETTER_FIELDS[letter]
            order = [axes.index(str(i)) for i in range(4)]
            found[letter] = n * np.transpose(state.entry(out.number, out.number, key)[0], order)
    return found


def corners(V):
    places = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1)]
    return np.array([V[place] for place in places])


@pytest.mark.slow
def test_pre_norm_relu_blocks():
    n = 64
    block = Residual([RMSNorm(), Dense(4 * n), Activate("relu"), Dense(n, C_W=2.0)])
    found = run([block] * 3, ("V", "G1"), n)
    np.testing.assert_allclose(found["K"], [4, 1.806883886, 4.4], rtol=1e-9)
    np.testing.assert_allclose(found["G1"], [0, -0.02315986, 0], atol=1e-8)
    golden = [33.75, 16.4373976, 7.1655605, 26.9278429, 17.8528835, 38.55]
    np.testing.assert_allclose(corners(found["V"]), golden, rtol=1e-8)


def test_circular_convolution():
    n, quad = 64, activation(lambda z: z + 0.5 * z * z)
    metric = np.array([[1, 0.5, 0.2, 0.5], [0.5, 1.2, 0.5, 0.2], [0.2, 0.5, 1, 0.5],
                       [0.5, 0.2, 0.5, 0.9]])  # fmt: skip
    layer = [Activate(quad), Conv(n, size=3, padding="circular", C_W=0.8)]
    found = run([*layer, *layer], ("V", "G1"), n, G=metric, fresh=True)
    K = [2.428762489, 1.209167556, 0.784996533, 1.179768000, 2.545937244]
    np.testing.assert_allclose(found["K"][:5], K, rtol=1e-9)
    G1 = [5.82888676, 3.45104071, 2.64357926, 3.24297529, 6.20969244]
    np.testing.assert_allclose(found["G1"][:5], G1, rtol=1e-8)
    V = found["V"]
    np.testing.assert_allclose(
        [V[0, 0, 0, 0], V[0, 0, 0, 1], V[0, 1, 0, 1], V[0, 2, 0, 2], V[1, 1, 3, 3]],
        [84.3195584, 49.7107968, 33.3462648, 20.4405648, 79.5637004], rtol=1e-8,
    )  # fmt: skip
    pooled = run([*layer, *layer, AveragePool()], ("V", "G1"), n, G=metric, fresh=True)
    np.testing.assert_allclose(
        [pooled["K"][0], pooled["G1"][0], pooled["V"].item()],
        [1.405745372, 3.8156416, 36.4461171], rtol=1e-8,
    )  # fmt: skip


@pytest.mark.slow
def test_tangents_of_pre_norm_blocks():
    n = 64
    inner, outer = Dense(2 * n, C_W=1.5, lambda_W=0.7), Dense(n, C_W=2.0, lambda_W=1.3)
    block = Residual([RMSNorm(), inner, Activate("sin"), outer])
    found = run([block] * 2, ("V", "G1", "H1", "A", "B", "D", "F"), n)
    np.testing.assert_allclose(found["Theta"], [3.797033177, 0.434414833, 3.611168406], rtol=1e-9)
    np.testing.assert_allclose(found["H1"], [0.52191509, 0.20420359, 0.25753961], rtol=1e-7)
    golden = {
        "A": (2.1589488, 0.0598779, 1.3579881), "B": (22.2664627, 0.3680301, 17.1001094),
        "F": (11.6230752, 0.2725122, 13.7915799),
    }  # fmt: skip
    for letter, numbers in golden.items():
        values = found[letter]
        seen = [values[0, 0, 0, 0], values[0, 0, 1, 1], values[0, 1, 0, 1]]
        np.testing.assert_allclose(seen, numbers, rtol=1e-6)
    D = found["D"]
    np.testing.assert_allclose([D[0, 0, 0, 0], D[0, 0, 1, 1]], [-3.5725397, -0.1057076], rtol=1e-6)


def residual_network(n):
    branch = [Dense(n, C_W=1.5, lambda_W=0.9), Activate("tanh"), Dense(n, C_W=1.2, lambda_W=1.1)]
    block = Residual(branch, strength=0.8)
    last = Dense(1, C_W=1.0, lambda_W=0.8)
    return Chain([Dense(n, C_W=1.0, lambda_W=0.7), block, block, last], 3)


def test_a_residual_network():
    T = predict(residual_network(64), [[0.9, -1.2, 0.5]], LETTERS)
    one = {letter: T[letter].item() for letter in LETTERS}
    sums = [
        one["K"], one["Theta"], one["A"] + 2 * one["B"], one["P"] + 2 * one["Q"], 3 * one["R"],
        one["S"] + one["T"] + one["U"],
    ]  # fmt: skip
    golden = [1.548573, 3.912791, 30.56808, 5.263961, -57.84348, 30.31726]
    np.testing.assert_allclose(sums, golden, rtol=5e-7)


def test_its_training():
    from dynagram import Data, GradientDescent, Training, predict_outputs

    data = Data(X[:1], [2.5], test_x=X[1:2])
    y = predict_outputs(residual_network(64), data, Training(GradientDescent(0.12)))
    np.testing.assert_allclose(y.mean_infinite.item(), -1.513109, rtol=1e-6)
    np.testing.assert_allclose(y.mean_correction.item(), -0.8938, rtol=1e-4)
    np.testing.assert_allclose(y.covariance_infinite.item(), 0.574318, rtol=1e-5)
    correction = 64 * (y.covariance - y.covariance_infinite).item()
    np.testing.assert_allclose(correction, 1.1165, rtol=1e-4)


def test_fields_of_two_directions_never_meet():
    """Why kernels of x and δx are enough for every letter: see `kernel_sizes`."""
    for key in keys_of(LETTERS):
        fields = [S for pair in key for S in pair]
        assert all(fields.count(S) == 1 for S in fields if S.bit_count() > 1)


def heads(n, d, C_q, **rates):
    return Attention(heads=n // d, head_size=d, C_q=C_q, **rates)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "gram", "fresh", "K", "G1", "V"),
    [
        (  # no norm, quadratic activations
            lambda n, m, q: [m(q, 0.6, 0.5), Residual([heads(n, 4, 0.04)]), m(q, 0.6, 0.3),
                             Residual([heads(n, 4, 0.04)])],
            "raw", False, [6.822070882, 5.441125739, 7.929229918],
            [4.04968627, 3.39486448, 5.31999758],
            [356.8635244, 324.4486165, 338.5331469, 335.3420990, 377.3332860, 493.7607479],
        ),
    ],
)  # fmt: skip
def test_attention(make, gram, fresh, K, G1, V):
    n = 64
    quad = activation(lambda z: z + 0.5 * z * z)

    def mlp(sigma, first, last):
        return Residual([Dense(n, C_W=first), Activate(sigma), Dense(n, C_W=last)])

    check_sampled(lambda seed: run(make(n, mlp, quad), ("V", "G1"), n, gram=gram, fresh=fresh,
                                   samples=2**12, seed=seed), K, G1, V)  # fmt: skip


def check_sampled(once, K, G1, V, runs=4):
    """The mean of a few runs agrees within four standard errors, which are below one per cent."""
    made = [once(1000 * seed) for seed in range(runs)]
    for name, golden in (("K", K), ("G1", G1), ("V", V)):
        values = np.array([corners(m["V"]) if name == "V" else m[name] for m in made])
        error = values.std(axis=0, ddof=1) / np.sqrt(runs)
        # With four runs the error itself is uncertain: its largest stands for all entries.
        error = np.maximum(error, error.max())
        assert np.all(np.abs(values.mean(axis=0) - golden) < 4.0 * error + 1e-9), name
        assert error.max() < 0.01 * np.max(np.abs(golden))


@pytest.mark.slow
def test_layer_norm_and_attention():
    n = 64
    mlp = Residual([LayerNorm(), Dense(2 * n, C_W=2.0), Activate("gelu"), Dense(n, C_W=2.0)])
    blocks = [mlp, Residual([LayerNorm(), heads(n, 4, 4.0)]), mlp]
    check_sampled(
        lambda seed: run(blocks, ("V", "G1"), n, gram="centred", samples=2**13, seed=seed),
        [5.4885976, 2.6535966, 5.8885976], [-4.483663, -2.898472, -4.483663],
        [79.64884, 40.97695, 19.89884, 62.18858, 43.29356, 86.90882],
    )  # fmt: skip


@pytest.mark.slow
def test_gates_and_attention():
    n = 192
    branch = [RMSNorm(), Gated(8 * n // 3, "silu", C_W=1.5, C_gate=1.5), Dense(n, C_W=2.0)]
    blocks = [Residual([RMSNorm(), heads(n, 64, 1.0)]), Residual(branch)] * 2
    check_sampled(
        lambda seed: run(blocks, ("V", "G1"), n, samples=2**16, seed=seed),
        [5.897058496, 2.527769881, 6.297058496], [0.02724562, 1.01820280, 0.02724562],
        [118.0982649, 50.0206917, 23.6888179, 86.6299931, 52.9526931, 126.1751864],
    )  # fmt: skip


def test_repeated_tokens_are_one():
    """A token that comes twice has equal rows, and changes what heads read as it should."""
    n = 32
    net = Chain([Dense(n), Residual([heads(n, 8, 1.0)]), Dense(1)], (3, 2))
    x = np.array([[1.0, 0.5, 1.0, 0.5, -0.3, 0.8]])
    T = predict(net, x, ("K", "V"))
    np.testing.assert_allclose(T["K"][0][0], T["K"][0][1], rtol=1e-12)
    np.testing.assert_allclose(T["V"][0][0, 2, 2, 1], T["V"][0][1, 2, 2, 0], rtol=1e-12)


@pytest.mark.parametrize(
    ("blocks", "inputs", "message"),
    [
        ([Dense(8), RMSNorm(), Activate("relu"), Dense(1)], 3, "not fresh from a matrix"),
        ([Dense(8), Activate("relu"), LayerNorm(), Dense(1)], 3, "layer norms must be the only"),
        ([Dense(8), Residual([Dense(8), Activate("relu")]), Dense(1)], 3, "ends with a matrix"),
        ([Dense(8), Residual([LayerNorm(), Dense(8)]), Dense(1)], 3, "layer norms must be the"),
    ],
)
def test_what_is_not_a_chain_is_refused(blocks, inputs, message):
    with pytest.raises(DynagramError, match=message):
        predict(Chain(blocks, inputs), np.ones((1, 3)))


def test_activations_on_the_stream_are_sent_to_the_residual_theory():
    block = Residual([Activate("relu"), Dense(50, C_W=1.5, C_b=0.1)], skip=0.5)
    chain = Chain([Dense(50, C_W=2.0), block, block, Activate("relu"), Dense(1, C_W=2.0)], 3)
    mlp = MLP([3, 50, 50, 50, 1], "relu", C_b=[0.0, 0.1, 0.1, 0.0], C_W=[2.0, 1.5, 1.5, 2.0],
              lambda_b=0.0, skip=0.5)  # fmt: skip
    assert as_residual_mlp(chain) == mlp
    letters = ("K", "V", "G1")
    own, made = predict(mlp, X[:1], letters), predict(chain, X[:1], letters)
    assert (made.network, made.order, made.layers["V"]) == (chain, "1/n", (chain.depth,))
    for letter in letters:
        np.testing.assert_array_equal(made[letter][0], own[letter][-1])
    with pytest.raises(DynagramError, match="not yet computed for networks with skips"):
        predict(chain, X[:1], ("A",))


@pytest.mark.parametrize(
    "blocks",
    [
        [Dense(8), Residual([Activate("relu"), Dense(8)]), Dense(1)],  # no last activation
        [
            Dense(8),
            Residual([Activate("relu"), Dense(8)], strength=0.5),
            Activate("relu"),
            Dense(1),
        ],
        [Dense(8), Residual([Activate("relu"), Dense(8)]), Activate("tanh"), Dense(1)],
        [Dense(8), Residual([RMSNorm(), Dense(8)]), Activate("relu"), Dense(1)],
    ],
)
def test_what_is_no_mlp_with_skips(blocks):
    chain = Chain(blocks, 3)
    assert as_residual_mlp(chain) is None
    with pytest.raises(DynagramError, match="acts on a signal that is not fresh"):
        predict(chain, X[:1], ("V",))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("max-pool", "use average-pool"),
        ("batch-norm", "ties all inputs together"),
        ("shared", "not fresh"),
        ("tied", "of tokens that no input holds"),
        ("dropout", "evaluation"),
    ],
)
def test_blocks_that_are_no_chain_are_refused_with_the_reason(kind, words):
    text = (
        '[network]\nkind = "chain"\ninputs = 3\n'
        f'blocks = [{{kind = "dense", width = 4}}, {{kind = "{kind}"}}]'
    )
    with pytest.raises(DynagramError, match=words):
        Chain.from_toml(text)


@pytest.mark.parametrize("name", ["albert", "resnet", "convnext", "mamba"])
def test_models_that_are_no_chain_are_refused_with_the_reason(name):
    with pytest.raises(DynagramError, match="no theory here"):
        load_config({"model_type": name}, positions=2)


def test_memory_is_asked_for_first():
    net = Chain([Conv(8), Activate("tanh"), AveragePool(), Dense(1)], (64, 64, 3))
    with pytest.raises(DynagramError, match="GiB; at most"):
        predict(net, np.ones((2, 64 * 64 * 3)))
    net = Chain([Dense(8), Residual([RMSNorm(), heads(8, 4, 1.0)]), Dense(1)], (512, 2))
    with pytest.raises(DynagramError, match="attention takes at most 32 tokens"):
        predict(net, np.ones((1, 1024)), "V")
