"""`Model.of`: a live model as a `Model` of ours, or a line that says why it is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._live import batch_of, is_torch, read_live
from dynagram.live._recognition import Recognised
from dynagram.networks import Model, as_residual_mlp
from dynagram.networks.blocks import Dense, Residual

_TOKENS = 4


def model_of(model: Any, x: Any = None, *, params: Any = None) -> Model:
    """See `Model.of`."""
    batch = default_batch(model, name="x") if x is None else batch_of(x)
    live = read_live(model, batch, params=params)
    if live.recognised is None:
        allowed = (
            f"is no network of ours: {live.reason}; dynagram.check(model, x) measures it all the "
            "same"
        )
        raise InvalidTypeError("model", type(model).__name__, allowed)
    notes = list(live.recognised.notes)
    if live.unused:
        notes.append(f"the output does not depend on {', '.join(live.unused)}")
    return _as_model(live.recognised, tuple(notes))


def _as_model(read: Recognised, notes: tuple[str, ...]) -> Model:
    names = tuple(dict.fromkeys(w.name for w in read.weights if w.values.ndim > 1))
    mlp = as_residual_mlp(read.network)
    if mlp is None:
        return Model(read.network, read.params, names, notes)  # pyright: ignore[reportArgumentType]
    layers = []
    for block, params in zip(read.network.blocks, read.params, strict=True):
        if isinstance(block, Dense):
            layers.append(params)
        elif isinstance(block, Residual):
            layers.append(params[0][1])
    return Model.of_matrices(
        [np.ascontiguousarray(layer["W"][0]) for layer in layers],
        mlp.activation,
        biases=[layer.get("b") for layer in layers],
        skip=mlp.skip or 0.0,
        names=names,
        notes=notes,
    )


def default_batch(model: Any, *, samples: int = 4, seed: int = 0, name: str = "--data") -> Any:
    """Inputs of the size that the first layer of a PyTorch module says; else they are needed."""
    if is_torch(model):
        import torch
        from torch import nn

        generator = torch.Generator().manual_seed(seed)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                x = torch.randn(samples, module.in_features, generator=generator)
                return x.to(module.weight.dtype)
            if isinstance(module, nn.Embedding):
                size = (max(samples // _TOKENS, 2), _TOKENS)
                return torch.randint(module.num_embeddings, size, generator=generator)
            if isinstance(module, nn.modules.conv._ConvNd):
                break
    raise InvalidValueError(name, None, "a batch is needed to trace this model")
