"""Can this prediction be trusted here? Sizes of what is left out, and a verdict in words.

Every prediction carries a `Regime`: the next order in 1/n against the order kept, the distance
from criticality, the conditioning of the kernel, the numerical error. No threshold hides
anything: the numbers behind the verdict are in the report.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import NonFiniteError
from dynagram.networks import MLP
from dynagram.results._next_order import entry_share, judge_entries, left_out
from dynagram.results._regime import Judge, Regime
from dynagram.theory.criticality._one_input import single_input
from dynagram.theory.skips._flow import residual_flow


def tensor_regime(
    network: MLP,
    K: Float[np.ndarray, "layer a b"],
    Theta: Float[np.ndarray, "layer a b"],
    tensors: dict[str, Float[np.ndarray, "layer ..."]],
    errors: dict[str, Float[np.ndarray, "layer ..."]],
) -> Regime:
    """The regime of predicted `tensors` at initialisation, judged at the output layer.

    The next order is the exact O(1/n²) recursion of each single input (V^{1}, G^{2}); it is
    compared with V and with K. With skips that recursion does not hold, and V alone tells how large
    the next order is about. Every entry of V is held against what the next order may add to it
    (`left_out`). `errors` are the numerical errors of the tensors.
    """
    order = "1/n" if errors else "∞"
    judge = Judge()
    judge.numbers["depth_over_width"] = network.depth_over_width
    if network.depth > 1:
        _depth_and_width(judge, network, K, order, tensors.get("V"))
    _criticality(judge, network, K)
    _conditioning(judge, K)
    for name, error in errors.items():
        scale = float(np.max(np.abs(tensors[name][-1]), initial=0.0))
        relative = float(np.max(error[-1], initial=0.0)) / max(scale, 1e-290)
        judge.measure(
            f"numerical_error_of_{name}", relative if scale > 0 else 0.0, 1e-2, 0.3,
            f"the averages behind {name} carry an error of {{value:.1g}} of its largest entry: ask "
            "for a smaller `accuracy` or fewer samples",
        )  # fmt: skip
    if "A" in tensors and "B" in tensors and network.depth > 1:
        _ntk_fluctuation(judge, network, Theta[-1], tensors["A"][-1], tensors["B"][-1])
    if network.depth > 1 and "V" in errors:
        V, n = tensors["V"][-1], network.widths[-2]
        judge.numbers["entry_share_of_V"] = entry_share(V, K[-1], n)
        judge_entries(judge, "V", V, left_out("V", V, K[-1], n, judge.numbers))
    good = {
        "∞": "infinite-width result; the 1/n corrections are small at this depth and width",
        "1/n": "the next order in 1/n is small against the order kept",
    }[order]
    return judge.regime(order, good)


def _ntk_fluctuation(
    judge: Judge, network: MLP, Theta: np.ndarray, A: np.ndarray, B: np.ndarray
) -> None:
    """√(A + 2B)/Θ/√n: how much the NTK of one network differs from its mean (8.82)."""
    mean = np.diagonal(Theta)
    variance = np.einsum("aaaa->a", A) + 2.0 * np.einsum("aaaa->a", B)
    alive = mean > 0
    size = np.sqrt(np.maximum(variance[alive], 0.0) / network.widths[-2]) / mean[alive]
    judge.measure(
        "ntk_fluctuation", float(np.max(size, initial=0.0)), 0.25, 0.5,
        "the NTK of one network differs from its mean by {value:.2g} of itself at the output: "
        "too deep for the width",
    )  # fmt: skip


def _depth_and_width(
    judge: Judge, network: MLP, K: np.ndarray, order: str, V: np.ndarray | None
) -> None:
    """Sizes of the 1/n effects of single inputs at the output, and of what is left out."""
    variance = np.diagonal(K[0])
    alive = variance[variance > 0]
    if alive.size == 0:
        return
    # The smallest, median and largest inputs stand for all of them.
    samples = np.quantile(alive, [0.0, 0.5, 1.0], method="nearest") if alive.size > 3 else alive
    try:
        outputs = (_with_skips if network.has_skips else _plain)(network, samples)
    except NonFiniteError as error:
        judge.measure("next_order", np.inf, 0.1, 0.5, f"the next order is not finite ({error})")
        return
    n = network.width
    last_K = np.maximum(outputs["K"], 1e-290)
    fluctuation = float(np.max(np.sqrt(np.abs(outputs["V"]) / n) / last_K))
    judge.numbers["fluctuation"] = fluctuation
    for name in ("parallel_gain", "perpendicular_gain"):
        if name in outputs:
            judge.numbers[name] = float(np.max(outputs[name]))
    shift = float(np.max(np.abs(outputs["G1"]) / n / last_K))
    judge.numbers["metric_shift"] = shift
    if order == "∞":
        judge.measure(
            "leading_correction", max(fluctuation**2, shift), 0.1, 0.5,
            "the 1/n corrections reach {value:.2g} of the kernel at the output: the network is "
            "too deep for its width, use the order 1/n or a wider network",
        )  # fmt: skip
    elif network.has_skips:
        _estimated_next_order(judge, n, K, fluctuation**2, V)
    else:
        next_V = np.abs(outputs["V1"]) / n / np.maximum(np.abs(outputs["V"]), 1e-290)
        next_G = np.abs(outputs["G2"]) / n**2 / last_K
        judge.measure(
            "next_order_of_V", float(np.max(next_V)), 0.1, 0.5,
            "the next order changes V by {value:.2g} of itself at the output: the network is too "
            "deep for its width; simulate, or widen it",
        )  # fmt: skip
        judge.measure(
            "next_order_of_G", float(np.max(next_G)), 0.02, 0.2,
            "the next order changes the mean metric by {value:.2g} of K at the output",
        )  # fmt: skip


def _plain(network: MLP, samples: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of single inputs at the output, one order further than V and G^{1}."""
    flow = single_input(network, samples, next_order=True)
    return {name: values[-1] for name, values in vars(flow).items() if values is not None}


