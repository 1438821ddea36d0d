"""Kinked σ and several inputs: G^{1} where deltas of σ'' stand, by ways that never form a delta."""

import numpy as np
import pytest
from scipy.special import ndtr

from dynagram._pairs import pair_indices
from dynagram.activations import activation
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.gaussian._four_point import FourPoint
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.skips._paths import PathLayer, path_averages
from dynagram.theory.skips._response import bend_components, respond, square_components

X = np.array([[1.0, 0.5, -0.3], [0.4, 0.9, 0.6]])
# σ(z) = constant + slope·z + Σ jump·max(z − kink, 0)
PIECES = {
    "relu": (0.0, 0.0, ((0.0, 1.0),)),
    "leaky_relu(0.3)": (0.0, 0.3, ((0.0, 0.7),)),
}


def panels(edges, count):
    """Gauss–Legendre nodes and weights on each interval between neighbouring edges."""
    t, w = np.polynomial.legendre.leggauss(count)
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    half = (high - low) / 2
    return ((low + high) / 2 + half * t).ravel(), (half * w).ravel()


def sigma(name, z):
    constant, slope, kinks = PIECES[name]
    return constant + slope * z + sum(jump * np.maximum(z - at, 0.0) for at, jump in kinks)


def blurred(name, mean, variance):
    """⟨σ(z)⟩ for z ~ N(mean, variance), in closed form."""
    constant, slope, kinks = PIECES[name]
    s = np.sqrt(variance)
    total = constant + slope * mean
    for at, jump in kinks:
        t = (mean - at) / s
        total = total + jump * s * (np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi) + t * ndtr(t))
    return total


def product_average(name, m, S, nodes):
    """⟨σ(z_1)σ(z_2)⟩ for z ~ N(m, S): one integral by panels between kinks, one in closed form.

    `m` and `S` are (…, 2) and (…, 2, 2); `nodes` integrates over z_1.
    """
    z, w = nodes
    s11 = S[..., 0, 0, None]
    off = z - m[..., 0, None]
    density = np.exp(-(off**2) / (2 * s11)) / np.sqrt(2 * np.pi * s11)
    mean = m[..., 1, None] + S[..., 0, 1, None] / s11 * off
    left = S[..., 1, 1, None] - S[..., 0, 1, None] ** 2 / s11
    return (w * density * sigma(name, z) * blurred(name, mean, left)).sum(-1)


def own_response(name, K1, noise, gamma, C_W):
    """⟨½∂∂(σσ)(z')·Φ(z)⟩ of the pair (12), Φ = C_W(σσ(z) − ⟨σσ⟩), z' = γz + noise.

    It is the derivative of ⟨σσ(z')⟩ when the covariance of the noise shifts by εΦ(z).
    """
    kinks = [at for at, _ in PIECES[name][2]]
    reach = 7.5
    axes = [
        panels(sorted({-reach * s, *kinks, 0.0, reach * s}), 36) for s in np.sqrt(np.diagonal(K1))
    ]
    z = np.stack(np.meshgrid(axes[0][0], axes[1][0], indexing="ij"), axis=-1).reshape(-1, 2)
    w = np.outer(axes[0][1], axes[1][1]).ravel()
    inverse = np.linalg.inv(K1)
    w = w * np.exp(-0.5 * np.einsum("ma,ab,mb->m", z, inverse, z))
    w /= 2 * np.pi * np.sqrt(np.linalg.det(K1))
    keep = w > 1e-13
    z, w = z[keep], w[keep]
    values = sigma(name, z)
    Phi = C_W * values[:, :, None] * values[:, None, :]
    Phi = Phi - np.einsum("m,mab->ab", w, Phi)
    edge = 9.0 * np.sqrt(gamma**2 * K1[0, 0] + noise[0, 0])
    nodes = panels(sorted({*np.linspace(-edge, edge, 7), *kinks}), 24)

    def average(step):
        return float(w @ product_average(name, gamma * z, noise + step * Phi, nodes))

    h = 4e-3
    coarse, fine = ((average(e) - average(-e)) / (2 * e) for e in (2 * h, h))
    return (4 * fine - coarse) / 3


