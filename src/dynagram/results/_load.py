"""Reading saved results back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dynagram._toml import read_toml
from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Layer
from dynagram.networks._network import network_from_toml
from dynagram.results._estimate import Estimate
from dynagram.results._failure import FailedMember
from dynagram.results._files import read_archive
from dynagram.results._outputs import Outputs
from dynagram.results._tensors import Tensors, read_regime
from dynagram.training import Posterior, Training

_GROUPS = (
    "parts_of_mean", "parts_of_covariance", "recorded", "parameters", "estimates", "errors",
)  # fmt: skip


def load(path: str | Path) -> Tensors | Outputs:
    """What `save` of a result wrote.

    **Arguments:**

    - `path`: a .npz file.

    **Returns:** `Tensors` or `Outputs`; nothing is unpickled. Code that the file names, such as an
    activation "module:function", is imported only if you named it: see `dynagram.trust`.

    >>> import tempfile
    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 8, 1], "linear", C_b=0.0, C_W=1.0)
    >>> T = Tensors(net, np.ones((1, 2)), "∞", {"K": np.ones((2, 1, 1))}, {}, {"K": (1, 2)}, None)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load(T.save(f"{folder}/t.npz"))["K"].ravel()
    array([1., 1.])
    """
    kind, arrays, about = read_archive(path)
    if kind == Tensors.kind:
        return Tensors.from_arrays(arrays, about, path)
    if kind == Outputs.kind:
        return _read_outputs(arrays, about, path)
    raise InvalidValueError("file", str(path), f"holds {kind!r}, expected tensors or outputs")


def _read_outputs(
    arrays: Mapping[str, np.ndarray], about: Mapping[str, Any], path: str | Path
) -> Outputs:
    try:
        text = about["how"]
        how = (Posterior if text.startswith("[posterior]") else Training).from_toml(text)
        regime = about["regime"]
        grouped = {
            group: {
                name.partition("/")[2]: array
                for name, array in arrays.items()
                if name.startswith(f"{group}/")
            }
            for group in _GROUPS
        }
        layers = grouped.pop("parameters")
        numbers = range(1, len(layers) // 2 + 1)
        errors, counts = grouped.pop("errors"), about["counts"]
        values = grouped.pop("estimates")
        estimates = {n: Estimate(v, errors[n], int(counts[n])) for n, v in values.items()}
        fields = {item.name for item in dataclasses.fields(Outputs)} - {"times"}
        single: dict[str, Any] = {name: a for name, a in arrays.items() if name in fields}
        return Outputs(
            network=_read_network(about["network"]),
            how=how,
            order=about["order"],
            times=tuple(float(time) for time in arrays["times"]),
            training_samples=int(about["training_samples"]),
            regime=None if regime is None else read_regime(about["order"], regime),
            regimes={
                shown: tuple(read_regime(about["order"], one) for one in regimes)
                for shown, regimes in about.get("regimes", {}).items()
            },
            members=about["members"],
            seed=about["seed"],
            about=about["about"],
            failures=tuple(FailedMember(**entry) for entry in about["failures"]),
            parameters=tuple(Layer(layers[f"b{n}"], layers[f"W{n}"]) for n in numbers) or None,  # pyright: ignore
            shown=about["shown"],
            notes=tuple(about["notes"]),
            estimates=estimates,
            **grouped,
            **single,
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"not a result saved by dynagram: {error}"
        raise InvalidValueError("file", str(path), message) from error


def _read_network(text: str) -> Architecture:
    """The specification of a network, or the architecture of weights that were given."""
    given = read_toml(text)["network"].get("kind") == "architecture"
    return Architecture.from_toml(text) if given else network_from_toml(text)
