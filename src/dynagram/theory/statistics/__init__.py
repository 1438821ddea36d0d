"""Exact and perturbative statistics of networks at initialisation (book chapters 3 and 4)."""

from dynagram.theory.statistics._correlators import averaged_covariance as averaged_covariance
from dynagram.theory.statistics._correlators import connected_correlator as connected_correlator
from dynagram.theory.statistics._correlators import correlator as correlator
from dynagram.theory.statistics._correlators import metric_cumulants as metric_cumulants
from dynagram.theory.statistics._couplings import QuarticAction as QuarticAction
from dynagram.theory.statistics._couplings import integrated_out as integrated_out
from dynagram.theory.statistics._couplings import leading_action as leading_action
from dynagram.theory.statistics._couplings import next_action as next_action
from dynagram.theory.statistics._couplings import next_propagator as next_propagator
from dynagram.theory.statistics._couplings import running_quadratic as running_quadratic
from dynagram.theory.statistics._exact import double_scaling as double_scaling
from dynagram.theory.statistics._exact import exact_metric as exact_metric
from dynagram.theory.statistics._exact import linear_four_point as linear_four_point
from dynagram.theory.statistics._exact import log_metric as log_metric
from dynagram.theory.statistics._exact import mean_square_variance as mean_square_variance
from dynagram.theory.statistics._kurtosis import kurtosis_shift as kurtosis_shift
from dynagram.theory.statistics._observables import observable_covariance as observable_covariance
from dynagram.theory.statistics._observables import observable_mean as observable_mean
from dynagram.theory.statistics._observables import (
    observable_ntk_correlation as observable_ntk_correlation,
)
from dynagram.theory.statistics._sextic import sextic_coupling as sextic_coupling

__all__ = [
    "QuarticAction",
    "averaged_covariance",
    "connected_correlator",
    "correlator",
    "double_scaling",
    "exact_metric",
    "integrated_out",
    "kurtosis_shift",
    "leading_action",
    "linear_four_point",
    "log_metric",
    "mean_square_variance",
    "metric_cumulants",
    "next_action",
    "next_propagator",
    "observable_covariance",
    "observable_mean",
    "observable_ntk_correlation",
    "running_quadratic",
    "sextic_coupling",
]
