"""Finite width to order 1/n: log evidence, posterior mean, covariance and wiring (6.79)-(6.89).

A network of width n is a Gaussian process whose kernel Ĝ is itself random; targets make some
kernels more likely than others. To first order in 1/n the posterior mean and covariance of the
outputs move, the covariance comes to depend on the targets, and outputs become correlated: they
are wired together by the hidden layers they share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import require_plain
from dynagram.results._regime import Regime, Verdict
from dynagram.results._spread import output_std
from dynagram.theory._predict import predict
from dynagram.theory.bayes._evidence import LogEvidence, require_hidden_layer
from dynagram.theory.bayes._infinite import InfinitePosterior, kernel_posterior
from dynagram.theory.bayes._solve import check_data, training_kernel
from dynagram.theory.bayes._terms import (
    Coefficient,
    Dual,
    blocks_of,
    covariance_terms,
    evaluate,
    evidence_terms,
    mean_terms,
    wiring_terms,
)


@dataclass(frozen=True, eq=False)
class FinitePosterior:
    """The posterior of the outputs at order "1/n": infinite-width part and coefficient of 1/width.

    Corrections multiply 1/`width`, with width = n_{L−1}. Covariances carry output indices,
    [test, output, test, output]; `numerical_errors` bounds the error of each correction. The
    covariance is of the noise-free function, and need not be positive outside its validity: see
    `regime`.
    """

    width: int
    mean_infinite: Float[np.ndarray, "test outputs"]
    mean_correction: Float[np.ndarray, "test outputs"]
    covariance_infinite: Float[np.ndarray, "test outputs test outputs"]
    covariance_correction: Float[np.ndarray, "test outputs test outputs"]
    log_evidence: LogEvidence
    numerical_errors: dict[str, float]
    regime: Regime

    @property
    def mean(self) -> Float[np.ndarray, "test outputs"]:
        """E[z_i | y] at the actual width."""
        return self.mean_infinite + self.mean_correction / self.width

    @property
    def covariance(self) -> Float[np.ndarray, "test outputs test outputs"]:
        """Cov[z_i, z_j | y] at the actual width."""
        return self.covariance_infinite + self.covariance_correction / self.width

    @property
    def std(self) -> Float[np.ndarray, "test outputs"]:
        """Standard deviations at the actual width; nan where the variance comes out negative."""
        return output_std(self.covariance)

    @property
    def wiring(self) -> Float[np.ndarray, "test outputs test outputs"]:
        """The covariance between different outputs at the actual width, 0 on the same output."""
        outputs = self.mean_infinite.shape[1]
        return self.covariance * (1.0 - np.eye(outputs))[None, :, None, :]


def finite_posterior(
    network: MLP,
    x: object,
    y: object,
    test_x: object,
    *,
    noise: float = 0.0,
    jitter: float = 0.0,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> FinitePosterior:
    """Bayesian inference with a network of finite width, to order 1/n_{L−1} (6.81)-(6.89).

    Arguments as in `infinite_posterior`; `accuracy` and `seed` are those of `predict`. The result
    for a test input does not depend on the other test inputs. Cost: V of the N_A + N_B samples,
    N⁴ numbers per layer, then contractions of N⁴ N_B.

    >>> net = MLP([3, 16, 2], "sin", C_b=0.1, C_W=1.6)
    >>> x = 1.3 * np.array([[1.0, 0.4, -0.3], [0.2, -1.1, 0.7], [0.9, -0.2, 0.5]])
    >>> found = finite_posterior(net, x[:2], [[0.9, 0.3], [-0.5, 1.1]], x[2:])
    >>> found.mean_correction.round(8)
    array([[-0.0379588 ,  0.08909686]])
    >>> found.covariance_correction[0, :, 0].round(8)
    array([[-0.08361739, -0.14904814], [-0.14904814, -0.19914732]])
    """
    inputs, targets = check_data(network, x, y)
    tests = check_inputs(test_x, network.widths[0], "test_x")
    require_plain(network, "the posterior at order 1/n")
    require_hidden_layer(network)
    prediction = predict(network, np.concatenate([inputs, tests]), accuracy=accuracy, seed=seed)
    K, N, width = prediction["K"][-1], inputs.shape[0], network.widths[-2]
    kernel = training_kernel(K[:N, :N], noise=noise, jitter=jitter, x=inputs, y=targets)
    infinite = kernel_posterior(kernel, K[N:, :N], K[N:, N:], targets)
    dual = Dual.of(kernel, targets)
    blocks = blocks_of(prediction["G1"][-1], prediction["V"][-1], N)
    errors = blocks_of(prediction.errors["G1"][-1], prediction.errors["V"][-1], N)
    P = np.concatenate([-kernel.solve(K[:N, N:]).T, np.eye(tests.shape[0])], axis=1)
    evidence = evaluate(evidence_terms(dual), blocks, errors)
    mean = evaluate(mean_terms(dual, P), blocks, errors)
    own = evaluate(covariance_terms(dual, P), blocks, errors)
    wired = evaluate(wiring_terms(dual, P), blocks, errors)
    one_output = np.eye(network.widths[-1])[None, :, None, :]
    covariance = Coefficient(
        own.value[:, None, :, None] * one_output + wired.value,
        own.error[:, None, :, None] * one_output + wired.error,
        own.size[:, None, :, None] * one_output + wired.size,
    )
    return FinitePosterior(
        width=width,
        mean_infinite=infinite.mean,
        mean_correction=mean.value,
        covariance_infinite=infinite.covariance[:, None, :, None] * one_output,
        covariance_correction=covariance.value,
        log_evidence=LogEvidence.at_order_one(infinite.log_evidence, evidence, width, kernel),
        numerical_errors={
            "log_evidence": float(evidence.error),
            "mean": float(np.max(mean.error)),
            "covariance": float(np.max(covariance.error)),
        },
        regime=_regime(width, evidence, mean, covariance, infinite, np.diagonal(K)[N:]),
    )


def _regime(
    width: int,
    evidence: Coefficient,
    mean: Coefficient,
    covariance: Coefficient,
    infinite: InfinitePosterior,
    prior: Float[np.ndarray, " test"],
) -> Regime:
    """How large the terms of the order kept are: where they are not small, the next order matters.

    Test inputs that the data already determine have no variance to compare with.
    """
    variance = np.diagonal(infinite.covariance)
    open_ = variance > 1e-9 * prior
    spread, shift = np.sqrt(variance[open_])[:, None], mean.size[open_]
    change = np.einsum("titi->ti", covariance.size)[open_]
    numbers = {
        "log_evidence_terms": float(evidence.size) / width,
        "mean_terms_in_std": float(np.max(shift / spread, initial=0.0)) / width,
        "relative_variance_terms": float(np.max(change / spread**2, initial=0.0)) / width,
        "numerical_error_of_log_evidence": float(evidence.error) / width,
        "smallest_over_largest_eigenvalue": infinite.kernel.conditioning,
    }
    words = {
        "log_evidence_terms": "terms of order 1/n change the log evidence by {:.2g}",
        "mean_terms_in_std": "terms of order 1/n move the mean by {:.2g} standard deviations",
        "relative_variance_terms": "terms of order 1/n change a variance by {:.2g} of itself",
    }
    verdict: Verdict = "trust"
    reasons: list[str] = []
    for name, sentence in words.items():
        if numbers[name] <= 0.15:
            continue
        verdict = "do not use" if numbers[name] > 0.75 or verdict == "do not use" else "careful"
        reasons.append(sentence.format(numbers[name]))
    if reasons:
        reasons.append("the width is too small for so many targets and layers: N_A n_L L/n")
    if numbers["numerical_error_of_log_evidence"] > 0.1:
        verdict = "careful" if verdict == "trust" else verdict
        reasons.append(
            "the averages behind V may be off by {:.2g} in the log evidence: ask for a smaller "
            "`accuracy`".format(numbers["numerical_error_of_log_evidence"])
        )
    good = "the terms of order 1/n are small against what they correct"
    return Regime("1/n", verdict, tuple(reasons) or (good,), numbers)
