"""Outputs given the training targets, at infinite width and to order 1/n (6.79)-(6.89).

A network of width n is a Gaussian process whose kernel Ĝ is itself random; targets make some
kernels more likely than others. To first order in 1/n the posterior mean and covariance of the
outputs move, the covariance comes to depend on the targets, and outputs become correlated: they
are wired together by the hidden layers they share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.networks import Network
from dynagram.results._outputs import Outputs
from dynagram.results._regime import Judge, Regime
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.bayes._conditioning import Conditioned, condition, residual
from dynagram.theory.bayes._evidence import ACCURACY, LogEvidence, require_vertex
from dynagram.theory.bayes._solve import TrainingKernel, training_kernel
from dynagram.theory.bayes._terms import (
    Coefficient,
    Dual,
    Term,
    blocks_of,
    covariance_terms,
    evaluate,
    evidence_terms,
    mean_terms,
    wiring_terms,
)
from dynagram.training import Posterior

_ILL_CONDITIONED = 1e-8


def posterior_outputs(
    network: Network,
    data: Data,
    posterior: Posterior,
    *,
    order: str,
    accuracy: float | None,
    seed: int,
) -> Outputs:
    """The posterior of the outputs on all samples, of the noise-free function; "∞" or "1/n".

    The result for a test input does not depend on the other test inputs.
    """
    data.check(network)
    if order == "1/n":
        accuracy = ACCURACY if accuracy is None else accuracy
        return _finite(network, data, posterior, accuracy, seed)
    K = frozen_kernels(network, data.inputs, layers="last").K[0]
    kernel = _training_kernel(K, data, posterior)
    evidence, known = LogEvidence.of(kernel, data.y, network.width), condition(kernel, K, data.y)
    return _outputs(network, data, posterior, known, kernel, evidence, _infinite_regime(kernel))


def _finite(
    network: Network, data: Data, posterior: Posterior, accuracy: float, seed: int
) -> Outputs:
    require_vertex(network, 'the posterior at order 1/n (order="infinite" takes skips)')
    tensors = predict(network, data.inputs, accuracy=accuracy, seed=seed)
    K, N, width = tensors["K"][-1], data.x.shape[0], network.width
    kernel = _training_kernel(K, data, posterior)
    known, dual = condition(kernel, K, data.y), Dual.of(kernel, data.y)
    P, one_output = residual(kernel, K), np.eye(network.output_size)[None, :, None, :]
    blocks = blocks_of(tensors["G1"][-1], tensors["V"][-1], N)
    errors = blocks_of(tensors.errors["G1"][-1], tensors.errors["V"][-1], N)
    evidence = evaluate(evidence_terms(dual), blocks, errors)
    means = _by_tensor(mean_terms(dual, P), blocks, errors)
    spreads = {
        name: part.expanded(one_output)
        for name, part in _by_tensor(covariance_terms(dual, P), blocks, errors).items()
    }
    spreads["wiring"] = evaluate(wiring_terms(dual, P), blocks, errors)
    mean, covariance = Coefficient.total(means.values()), Coefficient.total(spreads.values())
    test = slice(N, None)
    regime = _finite_regime(
        width, evidence, mean.size[test], np.einsum("titi->ti", covariance.size)[test],
        np.diagonal(known.covariance)[test], np.diagonal(K)[test], kernel,
    )  # fmt: skip
    return _outputs(
        network, data, posterior, known, kernel,
        LogEvidence.of(kernel, data.y, width, evidence), regime,
        parts_of_mean={name: part.value[None] for name, part in means.items()},
        parts_of_covariance={name: part.value[None] for name, part in spreads.items()},
        mean_errors=mean.error[None] / width,
        covariance_errors=covariance.error[None] / width,
        seed=seed,
    )  # fmt: skip


def _by_tensor(
    terms: list[Term], blocks: Mapping[str, np.ndarray], errors: Mapping[str, np.ndarray]
) -> dict[str, Coefficient]:
    """What comes of the shifted mean of the metric, "G1", and of its fluctuations, "V"."""
    return {
        letter: evaluate([t for t in terms if t.tensor.startswith(letter)], blocks, errors)
        for letter in ("G1", "V")
    }


def _training_kernel(K: np.ndarray, data: Data, posterior: Posterior) -> TrainingKernel:
    N = data.x.shape[0]
    return training_kernel(K[:N, :N], posterior, x=data.x, y=data.y)


def _outputs(
    network: Network,
    data: Data,
    posterior: Posterior,
    known: Conditioned,
    kernel: TrainingKernel,
    evidence: LogEvidence,
    regime: Regime,
    **corrections: Any,
) -> Outputs:
    return Outputs(
        network=network,
        how=posterior,
        order=evidence.order,
        times=(math.inf,),
        x=data.inputs,
        training_samples=data.x.shape[0],
        regime=regime,
        infinite_mean=known.mean[None],
        infinite_kernel=known.covariance[None],
        about={
            "log_evidence": evidence.value,
            "log_evidence_infinite": evidence.infinite,
            "log_evidence_correction": evidence.correction,
            "log_evidence_error": evidence.numerical_error / network.width,
            "jitter": kernel.jitter,
        },
        **corrections,
    )


def _infinite_regime(kernel: TrainingKernel) -> Regime:
    """Solving with a kernel loses as many digits as its conditioning has."""
    judge = Judge()
    judge.numbers["smallest_over_largest_eigenvalue"] = kernel.conditioning
    judge.numbers["jitter"] = kernel.jitter
    if kernel.conditioning < _ILL_CONDITIONED:
        judge.object(
            1, f"the training kernel is nearly singular ({kernel.conditioning:.1g}): only about "
            f"{12 + math.log10(kernel.conditioning):.0f} digits of the answer are left",
        )  # fmt: skip
    good = 'exact at infinite width; order="1/n" says how much finite width changes'
    return judge.regime("∞", good)


def _finite_regime(
    width: int,
    evidence: Coefficient,
    shifts: Float[np.ndarray, "test outputs"],
    changes: Float[np.ndarray, "test outputs"],
    variance: Float[np.ndarray, " test"],
    prior: Float[np.ndarray, " test"],
    kernel: TrainingKernel,
) -> Regime:
    """How large the terms of the order kept are: where they are not small, the next order matters.

    `shifts` and `changes` add up the terms of means and variances without their signs. Test inputs
    that the data already determine have no variance to compare with.
    """
    judge, undecided = Judge(), variance > 1e-9 * prior
    spread = np.sqrt(variance[undecided])[:, None]
    sizes = {
        "log_evidence_terms": (
            float(evidence.size),
            "terms of order 1/n change the log evidence by {value:.2g}",
        ),
        "mean_terms_in_std": (
            float(np.max(shifts[undecided] / spread, initial=0.0)),
            "terms of order 1/n move the mean by {value:.2g} standard deviations",
        ),
        "relative_variance_terms": (
            float(np.max(changes[undecided] / spread**2, initial=0.0)),
            "terms of order 1/n change a variance by {value:.2g} of itself",
        ),
    }
    for name, (size, sentence) in sizes.items():
        judge.measure(name, size / width, 0.15, 0.75, sentence)
    if judge.reasons:
        judge.object(1, "the width is too small for so many targets and layers: N_A n_L L/n")
    judge.measure(
        "numerical_error_of_log_evidence", float(evidence.error) / width, 0.1, math.inf,
        "the averages behind V may be off by {value:.2g} in the log evidence: ask for a smaller "
        "`accuracy`",
    )  # fmt: skip
    judge.numbers["smallest_over_largest_eigenvalue"] = kernel.conditioning
    return judge.regime("1/n", "the terms of order 1/n are small against what they correct")
