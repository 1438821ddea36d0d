"""dynagram predicts, simulates, measures and shows how deep networks learn, layer by layer."""

from __future__ import annotations

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram._trust import trust as trust
    from dynagram.activations import activation as activation
    from dynagram.advice import advise as advise
    from dynagram.data import Data as Data
    from dynagram.ensembles._runs import open_run as open_run
    from dynagram.ensembles._simulate import simulate as simulate
    from dynagram.ensembles._train import train as train
    from dynagram.errors import DynagramError as DynagramError
    from dynagram.networks import MLP as MLP
    from dynagram.networks import Model as Model
    from dynagram.networks import load_weights as load_weights
    from dynagram.observables._measure import measure as measure
    from dynagram.results import compare as compare
    from dynagram.results import load as load
    from dynagram.theory._predict import predict as predict
    from dynagram.theory._predict_outputs import predict_outputs as predict_outputs
    from dynagram.theory.criticality import critical_points as critical_points
    from dynagram.theory.saddle._forecast import forecast as forecast
    from dynagram.training import GradientDescent as GradientDescent
    from dynagram.training import GradientFlow as GradientFlow
    from dynagram.training import Optax as Optax
    from dynagram.training import Posterior as Posterior
    from dynagram.training import Training as Training
    from dynagram.training import TwoStep as TwoStep

__version__ = _version("dynagram")

__all__ = [
    "MLP",
    "Data",
    "DynagramError",
    "GradientDescent",
    "GradientFlow",
    "Model",
    "Optax",
    "Posterior",
    "Training",
    "TwoStep",
    "__version__",
    "activation",
    "advise",
    "compare",
    "critical_points",
    "forecast",
    "load",
    "load_weights",
    "measure",
    "open_run",
    "predict",
    "predict_outputs",
    "simulate",
    "train",
    "trust",
]

# Loaded on first use, so that `import dynagram` costs little and touches no JAX state.
__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "Data": "data",
        "DynagramError": "errors",
        "GradientDescent": "training",
        "GradientFlow": "training",
        "MLP": "networks",
        "Model": "networks",
        "Optax": "training",
        "Posterior": "training",
        "Training": "training",
        "TwoStep": "training",
        "activation": "activations",
        "advise": "advice",
        "compare": "results",
        "critical_points": "theory.criticality",
        "forecast": "theory.saddle._forecast",
        "load": "results",
        "load_weights": "networks",
        "measure": "observables._measure",
        "open_run": "ensembles._runs",
        "predict": "theory._predict",
        "predict_outputs": "theory._predict_outputs",
        "simulate": "ensembles._simulate",
        "train": "ensembles._train",
        "trust": "_trust",
    },
)
