"""Information in networks (Appendix A, Epilogue): entropies, shared information, depth and width.

Start with `optimal_aspect_ratio` for depth against width, `mutual_information` and `ScaleMixture`
for neurons at finite width, `gaussian_information` for inputs at infinite width.
"""

from dynagram.theory.information._aspect import AspectRatio as AspectRatio
from dynagram.theory.information._aspect import optimal_aspect_ratio as optimal_aspect_ratio
from dynagram.theory.information._aspect import optimal_skip as optimal_skip
from dynagram.theory.information._aspect import optimal_variance as optimal_variance
from dynagram.theory.information._aspect import residual_information as residual_information
from dynagram.theory.information._aspect import truncated_information as truncated_information
from dynagram.theory.information._complexity import complexity_count as complexity_count
from dynagram.theory.information._definitions import cross_entropy as cross_entropy
from dynagram.theory.information._definitions import relative_entropy as relative_entropy
from dynagram.theory.information._definitions import shannon_entropy as shannon_entropy
from dynagram.theory.information._definitions import shared_entropy as shared_entropy
from dynagram.theory.information._finite import entropy as entropy
from dynagram.theory.information._finite import mutual_information as mutual_information
from dynagram.theory.information._finite import relative_variance as relative_variance
from dynagram.theory.information._finite import running_couplings as running_couplings
from dynagram.theory.information._finite import several_inputs_entropy as several_inputs_entropy
from dynagram.theory.information._finite import (
    several_inputs_information as several_inputs_information,
)
from dynagram.theory.information._finite import tripartite_information as tripartite_information
from dynagram.theory.information._gaussian import equal_norm_information as equal_norm_information
from dynagram.theory.information._gaussian import gaussian_entropy as gaussian_entropy
from dynagram.theory.information._gaussian import gaussian_information as gaussian_information
from dynagram.theory.information._gaussian import trained_information as trained_information
from dynagram.theory.information._mixture import ScaleMixture as ScaleMixture
from dynagram.theory.information._mixture import sampled_information as sampled_information
