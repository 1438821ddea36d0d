"""Advice in words, and as code to paste: initialisation and learning rates of every layer."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from dynagram.theory._advice import Advice

_COLUMNS = 88
_MEAN_LOSS = {
    "mean": "the mean of (z - y)**2, as torch.nn.MSELoss",
    "cross-entropy": "the mean cross-entropy, as torch.nn.CrossEntropyLoss",
}


def per_layer_text(values: Sequence[float]) -> str:
    """One value per layer for people: runs of equal ones in one piece, many different shortened.

    >>> per_layer_text((2.0, 2.0, 2.0)), per_layer_text((1.5, 2.0, 2.0))
    ('2', '1.5, 2 × 2')
    >>> per_layer_text([1 / layer for layer in range(1, 9)])
    '1, …, 0.125'
    """
    runs = _runs([f"{value:.4g}" for value in values])
    if len(runs) == 1:
        return runs[0][0]
    pieces = [text if count == 1 else f"{text} × {count}" for text, count in runs]
    return ", ".join([pieces[0], "…", pieces[-1]] if len(pieces) > 2 else pieces)


def in_words(advice: Advice) -> str:
    """What the numbers of the table mean for someone about to train.

    >>> from dynagram.theory._advice import advise
    >>> in_words(advise("relu", width=512, depth=10))[:52]
    'Draw the weights with variance C_W/fan_in and start '
    """
    bias = "start the biases at zero" if not any(advice.network.C_b) else "the biases with C_b"
    step, limit = advice.number("step"), advice.number("largest_step")
    factor = advice.number("pytorch_factor")
    text = (
        f"Draw the weights with variance C_W/fan_in and {bias}. Step the biases with η λ_b and the "
        "weights with η λ_W/fan_in, so that every layer has its share in learning. For the loss "
        f"summed over samples gradient descent is stable below η = {limit:.4g}; take {step:.4g}, "
        f"which is {step * factor:.4g} for PyTorch's mean. This network is {advice.sweet_spot}. "
        f"Between draws the tangent kernel differs by {advice.number('ntk_fluctuation'):.2g} of "
        "itself"
    )
    names = [statement.name for statement in advice.statements]
    if "kernel_change" in names:
        text += f", and training changes it by about {advice.number('kernel_change'):.2g}"
    return text + "."


def pytorch_recipe(advice: Advice) -> str:
    """Initialises the `torch.nn.Linear` layers of `model` and makes their parameter groups."""
    return "\n".join(
        [
            "import torch",
            "",
            *_numbers(advice),
            "layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]",
            f"assert len(layers) == {advice.network.depth}",
            "groups = []",
            "for layer, cb, cw, lb, lw in zip(layers, C_b, C_W, lambda_b, lambda_W):",
            "    torch.nn.init.normal_(layer.weight, std=(cw / layer.in_features) ** 0.5)",
            "    torch.nn.init.normal_(layer.bias, std=cb**0.5)",
            '    groups.append({"params": [layer.weight], "lr": eta * lw / layer.in_features})',
            '    groups.append({"params": [layer.bias], "lr": eta * lb})',
            "optimizer = torch.optim.SGD(groups)",
        ]
    )


def optax_recipe(advice: Advice) -> str:
    """`init(key, widths)` makes the parameters, `optimizer` steps each with its own rate."""
    return "\n".join(
        [
            "import jax",
            "import optax",
            "",
            *_numbers(advice),
            "",
            "",
            "def init(key, widths):  # widths = (n_0, ..., n_L)",
            "    params = []",
            "    for n, m, cb, cw in zip(widths, widths[1:], C_b, C_W):",
            "        key, for_W, for_b = jax.random.split(key, 3)",
            "        W = (cw / n) ** 0.5 * jax.random.normal(for_W, (n, m))",
            "        params.append((W, cb**0.5 * jax.random.normal(for_b, (m,))))",
            "    return params",
            "",
            "",
            "def scaled(grads, params=None):",
            "    rates = zip(grads, lambda_W, lambda_b)",
            "    return [(-eta * lw / W.shape[0] * W, -eta * lb * b) for (W, b), lw, lb in rates]",
            "",
            "",
            "optimizer = optax.stateless(scaled)",
        ]
    )


def _numbers(advice: Advice) -> list[str]:
    """η for a mean loss and the four lists, one entry per layer."""
    network = advice.network
    eta = advice.number("step") * advice.number("pytorch_factor")
    lines = [f"eta = {eta:.6g}  # for {_MEAN_LOSS[advice.loss]}"]
    for name in ("C_b", "C_W", "lambda_b", "lambda_W"):
        lines += _list(name, getattr(network, name))
    return lines


def _list(name: str, values: Sequence[float]) -> list[str]:
    """`name = [...]`, with runs of equal values multiplied and long lists wrapped."""
    runs = _runs([f"{value:.10g}" for value in values])
    if len(runs) <= 3:
        return [f"{name} = " + " + ".join(f"[{text}] * {count}" for text, count in runs)]
    body = ", ".join(f"{value:.10g}" for value in values)
    inside = textwrap.wrap(body, _COLUMNS, initial_indent="    ", subsequent_indent="    ")
    return [f"{name} = [", *inside, "]"]


def _runs(texts: Sequence[str]) -> list[tuple[str, int]]:
    return [(text, len(list(group))) for text, group in itertools.groupby(texts)]
