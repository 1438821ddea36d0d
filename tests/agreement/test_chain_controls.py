"""Negative controls of the Gram chain: without a source term, or with it doubled, agreement fails.

Sources of fluctuations are the rows drawn by a matrix, the two parts of a residual sum, the neurons
of a layer, the patterns and the values of heads; those of the mean are the curvature of neurons,
norms and heads, and the explicit term of layer norms. Each is scaled, and every letter it enters
must leave the stored ensembles of test_chain.py by more than four standard errors, or the MLP's
own recursions and numbers computed elsewhere in their digits.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram import MLP, predict
from dynagram.activations import activation
from dynagram.networks import Chain
from dynagram.networks._network import network_from_toml
from dynagram.networks.blocks import Activate, Attention, Dense, LayerNorm, Residual
from dynagram.networks.blocks._block import Shape
from dynagram.theory.chain import _attention, _elementwise, _linear, _norms, _run
from dynagram.theory.chain._fields import keys_of
from dynagram.theory.chain._linear import input_register
from dynagram.theory.chain._predict import chain_tensors
from dynagram.theory.chain._run import Runner, Signal
from dynagram.theory.chain._state import State

GOLDEN = Path(__file__).parents[1] / "golden"
ABOUT = json.loads((GOLDEN / "chain_ensembles.json").read_text())
LOW, HIGH = ("V", "A", "B", "D", "F"), ("P", "Q", "R", "S", "T", "U")
EXTRAPOLATIONS = {True: {128: 8 / 3, 64: -2.0, 32: 1 / 3}, False: {128: 2.0, 64: -1.0}}


@pytest.fixture(scope="module")
def measured():
    with np.load(GOLDEN / "chain_ensembles.npz") as arrays:
        return dict(arrays)


def scale_source(patch, source, factor):
    """Make a source term `factor` times what it is."""

    def scaled(function):
        def scale(*arguments):
            made = function(*arguments)
            return None if made is None else factor * made

        return scale

    if source in ("draw", "crossed", "branch"):
        _scale_wick(patch, source, factor)
    elif source == "neurons":
        original = _elementwise.Features._source
        patch.setattr(_elementwise.Features, "_source", scaled(original))
    elif source in ("patterns", "values"):
        original = _attention.Heads._sampled_products
        weights = (factor, 1.0) if source == "patterns" else (1.0, factor)

        def products(heads):
            parts = original(heads)
            return {key: (weights[0] * a, weights[1] * b) for key, (a, b) in parts.items()}

        patch.setattr(_attention.Heads, "_sampled_products", products)
    elif source == "curvature of neurons":
        patch.setattr(_elementwise, "_entry", scaled(_elementwise._entry))
    elif source == "curvature of norms":
        patch.setattr(_norms, "pick_four", scaled(_norms.pick_four))
    elif source == "curvature of heads":
        original = _attention.Heads._sampled_curvature
        patch.setattr(
            _attention.Heads,
            "_sampled_curvature",
            lambda heads: {s: factor * part for s, part in original(heads).items()},
        )
    else:
        raise AssertionError(source)


def _scale_wick(patch, source, factor):
    """Products of kernels come from drawn rows, and from a residual sum: one branch or two."""
    wick, current = _linear.wick, []

    def within(name, function):
        def run(*arguments, **options):
            current.append(name)
            made = function(*arguments, **options)
            current.pop()
            return made

        return run

    def scaled(key, one, two, modes, scale):
        name = current[-1]
        if name == "residual":
            name = "branch" if one is two else "crossed"
        return wick(key, one, two, modes, factor * scale if name == source else scale)

    patch.setattr(_linear, "wick", scaled)
    patch.setattr(_run, "draw_register", within("draw", _run.draw_register))
    patch.setattr(_run, "residual_register", within("residual", _run.residual_register))


def distances(measured, name, letters, samples=2):
    """For every letter the largest |z| of its entries, at large width."""
    network = network_from_toml(ABOUT[f"{name}/128"]["network"])
    T = chain_tensors(network, measured[f"{name}/128/x"][:samples], letters)
    made = {}
    for letter in letters:
        weights = EXTRAPOLATIONS[f"{name}/32/{letter}" in measured]
        value = sum(w * measured[f"{name}/{n}/{letter}"] for n, w in weights.items())
        errors = [w * measured[f"{name}/{n}/{letter}/error"] for n, w in weights.items()]
        scale = np.max(np.abs(T.values[letter]))
        squares = sum(error.astype(float) ** 2 for error in errors) + T.errors[letter] ** 2
        # Two widths leave 1/n², less than 2e-3 of the scale.
        error = np.sqrt(squares + (1e-9 * scale) ** 2) + (2e-3 * scale if len(weights) == 2 else 0)
        made[letter] = float(np.max(np.abs(value - T.values[letter]) / error))
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source", "letters"),
    [
        ("residual", "draw", (*LOW, *HIGH[:-1])),  # U has no pair of equal fields to draw
        ("residual", "crossed", (*LOW, "Q", "S", "T")),  # nor have P and R in a sum
        ("residual", "branch", (*LOW, "Q", "S", "T")),
        ("residual", "neurons", ("V", "A", "B", "D", *HIGH)),  # F: below, by the MLP
        ("swiglu", "neurons", LOW),
        ("conv", "neurons", (*LOW, *HIGH)),
        # Patterns change F by less than its stored error.
        ("attention", "patterns", ("V", "A", "B", "D", *HIGH)),
        ("attention", "values", (*LOW, *HIGH)),
        ("post-norm", "curvature of norms", ("G1", "H1")),
        ("layer-norm", "curvature of norms", ("G1", "H1")),
    ],
)
def test_drawn_networks_see_every_source(measured, monkeypatch, name, source, letters):
    seen = dict.fromkeys(letters, 0.0)
    for factor in (0.0, 2.0):
        with monkeypatch.context() as patch:
            scale_source(patch, source, factor)
            for letter, distance in distances(measured, name, letters).items():
                seen[letter] = max(seen[letter], distance)
    assert min(seen.values()) > 4.0, seen


@pytest.mark.parametrize(
    ("source", "letters"),
    [("neurons", (*LOW, *HIGH)), ("curvature of neurons", ("G1", "H1"))],
)
def test_the_mlp_sees_its_sources(monkeypatch, source, letters):
    mlp = MLP([3, 20, 30, 2], "tanh", C_b=0.1, C_W=1.3, lambda_b=0.4, lambda_W=0.9)
    blocks = []
    for layer in range(3):
        blocks += [Activate("tanh")] if layer else []
        blocks.append(Dense(mlp.widths[layer + 1], 1.3, 0.1, 0.9, 0.4))
    x = np.array([[0.7, -1.1, 0.4]])
    exact, chain = predict(mlp, x, letters), Chain(blocks, 3)
    for factor in (1.0, 0.0, 2.0):
        with monkeypatch.context() as patch:
            scale_source(patch, source, factor)
            made = chain_tensors(chain, x, letters).values
        for letter in letters:
            difference = abs(made[letter].item() / exact[letter][-1].item() - 1.0)
            assert difference < 1e-10 if factor == 1.0 else difference > 0.01, (letter, factor)


def run_blocks(blocks, G, n, *, gram="raw", samples=2**12, seed=0):
    """K and G1 after blocks that read a given Gram matrix."""
    state = State(keys_of(("V", "G1")), 9)
    runner = Runner(state, 1, 1, (0,), 1e-4, seed, samples)
    number = state.new(input_register(G, 1, 9, (0,)))
    out = runner.run(tuple(blocks), Signal(number, Shape((len(G),), n), False, gram))
    register = state.registers[out.number]
    return register.K[0], n * register.shift[0][0]


def test_the_explicit_term_of_layer_norms(monkeypatch):
    """One block on a given signal loses one of its n components: G1 = −(K' − K), exactly."""
    G, n = np.array([[1.0, 0.3], [0.3, 1.4]]), 64
    block = Residual([LayerNorm(), Dense(2 * n, C_W=2.0), Activate("gelu"), Dense(n, C_W=2.0)])
    K, G1 = run_blocks([block], G, n, gram="centred")
    np.testing.assert_allclose(G1, -(K - G), rtol=1e-12)
    original = _run.residual_register
    with monkeypatch.context() as patch:
        patch.setattr(
            _run,
            "residual_register",
            lambda *arguments, **options: original(*arguments, **options | {"centred": False}),
        )
        assert not np.any(run_blocks([block], G, n, gram="centred")[1])


@pytest.mark.slow
def test_the_curvature_of_heads(monkeypatch):
    """G1 of attention among quadratic layers is known in nine digits; see tests/theory/chain."""
    n, quad = 64, activation(lambda z: z + 0.5 * z * z)
    heads = Residual([Attention(heads=n // 4, head_size=4, C_q=0.04)])
    blocks = []
    for last in (0.5, 0.3):
        branch = [Dense(n, C_W=0.6), Activate(quad), Dense(n, C_W=last)]
        blocks += [Residual(branch), heads]
    golden = np.array([4.04968627, 3.39486448, 5.31999758])
    G = np.array([[1.0, 0.3], [0.3, 1.4]])
    for factor in (1.0, 0.0, 2.0):
        with monkeypatch.context() as patch:
            scale_source(patch, "curvature of heads", factor)
            runs = np.array([
                run_blocks(blocks, G, n, seed=1000 * seed)[1][np.triu_indices(2)]
                for seed in range(4)
            ])  # fmt: skip
        error = runs.std(axis=0, ddof=1).max() / 2.0
        distance = np.max(np.abs(runs.mean(axis=0) - golden)) / error
        assert distance < 4.0 if factor == 1.0 else distance > 8.0, factor
