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
    from dynagram.ensembles.initial import measure_kernels as measure_kernels
    from dynagram.ensembles.tangent import measure_tangents as measure_tangents
    from dynagram.errors import DynagramError as DynagramError
    from dynagram.networks import MLP as MLP
    from dynagram.theory.advice import advise as advise
    from dynagram.theory.criticality import critical_initialisation as critical_initialisation
    from dynagram.theory.criticality import critical_points as critical_points
    from dynagram.theory.frozen import frozen_kernels as frozen_kernels
    from dynagram.theory.kernels import four_point_vertex as four_point_vertex
    from dynagram.theory.kernels import kernel as kernel
    from dynagram.theory.kernels import metric_correction as metric_correction
    from dynagram.theory.predict import predict as predict

__version__ = _version("dynagram")

# Loaded on first use, so that `import dynagram` costs little and touches no JAX state.
_PUBLIC = {
    "Activation": "activations",
    "Kink": "activations",
    "activation": "activations",
    "compare": "comparison",
    "measure_kernels": "ensembles.initial",
    "measure_tangents": "ensembles.tangent",
    "DynagramError": "errors",
    "MLP": "networks",
    "advise": "theory.advice",
    "critical_initialisation": "theory.criticality",
    "critical_points": "theory.criticality",
    "frozen_kernels": "theory.frozen",
    "four_point_vertex": "theory.kernels",
    "kernel": "theory.kernels",
    "metric_correction": "theory.kernels",
    "predict": "theory.predict",
}
__all__ = [*_PUBLIC, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dynagram' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dynagram.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