def _with_skips(network: MLP, samples: np.ndarray) -> dict[str, np.ndarray]:
    """The same without the next order, which is not known with skips."""
    flows = [residual_flow(network, float(K1)) for K1 in samples]
    outputs = {name: np.array([getattr(f, name)[-1] for f in flows]) for name in ("K", "V", "G1")}
    outputs["parallel_gain"] = np.array([np.prod(flow.chi_parallel) for flow in flows])
    slopes = [flow.chi_perpendicular for flow in flows]
    gains = [np.prod(values) for values in slopes if values is not None]
    return outputs | ({"perpendicular_gain": np.array(gains)} if gains else {})


def _estimated_next_order(
    judge: Judge, n: int, K: np.ndarray, relative: float, V: np.ndarray | None
) -> None:
    """V/(nK²), of all inputs where V is known, tells how large the next order is."""
    if V is not None:
        alive = np.diagonal(K[0]) > 0.0
        vertex, last = np.einsum("aaaa->a", V[-1])[alive], np.diagonal(K[-1])[alive]
        relative = float(np.max(vertex / (n * last**2)))
    judge.numbers["relative_variance"] = relative
    # Exactly scale-invariant networks have (e^{x} − 1): the next order is x/2 of this one.
    judge.measure(
        "next_order_of_V", 0.5 * relative, 0.1, 0.5,
        "the next order changes V by about {value:.2g} of itself at the output: the network is "
        "too deep for its width and skips; simulate, or widen it",
    )  # fmt: skip


def _criticality(judge: Judge, network: MLP, K: np.ndarray) -> None:
    """How much the size of a typical signal changes from the first layer to the last."""
    variance = np.array([np.diagonal(k) for k in K])
    alive = variance[0] > 0
    if network.depth < 2 or not np.any(alive):
        return
    growth = np.log10(np.maximum(variance[-1, alive], 1e-290) / variance[0, alive])
    strongest = float(np.max(np.abs(growth)))
    per_layer = 10 ** (strongest / (network.depth - 1))
    judge.numbers["kernel_growth_decades"] = strongest
    if per_layer > 1.5 and strongest > 2:
        judge.level = max(judge.level, 2 if strongest > 12 else 1)
        direction = "grows" if growth[np.argmax(np.abs(growth))] > 0 else "shrinks"
        remedy = f"`dynagram critical {network.activation.name}` gives the initialisation"
        if network.has_skips:
            remedy = "MLP.critical with these skips is the initialisation"
        judge.reasons.append(
            f"off critical: the kernel {direction} by 10^{strongest:.1f} over {network.depth} "
            f"layers; {remedy} that keeps it"
        )


def _conditioning(judge: Judge, K: np.ndarray) -> None:
    """Smallest over largest eigenvalue of the output kernel: what training would have to invert."""
    eigenvalues = np.linalg.eigvalsh(K[-1])
    largest = float(eigenvalues[-1])
    smallest = max(float(eigenvalues[0]), 0.0)
    judge.numbers["smallest_over_largest_eigenvalue"] = smallest / largest if largest > 0 else 0.0
    if K.shape[1] > 1 and (largest <= 0 or smallest < 1e-12 * largest):
        judge.reasons.append(
            "the output kernel is singular (repeated or collinear inputs, or too deep an ordered "
            "network): statistics are fine, anything that inverts it needs a ridge"
        )
