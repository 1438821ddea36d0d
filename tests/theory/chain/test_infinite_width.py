"""K and Θ of networks of blocks at infinite width: against the general chain and exact laws."""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram import Data, GradientFlow, Posterior, Training, predict, predict_outputs
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Chain
from dynagram.networks.blocks import (
    Activate,
    Attention,
    AveragePool,
    Conv,
    Dense,
    Embedding,
    Flatten,
    Gated,
    LayerNorm,
    Residual,
    RMSNorm,
    Select,
)
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.chain import _kernels
from dynagram.theory.chain._kernel_program import compile_program
from dynagram.theory.chain._kernels import chain_kernels
from dynagram.theory.chain._predict import chain_tensors

HYPER = {"C_W": 1.3, "C_b": 0.2, "lambda_W": 0.7, "lambda_b": 0.4}
HEADS = {"C_q": 2.0, "C_k": 1.5, "C_v": 0.8, "C_O": 1.3,
         "lambda_q": 0.5, "lambda_k": 0.8, "lambda_v": 1.1, "lambda_O": 0.9}  # fmt: skip


def dense(width):
    return Dense(width, **HYPER)


def conv(**options):
    return Conv(8, **HYPER, **options)


BRANCH = [RMSNorm(1e-3), dense(8), Activate("gelu"), dense(6)]
NETWORKS = {
    "flatten": Chain(
        [conv(padding="circular"), Activate("relu"), conv(size=2, stride=2), Activate("relu"),
         Flatten(2, **HYPER)], inputs=(6, 2)),
    "pools": Chain(
        [conv(), Activate("relu"), AveragePool(2), conv(), Activate("erf"), AveragePool(),
         dense(2)], inputs=(4, 4, 2)),
    "window": Chain(
        [conv(size=(3, 2), padding="valid", stride=(1, 2)), Activate("erf"), AveragePool(2),
         dense(3), Activate("gelu"), Flatten(2, **HYPER)], inputs=(6, 4, 2)),
    "positions": Chain([conv(), Activate("relu"), conv()], inputs=(5, 2)),
    "select": Chain([conv(), Activate("relu"), conv(), Select(-2), dense(1)], inputs=(5, 2)),
    "series": Chain([conv(), Activate("tanh"), AveragePool(), dense(1)], inputs=(4, 2)),
    "kinks": Chain([dense(8), Activate("hardtanh"), dense(8), Activate("hardtanh"), dense(1)], 3),
    "branches": Chain(
        [dense(6), Residual([BRANCH, BRANCH[1:]], skip=0.7, strength=1.3), RMSNorm(), dense(1)], 3),
    "gated": Chain(
        [dense(6), Residual([LayerNorm(), Gated(8, "relu", 1.2, 0.7, 0.6, 0.9), dense(6)]),
         LayerNorm(), dense(1)], 3),
    "images": Chain(
        [conv(), Residual([LayerNorm(), conv(), Activate("relu"), conv()]), LayerNorm(),
         AveragePool(2), Flatten(1, **HYPER)], inputs=(4, 4, 2)),
    "centred input": Chain([Residual([LayerNorm(0.1), dense(4)]), LayerNorm(), dense(1)], 4),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_equals_the_general_chain(name):
    network = NETWORKS[name]
    x = np.random.default_rng(0).standard_normal((5, network.input_size))
    x[4] = x[0]
    general = chain_tensors(network, x, ("K", "Theta"))
    made = chain_kernels(network, x)
    assert made.K_error is None
    for letter, value in (("K", made.K), ("Theta", made.Theta)):
        np.testing.assert_allclose(value, general.values[letter], rtol=1e-10, atol=1e-13)
    P = network.positions
    between = chain_kernels(network, x[:2], x[2:])
    np.testing.assert_allclose(between.K, made.K[: 2 * P, 2 * P :], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(between.Theta, made.Theta[: 2 * P, 2 * P :], rtol=1e-12, atol=1e-14)


def test_embeddings_equal_the_general_chain():
    network = Chain(
        [Embedding(5, 6, 1.0, 0.5, 0.3, 0.2), dense(8), Activate("erf"), AveragePool(), dense(1)],
        inputs=(4, 1),
    )
    tokens = np.array([[0, 1, 2, 3], [1, 1, 2, 3], [4, 4, 0, 0]], float)
    general, made = chain_tensors(network, tokens, ("K", "Theta")), chain_kernels(network, tokens)
    np.testing.assert_allclose(made.K, general.values["K"], rtol=1e-12)
    np.testing.assert_allclose(made.Theta, general.values["Theta"], rtol=1e-12)


@pytest.mark.parametrize("name", ["flatten", "pools", "branches"])
@pytest.mark.parametrize("tile", [3, 8])
def test_blocks_of_inputs_change_nothing(name, tile, monkeypatch):
    """Blocks of eight have loops of their own."""
    network = NETWORKS[name]
    x = np.random.default_rng(1).standard_normal((11, network.input_size))
    whole = chain_kernels(network, x)
    monkeypatch.setattr(_kernels, "tile_size", lambda *_: 1)
    single = chain_kernels(network, x)
    monkeypatch.setattr(_kernels, "tile_size", lambda *_: tile)
    parts = chain_kernels(network, x)
    for other in (whole, single):
        np.testing.assert_allclose(parts.K, other.K, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(parts.Theta, other.Theta, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["flatten", "pools", "branches"])
def test_large_pairs_of_positions_make_small_blocks(name, monkeypatch):
    program = compile_program(NETWORKS[name])
    monkeypatch.setattr(_kernels, "_BLOCK_NUMBERS", 9 * program.widest.cross.size)
    assert _kernels.tile_size(program, 11) == 3


def test_an_mlp_of_blocks_equals_the_mlp():
    x = np.random.default_rng(2).standard_normal((80, 3))
    mlp = MLP([3, 8, 8, 1], "erf", 0.2, 1.3, lambda_b=0.4, lambda_W=0.7)
    network = Chain([dense(8), Activate("erf"), dense(8), Activate("erf"), dense(1)], 3)
    expected, made = frozen_kernels(mlp, x, layers="last"), frozen_kernels(network, x)
    np.testing.assert_allclose(made.K[0], expected.K[0], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(made.Theta[0], expected.Theta[0], rtol=1e-11, atol=1e-13)


def test_flattening_carries_equal_positions_only():
    """16 × 16 positions: a list of 256 pairs, not of 65 536; a pool under it adds its windows."""
    flat = Chain([conv(), Activate("relu"), Flatten(1)], inputs=(16, 16, 3))
    assert compile_program(flat).widest.cross.size == 256
    pooled = Chain([conv(), Activate("relu"), AveragePool(2), Flatten(1)], inputs=(16, 16, 3))
    assert compile_program(pooled).steps[1].lists.cross.size == 64 * 16
    whole = Chain([conv(), Activate("relu"), AveragePool(), dense(1)], inputs=(8, 8, 3))
    assert compile_program(whole).widest.cross.is_full


def test_activations_on_a_gaussian_stream():
    """A residual stream is Gaussian at infinite width: skips of an MLP are such a network."""
    x = np.random.default_rng(3).standard_normal((4, 3))
    mlp = MLP([3, 8, 8, 8, 1], "relu", 0.2, 1.3, lambda_b=0.4, lambda_W=0.7, skip=0.6)
    block = Residual([Activate("relu"), dense(8)], skip=0.6)
    network = Chain([dense(8), block, block, Activate("relu"), dense(1)], 3)
    expected, made = frozen_kernels(mlp, x, layers="last"), chain_kernels(network, x)
    np.testing.assert_allclose(made.K, expected.K[0], rtol=1e-12)
    np.testing.assert_allclose(made.Theta, expected.Theta[0], rtol=1e-12)


# --- attention --------------------------------------------------------------------------------


def transformer(inputs=(2, 2)):
    n = inputs[1]
    mlp = [RMSNorm(), Dense(16, C_W=2.0, lambda_W=0.7), Activate("gelu")]
    mlp += [Dense(n, C_W=2.0, lambda_W=1.3)]
    heads = Attention(2, 4, C_q=4.0, lambda_q=0.5, lambda_k=0.8, lambda_v=1.1, lambda_O=0.9)
    blocks = [Residual(mlp), Residual([RMSNorm(), heads]), Residual(mlp), Dense(1, lambda_W=0.0)]
    return Chain(blocks, inputs)


def test_a_transformer_equals_the_known_numbers():
    """Two tokens: from a three-dimensional quadrature, seven digits."""
    x = np.linalg.cholesky(2.0 * np.array([[1.0, 0.3], [0.3, 1.4]])).reshape(1, 4)
    made = chain_kernels(transformer(), x, head_samples=2**12)
    for value, error, known in (
        (made.K, made.K_error, [5.4885976, 2.6535966, 5.8885976]),
        (made.Theta, made.Theta_error, [8.5884036, 4.2006749, 8.3358066]),
    ):
        upper = np.triu_indices(2)
        deviation = (value[upper] - known) / error[upper]
        assert np.all(np.abs(deviation) < 5.0)  # Student's t with seven degrees of freedom
        assert np.all(error < 0.005 * np.abs(value))


def test_tokens_in_another_order_are_another_input():
    """Without a mask, a permutation of the tokens permutes the kernels: heads are common."""
    x = np.random.default_rng(4).standard_normal((1, 3, 2))
    both = np.concatenate([x, x[:, [2, 0, 1]]]).reshape(2, -1)
    made = chain_kernels(transformer((3, 2)), both, head_samples=2**8)
    for value in (made.K, made.Theta):
        np.testing.assert_allclose(value[:3, 3:], value[:3, :3][:, [2, 0, 1]], rtol=1e-10)
        assert np.linalg.eigvalsh(value)[0] > -1e-10 * np.abs(value).max()


def test_queries_of_zero_give_uniform_patterns():
    """C_q = λ_q = 0: S is uniform over the tokens in sight, and nothing is sampled."""
    options = HEADS | {"C_q": 0.0, "lambda_q": 0.0}
    network = Chain([dense(8), Attention(4, 4, causal=True, **options), Dense(1)], inputs=(3, 2))
    x = np.random.default_rng(5).standard_normal((2, 6))
    made = chain_kernels(network, x)
    assert made.K_error is None
    rows = x.reshape(6, 2)
    G = 0.2 + 1.3 * rows @ rows.T / 2
    tangent = 0.4 + 0.7 * rows @ rows.T / 2
    S = np.kron(np.eye(2), np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None])
    read, moved = 0.8 * S @ G @ S.T, S @ (1.1 * G + 0.8 * tangent) @ S.T
    # k·δq = 0, q·δk = 0: only values, the output matrix of the heads and the last one learn.
    K = 1.3 * read
    np.testing.assert_allclose(made.K, K, rtol=1e-12)
    np.testing.assert_allclose(made.Theta, K + 0.9 * read + 1.3 * moved, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"causal": True, "rope": 10.0, "qk_norm": True}])
def test_two_inputs_of_attention_equal_the_general_chain(options):
    network = Chain([dense(8), Attention(4, 4, **options, **HEADS), dense(1)], inputs=(2, 2))
    x = np.random.default_rng(6).standard_normal((2, 4))
    general, made = chain_tensors(network, x, ("K", "Theta")), chain_kernels(network, x)
    for letter in ("K", "Theta"):
        value, error = getattr(made, letter), getattr(made, f"{letter}_error")
        error = np.hypot(error, general.errors[letter]) + 1e-12
        # Differences of four and eight runs: Student's t with few degrees of freedom.
        assert np.all(np.abs(value - general.values[letter]) < 6.0 * error)
        # Six of these errors are a third of the value: a factor of two would be seen.
        assert np.all(error < 0.05 * np.abs(value).max())


# --- who uses them ----------------------------------------------------------------------------


def test_predictions_use_them():
    network = NETWORKS["pools"]
    rng = np.random.default_rng(7)
    x, y, z = (
        rng.standard_normal((4, 32)),
        rng.standard_normal((4, 2)),
        rng.standard_normal((2, 32)),
    )
    data = Data(x, y, test_x=z)
    made = chain_kernels(network, np.concatenate([x, z]))
    tensors = predict(network, x, ("K", "Theta"))
    np.testing.assert_allclose(tensors["Theta"][0], made.Theta[:4, :4], rtol=1e-12)
    trained = predict_outputs(network, data, Training(GradientFlow()), order="infinite")
    expected = made.Theta[4:, :4] @ np.linalg.solve(made.Theta[:4, :4], y)
    np.testing.assert_allclose(trained.mean, expected, rtol=1e-8)
    posterior = predict_outputs(network, data, Posterior(noise=0.3), order="infinite")
    kernel = made.K[:4, :4] + 0.3 * np.eye(4)
    np.testing.assert_allclose(
        posterior.mean, made.K[4:, :4] @ np.linalg.solve(kernel, y), rtol=1e-8
    )


def test_jumps_have_no_tangent_kernel():
    network = Chain([dense(8), Activate("step"), dense(1)], 3)
    made = chain_kernels(network, np.eye(3))
    general = frozen_kernels(MLP([3, 8, 1], "step", 0.2, 1.3), np.eye(3), layers="last")
    np.testing.assert_allclose(made.K, general.K[0], rtol=1e-12)
    assert np.all(np.isinf(np.diagonal(made.Theta)))


@pytest.mark.parametrize(
    ("blocks", "inputs", "words"),
    [
        ([Activate("relu"), dense(1)], 3, "not Gaussian"),
        ([dense(3), Activate("relu"), Activate("relu"), dense(1)], 3, "not Gaussian"),
        ([Residual([LayerNorm(), dense(3)]), RMSNorm(), dense(1)], 3, "layer norms must"),
        ([dense(3), Residual([dense(3), Activate("relu")]), dense(1)], 3, "ends with a matrix"),
        ([conv(), AveragePool(), dense(1)], (150, 150, 1), "pool to fewer positions"),
    ],
)
def test_refused_networks(blocks, inputs, words):
    network = Chain(blocks, inputs)
    with pytest.raises(InvalidValueError, match=words):
        chain_kernels(network, np.ones((1, network.input_size)))


def test_refused_sizes_and_signals():
    network = Chain([dense(8), Activate("relu"), dense(1)], 1)
    with pytest.raises(InvalidValueError, match="GiB"):
        chain_kernels(network, np.ones((40_000, 1)))
    zero = Chain([Dense(4), RMSNorm(), Dense(1)], 2)
    with pytest.raises(InvalidValueError, match="epsilon > 0"):
        chain_kernels(zero, np.zeros((1, 2)))
    wild = Chain(
        [Dense(4, C_W=1e150), Activate("relu"), Dense(4, C_W=1e150), RMSNorm(), dense(1)], 1
    )
    with pytest.raises(NonFiniteError, match="overflows"):
        chain_kernels(wild, np.ones((1, 1)))
    long = Chain([Dense(4), Attention(1, 4), Dense(1)], inputs=(100, 1))
    with pytest.raises(InvalidValueError, match="tokens"):
        chain_kernels(long, np.ones((50, 100)))


GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "neural_tangents_architectures.json").read_text()
)


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "about"])
def test_equals_neural_tangents(name):
    network = Chain.from_toml(GOLDEN[name]["network"])
    x = np.random.default_rng(0).standard_normal((3, network.input_size))
    made = chain_kernels(network, x)
    np.testing.assert_allclose(made.K, GOLDEN[name]["K"], rtol=1e-9)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(made.Theta[off], np.array(GOLDEN[name]["Theta"])[off], rtol=1e-9)
    # Its derivatives of kinks on the diagonal go through arccos near 1: errors of 1e-8.
    np.testing.assert_allclose(
        np.diagonal(made.Theta), np.diagonal(GOLDEN[name]["Theta"]), rtol=2e-8
    )
