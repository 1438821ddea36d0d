"""`load_network`: the one reader of a network from a file, TOML or the `config.json` of a model."""

from __future__ import annotations

from pathlib import Path

from dynagram._toml import parse_toml
from dynagram.data._files import read_bytes
from dynagram.errors import InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks._huggingface import load_config
from dynagram.networks._mlp import MLP
from dynagram.networks._network import network_from_toml

_FACTOR = 40.0  # bytes of Python objects per byte of a file, as it is read
_LARGEST_FILE = 2**24


def load_network(
    path: str | Path,
    *,
    input_size: int | None = None,
    outputs: int = 1,
    name: str = "network",
) -> MLP | Chain:
    """The network that a file describes.

    **Arguments:**

    - `path`: TOML with a `[network]` table, of an `MLP` or a `Chain`, other tables being left to
        others; or the `config.json` of a Hugging Face model, as `load_config` reads it.
    - `input_size`: numbers in a row of inputs, from which the number of tokens of a `config.json`
        follows, as it does not say it. What a TOML file says is not changed.
    - `outputs`: likewise, outputs at a position of a `config.json`.
    - `name`: what an error message calls the file.

    **Returns:** an `MLP` or a `Chain`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "net.toml"
    >>> _ = path.write_text(MLP([2, 8, 1], "relu", C_b=0.0, C_W=2.0).to_toml())
    >>> load_network(path).widths
    (2, 8, 1)
    """
    text = _read_text(path, name)
    if _is_json(text):
        return _from_config(path, input_size, outputs, name)
    try:
        tables = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(name, str(path), f"neither TOML nor JSON: {error}") from error
    if not isinstance(tables.get("network"), dict):
        raise InvalidValueError(name, str(path), "has no [network] table")
    return network_from_toml(text)


def is_config(path: str | Path, name: str = "network") -> bool:
    """Whether a file is JSON, as the `config.json` of a model is, rather than TOML."""
    return _is_json(_read_text(path, name))


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")  # no TOML begins so


def _read_text(path: str | Path, name: str) -> str:
    contents = read_bytes(path, name, _FACTOR)
    if len(contents) > _LARGEST_FILE:
        raise InvalidValueError(name, str(path), "larger than 16 MiB")
    try:
        return contents.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError(name, str(path), "neither TOML nor JSON: not a text") from error


def _from_config(path: str | Path, input_size: int | None, outputs: int, name: str) -> Chain:
    if input_size is None:
        allowed = "a config.json does not say how many tokens there are: write the network as TOML"
        raise InvalidValueError(name, str(path), allowed)
    channels = load_config(path, positions=1).inputs[-1]
    if input_size % channels:
        allowed = f"{input_size} numbers a row do not fill positions of {channels} channels"
        raise InvalidValueError(name, str(path), allowed)
    return load_config(path, positions=input_size // channels, outputs=outputs)
