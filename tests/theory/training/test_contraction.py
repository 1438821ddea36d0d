"""The contracted formulas against the per-network formula averaged with every index written out.

A network's trained output (∞.154), with output and sample as one index, is averaged term by term
with full correlators built from random tensors (11.45), (8.82), (8.67), (∞.11), (∞.12) and Wick's
theorem for z. Nothing is shared with the library but the projectors' scalars, and at finite times
not even these: there the coupled equations of motion (∞.4), (∞.6), (∞.9) are stepped, order by
order in the perturbation.
"""

import itertools

import numpy as np
import pytest

from dynagram.theory.training._contraction import Slots, cubic_coefficients, linear_coefficients
from dynagram.theory.training._corrections import parts_on_samples, row_projectors
from dynagram.theory.training._covariance import covariance_parts
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._infinite import InfiniteTraining
from dynagram.theory.training._mean import mean_parts
from dynagram.theory.training._projectors import end_projectors
from dynagram.training import GradientFlow, Training

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
    size = OUTPUTS * len(terms[0][1])
    return total.reshape((size,) * 4)


def correlators(t):
    """The joint statistics with 1/n left out; indices are (output, sample)."""
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


def brute_force(decay):
    """Mean and covariance coefficients from the per-network formula."""
    E = correlators(TENSORS)
    keep = np.concatenate([[i * N + a for a in range(TRAIN)] for i in range(OUTPUTS)])
    inverse = np.kron(d, np.linalg.inv(THETA[:TRAIN, :TRAIN]))
    full_K, y = np.kron(d, K), Y.T.reshape(-1)
    bracket = np.eye(N)[TRAIN:]
    bracket[:, :TRAIN] -= THETA[TRAIN:, :TRAIN] @ np.linalg.inv(THETA[:TRAIN, :TRAIN])
    M = np.kron(d, bracket)
    h, vectors = np.linalg.eigh(THETA[:TRAIN, :TRAIN])
    V = np.kron(d, vectors)
    z = end_projectors(h, decay)

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


FLOW = Decay.flow(np.inf)


@pytest.mark.parametrize(
    "decay",
    [Decay.descent(0.3, np.inf), FLOW, Decay(0.0, 0, np.inf, leaps=True)],
    ids=["gd", "flow", "two-step"],
)
def test_against_brute_force(decay):
    mean, covariance = brute_force(decay)
    frame = Eigenbasis.of(THETA, np.ones(TRAIN))
    z, slots, test = row_projectors(frame, decay), Slots.of(TENSORS, frame), slice(TRAIN, None)
    found, parts = parts_on_samples(slots, decay, z, frame.basis @ Y, frame.turn(K))
    for name, expected in mean.items():
        expected = expected.reshape(OUTPUTS, TEST).T
        np.testing.assert_allclose(found[name][test], expected, rtol=1e-9, atol=1e-9, err_msg=name)
        assert not np.any(found[name][:TRAIN])
    for name, expected in covariance.items():
        expected = expected.reshape(OUTPUTS, TEST, OUTPUTS, TEST).transpose(1, 0, 3, 2)
        part = parts[name][test, :, test]
        np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-9, err_msg=name)
        assert not np.any(parts[name][:TRAIN])


def test_shifted_means_are_those_of_the_infinite_width_formulas():
    """The parts "H1": first derivatives of (10.40), (10.41) along G^{1} and H^{1}."""

    def at(step):
        shifted = THETA + step * TENSORS["H1"], K + step * TENSORS["G1"]
        end = InfiniteTraining(*shifted, Y, np.ones(TRAIN), Training(GradientFlow())).at()
        return end.mean[TRAIN:], end.kernel[TRAIN:, TRAIN:]

    step = 1e-4
    frame = Eigenbasis.of(THETA, np.ones(TRAIN))
    z, slots = end_projectors(frame.h, FLOW), Slots.of(TENSORS, frame)
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


# --- finite times -----------------------------------------------------------------------------

# Fewer samples: two of training and one to test.
FEW = np.array([0, 1, TRAIN])
SIZE = OUTPUTS * FEW.size
TRAINED = np.array([i * FEW.size + a for i in range(OUTPUTS) for a in range(FEW.size - 1)])


def few(array):
    return array[np.ix_(*[FEW] * array.ndim)]


SMALL = {name: few(tensor) for name, tensor in TENSORS.items()}


