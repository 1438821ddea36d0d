"""The contracted formulas against the per-network formula averaged with every index written out.

A network's trained output (∞.154), with output and sample as one index, is averaged term by term
with full correlators built from random tensors (11.45), (8.82), (8.67), (∞.11), (∞.12) and Wick's
theorem for z. Nothing is shared with the library but the projectors' scalars.
"""

import itertools

import numpy as np
import pytest

from dynagram.theory.training.algorithms import Algorithm
from dynagram.theory.training.contraction import Slots, cubic_coefficients, linear_coefficients
from dynagram.theory.training.covariance import covariance_parts
from dynagram.theory.training.frame import Frame
from dynagram.theory.training.mean import mean_parts
from dynagram.theory.training.projectors import projectors

TRAIN, TEST, OUTPUTS = 3, 2, 2
N = TRAIN + TEST
RNG = np.random.default_rng(5)


def positive(size):
    root = RNG.normal(size=(size, size + 2))
    return root @ root.T / size + 0.3 * np.eye(size)


def symmetrised(*moves):
    """A random tensor, the mean over the group that the axis permutations `moves` generate."""
    group = {(0, 1, 2, 3)}
    while True:
        more = {tuple(g[i] for i in move) for g in group for move in moves} | group
        if more == group:
            break
        group = more
    tensor = RNG.normal(size=(N,) * 4)
    return np.mean([tensor.transpose(g) for g in group], axis=0)


PAIRED = [(1, 0, 2, 3), (0, 1, 3, 2)]
TENSORS = {
    "A": symmetrised(*PAIRED, (2, 3, 0, 1)),
    "B": symmetrised((1, 0, 3, 2), (2, 3, 0, 1)),
    "D": symmetrised(*PAIRED),
    "F": symmetrised((2, 3, 0, 1)),
    "P": symmetrised((0, 2, 1, 3)),
    "Q": symmetrised(),
    "R": symmetrised((0, 1, 3, 2)),
    "S": symmetrised((1, 0, 3, 2)),
    "T": symmetrised((3, 2, 1, 0)),
    "U": symmetrised((2, 3, 0, 1)),
    "G1": positive(N),
    "H1": positive(N),
}
THETA, K = positive(N), positive(N)
Y = RNG.normal(size=(TRAIN, OUTPUTS))
d = np.eye(OUTPUTS)


def full(*terms):
    """Σ δδ tensor over (output, sample) pairs; a term is (deltas, tensor, order of samples)."""
    total = 0.0
    for (left, right), tensor, order in terms:
        samples = np.transpose(tensor, np.argsort(order))
        letters = "ijkl"
        deltas = "".join(letters[i] for i in (*left, *right))
        total = total + np.einsum(f"{deltas[:2]},{deltas[2:]},abcd->iajbkcld", d, d, samples)
    size = OUTPUTS * N
    return total.reshape((size,) * 4)


def correlators():
    """The joint statistics with 1/n left out; indices are (output, sample)."""
    t = TENSORS
    one, two, three = ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))
    return {
        # A tensor T with samples (1 3 2 4) has T[1, 3, 2, 4]: `order` lists its indices.
        "HH": full((one, t["A"], (0, 1, 2, 3)), (two, t["B"], (0, 2, 1, 3)),
                   (three, t["B"], (0, 3, 1, 2))),
        "zzH": full((one, t["D"], (0, 1, 2, 3)), (two, t["F"], (0, 2, 1, 3)),
                    (three, t["F"], (0, 3, 1, 2))),
        "dHz": full((three, t["P"], (0, 1, 2, 3)), (one, t["Q"], (0, 1, 2, 3)),
                    (two, t["Q"], (0, 2, 1, 3))),
        "ddI": full((one, t["R"], (0, 1, 2, 3)), (two, t["R"], (0, 2, 3, 1)),
                    (three, t["R"], (0, 3, 1, 2))),
        "ddII": full((one, t["S"], (0, 1, 2, 3)), (two, t["T"], (0, 2, 3, 1)),
                     (three, t["U"], (0, 3, 1, 2))),
    }  # fmt: skip


