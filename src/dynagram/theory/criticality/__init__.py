"""Criticality at initialisation: critical points, depth laws, single-input flows (book Ch. 5).

Start with `critical_initialisation(activation)`; `single_input` gives K, V and G^{1} of every
layer; `phase` tells what depth does at other hyperparameters.
"""

from dynagram.theory.criticality.angles import angle as angle
from dynagram.theory.criticality.angles import angle_estimate as angle_estimate
from dynagram.theory.criticality.angles import angle_flow as angle_flow
from dynagram.theory.criticality.angles import angle_law as angle_law
from dynagram.theory.criticality.angles import crossover_depth as crossover_depth
from dynagram.theory.criticality.angles import distance_law as distance_law
from dynagram.theory.criticality.angles import pair_kernel_flow as pair_kernel_flow
from dynagram.theory.criticality.angles import slope_product as slope_product
from dynagram.theory.criticality.helpers import curvature_average as curvature_average
from dynagram.theory.criticality.helpers import mean_square as mean_square
from dynagram.theory.criticality.helpers import metric_source as metric_source
from dynagram.theory.criticality.helpers import parallel_susceptibility as parallel_susceptibility
from dynagram.theory.criticality.helpers import perpendicular_source as perpendicular_source
from dynagram.theory.criticality.helpers import (
    perpendicular_susceptibility as perpendicular_susceptibility,
)
from dynagram.theory.criticality.helpers import susceptibility_ratio as susceptibility_ratio
from dynagram.theory.criticality.laws import exact_metric_moments as exact_metric_moments
from dynagram.theory.criticality.laws import fit_offset as fit_offset
from dynagram.theory.criticality.laws import kernel_law as kernel_law
from dynagram.theory.criticality.laws import metric_law as metric_law
from dynagram.theory.criticality.laws import parallel_law as parallel_law
from dynagram.theory.criticality.laws import perpendicular_law as perpendicular_law
from dynagram.theory.criticality.laws import (
    renormalised_weight_variance as renormalised_weight_variance,
)
from dynagram.theory.criticality.laws import semi_critical_law as semi_critical_law
from dynagram.theory.criticality.laws import vertex_law as vertex_law
from dynagram.theory.criticality.offcritical import CriticalityCurves as CriticalityCurves
from dynagram.theory.criticality.offcritical import FixedPoint as FixedPoint
from dynagram.theory.criticality.offcritical import Phase as Phase
from dynagram.theory.criticality.offcritical import correlation_length as correlation_length
from dynagram.theory.criticality.offcritical import criticality_curves as criticality_curves
from dynagram.theory.criticality.offcritical import fixed_points as fixed_points
from dynagram.theory.criticality.offcritical import near_critical as near_critical
from dynagram.theory.criticality.offcritical import phase as phase
from dynagram.theory.criticality.points import critical_initialisation as critical_initialisation
from dynagram.theory.criticality.points import critical_points as critical_points
from dynagram.theory.criticality.recursion import SingleInputFlow as SingleInputFlow
from dynagram.theory.criticality.recursion import single_input as single_input
from dynagram.theory.criticality.two_inputs import SeparationVertex as SeparationVertex
from dynagram.theory.criticality.two_inputs import SmallSeparationFlow as SmallSeparationFlow
from dynagram.theory.criticality.two_inputs import from_gamma as from_gamma
from dynagram.theory.criticality.two_inputs import separation_vertex as separation_vertex
from dynagram.theory.criticality.two_inputs import (
    separation_vertex_slopes as separation_vertex_slopes,
)
from dynagram.theory.criticality.two_inputs import small_separation as small_separation
from dynagram.theory.criticality.two_inputs import to_gamma as to_gamma
from dynagram.theory.criticality.two_inputs import vertex_from_gamma as vertex_from_gamma
from dynagram.theory.criticality.two_inputs import vertex_to_gamma as vertex_to_gamma
from dynagram.theory.criticality.types import Constants as Constants
from dynagram.theory.criticality.types import CriticalPoint as CriticalPoint
from dynagram.theory.criticality.types import Exponents as Exponents
