"""Models that learn features minimally: quadratic models and nearly-kernel methods (chapter 11)."""

from dynagram.theory.minimal_models._cubic import cubic_model as cubic_model
from dynagram.theory.minimal_models._dynamics import Trained as Trained
from dynagram.theory.minimal_models._dynamics import descend as descend
from dynagram.theory.minimal_models._dynamics import flow as flow
from dynagram.theory.minimal_models._first_step import first_step as first_step
from dynagram.theory.minimal_models._nearly_kernel import SOLUTIONS as SOLUTIONS
from dynagram.theory.minimal_models._nearly_kernel import effective_kernel as effective_kernel
from dynagram.theory.minimal_models._nearly_kernel import fit_nearly_kernel as fit_nearly_kernel
from dynagram.theory.minimal_models._nearly_kernel import (
    nearly_kernel_prediction as nearly_kernel_prediction,
)
from dynagram.theory.minimal_models._nearly_kernel import (
    trained_kernel_prediction as trained_kernel_prediction,
)
from dynagram.theory.minimal_models._network import network_model as network_model
from dynagram.theory.minimal_models._network import network_prediction as network_prediction
from dynagram.theory.minimal_models._quadratic import QuadraticModel as QuadraticModel
from dynagram.theory.minimal_models._quadratic import trained_weights as trained_weights
