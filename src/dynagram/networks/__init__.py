"""Network specifications: the MLP and the residual MLP; what they accept, how they are drawn."""

from dynagram.networks.checks import ActivationLike as ActivationLike
from dynagram.networks.checks import PerLayer as PerLayer
from dynagram.networks.checks import Widths as Widths
from dynagram.networks.checks import check_inputs as check_inputs
from dynagram.networks.checks import checked_activation as checked_activation
from dynagram.networks.checks import checked_number as checked_number
from dynagram.networks.checks import checked_real as checked_real
from dynagram.networks.checks import checked_widths as checked_widths
from dynagram.networks.checks import per_layer as per_layer
from dynagram.networks.mlp import MLP as MLP
from dynagram.networks.mlp import Layer as Layer
from dynagram.networks.mlp import Params as Params
from dynagram.networks.residual import BlockChain as BlockChain
from dynagram.networks.residual import ResidualMLP as ResidualMLP
