"""Networks that learn: step sizes, any loss at infinite width, batches, test loss, interpolation.

What trained networks output is `dynagram.predict_outputs` with a `Training`.
"""

from dynagram.theory.training._any_loss import kernel_descent as kernel_descent
from dynagram.theory.training._any_loss import kernel_flow as kernel_flow
from dynagram.theory.training._generalisation import (
    expected_cross_entropy as expected_cross_entropy,
)
from dynagram.theory.training._generalisation import expected_loss as expected_loss
from dynagram.theory.training._generalisation import split_loss as split_loss
from dynagram.theory.training._interpolation import interpolate as interpolate
from dynagram.theory.training._interpolation import robustness as robustness
from dynagram.theory.training._newton import newton_step as newton_step
from dynagram.theory.training._newton import newton_tensor as newton_tensor
from dynagram.theory.training._rates import bayesian_rates as bayesian_rates
from dynagram.theory.training._rates import retuned_rates as retuned_rates
from dynagram.theory.training._sgd import stochastic_moments as stochastic_moments
from dynagram.theory.training._step_sizes import step_sizes as step_sizes

__all__ = [
    "bayesian_rates",
    "expected_cross_entropy",
    "expected_loss",
    "interpolate",
    "kernel_descent",
    "kernel_flow",
    "newton_step",
    "newton_tensor",
    "retuned_rates",
    "robustness",
    "split_loss",
    "step_sizes",
    "stochastic_moments",
]
