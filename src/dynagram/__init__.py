"""dynagram predicts, simulates, measures and shows how deep networks learn, layer by layer."""

from __future__ import annotations

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynagram.activations import Activation as Activation
    from dynagram.activations import Kink as Kink
    from dynagram.activations import activation as activation
    from dynagram.comparison import compare as compare
    from dynagram.config import read_config as read_config
    from dynagram.ensembles.engine import resume_run as resume_run
    from dynagram.ensembles.engine import run_job as run_job
    from dynagram.ensembles.initial import measure_kernels as measure_kernels
    from dynagram.ensembles.residual import measure_residual as measure_residual
    from dynagram.ensembles.runs import open_run as open_run
    from dynagram.ensembles.tangent import measure_tangents as measure_tangents
    from dynagram.ensembles.train import Training as Training
    from dynagram.ensembles.train import train_ensemble as train_ensemble
    from dynagram.errors import DynagramError as DynagramError
    from dynagram.measurement import measure_network as measure_network
    from dynagram.networks import MLP as MLP
    from dynagram.networks import ResidualMLP as ResidualMLP
    from dynagram.observables.field_state import fields as fields
    from dynagram.observables.field_state import fixed_readout as fixed_readout
    from dynagram.observables.linearity import held_out_linearity as held_out_linearity
    from dynagram.observables.linearity import target_linearity as target_linearity
    from dynagram.observables.plateaus import find_plateaus as find_plateaus
    from dynagram.observables.spectra import weight_spectrum as weight_spectrum
    from dynagram.theory.advice import advise as advise
    from dynagram.theory.bayes import exact_posterior as exact_posterior
    from dynagram.theory.bayes import finite_posterior as finite_posterior
    from dynagram.theory.bayes import infinite_posterior as infinite_posterior
    from dynagram.theory.criticality import critical_initialisation as critical_initialisation
    from dynagram.theory.criticality import critical_points as critical_points
    from dynagram.theory.frozen import frozen_kernels as frozen_kernels
    from dynagram.theory.kernels import four_point_vertex as four_point_vertex
    from dynagram.theory.kernels import kernel as kernel
    from dynagram.theory.kernels import metric_correction as metric_correction
    from dynagram.theory.predict import predict as predict
    from dynagram.theory.residual import predict_residual as predict_residual
    from dynagram.theory.saddle.escape import escape_times as escape_times
    from dynagram.theory.saddle.forecast import forecast as forecast
    from dynagram.theory.saddle.symmetric import SymmetricNetwork as SymmetricNetwork
    from dynagram.theory.training.finite import predict_trained as predict_trained
    from dynagram.theory.training.in_time import predict_in_time as predict_in_time
    from dynagram.theory.training.infinite import infinite_training as infinite_training
    from dynagram.weights import load_weights as load_weights

__version__ = _version("dynagram")

# Loaded on first use, so that `import dynagram` costs little and touches no JAX state.
_PUBLIC = {
    "Activation": "activations",
    "activation": "activations",
    "Kink": "activations",
    "compare": "comparison",
    "resume_run": "ensembles.engine",
    "run_job": "ensembles.engine",
    "measure_kernels": "ensembles.initial",
    "measure_residual": "ensembles.residual",
    "open_run": "ensembles.runs",
    "measure_tangents": "ensembles.tangent",
    "train_ensemble": "ensembles.train",
    "Training": "ensembles.train",
    "DynagramError": "errors",
    "measure_network": "measurement",
    "MLP": "networks",
    "ResidualMLP": "networks",
    "fields": "observables.field_state",
    "fixed_readout": "observables.field_state",
    "held_out_linearity": "observables.linearity",
    "target_linearity": "observables.linearity",
    "find_plateaus": "observables.plateaus",
    "weight_spectrum": "observables.spectra",
    "advise": "theory.advice",
    "exact_posterior": "theory.bayes",
    "finite_posterior": "theory.bayes",
    "infinite_posterior": "theory.bayes",
    "critical_initialisation": "theory.criticality",
    "critical_points": "theory.criticality",
    "frozen_kernels": "theory.frozen",
    "four_point_vertex": "theory.kernels",
    "kernel": "theory.kernels",
    "metric_correction": "theory.kernels",
    "predict": "theory.predict",
    "escape_times": "theory.saddle.escape",
    "forecast": "theory.saddle.forecast",
    "SymmetricNetwork": "theory.saddle.symmetric",
    "predict_trained": "theory.training.finite",
    "predict_in_time": "theory.training.in_time",
    "infinite_training": "theory.training.infinite",
    "read_config": "config",
    "predict_residual": "theory.residual",
    "load_weights": "weights",
}
__all__ = [*_PUBLIC, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dynagram' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dynagram.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
