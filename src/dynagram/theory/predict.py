"""All tensors of a network at initialisation in one pass over its layers.

Each layer's two-sample averages are computed once, its four-sample averages in one sweep over
shared nodes, and the recursions of `kernels`, `ntk`, `dntk` and `ddntk` run on them. Only what
the requested tensors need is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian.families import TwoPoint
from dynagram.gaussian.four_point import MODES, Product
from dynagram.networks import MLP, check_inputs
from dynagram.pairs import pair_numbers
from dynagram.theory import ddntk, dntk, ntk
from dynagram.theory.frozen import frozen_kernels
from dynagram.theory.kernels import metric_correction_step, vertex_step
from dynagram.theory.layer import Step
from dynagram.theory.regime import Regime, tensor_regime

INFINITE = ("K", "Theta")
FINITE = ("V", "G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
TENSORS = (*INFINITE, *FINITE)
_SMOOTH_ONLY = ("P", "Q", "R", "S", "T", "U")
_ON_PAIRS = {"V": 2, "A": 2, "D": 2, "G1": 1, "H1": 1}  # number of pair axes; others have N⁴
_INHERITS = {
    "V": ("V",), "G1": ("V", "G1"), "D": ("V", "D"), "A": ("V", "D", "A"), "F": ("F",),
    "B": ("B",),
    "H1": ("V", "G1", "D", "F", "H1"), "P": ("B", "P"), "Q": ("F", "Q"), "R": ("B", "P", "R"),
    "S": ("B", "S"), "T": ("F", "Q", "T"), "U": ("U",),
}  # fmt: skip
_VALUES, _SLOPES, _MIXED = ((0, 0), (0, 0)), ((1, 1), (1, 1)), ((0, 0), (1, 1))
_CURVED, _TRIPLE, _TWICE = ((2, 0), (1, 1)), ((3, 1), (1, 1)), ((2, 2), (1, 1))
_AVERAGES: dict[str, tuple[Product, ...]] = {
    "V": (_VALUES,), "G1": (), "D": (_VALUES, _MIXED), "A": (_VALUES, _MIXED, _SLOPES),
    "F": (_MIXED,), "B": (_SLOPES,), "H1": (), "P": (_CURVED,), "Q": (_CURVED,),
    "R": (_CURVED, _TRIPLE), "S": (_SLOPES, _TWICE), "T": (_MIXED, _CURVED, _TWICE),
    "U": (_TWICE,),
}  # fmt: skip
_MAX_BYTES = 8 * 1024**3


@dataclass(frozen=True, eq=False)
class Prediction:
    """Tensors by letter, layers first (index 0 ↔ ℓ = 1), samples in the printed order.

    K and Θ are exact at infinite width (order "∞"); the others are of order "1/n" and multiply
    1/n_{ℓ−1}. `errors` holds numerical standard errors of the order-1/n tensors, zero where the
    averages behind them are exact.
    """

    network: MLP
    tensors: dict[str, Float[np.ndarray, "layer ..."]]
    errors: dict[str, Float[np.ndarray, "layer ..."]]
    regime: Regime

    def __getitem__(self, name: str) -> Float[np.ndarray, "layer ..."]:
        if name not in self.tensors:
            have = ", ".join(self.tensors)
            raise InvalidValueError("tensor", name, f"this prediction holds {have}")
        return self.tensors[name]

    @staticmethod
    def order(name: str) -> str:
        """ "∞" or "1/n"."""
        return "∞" if name in INFINITE else "1/n"

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b] = K + G^{1}/n_{ℓ−1} to order 1/n (4.104)."""
        return self["K"] + self["G1"] / self._fan_in

    @property
    def mean_ntk(self) -> Float[np.ndarray, "layer a b"]:
        """E[H_ab] = Θ + H^{1}/n_{ℓ−1} to order 1/n (9.3)."""
        return self["Theta"] + self["H1"] / self._fan_in

    @property
    def _fan_in(self) -> np.ndarray:
        return np.array([np.inf, *self.network.widths[1:-1]])[:, None, None]


