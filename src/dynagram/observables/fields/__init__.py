"""The fields of one network, of one output or several, and how training moves them (Nordio).

Equation numbers are those of arXiv:2606.09744v3.
"""

from dynagram.observables.fields._alignment import (
    class_contrast,
    kernel_target_alignment,
    residual_in_top,
)
from dynagram.observables.fields._metrics import metric_statistics
from dynagram.observables.fields._outputs import output_fields, output_kernel
from dynagram.observables.fields._overlaps import (
    activation_overlaps,
    coactivation,
    collective_kernel,
    conjugate_correlators,
    kernel_terms,
    layer_shares,
)
from dynagram.observables.fields._sharing import unit_sharing
from dynagram.observables.fields._state import Fields, fields, fixed_readout
from dynagram.observables.fields._state_sets import observable_state, residual_state
from dynagram.observables.fields._transport import (
    CollectiveTransport,
    forward_transport,
    pullback_metric,
    transport_operator,
)

__all__ = [
    "CollectiveTransport",
    "Fields",
    "activation_overlaps",
    "class_contrast",
    "coactivation",
    "collective_kernel",
    "conjugate_correlators",
    "fields",
    "fixed_readout",
    "forward_transport",
    "kernel_target_alignment",
    "kernel_terms",
    "layer_shares",
    "metric_statistics",
    "observable_state",
    "output_fields",
    "output_kernel",
    "pullback_metric",
    "residual_in_top",
    "residual_state",
    "transport_operator",
    "unit_sharing",
]