def brute_force(algorithm):
    """Mean and covariance coefficients from the per-network formula."""
    E = correlators()
    keep = np.concatenate([[i * N + a for a in range(TRAIN)] for i in range(OUTPUTS)])
    inverse = np.kron(d, np.linalg.inv(THETA[:TRAIN, :TRAIN]))
    full_K, y = np.kron(d, K), Y.T.reshape(-1)
    bracket = np.eye(N)[TRAIN:]
    bracket[:, :TRAIN] -= THETA[TRAIN:, :TRAIN] @ np.linalg.inv(THETA[:TRAIN, :TRAIN])
    M = np.kron(d, bracket)
    h, vectors = np.linalg.eigh(THETA[:TRAIN, :TRAIN])
    V = np.kron(d, vectors)
    z = projectors(h, algorithm)

    def dense(scalars):
        index = np.tile(np.arange(TRAIN), OUTPUTS)
        wide = scalars[0][np.ix_(*[index] * (scalars.ndim - 1))]
        if wide.ndim == 2:
            return np.einsum("ab,ia,jb,ka,lb->ijkl", wide, V, V, V, V, optimize=True)
        return np.einsum("abc,ia,jb,kc,la,mb,nc->ijklmn", wide, V, V, V, V, V, V, optimize=True)

    Z = {name: dense(getattr(z, name)) for name in ("Z_A", "Z_B", "Z_IA", "Z_IB", "Z_IIA", "Z_IIB")}
    cut = lambda tensor, pattern: tensor[  # noqa: E731
        np.ix_(*[keep if slot == "a" else np.arange(OUTPUTS * N) for slot in pattern])
    ]
    K_AA, kappa = full_K[np.ix_(keep, keep)], full_K[keep] @ M.T
    Q = inverse @ K_AA @ inverse
    v = inverse @ y
    # mean: ε = z − y, and only terms with an even number of z and dH survive
    HH = np.einsum("td,dabc->tabc", M, cut(E["HH"], "taaa"))
    dHz = [("Z_A", "atad"), ("Z_B", "taad")]
    mean = {"ΔNTK": -np.einsum("tabc,ab,c->t", HH, inverse, v, optimize=True)}
    moved, moved_pairs, own = 0.0, 0.0, 0.0
    for name, pattern in dHz:
        tensor = E["dHz"].transpose(1, 0, 2, 3) if pattern[0] == "a" else E["dHz"]
        # as [predicted, first, second, z]
        tensor = np.einsum("td,dabe->tabe", M, tensor)[:, keep][:, :, keep]
        inner = tensor[..., keep]
        moved = moved - np.einsum("tabc,abcd,d->t", inner, Z[name], y, optimize=True)
        moved = moved - np.einsum("tabd,abcd,c->t", inner, Z[name], y, optimize=True)
        moved_pairs = moved_pairs + np.einsum(
            "tabc,abcd,ds->ts", inner, Z[name], kappa, optimize=True
        )
        moved_pairs = moved_pairs + np.einsum(
            "tabd,abcd,cs->ts", inner, Z[name], kappa, optimize=True
        )
        own = own + np.einsum(
            "tabe,se,abcd,cd->ts", tensor, M, Z[name], K_AA + np.outer(y, y), optimize=True
        )
    mean["dNTK"] = moved
    wick = np.einsum("a,bc->abc", y, K_AA)
    cubes = -(np.einsum("a,b,c->abc", y, y, y) + sum(
        np.transpose(wick, order) for order in ((0, 1, 2), (1, 0, 2), (1, 2, 0))
    ))  # fmt: skip
    second = K_AA + np.outer(y, y)
    quads = (
        np.einsum("as,bc->abcs", kappa, second)
        + np.einsum("bs,ac->abcs", kappa, second)
        + np.einsum("cs,ab->abcs", kappa, second)
    )
    covariance = {}
    for name, slots in (
        ("ddI", (("Z_IA", (1, 0, 2, 3)), ("Z_IB", (0, 1, 2, 3)))),
        ("ddII", (("Z_IIA", (2, 0, 1, 3)), ("Z_IIB", (0, 1, 2, 3)))),
    ):
        mean[name], X = 0.0, 0.0
        for projector, order in slots:
            tensor = np.einsum("td,dabc->tabc", M, cut(E[name].transpose(order), "taaa"))
            met = np.einsum("tabc,abcdef->tdef", tensor, Z[projector])
            mean[name] = mean[name] + np.einsum("tdef,def->t", met, cubes)
            X = X + np.einsum("tdef,defs->ts", met, quads)
        covariance[name] = X + X.T
    zzH = np.einsum("td,se,aedb->tasb", M, M, cut(E["zzH"], "atta"), optimize=True)
    X = -np.einsum("tasb,ab->ts", zzH, inverse)
    covariance["zΔH"] = X + X.T
    HH_pair = np.einsum("td,se,daeb->tasb", M, M, cut(E["HH"], "tata"), optimize=True)
    covariance["ΔHΔH"] = np.einsum("tasb,ab->ts", HH_pair, Q + np.outer(v, v))
    X = np.einsum("tabc,ab,cd,ds->ts", HH, inverse, inverse, kappa, optimize=True)
    covariance["zΔHΔH"] = X + X.T
    covariance["dNTK"] = moved_pairs + moved_pairs.T + own + own.T
    return mean, covariance


