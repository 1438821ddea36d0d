"""Bayesian inference with networks, chapter 6: evidence, and what hidden layers learn.

Posterior means and covariances are `dynagram.predict_outputs` with a `Posterior`.
"""

from dynagram.theory.bayes._couplings import posterior_couplings as posterior_couplings
from dynagram.theory.bayes._evidence import log_bayes_factor as log_bayes_factor
from dynagram.theory.bayes._evidence import log_evidence as log_evidence
from dynagram.theory.bayes._evidence import log_predictive_density as log_predictive_density
from dynagram.theory.bayes._hebbian import association as association
from dynagram.theory.bayes._hebbian import conditional_metric as conditional_metric
from dynagram.theory.bayes._hypotheses import compare_hypotheses as compare_hypotheses
from dynagram.theory.bayes._landscape import evidence_landscape as evidence_landscape
from dynagram.theory.bayes._parameters import log_likelihood as log_likelihood
from dynagram.theory.bayes._parameters import most_probable as most_probable
from dynagram.theory.bayes._parameters import prior_decay as prior_decay
from dynagram.theory.bayes._representation import representation_shift as representation_shift

__all__ = [
    "association",
    "compare_hypotheses",
    "conditional_metric",
    "evidence_landscape",
    "log_bayes_factor",
    "log_evidence",
    "log_likelihood",
    "log_predictive_density",
    "most_probable",
    "posterior_couplings",
    "prior_decay",
    "representation_shift",
]
