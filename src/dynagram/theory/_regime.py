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
from dynagram.results._regime import Judge, Regime
from dynagram.theory.criticality import single_input


def tensor_regime(
    network: MLP,
    K: Float[np.ndarray, "layer a b"],
    Theta: Float[np.ndarray, "layer a b"],
    tensors: dict[str, Float[np.ndarray, "layer ..."]],
    errors: dict[str, Float[np.ndarray, "layer ..."]],
) -> Regime:
    """The regime of predicted `tensors` at initialisation, judged at the output layer.

    The next order is the exact O(1/n²) recursion of each single input (U, V^{1}, G^{2}); it is
    compared with V and with K. `errors` are the numerical errors of the tensors.
    """
    order = "1/n" if errors else "∞"
    judge = Judge()
    _depth_and_width(judge, network, K, order)
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


def _depth_and_width(judge: Judge, network: MLP, K: np.ndarray, order: str) -> None:
    judge.numbers["depth_over_width"] = float(sum(1.0 / n for n in network.widths[1:-1]))
    if network.depth < 2:
        return
    variance = np.diagonal(K[0])
    alive = variance[variance > 0]
    if alive.size == 0:
        return
    # The smallest, median and largest inputs stand for all of them.
    samples = np.quantile(alive, [0.0, 0.5, 1.0], method="nearest") if alive.size > 3 else alive
    try:
        flow = single_input(
            network.activation, samples, network.depth,
            C_b=network.C_b, C_W=network.C_W, widths=network.widths, next_order=True,
        )  # fmt: skip
    except NonFiniteError as error:
        judge.measure("next_order", np.inf, 0.1, 0.5, f"the next order is not finite ({error})")
        return
    assert flow.V1 is not None
    assert flow.G2 is not None
    n = network.widths[-2]
    last_K = np.maximum(flow.K[-1], 1e-290)
    fluctuation = float(np.max(np.sqrt(np.abs(flow.V[-1]) / n) / last_K))
    judge.numbers["fluctuation"] = fluctuation
    judge.numbers["parallel_gain"] = float(np.max(flow.parallel_gain[-1]))
    if flow.perpendicular_gain is not None:
        judge.numbers["perpendicular_gain"] = float(np.max(flow.perpendicular_gain[-1]))
    shift = float(np.max(np.abs(flow.G1[-1]) / n / last_K))
    judge.numbers["metric_shift"] = shift
    if order == "∞":
        judge.measure(
            "leading_correction", max(fluctuation**2, shift), 0.1, 0.5,
            "the 1/n corrections reach {value:.2g} of the kernel at the output: the network is "
            "too deep for its width, use the order 1/n or a wider network",
        )  # fmt: skip
        return
    next_V = np.abs(flow.V1[-1]) / n / np.maximum(np.abs(flow.V[-1]), 1e-290)
    next_G = np.abs(flow.G2[-1]) / n**2 / last_K
    judge.measure(
        "next_order_of_V", float(np.max(next_V)), 0.1, 0.5,
        "the next order changes V by {value:.2g} of itself at the output: the network is too deep "
        "for its width; simulate, or widen it",
    )  # fmt: skip
    judge.measure(
        "next_order_of_G", float(np.max(next_G)), 0.02, 0.2,
        "the next order changes the mean metric by {value:.2g} of K at the output",
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
        judge.reasons.append(
            f"off critical: the kernel {direction} by 10^{strongest:.1f} over {network.depth} "
            f"layers; `dynagram critical {network.activation.name}` gives the initialisation "
            "that keeps it"
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
