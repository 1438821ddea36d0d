"""Criticality at initialisation: critical points, depth laws, single-input flows (book Ch. 5).

Start with `critical_initialisation(activation)`; `single_input` gives K, V and G^{1} of every
layer; `phase` tells what depth does at other hyperparameters.
"""

from dynagram.theory.criticality._angles import angle as angle
from dynagram.theory.criticality._angles import angle_estimate as angle_estimate
from dynagram.theory.criticality._angles import angle_flow as angle_flow
from dynagram.theory.criticality._angles import angle_law as angle_law
from dynagram.theory.criticality._angles import crossover_depth as crossover_depth
from dynagram.theory.criticality._angles import distance_law as distance_law
from dynagram.theory.criticality._angles import pair_kernel_flow as pair_kernel_flow
from dynagram.theory.criticality._angles import slope_product as slope_product
from dynagram.theory.criticality._laws import exact_metric_moments as exact_metric_moments
from dynagram.theory.criticality._laws import fit_offset as fit_offset
from dynagram.theory.criticality._laws import kernel_law as kernel_law
from dynagram.theory.criticality._laws import metric_law as metric_law
from dynagram.theory.criticality._laws import parallel_law as parallel_law
from dynagram.theory.criticality._laws import perpendicular_law as perpendicular_law
from dynagram.theory.criticality._laws import (
    renormalised_weight_variance as renormalised_weight_variance,
)
from dynagram.theory.criticality._laws import semi_critical_law as semi_critical_law
from dynagram.theory.criticality._laws import vertex_law as vertex_law
from dynagram.theory.criticality._offcritical import CriticalityCurves as CriticalityCurves
from dynagram.theory.criticality._offcritical import FixedPoint as FixedPoint
from dynagram.theory.criticality._offcritical import Phase as Phase
from dynagram.theory.criticality._offcritical import correlation_length as correlation_length
from dynagram.theory.criticality._offcritical import criticality_curves as criticality_curves
from dynagram.theory.criticality._offcritical import fixed_points as fixed_points
from dynagram.theory.criticality._offcritical import near_critical as near_critical
from dynagram.theory.criticality._offcritical import phase as phase
from dynagram.theory.criticality._one_input import SingleInputFlow as SingleInputFlow
from dynagram.theory.criticality._one_input import single_input as single_input
from dynagram.theory.criticality._point import Constants as Constants
from dynagram.theory.criticality._point import CriticalPoint as CriticalPoint
from dynagram.theory.criticality._point import Exponents as Exponents
from dynagram.theory.criticality._points import critical_initialisation as critical_initialisation
from dynagram.theory.criticality._points import critical_points as critical_points
from dynagram.theory.criticality._susceptibilities import curvature_average as curvature_average
from dynagram.theory.criticality._susceptibilities import mean_square as mean_square
from dynagram.theory.criticality._susceptibilities import metric_source as metric_source
from dynagram.theory.criticality._susceptibilities import (
    parallel_susceptibility as parallel_susceptibility,
)
from dynagram.theory.criticality._susceptibilities import (
    perpendicular_source as perpendicular_source,
)
from dynagram.theory.criticality._susceptibilities import (
    perpendicular_susceptibility as perpendicular_susceptibility,
)
from dynagram.theory.criticality._susceptibilities import (
    susceptibility_ratio as susceptibility_ratio,
)
from dynagram.theory.criticality._two_inputs import SeparationVertex as SeparationVertex
from dynagram.theory.criticality._two_inputs import SmallSeparationFlow as SmallSeparationFlow
from dynagram.theory.criticality._two_inputs import from_gamma as from_gamma
from dynagram.theory.criticality._two_inputs import separation_vertex as separation_vertex
from dynagram.theory.criticality._two_inputs import (
    separation_vertex_slopes as separation_vertex_slopes,
)
from dynagram.theory.criticality._two_inputs import small_separation as small_separation
from dynagram.theory.criticality._two_inputs import to_gamma as to_gamma
from dynagram.theory.criticality._two_inputs import vertex_from_gamma as vertex_from_gamma
from dynagram.theory.criticality._two_inputs import vertex_to_gamma as vertex_to_gamma
