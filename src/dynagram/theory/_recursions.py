"""The finite-width recursions of all tensors, layer by layer, on shared averages.

Each layer's two-sample averages are computed once, its four-sample averages in one sweep over
shared nodes, and the recursions of `kernels`, `ntk`, `dntk` and `ddntk` run on them. Tensors have
the modes of their numerical error first: the value, then deviations whose squares add up to its
variance. Derivations: docs/derivations/recursions.md (D5), docs/derivations/gaussian-averages.md
(D7.15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._arrays import Array, SameArray, array_namespace
from dynagram._pairs import pair_numbers
from dynagram._precision import float64
from dynagram._threads import one_thread
from dynagram.errors import NonFiniteError
from dynagram.gaussian._families import TwoPoint
from dynagram.gaussian._four_point import MODES, FourPoint, Product
from dynagram.gaussian._rounding import scatter
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.results._letters import LETTERS
from dynagram.theory import _ddntk as ddntk
from dynagram.theory import _dntk as dntk
from dynagram.theory import _ntk as ntk
from dynagram.theory._layer import Modes, Step
from dynagram.theory._rounding import OtherKernels, other_kernels
from dynagram.theory._vertex import metric_correction_step, vertex_step

State = dict[str, Float[Array, "mode ..."]]

_VALUES, _SLOPES, _MIXED = ((0, 0), (0, 0)), ((1, 1), (1, 1)), ((0, 0), (1, 1))
_CURVED, _TRIPLE, _TWICE = ((2, 0), (1, 1)), ((3, 1), (1, 1)), ((2, 2), (1, 1))
_AVERAGES: dict[str, tuple[Product, ...]] = {
    "V": (_VALUES,), "G1": (), "D": (_VALUES, _MIXED), "A": (_VALUES, _MIXED, _SLOPES),
    "F": (_MIXED,), "B": (_SLOPES,), "H1": (), "P": (_CURVED,), "Q": (_CURVED,),
    "R": (_CURVED, _TRIPLE), "S": (_SLOPES, _TWICE), "T": (_MIXED, _CURVED, _TWICE),
    "U": (_TWICE,),
}  # fmt: skip


def run_layers(
    network: MLP,
    K: Float[np.ndarray, "layer a b"],
    Theta: Float[np.ndarray, "layer a b"],
    names: Sequence[str],
    *,
    accuracy: float,
    seed: int,
    modes: int = MODES,
) -> Iterator[State]:
    """The tensors `names`, which must be closed (`closure`), of layers 1, 2, … L in turn.

    K and Θ are those of distinct samples; `modes` as in `FourPoint`, to which a steep activation
    adds two for its rounding (D7.21). The dictionary is the same every time, with its arrays
    replaced one by one: take out of it what is to be kept. Memory: the tensors once, and about six
    arrays of N⁴ numbers per mode.
    """
    require_plain(network, "the recursions of order 1/n")
    depth, samples = K.shape[:2]
    on_device = stays_on_device(samples)
    needed = {p for name in names for p in _AVERAGES[name]}
    if network.activation.derivatives < 3 and _TRIPLE in needed:
        # A delta is no function of nodes: it is integrated by parts.
        needed = needed - {_TRIPLE} | {_TWICE}
    products = sorted(needed)
    state = _at_first_layer(names, samples, modes, on_device)
    kernels = other_kernels(network, K[0], Theta[0])
    others = [_at_first_layer(names, samples, 1, on_device) for _ in kernels]
    yield _with_scatter(state, others)
    for layer in range(depth - 1):  # from ℓ = layer + 1 to ℓ + 1
        with one_thread():  # for the tables of two-sample averages
            step = Step.at(
                TwoPoint(network.activation, K[layer]),
                Theta[layer],
                C_W=network.C_W[layer + 1],
                lambda_W=network.lambda_W[layer + 1],
                # Layer 1 does not fluctuate: n_0 never enters a ratio.
                ratio=network.widths[layer + 1] / network.widths[layer] if layer else 0.0,
                products=products,
                accuracy=accuracy,
                seed=seed + layer,
                modes=modes,
                on_device=on_device,
            )
            _advance(step, state)
        _require_finite(network, layer + 2, state)
        for other, there in zip(others, kernels, strict=True):
            _advance_beside(step, other, there, layer)
        yield _with_scatter(state, others)


def _advance_beside(step: Step, state: State, there: OtherKernels, layer: int) -> None:
    """What `step` does from the layer of this index, by another rule for averages (D7.21)."""
    averages, four = TwoPoint(there.sigma, there.K[layer]), step.four
    own = FourPoint(
        averages, accuracy=four.accuracy, seed=four.seed, modes=1, on_device=four.on_device
    )
    covariances = own.beside(four, step.covariances)
    Theta = own.placed(there.Theta[layer])
    _advance(
        replace(step, averages=averages, four=own, covariances=covariances, Theta=Theta), state
    )


@float64
def _with_scatter(
    state: State, others: Sequence[dict[str, Float[Array, "one ..."]]]
) -> dict[str, Float[Array, "more ..."]]:
    """`state`, with a mode for every other rule."""
    if not others:
        return state
    found = {}
    for name, values in state.items():
        modes = scatter(values[:1], [other[name] for other in others])
        found[name] = array_namespace(values).concatenate([values, *modes])
    return found


def stays_on_device(samples: int) -> bool:
    """Large tensors stay on an accelerator; NumPy is faster on a CPU, and for small ones.

    Of 32 samples an accelerator computes tensors in a second, and compiles for fifteen.
    """
    return samples > 40 and jax.default_backend() != "cpu"


@float64
def _at_first_layer(names: Sequence[str], samples: int, modes: int, on_device: bool) -> State:
    """Zeros: the first layer does not fluctuate."""
    xp, pairs = (jnp if on_device else np), samples * (samples + 1) // 2
    shape = {name: [pairs] * LETTERS[name].pairs or [samples] * 4 for name in names}
    return {name: xp.zeros((modes, *shape[name])) for name in names}


@float64
def _require_finite(network: MLP, layer: int, state: State) -> None:
    for name, values in state.items():
        if not array_namespace(values).isfinite(values).all():
            raise NonFiniteError(
                f"{name} of {network.activation.name} is not finite at layer {layer}: "
                "nearly collinear inputs meet a kink, or the kernel grows out of range; drop "
                "near-duplicates, or initialise closer to criticality"
            )


def written_out(name: str, values: SameArray, inverse: np.ndarray) -> SameArray:
    """Sample axes for all inputs, repeated ones included: (layer, mode, N, …)."""
    take = array_namespace(values).take
    if LETTERS[name].pairs == 0:
        if np.array_equal(inverse, np.arange(values.shape[-1])):
            return values
        for axis in range(2, 6):
            values = take(values, inverse, axis=axis)
        return values
    samples = int(inverse.max()) + 1
    number = pair_numbers(samples)[inverse][:, inverse]
    values = take(values, number, axis=2)
    return values if LETTERS[name].pairs == 1 else take(values, number, axis=-1)


@float64
def _advance(step: Step, state: State) -> None:
    """One layer of every recursion in `state`, in an order that needs nothing already replaced.

    F^(ℓ+1) is made first, because Q needs it, and written last of what uses F^(ℓ).
    """
    old, new = state, {}
    if "F" in old:
        new["F"] = ntk.cross_correlation_F(step, old["F"])
    steps: dict[str, Callable[[], Modes]] = {
        "T": lambda: ddntk.mean_T(step, old["F"], old["Q"], old["T"]),
        "R": lambda: ddntk.mean_R(step, old["B"], old["P"], old["R"]),
        "S": lambda: ddntk.mean_S(step, old["B"], old["S"]),
        "U": lambda: ddntk.mean_U(step, old["U"]),
        "Q": lambda: dntk.correlation_Q(step, old["F"], new["F"], old["Q"]),
        "P": lambda: dntk.correlation_P(step, old["B"], old["P"]),
        "H1": lambda: ntk.mean_correction_H1(
            step, old["V"], old["G1"], old["D"], old["F"], old["H1"]
        ),
        "F": lambda: new["F"],
        "B": lambda: ntk.variance_B(step, old["B"]),
        "A": lambda: ntk.variance_A(step, old["V"], old["D"], old["A"]),
        "D": lambda: ntk.cross_correlation_D(step, old["V"], old["D"]),
        "G1": lambda: metric_correction_step(step, old["V"], old["G1"]),
        "V": lambda: vertex_step(step, old["V"]),
    }
    for name, make in steps.items():
        if name in state:
            state[name] = make()
