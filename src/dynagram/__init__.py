"""dynagram predicts, simulates, measures and shows how deep networks learn, layer by layer."""

from __future__ import annotations

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynagram.activations import Activation as Activation
    from dynagram.activations import Kink as Kink
    from dynagram.activations import activation as activation
    from dynagram.config import read_config as read_config
    from dynagram.data import Data as Data
    from dynagram.ensembles._exact_posterior import exact_posterior as exact_posterior
    from dynagram.ensembles._runs import open_run as open_run
    from dynagram.ensembles._runs import resume_run as resume_run
    from dynagram.ensembles._simulate import simulate as simulate
    from dynagram.ensembles._train import train as train
    from dynagram.errors import DynagramError as DynagramError
    from dynagram.networks import MLP as MLP
    from dynagram.networks import Model as Model
    from dynagram.networks._weights import load_weights as load_weights
    from dynagram.observables._measure import measure as measure
    from dynagram.observables._plateaus import find_plateaus as find_plateaus
    from dynagram.observables.fields._state import fields as fields
    from dynagram.observables.fields._state import fixed_readout as fixed_readout
    from dynagram.observables.gram._linearity import held_out_linearity as held_out_linearity
    from dynagram.observables.gram._linearity import target_linearity as target_linearity
    from dynagram.observables.spectra._spectra import weight_spectrum as weight_spectrum
    from dynagram.results._comparison import compare as compare
    from dynagram.theory._advice import advise as advise
    from dynagram.theory._kernels import frozen_kernels as frozen_kernels
    from dynagram.theory._predict import predict as predict
    from dynagram.theory._predict_outputs import predict_outputs as predict_outputs
    from dynagram.theory.criticality import critical_initialisation as critical_initialisation
    from dynagram.theory.criticality import critical_points as critical_points
    from dynagram.theory.saddle._escape import escape_times as escape_times
    from dynagram.theory.saddle._forecast import forecast as forecast
    from dynagram.theory.saddle._symmetric import SymmetricNetwork as SymmetricNetwork

__version__ = _version("dynagram")

# Loaded on first use, so that `import dynagram` costs little and touches no JAX state.
_PUBLIC = {
    "Activation": "activations",
    "activation": "activations",
    "Kink": "activations",
    "compare": "results._comparison",
    "open_run": "ensembles._runs",
    "resume_run": "ensembles._runs",
    "simulate": "ensembles._simulate",
    "train": "ensembles._train",
    "Data": "data",
    "GradientDescent": "training",
    "GradientFlow": "training",
    "Optax": "training",
    "Training": "training",
    "TwoStep": "training",
    "DynagramError": "errors",
    "measure": "observables._measure",
    "MLP": "networks",
    "Model": "networks",
    "fields": "observables.fields._state",
    "fixed_readout": "observables.fields._state",
    "held_out_linearity": "observables.gram._linearity",
    "target_linearity": "observables.gram._linearity",
    "find_plateaus": "observables._plateaus",
    "weight_spectrum": "observables.spectra._spectra",
    "advise": "theory._advice",
    "exact_posterior": "ensembles._exact_posterior",
    "critical_initialisation": "theory.criticality",
    "critical_points": "theory.criticality",
    "frozen_kernels": "theory._kernels",
    "predict": "theory._predict",
    "predict_outputs": "theory._predict_outputs",
    "escape_times": "theory.saddle._escape",
    "forecast": "theory.saddle._forecast",
    "SymmetricNetwork": "theory.saddle._symmetric",
    "read_config": "config",
    "load_weights": "networks._weights",
}
__all__ = [*_PUBLIC, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dynagram' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dynagram.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