def predict(
    network: MLP,
    x: object,
    tensors: Sequence[str] = ("K", "V", "G1"),
    *,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> Prediction:
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
    needed = _closure(wanted)
    _require_memory(inputs.shape[0], network.depth, [n for n in wanted if n in FINITE])
    frozen = frozen_kernels(network, inputs)
    first, inverse = _distinct(inputs)
    K = frozen.K[:, first][:, :, first]
    Theta = frozen.Theta[:, first][:, :, first]
    modes = _recursions(network, K, Theta, needed, wanted, accuracy, seed) if needed else {}
    found: dict[str, np.ndarray] = {"K": frozen.K, "Theta": frozen.Theta}
    errors: dict[str, np.ndarray] = {}
    for name, values in modes.items():
        full = _written_out(name, values, inverse)
        found[name] = full[:, 0]
        errors[name] = np.sqrt(np.sum(full[:, 1:] ** 2, axis=1))
    return Prediction(
        network,
        {name: found[name] for name in TENSORS if name in wanted},
        errors,
        tensor_regime(network, frozen.K, frozen.Theta, found, errors),
    )


def _checked(tensors: Sequence[str], network: MLP) -> list[str]:
    names = list(tensors)
    unknown = [name for name in names if name not in TENSORS]
    if unknown or not names:
        allowed = f"expected some of {', '.join(TENSORS)}"
        raise InvalidValueError("tensors", ",".join(names), allowed)
    sigma = network.activation
    if sigma.jumps and set(names) - {"K"}:
        raise InvalidValueError(
            "tensors", ",".join(names), f"{sigma.name} jumps, so σ' is a delta: only K exists"
        )
    kinked = [name for name in names if name in _SMOOTH_ONLY]
    if kinked and not sigma.is_smooth:
        raise InvalidValueError(
            "tensors",
            ",".join(kinked),
            f"{sigma.name} has a kink: σ'' is a delta, averages with it depend on how a step "
            "crosses the kink (P, Q) or diverge (R to U); use a smooth activation",
        )
    return names


def _closure(wanted: Sequence[str]) -> list[str]:
    needed = {need for name in wanted if name in FINITE for need in _INHERITS[name]}
    return [name for name in FINITE if name in needed]


def _require_memory(samples: int, depth: int, names: Sequence[str]) -> None:
    big = sum(1 for name in names if name not in ("G1", "H1"))
    needed = 2 * (depth + MODES) * big * samples**4 * 8
    if needed > _MAX_BYTES:
        most = int((_MAX_BYTES / (16 * (depth + MODES) * big)) ** 0.25)
        raise InvalidValueError(
            "number of samples",
            samples,
            f"{','.join(names)} of {depth} layers would need {needed / 1024**3:.0f} GiB; "
            f"at most {most} samples",
        )


def _distinct(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the distinct inputs in order of appearance, and each input's among them."""
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse.reshape(-1)]


def _recursions(
    network: MLP,
    K: np.ndarray,
    Theta: np.ndarray,
    needed: Sequence[str],
    wanted: Sequence[str],
    accuracy: float,
    seed: int,
) -> dict[str, np.ndarray]:
    """Run all layers; the result of each wanted tensor has axes (layer, mode, …)."""
    depth, samples = K.shape[:2]
    pairs = samples * (samples + 1) // 2
    products = sorted({p for name in needed for p in _AVERAGES[name]})
    state = {
        name: np.zeros((MODES, *[pairs] * _ON_PAIRS[name]))
        if name in _ON_PAIRS
        else np.zeros((MODES, *[samples] * 4))
        for name in needed
    }
    kept = {name: [state[name]] for name in wanted if name in FINITE}
    for layer in range(depth - 1):  # from ℓ = layer + 1 to ℓ + 1
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
        )
        state = _advance(step, state)
        for name, values in state.items():
            if not np.all(np.isfinite(values)):
                raise NonFiniteError(
                    f"{name} of {network.activation.name} is not finite at layer {layer + 2}: "
                    "nearly collinear inputs meet a kink, or the kernel grows out of range; drop "
                    "near-duplicates, or initialise closer to criticality"
                )
        for name, history in kept.items():
            history.append(state[name])
    return {name: np.stack(history) for name, history in kept.items()}


def _advance(step: Step, old: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One layer of every recursion present in `old`; F comes before Q, which uses the new F."""
    new: dict[str, np.ndarray] = {}
    if "F" in old:
        new["F"] = ntk.cross_correlation_F(step, old["F"])
    steps = {
        "V": lambda: vertex_step(step, old["V"]),
        "G1": lambda: metric_correction_step(step, old["V"], old["G1"]),
        "H1": lambda: ntk.mean_correction_H1(
            step, old["V"], old["G1"], old["D"], old["F"], old["H1"]
        ),
        "D": lambda: ntk.cross_correlation_D(step, old["V"], old["D"]),
        "A": lambda: ntk.variance_A(step, old["V"], old["D"], old["A"]),
        "B": lambda: ntk.variance_B(step, old["B"]),
        "P": lambda: dntk.correlation_P(step, old["B"], old["P"]),
        "Q": lambda: dntk.correlation_Q(step, old["F"], new["F"], old["Q"]),
        "R": lambda: ddntk.mean_R(step, old["B"], old["P"], old["R"]),
        "S": lambda: ddntk.mean_S(step, old["B"], old["S"]),
        "T": lambda: ddntk.mean_T(step, old["F"], old["Q"], old["T"]),
        "U": lambda: ddntk.mean_U(step, old["U"]),
    }
    new.update({name: make() for name, make in steps.items() if name in old})
    return new


def _written_out(name: str, values: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Sample axes for all inputs, repeated ones included: (layer, mode, N, …)."""
    if name not in _ON_PAIRS:
        for axis in range(2, 6):
            values = np.take(values, inverse, axis=axis)
        return values
    samples = int(inverse.max()) + 1
    number = pair_numbers(samples)[inverse][:, inverse]
    values = values[:, :, number]
    return values if _ON_PAIRS[name] == 1 else values[..., number]
