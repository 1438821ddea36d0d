"""The weight Gram matrix WᵀW of a layer, what moves it, and what features say about targets."""

from dynagram.observables.gram._agop import agop, feature_ansatz, function_agop
from dynagram.observables.gram._gram import (
    effective_rank,
    feature_learning_residual,
    gram_similarity,
    unfold_features,
    unfold_weights,
    weight_gram,
)
from dynagram.observables.gram._linearity import (
    Linearity,
    TrivialLinearityWarning,
    held_out_linearity,
    one_hot,
    target_linearity,
)
from dynagram.observables.gram._low_rank import LowRankVirtualCovariance
from dynagram.observables.gram._surrogate import target_surrogate
from dynagram.observables.gram._virtual_covariance import (
    GramTracker,
    gram_law,
    stationarity,
    virtual_covariance,
)

__all__ = [
    "GramTracker",
    "Linearity",
    "LowRankVirtualCovariance",
    "TrivialLinearityWarning",
    "agop",
    "effective_rank",
    "feature_ansatz",
    "feature_learning_residual",
    "function_agop",
    "gram_law",
    "gram_similarity",
    "held_out_linearity",
    "one_hot",
    "stationarity",
    "target_linearity",
    "target_surrogate",
    "unfold_features",
    "unfold_weights",
    "virtual_covariance",
    "weight_gram",
]
