"""Networks from the `config.json` of Hugging Face models: GPT-2, Llama, ViT as they are drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynagram.data._files import check_file, read_bytes
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks._checks import checked_integer, checked_number
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Embedding, Residual
from dynagram.networks.blocks._linear import Dense, Select
from dynagram.networks.blocks._nonlinear import Activate, Gated, LayerNorm, RMSNorm

_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
                "silu": "silu", "swish": "silu", "relu": "relu"}  # fmt: skip
_LARGEST_FILE = 2**20
# The largest whole numbers by key: layers are written out one by one.
_SIZES: dict[str, int] = dict.fromkeys(("n_layer", "num_hidden_layers"), 10_000)
_SIZES |= dict.fromkeys(("n_head", "num_attention_heads", "num_key_value_heads"), 2**20)
_SIZES |= dict.fromkeys(
    ("n_embd", "n_inner", "hidden_size", "intermediate_size", "head_dim", "vocab_size",
     "patch_size", "num_channels"), 2**31 - 1,
)  # fmt: skip
_MAY_BE_NULL = ("n_inner", "head_dim", "num_key_value_heads")
_NUMBERS = (
    "initializer_range", "layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "rope_theta",
)  # fmt: skip

# Models that are no chains of Gram matrices, and why.
_REFUSED = {
    "albert": "its layers share their weights, so that the signal remembers them: no theory here",
    "resnet": "batch norms and activations act on the stream, single channels of which the Gram "
    "matrix does not know: no theory here",
    "convnext": "its depthwise convolutions act on single channels: no theory here",
    "mamba": "its recurrences act on single channels: no theory here",
}


def load_config(
    path: str | Path | Mapping[str, Any],
    *,
    positions: int,
    outputs: int = 1,
    scaled: bool | None = None,
) -> Chain:
    """The network that a `config.json` describes, as its model class initialises it.

    Weights have the standard deviation `initializer_range`. The output matrices of GPT-2's
    branches are divided by √(2·layers), as its code means to do; `scaled` says otherwise. The
    readout is a matrix of its own. Where the released model ties it to the embedding, its outputs
    are those of tokens that no input holds, of which nothing is left out: their rows of the table
    are read nowhere else (D10, "A tied readout").

    **Arguments:**

    - `path`: the file, or its contents as a mapping. Known: model_type gpt2, llama, vit.
    - `positions`: the length of the sequences asked about.
    - `outputs`: outputs at the last position (for ViT: at the first).
    - `scaled`: whether output matrices of branches are scaled with depth; by default as the
        model class means to.

    **Returns:** a `Chain`.

    >>> config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 50}
    >>> net = load_config(config, positions=6)
    >>> net.depth, net.width
    (14, 64)
    """
    config = _checked(_read(path))
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _REFUSED:
        raise InvalidValueError("model_type of config.json", kind, _REFUSED[kind])
    if not isinstance(kind, str) or kind not in _READERS:
        allowed = f"expected one of {', '.join(_READERS)}"
        raise InvalidValueError("model_type of config.json", kind, allowed)
    try:
        return _READERS[kind](config, positions, outputs, scaled)
    except KeyError as error:
        raise InvalidValueError("config.json", str(error), "this key is missing") from error
    except OverflowError as error:
        raise InvalidValueError("config.json", kind, "its numbers are too large") from error


def _read(path: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(path, Mapping):
        return path
    check_file(path, "config.json", 2)
    if Path(path).stat().st_size > _LARGEST_FILE:
        raise InvalidValueError("config.json", str(path), "larger than 1 MiB")
    text = read_bytes(path, "config.json")
    try:
        config = json.loads(text, object_pairs_hook=_without_repeats)
    except InvalidValueError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidValueError("config.json", str(path), f"is not JSON: {error}") from error
    if not isinstance(config, Mapping):
        raise InvalidTypeError("config.json", type(config).__name__, "expected a JSON object")
    return config


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose readers do not agree on which of two values of a key counts."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidValueError("config.json", twice, "this key stands there twice")
    return made


def _head_size(width: int, heads: int) -> int:
    if width % heads:
        raise InvalidValueError("number of heads", heads, f"must divide the width {width}")
    return width // heads


def _checked(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The numbers that are read, which must be numbers, and of a size that a network may have."""
    for key, value in config.items():
        if value is None and key in _MAY_BE_NULL:
            continue
        if key in _SIZES:
            checked_integer(key, value, 1, _SIZES[key])
        elif key in _NUMBERS:
            checked_number(key, value, "must be ≥ 0")
    return config


