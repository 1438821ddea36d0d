"""`Outputs` in other forms: as a dictionary, as a dataset of xarray, as the arrays of a file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram.networks._network import Structure
from dynagram.results._result import require_xarray
from dynagram.training import Posterior

if TYPE_CHECKING:
    import xarray

    from dynagram.results._outputs import Outputs
else:
    Outputs = xarray = object  # for the checks of annotations at run time; one imports the other

_BOOK = "Roberts, Yaida, Hanin, The Principles of Deep Learning Theory, arXiv:2106.10165"


def equations_of(outputs: Outputs) -> tuple[str, ...]:
    """The book and the equations behind outputs."""
    if isinstance(outputs.how, Posterior):
        equations = {"∞": "(6.57), (6.64), (6.66)", "1/n": "(6.79)-(6.89)"}
    elif outputs.of_one_network:
        equations = {"∞": "(∞.84)-(∞.93)", "1/n": "(∞.141), (∞.154)"}
    elif outputs.infinite_covariance is not None:
        page = "docs/derivations/any-loss.md"
        equations = {"∞": f"(10.3), (10.36) and {page}", "1/n": page}
    else:
        equations = {
            "∞": "(10.31), (10.40), (10.41)",
            "1/n": "(∞.160)-(∞.165) and docs/derivations/trained-outputs.md",
        }
    extra = equations.get(outputs.order)
    return (_BOOK,) if extra is None else (_BOOK, extra)


def as_dictionary(outputs: Outputs) -> dict[str, Any]:
    """Network, training, moments, means, errors, spreads, covariances, regime; moments first."""
    result: dict[str, Any] = {
        "network": _text_of(outputs.network),
        "how": outputs.how.to_toml(),
        "order": outputs.order,
        "times": list(outputs.times),
        "width": outputs.width,
        "members": outputs.members,
        "seed": outputs.seed,
        "mean": outputs.means,
        "std": outputs.stds if outputs.has_spread else None,
        "error": outputs.errors,
        "notes": list(outputs.notes),
        **outputs.about,
    }
    if outputs.infinite_mean is not None:
        result["mean_infinite"] = outputs.means_infinite
        if outputs.infinite_kernel is None:
            result["covariance_infinite"] = outputs.covariances_infinite
        else:
            result["kernel_infinite"] = outputs.infinite_kernel[:, outputs.rows, outputs.rows]
    if outputs.order != "∞":
        result["covariance"] = outputs.covariances if outputs.has_covariance else None
    if outputs.order == "1/n":
        result["mean_correction"] = outputs.mean_corrections
        result["covariance_correction"] = outputs.covariance_corrections
        result["mean_parts"] = {
            n: part[:, outputs.rows] for n, part in outputs.parts_of_mean.items()
        }
    result |= {
        name: {"value": estimate.value, "error": estimate.standard_error}
        for name, estimate in outputs.estimates.items()
    }
    result["regime"] = None if outputs.regime is None else outputs.regime.to_dict()
    return result


def as_dataset(outputs: Outputs) -> xarray.Dataset:
    """mean, error, std (time, sample, output) and covariance, with τ and sample numbers."""
    xr = require_xarray()
    axes, others = ("time", "sample", "output"), ("sample_2", "output_2")
    data: dict[str, Any] = {
        "mean": (axes, outputs.means), "error": (axes, outputs.errors),
        "x": (("sample", "input"), outputs.inputs),
    }  # fmt: skip
    if outputs.has_spread:
        data["std"] = (axes, outputs.stds)
    if outputs.has_covariance:
        data["covariance"] = ((*axes, *others), outputs.covariances)
    for name, estimate in outputs.estimates.items():
        names = ("time", *(f"{name}_{n}" for n in range(1, estimate.value.ndim)))
        data[name] = (names, estimate.value)
        data[f"{name}_error"] = (names, estimate.standard_error)
    for name, values in outputs.recorded.items():
        names = ("member", "time", *(f"{name}_{n}" for n in range(1, values.ndim - 1)))
        data[f"{name}_of_members"] = (names, values)
    whole = xr.Dataset(data, coords={"time": list(outputs.times)})
    return whole.assign_attrs(network=_text_of(outputs.network), order=outputs.order)


def file_arrays(outputs: Outputs) -> dict[str, Any]:
    """The arrays that a file of outputs holds, by name."""
    arrays: dict[str, Any] = {"times": np.array(outputs.times, dtype=np.float64)}
    for item in dataclasses.fields(outputs):
        value = getattr(outputs, item.name)
        if isinstance(value, np.ndarray):
            arrays[item.name] = value
        elif item.name.startswith("parts_of"):
            arrays |= {f"{item.name}/{name}": part for name, part in value.items()}
        elif item.name == "recorded":
            arrays |= {f"recorded/{name}": array for name, array in value.items()}
    for number, layer in enumerate(outputs.parameters or (), start=1):
        arrays |= {f"parameters/b{number}": layer.b, f"parameters/W{number}": layer.W}
    for name, estimate in outputs.estimates.items():
        arrays[f"estimates/{name}"] = estimate.value
        arrays[f"errors/{name}"] = estimate.standard_error
    return arrays


def file_description(outputs: Outputs) -> dict[str, Any]:
    """What a file of outputs says beside its arrays."""
    return {
        "network": outputs.network.to_toml(),
        "how": outputs.how.to_toml(),
        "order": outputs.order,
        "training_samples": outputs.training_samples,
        "regime": None if outputs.regime is None else outputs.regime.to_dict(),
        "regimes": {
            shown: [regime.to_dict() for regime in regimes]
            for shown, regimes in outputs.regimes.items()
        },
        "members": outputs.members,
        "seed": outputs.seed,
        "counts": {name: estimate.count for name, estimate in outputs.estimates.items()},
        "failures": [dataclasses.asdict(failure) for failure in outputs.failures],
        "shown": outputs.shown,
        "about": dict(outputs.about),
        "notes": list(outputs.notes),
    }


def _text_of(network: Structure) -> str:
    """The specification as TOML, or in words where its activation has no name."""
    anonymous = any(sigma.anonymous for sigma in network.activations())
    return repr(network) if anonymous else network.to_toml()