@pytest.mark.parametrize(
    "algorithm", [Algorithm("gd", 0.3), Algorithm("flow"), Algorithm("two-step")], ids=str
)
def test_against_brute_force(algorithm):
    mean, covariance = brute_force(algorithm)
    frame = Frame.of(THETA, np.ones(TRAIN))
    z, slots = projectors(frame.h, algorithm), Slots.of(TENSORS, frame)
    linear = linear_coefficients(slots, z, OUTPUTS)
    cubic = cubic_coefficients(slots, z)
    y, kernel = frame.basis @ Y, frame.turn(K)
    found = mean_parts(slots, z, y, kernel[:TRAIN, :TRAIN], linear, cubic)
    for name, expected in mean.items():
        expected = expected.reshape(OUTPUTS, TEST).T
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-9, err_msg=name)
    parts = covariance_parts(slots, z, y, kernel, linear, cubic)
    for name, expected in covariance.items():
        expected = expected.reshape(OUTPUTS, TEST, OUTPUTS, TEST).transpose(1, 0, 3, 2)
        np.testing.assert_allclose(parts[name], expected, rtol=1e-9, atol=1e-9, err_msg=name)


def test_shifted_means_are_those_of_the_infinite_width_formulas():
    """The parts "H1": first derivatives of (10.40), (10.41) along G^{1} and H^{1}."""
    from dynagram.theory.training.infinite import KernelTraining

    def at(step):
        kernel = KernelTraining(
            THETA + step * TENSORS["H1"], K + step * TENSORS["G1"], Y, np.ones(TRAIN),
            Algorithm("flow"),
        )  # fmt: skip
        found = kernel.at()
        return found.mean, found.covariance

    step = 1e-4
    frame = Frame.of(THETA, np.ones(TRAIN))
    z, slots = projectors(frame.h, Algorithm("flow")), Slots.of(TENSORS, frame)
    linear, cubic = linear_coefficients(slots, z, OUTPUTS), cubic_coefficients(slots, z)
    y, kernel = frame.basis @ Y, frame.turn(K)
    mean = mean_parts(slots, z, y, kernel[:TRAIN, :TRAIN], linear, cubic)["H1"]
    spread = covariance_parts(slots, z, y, kernel, linear, cubic)["H1"]
    for expected, plus, minus in zip((mean, spread[:, 0, :, 0]), at(step), at(-step), strict=True):
        np.testing.assert_allclose((plus - minus) / (2 * step), expected, rtol=1e-5, atol=1e-7)
    assert not np.any(spread[:, 0, :, 1])


def test_the_symmetries_used_are_those_of_the_tensors():
    for name, moves in {"A": PAIRED, "P": [(0, 2, 1, 3)], "T": [(3, 2, 1, 0)]}.items():
        for move in itertools.chain(moves):
            np.testing.assert_allclose(TENSORS[name], TENSORS[name].transpose(move))