def _activation(config: Mapping[str, Any], key: str, default: str) -> str:
    name = config.get(key, default)
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise InvalidValueError(key, name, f"expected one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _gpt2(config: Mapping[str, Any], positions: int, outputs: int, scaled: bool | None) -> Chain:
    n, layers, heads = config["n_embd"], config["n_layer"], config["n_head"]
    std, hidden = config.get("initializer_range", 0.02), config.get("n_inner") or 4 * n
    norm = LayerNorm(config.get("layer_norm_epsilon", 1e-5))
    shrink = 1.0 if scaled is False else 1.0 / (2 * layers)
    blocks: list[Block] = [
        Embedding(config["vocab_size"], n, C_token=std**2, C_position=std**2, lambda_position=1.0)
    ]
    attention = Attention(
        heads, _head_size(n, heads), causal=True, C_q=std**2 * n, C_k=std**2 * n, C_v=std**2 * n,
        C_O=std**2 * n * shrink,
    )  # fmt: skip
    act = Activate(_activation(config, "activation_function", "gelu_new"))
    for _ in range(layers):
        blocks.append(Residual([norm, attention]))
        mlp = [norm, Dense(hidden, C_W=std**2 * n), act, Dense(n, C_W=std**2 * hidden * shrink)]
        blocks.append(Residual(mlp))
    blocks += [norm, Select(-1), Dense(outputs, C_W=std**2 * n)]
    return Chain(blocks, (positions, 1))


def _llama(config: Mapping[str, Any], positions: int, outputs: int, scaled: bool | None) -> Chain:
    n, layers, heads = (
        config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    )  # fmt: skip
    std, hidden = config.get("initializer_range", 0.02), config["intermediate_size"]
    norm, size = (
        RMSNorm(config.get("rms_norm_eps", 1e-6)),
        config.get("head_dim") or _head_size(n, heads),
    )
    shrink = 1.0 / (2 * layers) if scaled else 1.0
    blocks: list[Block] = [Embedding(config["vocab_size"], n, C_token=std**2)]
    attention = Attention(
        heads, size, causal=True, groups=config.get("num_key_value_heads"),
        rope=float(config.get("rope_theta", 10000.0)), C_q=std**2 * n, C_k=std**2 * n,
        C_v=std**2 * n, C_O=std**2 * heads * size * shrink,
    )  # fmt: skip
    gated = Gated(
        hidden, _activation(config, "hidden_act", "silu"), C_W=std**2 * n, C_gate=std**2 * n
    )
    for _ in range(layers):
        blocks.append(Residual([norm, attention]))
        blocks.append(Residual([norm, gated, Dense(n, C_W=std**2 * hidden * shrink)]))
    blocks += [norm, Select(-1), Dense(outputs, C_W=std**2 * n)]
    return Chain(blocks, (positions, 1))


def _vit(config: Mapping[str, Any], positions: int, outputs: int, scaled: bool | None) -> Chain:
    n, layers, heads = (
        config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    )  # fmt: skip
    std, hidden = config.get("initializer_range", 0.02), config["intermediate_size"]
    patch = config.get("patch_size", 16) ** 2 * config.get("num_channels", 3)
    norm = LayerNorm(config.get("layer_norm_eps", 1e-12))
    shrink = 1.0 / (2 * layers) if scaled else 1.0
    blocks: list[Block] = [Dense(n, C_W=std**2 * patch)]
    attention = Attention(
        heads,
        _head_size(n, heads),
        C_q=std**2 * n,
        C_k=std**2 * n,
        C_v=std**2 * n,
        C_O=std**2 * n * shrink,
    )
    act = Activate(_activation(config, "hidden_act", "gelu"))
    for _ in range(layers):
        blocks.append(Residual([norm, attention]))
        mlp = [norm, Dense(hidden, C_W=std**2 * n), act, Dense(n, C_W=std**2 * hidden * shrink)]
        blocks.append(Residual(mlp))
    blocks += [norm, Select(0), Dense(outputs, C_W=std**2 * n)]
    return Chain(blocks, (positions, patch))


_READERS = {"gpt2": _gpt2, "llama": _llama, "vit": _vit}
