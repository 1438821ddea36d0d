"""Bayesian inference with networks: infinite width, order 1/n, exact by sampling (chapter 6)."""

from dynagram.theory.bayes._evidence import LogEvidence as LogEvidence
from dynagram.theory.bayes._evidence import log_bayes_factor as log_bayes_factor
from dynagram.theory.bayes._evidence import log_evidence as log_evidence
from dynagram.theory.bayes._evidence import log_predictive_density as log_predictive_density
from dynagram.theory.bayes._finite import FinitePosterior as FinitePosterior
from dynagram.theory.bayes._finite import finite_posterior as finite_posterior
from dynagram.theory.bayes._hebbian import association as association
from dynagram.theory.bayes._hebbian import conditional_metric as conditional_metric
from dynagram.theory.bayes._infinite import InfinitePosterior as InfinitePosterior
from dynagram.theory.bayes._infinite import infinite_posterior as infinite_posterior
from dynagram.theory.bayes._infinite import kernel_log_evidence as kernel_log_evidence
from dynagram.theory.bayes._infinite import kernel_posterior as kernel_posterior
from dynagram.theory.bayes._landscape import EvidenceLandscape as EvidenceLandscape
from dynagram.theory.bayes._landscape import evidence_landscape as evidence_landscape
from dynagram.theory.bayes._representation import RepresentationShift as RepresentationShift
from dynagram.theory.bayes._representation import representation_shift as representation_shift
from dynagram.theory.bayes._solve import TrainingKernel as TrainingKernel
from dynagram.theory.bayes._solve import training_kernel as training_kernel
