"""How networks learn: training by an algorithm on a loss, or Bayesian inference; one meaning each.

Theory and ensembles read the same `Training`. An algorithm is an object with its own numbers:
`GradientDescent(eta)`, its limit of small steps `GradientFlow()`, the two leaps `TwoStep()` of
(∞.71), (∞.77), and `Optax(rule, eta)` for any other update. Every algorithm moves θ_μ by η λ_μ
times its direction, with the network's learning-rate tensor: λ_b for biases and λ_W/n_{ℓ-1} for
weights (8.6). Time is τ = η·steps.
"""

from dynagram.training._algorithms import GradientDescent as GradientDescent
from dynagram.training._algorithms import GradientFlow as GradientFlow
from dynagram.training._algorithms import Optax as Optax
from dynagram.training._algorithms import TwoStep as TwoStep
from dynagram.training._losses import LOSSES as LOSSES
from dynagram.training._losses import loss_gradient as loss_gradient
from dynagram.training._losses import loss_value as loss_value
from dynagram.training._posterior import Posterior as Posterior
from dynagram.training._training import Training as Training

__all__ = [
    "LOSSES",
    "GradientDescent",
    "GradientFlow",
    "Optax",
    "Posterior",
    "Training",
    "TwoStep",
    "loss_gradient",
    "loss_value",
]
