"""Criticality at initialisation: critical points, depth laws, one and two inputs (Ch. 5, 9, 10).

Start with `critical_initialisation(activation)`; `single_input` gives K, V and G^{1} of every
layer, `single_input_tangents` every tensor; `phase` tells what depth does at other
hyperparameters.
"""

from dynagram.theory.criticality._angles import (
    angle,
    angle_flow,
    angle_law,
    crossover_depth,
    distance_law,
    pair_kernel_flow,
)
from dynagram.theory.criticality._laws import (
    fit_offset,
    kernel_law,
    metric_law,
    parallel_law,
    perpendicular_law,
    renormalised_weight_variance,
    semi_critical_law,
    vertex_law,
)
from dynagram.theory.criticality._offcritical import (
    correlation_length,
    criticality_curves,
    fixed_points,
    near_critical,
    phase,
)
from dynagram.theory.criticality._one_input import single_input
from dynagram.theory.criticality._one_input_tangents import (
    TangentFlow,
    single_input_tangents,
)
from dynagram.theory.criticality._point import (
    Constants,
    CriticalPoint,
    Exponents,
)
from dynagram.theory.criticality._points import (
    critical_initialisation,
    critical_line,
    critical_points,
)
from dynagram.theory.criticality._rates import depth_scaled_rates, ntk_shares
from dynagram.theory.criticality._robustness_laws import robustness_laws
from dynagram.theory.criticality._susceptibilities import (
    curvature_average,
    mean_square,
    metric_source,
    parallel_susceptibility,
    perpendicular_source,
    perpendicular_susceptibility,
    susceptibility_ratio,
)
from dynagram.theory.criticality._tangent_laws import (
    PowerLaw,
    dimensionless_ratios,
    off_critical_ntk,
    ratio_laws,
    scale_invariant_tangents,
    tangent_laws,
)
from dynagram.theory.criticality._two_input_tangents import (
    angle_ntk,
    gamma_ntk,
    small_separation_ntk,
)
from dynagram.theory.criticality._two_inputs import (
    from_gamma,
    separation_vertex,
    small_separation,
    to_gamma,
    vertex_from_gamma,
    vertex_to_gamma,
)

__all__ = [
    "Constants",
    "CriticalPoint",
    "Exponents",
    "PowerLaw",
    "TangentFlow",
    "angle",
    "angle_flow",
    "angle_law",
    "angle_ntk",
    "correlation_length",
    "critical_initialisation",
    "critical_line",
    "critical_points",
    "criticality_curves",
    "crossover_depth",
    "curvature_average",
    "depth_scaled_rates",
    "dimensionless_ratios",
    "distance_law",
    "fit_offset",
    "fixed_points",
    "from_gamma",
    "gamma_ntk",
    "kernel_law",
    "mean_square",
    "metric_law",
    "metric_source",
    "near_critical",
    "ntk_shares",
    "off_critical_ntk",
    "pair_kernel_flow",
    "parallel_law",
    "parallel_susceptibility",
    "perpendicular_law",
    "perpendicular_source",
    "perpendicular_susceptibility",
    "phase",
    "ratio_laws",
    "renormalised_weight_variance",
    "robustness_laws",
    "scale_invariant_tangents",
    "semi_critical_law",
    "separation_vertex",
    "single_input",
    "single_input_tangents",
    "small_separation",
    "small_separation_ntk",
    "susceptibility_ratio",
    "tangent_laws",
    "to_gamma",
    "vertex_from_gamma",
    "vertex_law",
    "vertex_to_gamma",
]
