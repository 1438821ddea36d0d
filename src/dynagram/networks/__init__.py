"""Network specifications: the MLP, with or without skips; what they accept, how they are drawn."""

from dynagram.data._data import check_inputs as check_inputs
from dynagram.networks._architectures import load_architecture as load_architecture
from dynagram.networks._block_chain import BlockChain as BlockChain
from dynagram.networks._chain import Chain as Chain
from dynagram.networks._checks import ActivationLike as ActivationLike
from dynagram.networks._checks import PerLayer as PerLayer
from dynagram.networks._checks import Widths as Widths
from dynagram.networks._checks import checked_activation as checked_activation
from dynagram.networks._checks import checked_number as checked_number
from dynagram.networks._checks import checked_real as checked_real
from dynagram.networks._checks import checked_widths as checked_widths
from dynagram.networks._checks import per_layer as per_layer
from dynagram.networks._files import load_network as load_network
from dynagram.networks._huggingface import load_config as load_config
from dynagram.networks._layers import Architecture as Architecture
from dynagram.networks._layers import Layer as Layer
from dynagram.networks._layers import Params as Params
from dynagram.networks._mlp import MLP as MLP
from dynagram.networks._model import Model as Model
from dynagram.networks._network import Network as Network
from dynagram.networks._parametrisations import NTKParametrisation as NTKParametrisation
from dynagram.networks._parametrisations import StandardParametrisation as StandardParametrisation
from dynagram.networks._parametrisations import from_ntk as from_ntk
from dynagram.networks._parametrisations import from_standard as from_standard
from dynagram.networks._parametrisations import maximal_update as maximal_update
from dynagram.networks._parametrisations import (
    mean_squared_error_factor as mean_squared_error_factor,
)
from dynagram.networks._parametrisations import to_ntk as to_ntk
from dynagram.networks._parametrisations import to_standard as to_standard
from dynagram.networks._residual_form import as_residual_mlp as as_residual_mlp
from dynagram.networks._weights import load_weights as load_weights

__all__ = [
    "MLP",
    "Architecture",
    "BlockChain",
    "Chain",
    "Layer",
    "Model",
    "NTKParametrisation",
    "Network",
    "StandardParametrisation",
    "as_residual_mlp",
    "from_ntk",
    "from_standard",
    "load_architecture",
    "load_config",
    "load_network",
    "load_weights",
    "maximal_update",
    "mean_squared_error_factor",
    "to_ntk",
    "to_standard",
]