def steps_of(eps, eta, steps, H1=None, dH=None, ddI=None, ddII=None):
    """z(t) − z(0) of many networks at order 0, 1 and 2 in what is added to their mean NTK.

    `eps` (network, index) are initial errors; H1 and dH may differ from network to network.
    """
    a, H = TRAINED, np.kron(d, few(THETA))
    shape = (len(eps), *[SIZE] * 3)
    z = [np.zeros((len(eps), SIZE)) for _ in range(3)]
    H1 = np.zeros(shape[:3]) if H1 is None else H1
    dH = np.zeros(shape) if dH is None else dH
    ddI, ddII = (np.zeros((SIZE,) * 4) if dd is None else dd for dd in (ddI, ddII))
    for _ in range(steps):
        e = [eps + z[0][:, a], z[1][:, a], z[2][:, a]]
        pairs = np.einsum("na,nb->nab", e[0], e[0])
        z[2] = z[2] - eta * (e[2] @ H[a] + np.einsum("nra,na->nr", H1[:, :, a], e[1]))
        z[1] = z[1] - eta * (e[1] @ H[a] + np.einsum("nra,na->nr", H1[:, :, a], e[0]))
        z[1] += eta**2 / 2 * np.einsum("nrab,nab->nr", dH[:, :, a][..., a], pairs)
        cut = ddI[:, a][:, :, a][..., a]
        z[1] -= eta**3 / 6 * np.einsum("rabc,nab,nc->nr", cut, pairs, e[0])
        z[0] = z[0] - eta * e[0] @ H[a]
        way = np.einsum("npqa,na->npq", dH[..., a], e[0])
        both = ddI + ddI.transpose(1, 0, 2, 3) + 2.0 * ddII
        H1 = H1 - eta * (way + way.transpose(0, 2, 1))
        H1 = H1 + eta**2 / 2 * np.einsum("pqab,nab->npq", both[:, :, a][..., a], pairs)
        moving = (ddI + ddII + ddII.transpose(0, 2, 1, 3))[..., a]
        dH = dH - eta * np.einsum("pqra,na->npqr", moving, e[0])
    return z


def expanded(eta, steps):
    """Mean and covariance coefficients at a finite time from the equations of motion."""
    E, a = correlators(SMALL), TRAINED
    kernel, y = np.kron(d, few(K)), Y[FEW[:-1]].T.reshape(-1)
    left = np.eye(SIZE)  # ∂z(t)/∂z(0), hence ζ = left z
    left[:, a] += steps_of(np.eye(a.size), eta, steps)[0].T
    # Initial outputs at the nodes of a rule exact to degree five, which is all there is.
    node = np.sqrt(3.0) * np.array(list(itertools.product((-1, 0, 1), repeat=SIZE)))
    weight = np.prod(np.where(node == 0, 2 / 3, 1 / 6), axis=1)
    z = node @ np.linalg.cholesky(kernel).T
    eps, zeta = z[:, a] - y, z @ left.T
    mean, covariance = {}, {}

    def record(name, f):
        mean[name] = weight @ f
        X = np.einsum("n,nr,ns->rs", weight, f, zeta)
        covariance[name] = X + X.T

    # Given its initial outputs a network's dNTK has the mean E[dH z] K⁻¹ z.
    dH = np.einsum("pqru,uv,nv->npqr", E["dHz"], np.linalg.inv(kernel), z, optimize=True)
    record("dNTK", steps_of(eps, eta, steps, dH=dH)[1])
    for name in ("ddI", "ddII"):
        record(name, steps_of(eps, eta, steps, **{name: E[name]})[1])
    H1 = np.broadcast_to(np.kron(d, SMALL["H1"]), (len(z), SIZE, SIZE))
    record("H1", steps_of(eps, eta, steps, H1=H1)[1])
    covariance["H1"] += left @ np.kron(d, SMALL["G1"]) @ left.T
    # E[ΔH ΔH] = Σ size·way·way: to second order in every way.
    HH = E["HH"].reshape(SIZE**2, SIZE**2)
    size, ways = np.linalg.eigh((HH + HH.T) / 2)
    ways = ways.T.reshape(-1, SIZE, SIZE)
    moved = [steps_of(eps, eta, steps, H1=np.broadcast_to(way, H1.shape)) for way in ways]
    twice = sum(s * one[2] for s, one in zip(size, moved, strict=True))
    record("ΔNTK", twice)
    covariance["zΔHΔH"] = covariance.pop("ΔNTK")
    covariance["ΔHΔH"] = sum(
        s * np.einsum("n,nr,ns->rs", weight, one[1], one[1])
        for s, one in zip(size, moved, strict=True)
    )
    # First order: J[r, p, q, a] ΔH_pq ε_a.
    basis = np.eye(SIZE**2).reshape(-1, SIZE, SIZE)
    J = [
        [steps_of(e[None], eta, steps, H1=way[None])[1][0] for e in np.eye(a.size)] for way in basis
    ]
    J = np.array(J).reshape(SIZE, SIZE, a.size, SIZE)
    X = np.einsum("pqar,aupq,su->rs", J, E["zzH"][a], left, optimize=True)
    covariance["zΔH"] = X + X.T
    return mean, covariance


@pytest.mark.parametrize(("eta", "steps"), [(0.3, 1), (0.2, 4)])
def test_finite_times_against_the_equations_of_motion(eta, steps):
    mean, covariance = expanded(eta, steps)
    frame, decay = Eigenbasis.of(few(THETA), np.ones(2)), Decay.descent(eta, steps)
    z, y = row_projectors(frame, decay), frame.basis @ Y[FEW[:-1]]
    slots = Slots.of(SMALL, frame)
    means, covariances = parts_on_samples(slots, decay, z, y, frame.turn(few(K)))
    assert set(means) == set(mean)
    for name, values in mean.items():
        expected = values.reshape(OUTPUTS, -1).T
        np.testing.assert_allclose(means[name], expected, rtol=1e-10, atol=1e-10, err_msg=name)
    assert set(covariances) == set(covariance)
    for name, values in covariance.items():
        expected = values.reshape([OUTPUTS, FEW.size] * 2).transpose(1, 0, 3, 2)
        found = covariances[name]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10, err_msg=name)
