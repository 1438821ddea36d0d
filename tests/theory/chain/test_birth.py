"""Networks at birth: squared gradients against Θ, against known numbers, and what is refused."""

import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.networks import Chain
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
from dynagram.theory.chain import chain_kernels, trace_birth
from dynagram.theory.chain._backward import squared_gradients
from dynagram.theory.chain._gradient_bands import gradient_band, only_block

RATES = {"lambda_W": 0.7}
BRANCH = [RMSNorm(), Dense(12, C_W=2.0, C_b=0.1, lambda_b=0.3), Activate("gelu"), Dense(8, **RATES)]
NETWORKS = {
    "residual": Chain([Dense(8), Residual(BRANCH), Residual(BRANCH, 0.9, 0.8), Dense(1)], 4),
    "gated": Chain([Dense(8), Residual([RMSNorm(0.1), Gated(12), Dense(8)]), Dense(1)], 4),
    "layer norm": Chain([Dense(8), Residual([LayerNorm(), *BRANCH[1:]]), LayerNorm(), Dense(1)], 4),
    "convolution": Chain(
        [
            Conv(6, size=3, padding="zero", C_b=0.1),
            Activate("relu"),
            Conv(5, size=2, stride=2, padding="circular", lambda_b=0.5),
            Activate("tanh"),
            Flatten(1),
        ],
        (4, 1),
    ),
    "pooled": Chain([Conv(6, size=3), Activate("erf"), AveragePool(2), Dense(2)], (4, 1)),
    "embedding": Chain(
        [
            Embedding(5, 8, C_position=0.4, lambda_position=0.6),
            Residual([[RMSNorm(), Dense(8)], BRANCH]),
            Select(-1),
            Dense(1),
        ],
        (4, 1),
    ),
}
X = np.array([[1.0, 2.0, 0.0, 3.0], [2.0, 2.0, 4.0, 1.0]])


def tangent_kernel(network, squares):
    """Σ over all parameters of their learning rate times squared gradient."""
    total = 0.0
    for block, rates, weights in zip(network.blocks, network.rates(), squares.weights, strict=True):
        flat = {}
        rows = rates if isinstance(block, Residual) else [[rates]]
        for row in rows:
            listed = [r for r in row if isinstance(r, dict) and r]
            for number, entries in enumerate(listed, start=1):
                several = isinstance(block, Residual) and len(listed) > 1
                for name, rate in entries.items():
                    flat.setdefault(name + (str(number) if several else ""), rate)
        assert set(weights) == set(flat)
        total += sum(flat[name] * value for name, value in weights.items())
    return total


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_squared_gradients_make_up_the_tangent_kernel(name):
    network = NETWORKS[name]
    outputs = X.shape[0] * network.positions
    signals = np.linspace(1.0, -0.4, outputs)
    squares = squared_gradients(network, X, signals)
    Theta = chain_kernels(network, X).Theta
    assert tangent_kernel(network, squares) == pytest.approx(signals @ Theta @ signals, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"qk_norm": True, "rope": 50.0, "groups": 2}],
)
def test_attention_makes_up_the_tangent_kernel(options):
    heads = Attention(4, 4, causal=True, C_q=3.0, lambda_q=0.5, lambda_v=0.3, **options)
    network = Chain([Dense(16), Residual([RMSNorm(), heads]), RMSNorm(), Dense(1)], (3, 2))
    x, signals = np.array([[1.0, 0.3, -0.7, 0.4, 0.2, -1.1]]), np.array([1.0, -0.5, 0.8])
    runs = [
        tangent_kernel(network, squared_gradients(network, x, signals, seed=1 + 99 * seed))
        for seed in range(6)
    ]
    made = chain_kernels(network, x)
    Theta = signals @ made.Theta @ signals
    spread = np.outer(np.abs(signals), np.abs(signals))
    error = np.hypot(
        np.std(runs, ddof=1) / 6**0.5, np.sqrt(np.sum((spread * made.Theta_error) ** 2))
    )
    assert error < 4e-3 * Theta
    assert abs(np.mean(runs) - Theta) < 4 * error


def test_squared_gradients_of_known_weights():
    """Golden numbers of a pre-norm MLP–attention–MLP at two tokens."""
    n, G = 64, np.array([[1.0, 0.3], [0.3, 1.4]])
    mlp = Residual([RMSNorm(), Dense(2 * n, C_W=2.0), Activate("gelu"), Dense(n, C_W=2.0)])
    heads = Residual([RMSNorm(), Attention(n // 4, 4, C_q=4.0)])
    rows = np.sqrt(n) * np.linalg.cholesky(G) @ np.eye(2, n)
    network = Chain([mlp, heads, mlp, Dense(1)], (2, n))
    found = squared_gradients(network, rows.reshape(1, -1), np.array([1.0, -0.5]), samples=2**14)
    golden = [
        {"W2": 2 * n * 1.618516, "W1": n * 2.061011},
        {"k": n * 0.266617, "q": n * 0.068033, "v": n * 0.573453, "O": n * 0.573453},
        {"W2": 2 * n * 0.679932, "W1": n * 0.923964},
    ]
    for weights, expected in zip(found.weights, golden, strict=False):
        assert set(weights) == set(expected)
        for name, value in expected.items():
            assert weights[name] == pytest.approx(value, rel=0.02), name


def test_bands_have_the_mean_of_squared_gradients():
    network, signals = NETWORKS["residual"], np.array([0.5, 0.5])
    squares = squared_gradients(network, X, signals)
    for index, weights in enumerate(squares.weights):
        band = gradient_band(network, X, signals, index, shifted=False)
        assert band.square == pytest.approx(sum(weights.values()), rel=1e-9)
        assert band.std > 0


def test_only_one_block_learns():
    rates = only_block(NETWORKS["embedding"], 1).rates()
    assert rates[0] == {"token": 0.0, "position": 0.0}
    every = [rate for row in rates[1] for block in row if block for rate in block.values()]
    assert every == [pytest.approx(1.0)] * len(every)
    assert rates[-1] == {"W": 0.0}


def test_birth_has_all_of_it():
    birth = trace_birth(NETWORKS["residual"], X, bands=[1])
    assert [stage.gradient_std is None for stage in birth.stages] == [True, False, True, True]
    assert [set(stage.weights) for stage in birth.stages[:2]] == [{"W"}, {"W1", "W2", "b1"}]
    squares = squared_gradients(NETWORKS["residual"], X, np.array([0.5, 0.5]))
    assert [stage.backward for stage in birth.stages] == list(squares.signals)
    assert birth.stages[-1].backward == pytest.approx(0.25)
    assert "squared gradient" in str(birth.summary().headings)
    with pytest.raises(DynagramError, match="bands"):
        trace_birth(NETWORKS["residual"], X, bands=[9])
    with pytest.raises(DynagramError, match="shape of x"):
        trace_birth(NETWORKS["residual"], X, signals=[1.0])
