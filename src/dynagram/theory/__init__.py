"""What the effective theory predicts from a specification alone; nothing here samples.

Here are the entrances that belong to no topic; `criticality`, `training`, `bayes`, `chain`,
`skips`, `statistics`, `information`, `minimal_models`, `fields` and `saddle` have the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.theory._critical_setup import critical_setup as critical_setup
    from dynagram.theory._kernels import frozen_kernels as frozen_kernels
    from dynagram.theory._next_order import next_order as next_order
    from dynagram.theory._predict import predict as predict
    from dynagram.theory._predict_outputs import predict_outputs as predict_outputs

__all__ = ["critical_setup", "frozen_kernels", "next_order", "predict", "predict_outputs"]

__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "critical_setup": "_critical_setup",
        "frozen_kernels": "_kernels",
        "next_order": "_next_order",
        "predict": "_predict",
        "predict_outputs": "_predict_outputs",
    },
)