@pytest.mark.parametrize(("name", "gamma"), [("relu", 0.7), ("leaky_relu(0.3)", -0.6)])
def test_metric_of_two_inputs_at_the_third_layer(name, gamma):
    """Given the first layer, a neuron of the second is Gaussian; nothing is differentiated twice.

    n(⟨σ_1σ_2⟩ − …) = ⟨½∂∂(σσ)·Φ⟩ + ½∂²⟨σσ⟩:C_W² Cov(σσ, σσ), the second term by differences.
    """
    C_b, C_W = 0.3, 1.1
    net = MLP([3, 30, 30, 30, 1], name, C_b, [2.0, C_W, C_W, C_W], skip=gamma)
    found = predict(net, X, ("G1",), accuracy=2e-4)
    K = frozen_kernels(net, X).K
    noise = K[1] - gamma**2 * K[0]
    own = own_response(name, K[0], noise, gamma, C_W)
    rule = activation(name)
    covariance = FourPoint(TwoPoint(rule, K[0]), accuracy=1e-6).covariances([((0, 0), (0, 0))])
    fluctuation = C_W**2 * covariance[(0, 0), (0, 0)].value
    a, b = pair_indices(2)
    curved, step = 0.0, 1e-4
    for B in range(3):
        slopes = []
        for side in (1, -1):
            moved = K[1].copy()
            moved[a[B], b[B]] += side * step
            moved[b[B], a[B]] = moved[a[B], b[B]]
            slopes.append(PairFamily.of(TwoPoint(rule, moved), 0, 0).propagate(np.eye(3)).T[1])
        curved += 0.5 * (slopes[0] - slopes[1]) / (2 * step) @ fluctuation[:, B]
    wanted = C_W * (own + curved)
    value, error = found["G1"][2, 0, 1], found.errors["G1"][2, 0, 1]
    assert abs(value - wanted) <= 4 * error + 1e-7
    assert error < 1e-3 * abs(value)  # the deltas make 1 to 2 per cent of it


def test_path_averages_of_one_input():
    """D_(aa)(aa) and B_(aa) of p ≥ 3 by the Hermite components of σ², through three layers.

    σ = hardtanh does not vanish at its kinks, so that the deltas count here too.
    """
    C_W, gammas, rule = 1.3, (0.0, 0.9, -0.8, 0.0), activation("hardtanh")
    net = MLP([3, *[30] * 3, 1], rule, 0.2, [3.0, *[C_W] * 3], skip=gammas[1:3])
    K = frozen_kernels(net, X[:1]).K
    families = [PairFamily.of(TwoPoint(rule, K[index]), 0, 0) for index in range(3)]
    X_ = [
        C_W * family.propagate(np.eye(1)).T + gamma**2
        for family, gamma in zip(families, gammas[1:], strict=True)
    ]
    layers = [PathLayer(*of) for of in zip(K[:3], families, gammas[:3], [C_W] * 3, X_, strict=True)]
    found = path_averages(rule, layers, count=2**14, seed=5, bend=True)
    assert not np.any(found.bend[:, 0])  # the first layer has no past
    phi = np.zeros((256, 1, 1))
    for index in range(3):
        s = square_components(rule, K[index, 0])
        bend = bend_components(s, K[index, 0])
        if index:
            D, B = np.sum(phi[3:, 0, 0] * s[3:256, 0]), np.sum(phi[3:, 0, 0] * bend[3:256, 0])
            for sampled, wanted in ((found.overlap[:, index], D), (found.bend[:, index], B)):
                error = sampled.std(ddof=1) / np.sqrt(sampled.size)
                assert abs(sampled.mean() - wanted) < 4 * error
                assert error < 1.2e-2 * abs(wanted)  # the deltas make 5 per cent of B and more
        phi = respond(
            phi, s[:256], K[index], K[index + 1, 0],
            C_W=C_W, chi=X_[index][0], skip=gammas[index + 1],
        )  # fmt: skip
