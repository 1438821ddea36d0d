"""The fields of one network, of one output or several, and how training moves them (Nordio).

Equation numbers are those of arXiv:2606.09744v3.
"""

from dynagram.observables.fields._alignment import (
    ClassContrast,
    class_contrast,
    kernel_target_alignment,
    rayleigh_quotient,
    residual_in_top,
)
from dynagram.observables.fields._metrics import (
    MetricStatistics,
    gaussian_effective_rank,
    metric_statistics,
)
from dynagram.observables.fields._operators import FieldOperator
from dynagram.observables.fields._outputs import OutputFields, output_fields, output_kernel
from dynagram.observables.fields._overlaps import (
    activation_overlaps,
    coactivation,
    collective_kernel,
    conjugate_correlators,
    kernel_terms,
    layer_shares,
)
from dynagram.observables.fields._sharing import Sharing, unit_sharing
from dynagram.observables.fields._state import Fields, fields, fixed_readout
from dynagram.observables.fields._state_sets import (
    ObservableState,
    ResidualState,
    observable_state,
    residual_state,
)
from dynagram.observables.fields._transport import (
    CollectiveTransport,
    Pullback,
    coactivation_projector,
    forward_transport,
    pullback_metric,
    transport_operator,
)

__all__ = [
    "ClassContrast",
    "CollectiveTransport",
    "FieldOperator",
    "Fields",
    "MetricStatistics",
    "ObservableState",
    "OutputFields",
    "Pullback",
    "ResidualState",
    "Sharing",
    "activation_overlaps",
    "class_contrast",
    "coactivation",
    "coactivation_projector",
    "collective_kernel",
    "conjugate_correlators",
    "fields",
    "fixed_readout",
    "forward_transport",
    "gaussian_effective_rank",
    "kernel_target_alignment",
    "kernel_terms",
    "layer_shares",
    "metric_statistics",
    "observable_state",
    "output_fields",
    "output_kernel",
    "pullback_metric",
    "rayleigh_quotient",
    "residual_in_top",
    "residual_state",
    "transport_operator",
    "unit_sharing",
]
