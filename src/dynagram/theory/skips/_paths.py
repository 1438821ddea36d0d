"""Components p ≥ 3 of the response for several inputs, averaged over paths of one neuron.

At infinite width the preactivations of one neuron in successive layers form a Gaussian chain,
z' = γz + noise of covariance K' − γ²K. Along such a path the common variance of the others shifts
by ψ/n, ψ' = C_W R + Xψ, where R is what is left of σσ without its constant, linear and quadratic
part (those are known exactly, see `vertex`). Needed are D = ⟨ψ R⟩ and B = ⟨½∂∂(σσ)·ψ⟩ of every
layer. Scrambled Sobol points over all layers at once give both; eight scramblings give the error.
See docs/derivations/residual-vertex.md, below (D2.14).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pair_indices, pair_numbers
from dynagram.activations import Activation
from dynagram.gaussian._families import PairFamily
from dynagram.gaussian._nodes import REPLICAS, NodeSet, square_root
from dynagram.gaussian._quadrature import normal_density


@dataclass(frozen=True, eq=False)
class PathLayer:
    """What a path needs to know of one hidden layer: its K, σσ's lower orders, and the step on.

    `skip` is the γ that led here, `X` = C_W J + γ² and `C_W` belong to the step to the next layer.
    """

    K: Float[np.ndarray, "a b"]
    family: PairFamily
    skip: float
    C_W: float
    X: Float[np.ndarray, "pair pair"]


@dataclass(frozen=True, eq=False)
class PathAverages:
    """⟨ψ_A R_B⟩ and ⟨½∂∂(σσ)_A·ψ⟩ per scrambling of the points, for every layer."""

    overlap: Float[np.ndarray, "replica layer pair pair"]
    bend: Float[np.ndarray, "replica layer pair"]


def path_averages(
    sigma: Activation, layers: Sequence[PathLayer], *, count: int, seed: int, bend: bool
) -> PathAverages:
    """Average over 8·`count` paths; `count` a power of two. `bend` asks for B as well.

    Cost per path: N values of σ a layer; with kinks and `bend`, once more per layer and input.
    """
    samples, depth = layers[0].K.shape[0], len(layers)
    pairs = samples * (samples + 1) // 2
    root = chain_root(layers)
    nodes = NodeSet(root, REPLICAS, count, None, seed)
    covariance = root @ root.T
    overlap = np.zeros((REPLICAS, depth, pairs, pairs))
    bends = np.zeros((REPLICAS, depth, pairs))
    for replica in range(REPLICAS):
        for z, weights in nodes.chunks(replica):
            walk = _Walk(sigma, layers, z.reshape(-1, depth, samples))
            for layer, psi, rest in walk.responses():
                overlap[replica, layer] += (weights[:, None] * psi).T @ rest
                if bend:
                    bends[replica, layer] += weights @ walk.bend(layer, psi)
            if bend:
                _add_deltas(bends[replica], sigma, layers, z, weights, covariance)
    return PathAverages(overlap, bends)


def chain_root(layers: Sequence[PathLayer]) -> Float[np.ndarray, "layer_and_sample rank"]:
    """R with R Rᵀ = Cov(z^(s), z^(t)) = γ_{s→t} K^(s), s ≤ t, layer by layer."""
    noises = [layers[0].K]
    for below, here in itertools.pairwise(layers):
        noises.append(here.K - here.skip**2 * below.K)
    roots = [square_root(noise) for noise in noises]
    samples, ranks = layers[0].K.shape[0], [root.shape[1] for root in roots]
    starts = np.concatenate([[0], np.cumsum(ranks)])
    matrix = np.zeros((samples * len(layers), int(starts[-1])))
    for index, root in enumerate(roots):
        rows = matrix[index * samples : (index + 1) * samples]
        if index:
            rows[:] = layers[index].skip * matrix[(index - 1) * samples : index * samples]
        rows[:, starts[index] : starts[index + 1]] = root
    return matrix


class _Walk:
    """ψ along given paths, of shape (nodes, layer, sample)."""

    def __init__(self, sigma: Activation, layers: Sequence[PathLayer], z: np.ndarray):
        self.sigma, self.layers, self.z = sigma, layers, z
        self.first, self.second = pair_indices(z.shape[2])

    def responses(self, last: int | None = None) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(layer, ψ, R) for the layers that a neuron's past still reaches, up to `last`."""
        psi = np.zeros((self.z.shape[0], self.first.size))
        for index, layer in enumerate(self.layers[: None if last is None else last + 1]):
            if layer.skip == 0.0:
                psi = np.zeros_like(psi)
            rest = self.remainder(index)
            if layer.skip != 0.0:
                yield index, psi, rest
            psi = layer.C_W * rest + psi @ layer.X.T

    def remainder(self, index: int) -> np.ndarray:
        """R = σ_aσ_b − ⟨σ_aσ_b⟩ − l·z − J·(zz − K)."""
        layer, z = self.layers[index], self.z[:, index]
        values, a, b = self.sigma.values(z), self.first, self.second
        family, K = layer.family, layer.K
        j_ab, j_aa, j_bb = family.jacobian.T
        return (
            values[:, a] * values[:, b]
            - family.value
            - z[:, a] * family.linear[:, 0]
            - z[:, b] * family.linear[:, 1]
            - j_ab * (z[:, a] * z[:, b] - K[a, b])
            - j_aa * (z[:, a] ** 2 - K[a, a])
            - j_bb * (z[:, b] ** 2 - K[b, b])
        )

    def bend(self, index: int, psi: np.ndarray) -> np.ndarray:
        """½∂_c∂_d(σ_aσ_b) ψ_cd, without the deltas of σ''."""
        z, a, b = self.z[:, index], self.first, self.second
        number = pair_numbers(z.shape[1])
        value, slope, curve = (self.sigma.values(z, order) for order in range(3))
        return (
            slope[:, a] * slope[:, b] * psi[:, number[a, b]]
            + 0.5 * curve[:, a] * value[:, b] * psi[:, number[a, a]]
            + 0.5 * value[:, a] * curve[:, b] * psi[:, number[b, b]]
        )


def _add_deltas(
    bends: np.ndarray,
    sigma: Activation,
    layers: Sequence[PathLayer],
    z: np.ndarray,
    weights: np.ndarray,
    covariance: np.ndarray,
) -> None:
    """The deltas of σ'' in B: paths moved so that one input of one layer sits on the kink."""
    samples, depth = layers[0].K.shape[0], len(layers)
    number = pair_numbers(samples)
    for index, layer in enumerate(layers):
        for a in range(samples) if layer.skip != 0.0 else ():
            place, variance = index * samples + a, float(layer.K[a, a])
            for kink in sigma.kinks if variance > 0.0 else ():
                jump = kink.jumps[1] if len(kink.jumps) > 1 else 0.0
                if jump == 0.0:
                    continue
                slope = covariance[:, place] / variance
                moved = z + (kink.location - z[:, place])[:, None] * slope
                walk = _Walk(sigma, layers, moved.reshape(-1, depth, samples))
                psi = next(p for i, p, _ in walk.responses(index) if i == index)
                values = np.array(sigma.values(walk.z[:, index]))
                values[:, a] = sigma.values(np.array([kink.location]))[0]
                t = np.array(kink.location / np.sqrt(variance))
                density = float(normal_density(t)) / np.sqrt(variance)
                added = 0.5 * jump * density * (weights * psi[:, number[a, a]]) @ values
                # σ''_aσ_b and σ_bσ''_a stand in the pair (ab) once, in (aa) twice.
                bends[index, number[a]] += np.where(np.arange(samples) == a, 2.0, 1.0) * added
