"""Architectures by name or file: what `dynagram critical --arch` and `advise --network` take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks._checks import checked_integer
from dynagram.networks._files import is_config, load_network
from dynagram.networks._huggingface import load_config
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Residual
from dynagram.networks.blocks._linear import Dense
from dynagram.networks.blocks._nonlinear import Activate, RMSNorm

_HEAD_SIZE = 64
_VOCABULARY = 50257
_LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
    "num_attention_heads": 32, "intermediate_size": 11008, "rms_norm_eps": 1e-5,
}  # fmt: skip
_VIT = {
    "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072,
}  # fmt: skip


def _gpt2(width: int, layers: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": width // _HEAD_SIZE,
        "vocab_size": _VOCABULARY,
    }  # fmt: skip


_CONFIGS: dict[str, Mapping[str, Any]] = {
    "gpt2": _gpt2(768, 12), "gpt2-medium": _gpt2(1024, 24), "gpt2-large": _gpt2(1280, 36),
    "gpt2-xl": _gpt2(1600, 48), "llama-7b": _LLAMA, "vit-b": _VIT,
}  # fmt: skip
_SIZE_KEYS = {
    "gpt2": ("n_embd", "n_layer", "n_head"),
    "llama": ("hidden_size", "num_hidden_layers", "num_attention_heads"),
    "vit": ("hidden_size", "num_hidden_layers", "num_attention_heads"),
}


def _transformer(width: int, depth: int, positions: int, **options: Any) -> Chain:
    return Chain.transformer(
        width, depth, _heads(width), positions=positions, vocabulary=_VOCABULARY, outputs=1,
        **options,
    )  # fmt: skip


def _pre_norm(width: int, depth: int, positions: int) -> Chain:
    return _transformer(width, depth, positions)


def _post_norm(width: int, depth: int, positions: int) -> Chain:
    return _transformer(width, depth, positions, place="post")


def _depth_mup(width: int, depth: int, positions: int) -> Chain:
    return _transformer(width, depth, positions, strength=depth**-0.5)


def _residual(width: int, depth: int, positions: int) -> Chain:
    del positions
    branch = [RMSNorm(), Dense(width, C_W=2.0), Activate("relu"), Dense(width)]
    blocks: list[Block] = [Dense(width), *[Residual(branch)] * depth, RMSNorm(), Dense(1)]
    return Chain(blocks, width)


def _convnet(width: int, depth: int, positions: int) -> Chain:
    return Chain.convnet(width, depth, inputs=(positions, 3), outputs=1, activation="relu", C_W=2.0)


_SHAPES: dict[str, Callable[[int, int, int], Chain]] = {
    "pre-norm": _pre_norm, "post-norm": _post_norm, "depth-mup": _depth_mup,
    "residual": _residual, "convnet": _convnet,
}  # fmt: skip
ARCHITECTURES = (*_CONFIGS, *_SHAPES)


def load_architecture(
    source: str | Path,
    *,
    positions: int = 4,
    width: int | None = None,
    depth: int | None = None,
    scaled: bool = True,
) -> Chain:
    """An architecture by name, or the network of blocks of a file.

    **Arguments:**

    - `source`: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-7b, vit-b (as their model classes
        draw them), pre-norm, post-norm, depth-mup (transformers with variances of 1 over fan-in),
        residual (ReLU), convnet (ReLU); or a file that `load_network` reads.
    - `positions`: tokens of the sequence asked about, or positions of the convnet; of a TOML file
        its own.
    - `width`, `depth`: instead of the named ones; heads keep their size. Files have their own.
    - `scaled`: False for the same network without any scaling of its branches with depth.

    **Returns:** a `Chain`.

    >>> load_architecture("gpt2", depth=2, width=128).summary
    'Chain(8 blocks, width 128)'
    >>> load_architecture("depth-mup", depth=4, width=64).blocks[1].strength
    0.5
    """
    positions = checked_integer("tokens", positions, 1)
    name = str(source)
    if width is not None:
        checked_integer("width", width, 1)
    if depth is not None:
        checked_integer("depth", depth, 1, 1000)
    if name in _CONFIGS:
        config = _resized(_CONFIGS[name], width, depth)
        return load_config(config, positions=positions, scaled=None if scaled else False)
    if name in _SHAPES:
        network = _SHAPES[name](width or 512, depth or 12, positions)
        return network if scaled else _unscaled(network)
    if not Path(name).exists():
        allowed = f"no such file; or one of {', '.join(ARCHITECTURES)}"
        raise InvalidValueError("--arch", name, allowed)
    if width is not None or depth is not None:
        raise InvalidValueError("--arch", name, "the file has its own width and depth")
    return _of_file(source, positions, scaled)


def _of_file(source: str | Path, positions: int, scaled: bool) -> Chain:
    if is_config(source, "--arch"):
        return load_config(source, positions=positions, scaled=None if scaled else False)
    network = load_network(source, name="--arch")
    if not isinstance(network, Chain):
        allowed = "an MLP: ask for its activation, `dynagram critical ACTIVATION`"
        raise InvalidTypeError("--arch", str(source), allowed)
    return network if scaled else _unscaled(network)


def _unscaled(network: Chain) -> Chain:
    blocks = [replace(b, strength=1.0) if isinstance(b, Residual) else b for b in network.blocks]
    return Chain(blocks, network.inputs)


def _resized(config: Mapping[str, Any], width: int | None, depth: int | None) -> dict[str, Any]:
    """The configuration with another width and depth, heads and hidden layers in proportion."""
    size, layers, heads = _SIZE_KEYS[config["model_type"]]
    changed = dict(config)
    if depth is not None:
        changed[layers] = depth
    if width is not None:
        per_head = config[size] // config[heads]
        if width % per_head:
            raise InvalidValueError("width", width, f"must be a multiple of {per_head}, a head")
        changed |= {size: width, heads: width // per_head}
        if "intermediate_size" in config:
            changed["intermediate_size"] = config["intermediate_size"] * width // config[size]
    return changed


def _heads(width: int) -> int:
    if width % _HEAD_SIZE:
        raise InvalidValueError("width", width, f"must be a multiple of {_HEAD_SIZE}, a head")
    return width // _HEAD_SIZE
