"""Advice as code to paste: what sets up a model and makes its optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dynagram.advice import Advice

_TORCH_LOSS = {
    "mean": "torch.nn.MSELoss()",
    "cross-entropy": "torch.nn.CrossEntropyLoss()",
    "logistic": "torch.nn.SoftMarginLoss()",
    "half-sum": "lambda z, y: 0.5 * ((z - y) ** 2).sum()",
}
_TORCH = {
    "sgd": "SGD(groups)",
    "momentum": "SGD(groups, momentum=0.9)",
    "adam": "Adam(groups)",
    "adamw": "AdamW(groups)",
}
_OPTAX = {
    "sgd": "by_layer",
    "momentum": "optax.chain(optax.trace(0.9), by_layer)",
    "adam": "optax.chain(optax.scale_by_adam(), by_layer)",
    "adamw": "optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(0.01), by_layer)",
}


def per_layer_text(values: Sequence[float]) -> str:
    """One value per layer for people: runs of equal ones in one piece, many different shortened.

    >>> per_layer_text((2.0, 2.0, 2.0)), per_layer_text((1.5, 2.0, 2.0))
    ('2', '1.5, 2 × 2')
    >>> per_layer_text([1 / layer for layer in range(1, 9)])
    '1, …, 0.125'
    """
    texts = [f"{value:.4g}" for value in values]
    runs = [(text, len(list(group))) for text, group in itertools.groupby(texts)]
    if len(runs) == 1:
        return runs[0][0]
    pieces = [text if count == 1 else f"{text} × {count}" for text, count in runs]
    return ", ".join([pieces[0], "…", pieces[-1]] if len(pieces) > 2 else pieces)


def pytorch_recipe(advice: Advice, batch: int | None = None) -> str:
    """Lines that set up `model` on the tensors x, y and make its optimizer."""
    loss = _TORCH_LOSS.get(advice.rates.loss, "loss")
    options = [f'optimizer="{advice.rates.optimizer}"']
    if advice.model.network.has_skips:
        options.append("residual=True")
    if batch is not None:
        options.append(f"batch={batch}")
    residual = ", residual=True" if advice.model.network.has_skips else ""
    return "\n".join(
        [
            "import torch",
            "from dynagram.integrations.torch import init_, param_groups",
            "",
            f"init_(model, x{residual})",
            f"groups = param_groups(model, x, y, {loss}, {', '.join(options)})",
            f"optimizer = torch.optim.{_TORCH[advice.rates.optimizer]}",
        ]
    )


def optax_recipe(advice: Advice, batch: int | None = None) -> str:
    """Lines that set up parameters on the arrays x, y and make their optimizer."""
    network, rates = advice.model.network, advice.rates
    widths = ", ".join(
        text if count == 1 else f"*[{text}] * {count}"
        for text, count in (
            (text, len(list(group))) for text, group in itertools.groupby(map(str, network.widths))
        )
    )
    skip = ", skip=1.0" if network.has_skips else ""
    more = "" if batch is None else f", batch={batch}"
    lines = [
        "import jax",
        "import optax",
        "from dynagram import Data",
        "from dynagram.advice import advise_rates, initialise",
        "from dynagram.networks import Architecture",
        "",
        f'network = Architecture([{widths}], "{network.activation.name}"{skip})',
        "model = initialise(network, x)  # model(x), model.params",
        f'rates = advise_rates(model, Data(x, y), loss="{rates.loss}", '
        f'optimizer="{rates.optimizer}"{more}).tree',
        "by_layer = optax.stateless(lambda grads, params=None: jax.tree.map(",
        "    lambda grad, rate: -rate * grad, grads, rates))",
    ]
    return "\n".join([*lines, f"optimizer = {_OPTAX[rates.optimizer]}"])
