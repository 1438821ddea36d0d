"""Network specifications: the MLP, with or without skips; what they accept, how they are drawn."""

from dynagram.data._data import check_inputs as check_inputs
from dynagram.networks._block_chain import BlockChain as BlockChain
from dynagram.networks._checks import ActivationLike as ActivationLike
from dynagram.networks._checks import PerLayer as PerLayer
from dynagram.networks._checks import Widths as Widths
from dynagram.networks._checks import checked_activation as checked_activation
from dynagram.networks._checks import checked_number as checked_number
from dynagram.networks._checks import checked_real as checked_real
from dynagram.networks._checks import checked_widths as checked_widths
from dynagram.networks._checks import per_layer as per_layer
from dynagram.networks._mlp import MLP as MLP
from dynagram.networks._mlp import Architecture as Architecture
from dynagram.networks._mlp import Layer as Layer
from dynagram.networks._mlp import Params as Params
from dynagram.networks._model import Model as Model
from dynagram.networks._network import Network as Network
from dynagram.networks._network import network_from_toml as network_from_toml
