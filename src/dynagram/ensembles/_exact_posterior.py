"""The posterior of a network of any finite width, exact up to sampling errors that are reported.

Given the hidden layers, the outputs are Gaussian with covariance Ĝ^(L) (4.69), whatever the
widths. So p(y_A) = E Π_i N(y_i; 0, Ĝ_AA) and the posterior is a mixture of Gaussians with these
weights (6.93), (6.94). Hidden layers are drawn from the prior, weighted, and outputs are
integrated analytically (Rao–Blackwell). First-order terms are subtracted with a partner of exactly
zero mean, so that effects of order 1/n stand out. Practical while N_A n_L is below about ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram._pairs import matrix_to_pairs, pair_indices, pair_numbers, pairs_to_matrix
from dynagram.data import Data
from dynagram.ensembles.engine._progress import Progress
from dynagram.ensembles.initial._sample import sample_metrics
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.gaussian._closed_forms import closed_form
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.gaussian._two_point import two_point
from dynagram.networks import MLP, Network
from dynagram.networks._checks import require_plain
from dynagram.results._estimate import Estimate, Moments
from dynagram.results._outputs import Outputs
from dynagram.results._regime import Judge, Regime
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.bayes._conditioning import condition, kernel_log_evidence, residual
from dynagram.theory.bayes._solve import training_kernel
from dynagram.theory.bayes._terms import Dual
from dynagram.training import Posterior

_FEWEST_MEMBERS = 1000
# Equally weighted draws below which to be careful, and not to use them.
_FEW_DRAWS = (1000, 100)
# Weights are measured from their infinite-width value unless they exceed it by this much.
_LARGEST_EXCESS = 100.0


class _Infinite(NamedTuple):
    """The posterior of the test outputs at infinite width, which draws are compared with."""

    mean: Float[np.ndarray, "test outputs"]
    covariance: Float[np.ndarray, "test test"]
    log_evidence: float


def exact_posterior(
    network: Network,
    data: Data,
    posterior: Posterior,
    *,
    members: int,
    seed: int,
    progress: Callable[[Progress], object] | None = None,
) -> Outputs:
    """The posterior at the actual widths: hidden layers drawn from the prior, weighted by p(y | Ĝ).

    **Arguments:**

    - `network`: an `MLP`.
    - `data`: training inputs and targets, and test inputs.
    - `posterior`: its noise; no jitter.
    - `members`: stacks of hidden layers to draw, at least 1000.
    - `seed`: of the draws.
    - `progress`: called with a `Progress` after every chunk.

    **Returns:** `Outputs` of order "measured" with standard errors of the batch jackknife.
    `estimates` holds "log_evidence" and "activation_shift" (layer, a, b), the posterior minus prior
    mean of (1/n_ℓ) Σ σσ on all samples, moments first; `about["effective_size"]` = (Σw)²/Σw², the
    number of equally weighted draws that would do as well. Cost per member: n_ℓ N² per layer and
    N³. Memory: 128 numbers per entry of the results.

    >>> net = MLP([2, 16, 1], "tanh", C_b=0.3, C_W=1.4)
    >>> data = Data([[1.0, 0.4], [-0.3, 0.9]], [1.0, -0.6], test_x=[[0.7, 0.8]])
    >>> exact = exact_posterior(net, data, Posterior(noise=0.25), members=20000, seed=0)
    >>> exact.mean.round(2), exact.covariance.round(3).ravel()
    (array([[0.38]]), array([0.177]))
    >>> exact.regime.verdict
    'trust'
    """
    if not isinstance(network, MLP):
        allowed = "metrics of networks of blocks are not sampled: expected an MLP"
        raise InvalidTypeError("network", type(network).__name__, allowed)
    require_plain(network, "the sampled posterior")
    targets, samples = data.check(network).y, data.inputs
    if members < _FEWEST_MEMBERS:
        raise InvalidValueError("members", members, f"at least {_FEWEST_MEMBERS} needed")
    if posterior.jitter:
        raise InvalidValueError("jitter", posterior.jitter, "exact draws take noise only")
    K, N = frozen_kernels(network, samples).K, targets.shape[0]
    kernel = training_kernel(K[-1, :N, :N], posterior, x=data.x, y=targets)
    known = condition(kernel, K[-1], targets)
    reference = kernel_log_evidence(kernel, targets)
    infinite = _Infinite(known.mean[N:], known.covariance[N:, N:], reference)
    dual, P = Dual.of(kernel, targets), residual(kernel, K[-1])[N:]
    control = _Control(network, K)
    moments: Moments | None = None
    for metrics in sample_metrics(network, samples, members=members, seed=seed):
        likelihoods = _likelihoods(metrics[:, -1], targets, posterior.noise)
        if moments is None and np.max(likelihoods.log_weight) > reference + _LARGEST_EXCESS:
            reference = float(np.max(likelihoods.log_weight))
        rows = _rows(likelihoods, reference, metrics, K, control(metrics), infinite, dual, P)
        first = 0 if moments is None else moments.count
        chunk = Moments.from_samples(rows, order=1, first=first)
        moments = chunk if moments is None else moments.merge(chunk)
        if progress is not None:
            progress(Progress(moments.count, members))
    assert moments is not None  # members ≥ 1 has been checked
    collected = _collected(moments, network, infinite, reference, samples.shape[0])
    return Outputs(
        network=network,
        how=posterior,
        order="measured",
        times=(math.inf,),
        x=data.test_x,
        training_samples=0,
        members=members,
        seed=seed,
        **collected,
    )


class _Control:
    """D with E[D] = 0 exactly and D = ΔĜ^(L) to first order.

    D^(2) = Ĝ^(2) − K^(2); D^(ℓ+1) = Ĝ^(ℓ+1) − F(Ĝ^(ℓ)) + X^(ℓ) D^(ℓ), with F the kernel map and X
    its derivative at K. Without a closed form of F its part is left out: less is gained, nothing
    is lost.
    """

    def __init__(self, network: MLP, K: np.ndarray):
        self.network, self.K = network, K
        self.pairs = pair_indices(K.shape[1])
        sigma = network.activation
        self.closed = closed_form(sigma, 0, 0) is not None
        usable = not sigma.jumps  # X of a jump does not exist
        self.families = [
            PairFamily.of(TwoPoint(sigma, matrix), 0, 0) for matrix in K[1:-1] if usable
        ]

    def __call__(self, metrics: np.ndarray) -> np.ndarray:
        """D on pairs, one row per member, from Ĝ of all layers (member, layer, pair)."""
        if self.network.depth < 2 or len(self.families) < self.network.depth - 2:
            return np.zeros_like(metrics[:, -1])
        D = metrics[:, 1] - matrix_to_pairs(self.K[1])
        for layer, family in enumerate(self.families, start=2):
            D = self.network.C_W[layer] * family.propagate(D)
            if self.closed:
                D = D + metrics[:, layer] - self._kernel_map(metrics[:, layer - 1], layer)
        return D

    def _kernel_map(self, metric: np.ndarray, layer: int) -> np.ndarray:
        a, b = self.pairs
        diagonal = metric[:, pair_numbers(self.K.shape[1]).diagonal()]
        average = two_point(self.network.activation, diagonal[:, a], diagonal[:, b], metric)
        return self.network.C_b[layer] + self.network.C_W[layer] * average


@dataclass(frozen=True, eq=False)
class _Likelihoods:
    """Of each member: log Π_i N(y_i; 0, Ĝ_AA), the mean of z_B given y_A and its covariance."""

    log_weight: Float[np.ndarray, " member"]
    mean: Float[np.ndarray, "member test outputs"]
    spread: Float[np.ndarray, "member test test"]


def _likelihoods(metric: np.ndarray, y: np.ndarray, noise: float) -> _Likelihoods:
    """Ordinary Gaussian conditioning, member by member; `metric` is Ĝ^(L) on pairs."""
    G, N, outputs = pairs_to_matrix(metric), *y.shape
    train = G[:, :N, :N] + noise * np.eye(N)
    sign, log_determinant = np.linalg.slogdet(2.0 * math.pi * train)
    if np.any(sign <= 0):
        raise _singular()
    targets = np.broadcast_to(y, (G.shape[0], *y.shape))
    try:
        solved = np.linalg.solve(train, np.concatenate([targets, G[:, :N, N:]], axis=2))
    except np.linalg.LinAlgError as error:
        raise _singular() from error
    dual, regression = solved[:, :, :outputs], solved[:, :, outputs:]
    exponent = np.einsum("ai,sai->s", y, dual) + outputs * log_determinant
    mean = np.einsum("sta,sai->sti", G[:, N:, :N], dual)
    spread = G[:, N:, N:] - np.einsum("sta,sau->stu", G[:, N:, :N], regression)
    return _Likelihoods(-0.5 * exponent, mean, spread)


def _rows(
    likelihoods: _Likelihoods,
    reference: float,
    metrics: np.ndarray,
    K: np.ndarray,
    D: np.ndarray,
    infinite: _Infinite,
    dual: Dual,
    P: np.ndarray,
) -> Float[np.ndarray, "member entries"]:
    """Per member: w and w², then w times every deviation from infinite width, less its control."""
    D_full, N = pairs_to_matrix(D), dual.y.shape[0]
    weight = np.exp(likelihoods.log_weight - reference)
    unit = math.exp(infinite.log_evidence - reference)  # the weight at infinite width
    shift = likelihoods.mean - infinite.mean
    spread = likelihoods.spread - infinite.covariance
    w = weight[:, None, None]
    along_M = np.einsum("ab,sab->s", dual.M, D_full[:, :N, :N])
    along_y = np.einsum("td,sda,ai->sti", P, D_full[:, :, :N], dual.y, optimize=True)
    hidden = metrics[:, 1:] - matrix_to_pairs(K[1:])
    parts = [
        weight,
        weight**2,
        weight - 0.5 * unit * along_M,
        w * shift - unit * along_y,
        w * spread - unit * np.einsum("td,sde,ue->stu", P, D_full, P, optimize=True),
        w[..., None, None] * shift[:, :, :, None, None] * shift[:, None, None, :, :],
        w * hidden,
        hidden,
    ]
    return np.concatenate([part.reshape(weight.size, -1) for part in parts], axis=1)


def _singular() -> InvalidValueError:
    return InvalidValueError(
        "noise",
        0.0,
        "the kernel of some sampled network is singular on the training inputs (fewer neurons "
        "than samples, or dead ones): give noise > 0",
    )


def _collected(
    moments: Moments, network: MLP, infinite: _Infinite, reference: float, samples: int
) -> dict[str, Any]:
    """What `Outputs` is made of, with jackknife errors."""
    tests, outputs = infinite.mean.shape
    layers, pairs = network.depth - 1, samples * (samples + 1) // 2
    sizes = [1, 1, 1, tests * outputs, tests**2, (tests * outputs) ** 2, layers * pairs]
    places = np.cumsum(sizes)
    C_W = np.array(network.C_W[1:])[:, None]
    one_output = np.eye(outputs)[None, :, None, :]

    def posterior(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
        means = moments.origin + sums[0] / count
        weight, _, evidence, shift, spread, square, tilted, plain = np.split(means, places)
        Z = evidence.item()
        if Z <= 0.0:  # the control overshoots only when the weights mean nothing
            evidence, Z = weight, weight.item()
        shift = (shift / Z).reshape(tests, outputs)
        spread = infinite.covariance + (spread / Z).reshape(tests, tests)
        square = (square / Z).reshape(tests, outputs, tests, outputs)
        covariance = spread[:, None, :, None] * one_output + square
        covariance = covariance - shift[:, :, None, None] * shift[None, None, :, :]
        hidden = (tilted / weight - plain).reshape(layers, pairs) / C_W
        log_evidence = reference + np.log(evidence)
        parts = (log_evidence, infinite.mean + shift, covariance, hidden)
        return np.concatenate([part.reshape(-1) for part in parts])

    jackknife = moments.jackknife(posterior, 1)
    ends = np.cumsum([1, tests * outputs, (tests * outputs) ** 2])
    value = np.split(jackknife.value, ends)
    error = np.split(jackknife.standard_error, ends)
    shapes = ((1,), (1, tests, outputs), (1, tests, outputs, tests, outputs), (1, layers, pairs))
    (evidence, mean, covariance, hidden), errors = (
        [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        for parts in (value, error)
    )
    weight, square = moments.mean().value[:2]
    size = float(jackknife.count * weight**2 / square)
    return {
        "measured_mean": mean,
        "mean_errors": errors[1],
        "measured_covariance": covariance,
        "covariance_errors": errors[2],
        "estimates": {
            "log_evidence": Estimate(evidence, errors[0], jackknife.count),
            "activation_shift": Estimate(
                pairs_to_matrix(hidden), pairs_to_matrix(errors[3]), jackknife.count
            ),
        },
        "about": {"log_evidence": float(evidence[0]), "effective_size": size},
        "regime": _regime(size, jackknife.count),
    }


def _regime(size: float, members: int) -> Regime:
    judge = Judge()
    judge.numbers |= {"effective_size": size, "efficiency": size / members}
    if size < _FEW_DRAWS[0]:
        judge.object(
            2 if size < _FEW_DRAWS[1] else 1,
            f"{members} draws are worth {size:.0f} equally weighted ones: the targets are "
            "improbable under the prior; fewer training samples or outputs, more noise, or more "
            "members help",
        )
    good = f"{members} draws are worth {size:.0f} equally weighted ones"
    return judge.regime("measured", good)
