"""All tensors of a network at initialisation in one pass over its layers (`recursions`).

Only what the requested tensors need is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynagram.data._data import find_distinct
from dynagram.errors import InvalidValueError
from dynagram.gaussian._four_point import MODES
from dynagram.networks import MLP, check_inputs
from dynagram.results._letters import INFINITE, LETTERS, RECURSIVE, check_letters, closure
from dynagram.results._tensors import Tensors
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._recursions import run_layers, written_out
from dynagram.theory._regime import tensor_regime

TENSORS = (*INFINITE, *RECURSIVE)
_MAX_BYTES = 8 * 1024**3


def predict(
    network: MLP,
    x: object,
    tensors: Sequence[str] = ("K", "V", "G1"),
    *,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> Tensors:
    """The requested `tensors` of every layer for the samples in the rows of `x`.

    Letters: K, Theta (infinite width); V, G1 (preactivations), H1, A, B, D, F (NTK), P, Q (dNTK),
    R, S, T, U (ddNTK) at order 1/n. `accuracy` is the error allowed in four-sample averages
    relative to their natural scale, `seed` draws their nodes. P to U need a smooth activation.
    Cost per layer: see `FourPoint`; N⁴ numbers per tensor and layer are kept, nine times that
    for the layer in work.

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> result = predict(net, np.ones((1, 3)), ("Theta", "A", "B"))
    >>> result["Theta"].ravel().round(6), result["B"].ravel().round(6)
    (array([2.      , 2.3231  , 2.715207]), array([0.      , 1.366037, 3.247917]))
    """
    wanted = _checked(tensors, network)
    inputs = check_inputs(x, network.widths[0])
    needed = closure(wanted)
    _require_memory(inputs.shape[0], network.depth, [n for n in wanted if n in RECURSIVE])
    frozen = frozen_kernels(network, inputs)
    first, inverse = find_distinct(inputs)
    K = frozen.K[:, first][:, :, first]
    Theta = frozen.Theta[:, first][:, :, first]
    modes: dict[str, np.ndarray] = {}
    if needed:
        layers = run_layers(network, K, Theta, needed, accuracy=accuracy, seed=seed)
        finite = [name for name in wanted if name in RECURSIVE]
        kept = [{name: np.asarray(state[name]) for name in finite} for state in layers]
        modes = {name: np.stack([state[name] for state in kept]) for name in finite}
    found: dict[str, np.ndarray] = {"K": frozen.K, "Theta": frozen.Theta}
    errors: dict[str, np.ndarray] = {}
    for name, values in modes.items():
        full = written_out(name, values, inverse)
        found[name] = full[:, 0]
        errors[name] = np.sqrt(np.sum(full[:, 1:] ** 2, axis=1))
    values = {name: found[name] for name in wanted}
    return Tensors(
        network, inputs, "1/n" if errors else "∞", values, errors,
        dict.fromkeys(values, tuple(range(1, network.depth + 1))),
        tensor_regime(network, frozen.K, frozen.Theta, found, errors),
        about={"accuracy": accuracy, "nodes_seed": seed},
    )  # fmt: skip


def _checked(tensors: Sequence[str], network: MLP) -> tuple[str, ...]:
    names = check_letters(tensors, TENSORS)
    sigma = network.activation
    if sigma.jumps and set(names) - {"K"}:
        raise InvalidValueError(
            "tensors", ",".join(names), f"{sigma.name} jumps, so σ' is a delta: only K exists"
        )
    kinked = [name for name in names if LETTERS[name].is_smooth_only]
    if kinked and not sigma.is_smooth:
        raise InvalidValueError(
            "tensors",
            ",".join(kinked),
            f"{sigma.name} has a kink: σ'' is a delta, averages with it depend on how a step "
            "crosses the kink (P, Q) or diverge (R to U); use a smooth activation",
        )
    return names


def _require_memory(samples: int, depth: int, names: Sequence[str]) -> None:
    big = sum(1 for name in names if len(LETTERS[name].axes) > 2)
    needed = 2 * (depth + MODES) * big * samples**4 * 8
    if needed > _MAX_BYTES:
        most = int((_MAX_BYTES / (16 * (depth + MODES) * big)) ** 0.25)
        raise InvalidValueError(
            "number of samples",
            samples,
            f"{','.join(names)} of {depth} layers would need {needed / 1024**3:.0f} GiB; "
            f"at most {most} samples",
        )
