"""Gradient descent as a dynamics of fields: its laws, and simulations that use no weights.

Equation numbers are those of Nordio, arXiv:2606.09744v3. The loss is (1/M) Σ_α (Ŷ^α − Y^α)² (11).
"""

from dynagram.theory.fields._anchored import AnchoredRun as AnchoredRun
from dynagram.theory.fields._anchored import anchored_run as anchored_run
from dynagram.theory.fields._descent import Descent as Descent
from dynagram.theory.fields._descent import descend as descend
from dynagram.theory.fields._laws import activation_updates as activation_updates
from dynagram.theory.fields._laws import conjugate_updates as conjugate_updates
from dynagram.theory.fields._laws import local_updates as local_updates
from dynagram.theory.fields._laws import loss_gradient as loss_gradient
from dynagram.theory.fields._laws import output_update as output_update
from dynagram.theory.fields._one_layer import FieldRun as FieldRun
from dynagram.theory.fields._one_layer import simulate_one_layer as simulate_one_layer
