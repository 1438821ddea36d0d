"""All tensors of a network at initialisation in one pass over its layers (`recursions`).

Only what the requested tensors need is computed. A network with skips has recursions of its own
for V and G^{1} (`skips`); its other tensors of order 1/n are not known yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from dynagram.data._data import find_distinct
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.gaussian._four_point import MODES
from dynagram.gaussian._rounding import scatter
from dynagram.networks import MLP, Chain, Network, as_residual_mlp, check_inputs
from dynagram.results._letters import INFINITE, LETTERS, RECURSIVE, check_letters, closure
from dynagram.results._tensors import Tensors
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._recursions import run_layers, written_out
from dynagram.theory._regime import tensor_regime
from dynagram.theory._rounding import kernel_errors, other_kernels
from dynagram.theory.chain._predict import predict_chain
from dynagram.theory.skips._flow import Vertex, checked_vertex
from dynagram.theory.skips._vertex import residual_tensors

TENSORS = (*INFINITE, *RECURSIVE)
_WITH_SKIPS = (*INFINITE, "V", "G1")
_MAX_BYTES = 8 * 1024**3
_WHY_MISSING = (
    "σ'' is a delta, averages with it depend on how a step crosses the kink (P, Q) or diverge "
    "(R to U); use a smooth activation"
)


def predict(
    network: Network,
    x: object,
    tensors: Sequence[str] = ("K", "V", "G1"),
    *,
    vertex: str = "corrected",
    accuracy: float = 1e-4,
    seed: int = 0,
) -> Tensors:
    """The tensors of every layer at initialisation, for the samples in the rows of `x`.

    Cost per layer: see `FourPoint`; N⁴ numbers per tensor and layer are kept, nine times that for
    the layer in work. With skips one input is exact to rounding, several take 2¹⁴ to 2¹⁸ paths
    through all layers, a few tenths of a second for two inputs and five layers.

    **Arguments:**

    - `network`: an `MLP`, with or without skips; or a `Chain` of blocks, whose output is predicted
        (sample axes then run over samples and positions).
    - `x`: inputs (N, n_0), one per row.
    - `tensors`: letters of K, Theta (infinite width); V, G1 (preactivations), H1, A, B, D, F (NTK),
        P, Q (dNTK), R, S, T, U (ddNTK) at order 1/n. P to U need a continuous σ' (not ReLU; ELU
        and softsign have one), all but K, V, G1 a continuous σ; of a network with skips K, Theta, V
        and G1 are known.
    - `vertex`: "corrected", or "published" for the V of networks with skips as printed (B.25),
        which is wrong at leading order unless σ² is an even quadratic function.
    - `accuracy`: the error allowed in four-sample averages relative to their natural scale, with
        skips relative to the largest entry of a layer.
    - `seed`: draws their nodes.

    **Returns:** `Tensors` of order "1/n", or "∞" where only K and Theta are asked for.

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> result = predict(net, np.ones((1, 3)), ("Theta", "A", "B"))
    >>> result["Theta"].ravel().round(6), result["B"].ravel().round(6)
    (array([2.      , 2.3231  , 2.715207]), array([0.      , 1.366037, 3.247917]))
    >>> net = MLP.critical([1, 50, 50, 50, 50, 1], "relu", skip=0.5)
    >>> for vertex in ("corrected", "published"):
    ...     predict(net, [[1.0]], ("V",), vertex=vertex)["V"].ravel().round(4)
    array([ 0.    , 14.25  , 34.4715, 57.5877, 91.3241])
    array([ 0.  , 14.25, 28.5 , 42.75, 62.75])
    """
    chosen = checked_vertex(vertex)
    if isinstance(network, Chain):
        if chosen == "published":
            raise InvalidValueError("vertex", vertex, "only an MLP with skips has a choice")
        inputs = check_inputs(x, network.input_size)
        letters = check_letters(tensors, TENSORS)
        skips = as_residual_mlp(network)
        if skips is not None and skips.has_skips and set(letters) - set(INFINITE):
            # Activations on the stream are no chain, but an MLP with skips has a theory of its own.
            return _as_chain(network, predict(skips, inputs, letters, accuracy=accuracy, seed=seed))
        return predict_chain(network, inputs, tensors, accuracy=accuracy, seed=seed)
    if not isinstance(network, MLP):
        raise InvalidTypeError("network", type(network).__name__, "expected an MLP or a Chain")
    wanted = _checked(tensors, network, chosen)
    inputs = check_inputs(x, network.widths[0])
    finite = [name for name in wanted if name in RECURSIVE]
    _require_memory(inputs.shape[0], network.depth, finite)
    frozen = frozen_kernels(network, inputs)
    first, inverse = find_distinct(inputs)
    K, Theta = (kernel[:, first][:, :, first] for kernel in (frozen.K, frozen.Theta))
    others = other_kernels(network, K[0], Theta[0])
    modes: dict[str, np.ndarray] = {}
    if finite and network.has_skips:
        ways = [(network, K), *((replace(network, activation=o.sigma), o.K) for o in others)]
        every = [
            residual_tensors(
                n, kernels, vertex=chosen, metric="G1" in finite, accuracy=accuracy, seed=seed
            )
            for n, kernels in ways
        ]
        modes = {name: _with_scatter([getattr(made, name) for made in every]) for name in finite}
    elif finite:
        layers = run_layers(network, K, Theta, closure(wanted), accuracy=accuracy, seed=seed)
        states = [{name: np.asarray(state[name]) for name in finite} for state in layers]
        modes = {name: np.stack([state[name] for state in states]) for name in finite}
    values: dict[str, np.ndarray] = {"K": frozen.K, "Theta": frozen.Theta}
    rounding = kernel_errors(K, Theta, others)
    errors = {
        name: error[:, inverse][:, :, inverse] for name, error in rounding.items() if name in wanted
    }
    for name, of_distinct in modes.items():
        full = written_out(name, of_distinct, inverse)
        values[name] = full[:, 0]
        errors[name] = np.sqrt(np.sum(full[:, 1:] ** 2, axis=1))
    regime = tensor_regime(network, frozen.K, frozen.Theta, values, errors)
    about = {"accuracy": accuracy, "nodes_seed": seed}
    return Tensors(
        network, inputs, "1/n" if finite else "∞", {name: values[name] for name in wanted}, errors,
        dict.fromkeys(wanted, tuple(range(1, network.depth + 1))), regime,
        about=about | ({"vertex": chosen} if network.has_skips else {}),
    )  # fmt: skip


def _with_scatter(every: list[Float[np.ndarray, "layer mode ..."]]) -> np.ndarray:
    """The first, with a mode for how far off the value of every other is (D7.21)."""
    value, *others = (modes[:, :1] for modes in every)
    return np.concatenate([every[0], *scatter(value, others)], axis=1)


def _as_chain(network: Chain, made: Tensors) -> Tensors:
    """The tensors of the last layer of an MLP as those of a network of blocks."""
    last = {name: value[-1:] for name, value in made.values.items()}
    errors = {name: value[-1:] for name, value in made.errors.items()}
    layers = dict.fromkeys(last, (network.depth,))
    return Tensors(network, made.x, made.order, last, errors, layers, made.regime, about=made.about)


def _checked(tensors: Sequence[str], network: MLP, vertex: Vertex) -> tuple[str, ...]:
    names = check_letters(tensors, TENSORS)
    text = ",".join(names)
    sigma = network.activation
    if network.has_skips:
        _check_with_skips(names, text, vertex)
    elif vertex == "published":
        raise InvalidValueError("vertex", vertex, "only networks with skips have a choice")
    if missing := [name for name in names if LETTERS[name].derivatives > sigma.derivatives]:
        reason = f"{sigma.name} has a kink: {_WHY_MISSING}"
        if sigma.jumps:
            reason = f"{sigma.name} jumps, so σ' is a delta: only K, V and G1 exist"
        raise InvalidValueError("tensors", ",".join(missing), reason)
    return names


def _check_with_skips(names: tuple[str, ...], text: str, vertex: Vertex) -> None:
    if unknown := [name for name in names if name not in _WITH_SKIPS]:
        known = ", ".join(_WITH_SKIPS)
        allowed = f"not yet computed for networks with skips, only {known} are"
        raise InvalidValueError("tensors", ",".join(unknown), allowed)
    if vertex == "published" and "G1" in names:
        allowed = "the book has no G1 of networks with skips: leave it out or correct the vertex"
        raise InvalidValueError("tensors", text, allowed)


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
