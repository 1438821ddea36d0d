"""What figure 5 claims, decided by its runs and by another solver's numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from dynagram.activations import activation
from dynagram.results import Estimate
from dynagram.theory.saddle._flow import gaussian_nodes
from dynagram_experiments import Statement
from dynagram_experiments._parts import Part
from dynagram_experiments.saddle._sgd import crossing
from dynagram_experiments.saddle.fig5.runs import (
    BETAS,
    CLOSURES,
    LOSS_STAGES,
    PATHS,
    THRESHOLD,
    closure_name,
)

# X_1,1 = 0.3 in every closure, and the stages of the exact flow, from an independent solver
# (scipy's DOP853 at a tolerance of 1e-12 on 24 586 nodes).
RECORDED = {
    (): 72.816800, (1,): 71.335241, (2,): 69.142059, (3,): 62.444513,
    (1, 2): 65.539627, (1, 3): 60.410324, (2, 3): 57.443440, (1, 2, 3): 53.386497,
}  # fmt: skip
RECORDED_STAGES = {
    "loss": (52.6102, 54.0872, 54.8168, 69.9706, 92.2023),
    "cubic": (56.0428, 187.273),
    "decoupled_halves": (74.7756, 247.964, 921.808),
}
NAMES = {1: "rotations of W_1 (η)", 2: "off-block W_2 (C)", 3: "off-block W_3"}


def statements(parts: Mapping[str, Part], laws: Mapping[str, float]) -> tuple[Statement, ...]:
    """All of them."""
    times = {layers: float(parts[closure_name(layers)]["time"]) for layers in CLOSURES}
    exact, stages = times[1, 2, 3], parts["stages"]
    leading = laws["leading law of mode 1"]
    return (
        Statement(
            "the exact block flow escapes long before the leading law of its first mode",
            abs(exact - 53.386497) < 2e-6 and abs(leading - 71.782572) < 1e-6,
            f"X_1,1 = {THRESHOLD} at t = {exact:.6f}; leading law {leading:.6f}, decoupled flow "
            f"{times[()]:.6f}, augmented closure {times[1, 2]:.6f}",
        ),
        _sgd(parts["SGD"], exact),
        Statement(
            "all modes escape together: the figure shows no cascade",
            bool(np.ptp(stages["halves"]) < 0.01 * exact),
            "half of the linear part of modes 1, 2, 3 is learned at "
            + ", ".join(f"{t:.3f}" for t in stages["halves"])
            + "; in the decoupled flow at "
            + ", ".join(f"{t:.3f}" for t in stages["decoupled_halves"]),
        ),
        _recorded(times, stages),
        _afterwards(parts),
        *_attribution(parts["homotopy"], times),
    )


def _sgd(sgd: Part, exact: float) -> Statement:
    mean = Estimate.of_samples(crossing(sgd["times"], sgd["X"][:, :, 0], THRESHOLD))
    expected = float(sgd["expected"])
    agrees = abs(mean.value - expected) < 4 * mean.standard_error
    return Statement(
        "SGD escapes when the exact block flow says",
        bool(agrees and abs(mean.value / exact - 1) < 5e-3),
        f"t = {mean:.3f}; the flow in the same steps {expected:.3f}, in continuous time "
        f"{exact:.3f}",
    )


def _recorded(times: Mapping[tuple[int, ...], float], stages: Part) -> Statement:
    worst = max(abs(times[layers] - time) for layers, time in RECORDED.items())
    off = max(
        float(np.max(np.abs(stages[name] / np.array(known) - 1.0)))
        for name, known in RECORDED_STAGES.items()
    )
    return Statement(
        "every closure and every stage comes when another solver says, to its printed digits",
        worst < 1.1e-6 and off < 3e-6,
        f"eight closures within {worst:.0e}; the loss is at "
        + ", ".join(f"{part:.0%}" for part in LOSS_STAGES)
        + " of its start at "
        + ", ".join(f"{t:.4f}" for t in stages["loss"])
        + "; half of the cubic part of modes 1 and 2 is learned at "
        + ", ".join(f"{t:.3f}" for t in stages["cubic"]),
    )


def _afterwards(parts: Mapping[str, Part]) -> Statement:
    exact, decoupled = (parts[name] for name in PATHS)

    def at(path: Part, time: float) -> float:
        return float(path["loss"][np.searchsorted(path["times"], time)])

    def least_slope(path: Part) -> float:
        """The smallest logarithmic slope of the loss once the escape is over."""
        late = path["times"] >= 80
        falls = -np.diff(np.log(path["loss"][late])) / np.diff(np.log(path["times"][late]))
        return float(falls.min())

    steady, resting = least_slope(exact), least_slope(decoupled)  # a plateau's is near 0
    g, w = gaussian_nodes(activation("tanh"), 1)
    level = 0.5 * float(w @ np.tanh(g[:, 0]) ** 2) * sum(beta**2 for beta in BETAS[1:])
    return Statement(
        "after the escape the loss falls steadily; the decoupled flow would rest on a plateau",
        steady > 0.5 and resting < 0.05 and abs(at(decoupled, 150.0) / level - 1.0) < 0.01,
        f"loss {at(exact, 60.0):.2e} at t = 60, {at(exact, 120.0):.2e} at 120, "
        f"{at(exact, 300.0):.2e} at 300, everywhere at least as fast as t^-{steady:.2f}; decoupled "
        f"{at(decoupled, 150.0):.5f} at 150, as slow as t^-{resting:.3f}, where "
        f"½E[σ²]Σβ² of the modes left is {level:.5f}",
    )


def _attribution(homotopy: Part, times: Mapping[tuple[int, ...], float]) -> list[Statement]:
    shift, normalisation = float(homotopy["shift"]), float(homotopy["normalisation"])
    direct = float(homotopy["end"] - homotopy["start"])
    shapley = dict.fromkeys((1, 2, 3), 0.0)
    for order in itertools.permutations((1, 2, 3)):
        for position, layer in enumerate(order):
            before = tuple(sorted(order[:position]))
            after = tuple(sorted(order[: position + 1]))
            shapley[layer] += (times[after] - times[before]) / 6.0
    parts = dict(zip((1, 2, 3), homotopy["channels"].tolist(), strict=True))
    return [
        Statement(
            "the adjoint's integral is the shift of the escape time",
            abs(shift / direct - 1) < 1e-3 and normalisation < 1e-6,
            f"{shift:.5f} with {int(homotopy['nodes'])} nodes, directly {direct:.5f}; p·f = 1 to "
            f"{normalisation:.0e}",
        ),
        Statement(
            "the last hidden layer's off-block entries shift the escape most, rotations least",
            parts[3] < parts[2] < parts[1] < 0 and shapley[3] < shapley[2] < shapley[1] < 0,
            "; ".join(
                f"{NAMES[layer]} {parts[layer]:.3f} (Shapley {shapley[layer]:.3f})"
                for layer in (1, 2, 3)
            ),
        ),
    ]
