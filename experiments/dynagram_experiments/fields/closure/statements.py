"""What fields-closure claims, decided by its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynagram.theory.fields import AnchoredRun
from dynagram_experiments import Statement
from dynagram_experiments._parts import Part
from dynagram_experiments.fields.closure.runs import (
    DISTANCES,
    EXACT_UP_TO,
    ONE_LAYER_RATES,
    STEP_SIZES,
    OneLayer,
    OneStep,
)

ROUNDING = 1e-12
# By the number of hidden layers and what is carried along, one run per seed.
Anchored = Mapping[tuple[int, str], list[AnchoredRun]]


def statements(
    closed: Sequence[OneLayer],
    single: OneLayer,
    lost: Part,
    laws: Sequence[OneStep],
    frozen: Anchored,
    stuck: Part,
) -> tuple[Statement, ...]:
    """All of them, part by part."""
    return (*_closed(closed, single, lost), *_laws(laws), *_frozen(frozen), _stuck(stuck))


def _closed(closed: Sequence[OneLayer], single: OneLayer, lost: Part) -> list[Statement]:
    worst = max(max(run.difference, run.unseen_difference) for run in closed)
    curves = max(run.loss_difference for run in closed)
    flips = [run.flips for run in closed]
    truth = {run.eta: run for run in closed if run.readout == "mean"}
    apart, losses = {}, {}
    for eta, residual, loss in zip(
        *(lost[key] for key in ("eta", "residual", "loss")), strict=True
    ):
        true = truth[float(eta)].residual
        apart[float(eta)] = float(np.linalg.norm(residual - true) / np.linalg.norm(true))
        losses[float(eta)] = float(loss)
    return [
        Statement(
            "One hidden layer needs no weights: preactivations of seen and unseen inputs follow "
            "gradient descent to rounding for 1000 steps, through more than 10⁴ mask flips",
            worst < ROUNDING and min(flips) > 10_000 and not any(r.masks_apart for r in closed),
            f"largest difference {worst:.1e} of the largest u, no mask differs, training curves "
            f"to {curves:.1e}, {min(flips):,} to {max(flips):,} flips (six runs, η = "
            f"{', '.join(f'{eta:g}' for eta in ONE_LAYER_RATES)}, both readouts)",
        ),
        Statement(
            "In float32 only the loss survives: to 1e-3, while some masks differ",
            single.loss_difference < 1e-3,
            f"loss to {single.loss_difference:.1e}, activations to {single.difference:.1e}, "
            f"{single.masks_apart} masks differ (η = 3)",
        ),
        Statement(
            "Activations alone (50) are not enough once masks flip: the residual is off by more "
            "than 5 %",
            min(apart.values()) > 0.05,
            "; ".join(
                f"η = {eta:g}: off by {100 * value:.0f} %, loss {losses[eta]:.5f} against "
                f"{truth[eta].losses[-1]:.5f}"
                for eta, value in apart.items()
            ),
        ),
    ]


def _laws(laws: Sequence[OneStep]) -> list[Statement]:
    orders = {
        (step.L, name): step.order(name)
        for step in laws
        for name in EXACT_UP_TO
        if EXACT_UP_TO[name] < step.L
    }
    exact = [float(np.nanmax(laws[L - 1].errors[name])) for name, L in EXACT_UP_TO.items()]
    kernel = max(step.kernel for step in laws)
    return [
        Statement(
            "The collective kernel Σ Q^(ℓ-1) ⊙ S^(ℓ) is the Gram matrix of the Jacobian, L = 1..5",
            kernel < ROUNDING,
            f"largest relative difference {kernel:.1e}",
        ),
        Statement(
            "Without a flip the laws of r, u and b leave out terms of order η² only, L = 2..5",
            all(abs(order - 2.0) < 0.05 for order in orders.values()),
            f"orders {min(orders.values()):.3f} to {max(orders.values()):.3f} from η = "
            f"{STEP_SIZES[0]:g} to {STEP_SIZES[-1]:g}",
        ),
        Statement(
            "Without a flip r and u of one hidden layer, and b of two, move exactly as stated",
            max(exact) < 1e-8,
            f"relative error of the change at most {max(exact):.1e}, which is rounding of u and b",
        ),
    ]


def _frozen(frozen: Anchored) -> list[Statement]:
    depths = sorted({L for L, _ in frozen if L > 1})
    ratio = {
        (L, carried, k): mean_at(frozen[L, carried], "residual_error", k)
        / mean_at(frozen[L, carried], "residual_change", k)
        for L in depths
        for carried in ("weights", "fields", "kernel")
        for k in DISTANCES
    }
    near = [ratio[L, "weights", k] / ratio[L, "kernel", k] for L in depths for k in (1, 5)]
    far = [ratio[L, "weights", k] / ratio[L, "kernel", k] for L in depths for k in (20, 100)]
    explained = {
        what: [
            mean_at(frozen[L, "fields"], f"{what}_error", k)
            / mean_at(frozen[L, "fields"], f"{what}_change", k)
            for L in depths
            for k in DISTANCES
        ]
        for what in ("unseen", "u", "b")
    }
    flipped = [run.flipped[run.at(100)] for L in depths for run in frozen[L, "kernel"]]
    return [
        Statement(
            "With masks frozen at an anchor, r is predicted up to 100 steps on with an error "
            "below a third of its true change, on average, whatever is carried along",
            max(ratio.values()) < 1 / 3,
            "; ".join(
                f"L = {L}, {carried}: "
                + ", ".join(f"{100 * ratio[L, carried, k]:.0f} %" for k in DISTANCES)
                for L in depths
                for carried in ("weights", "fields", "kernel")
            )
            + f" after {', '.join(map(str, DISTANCES))} steps",
        ),
        Statement(
            "Over 1 and 5 steps carrying the weights is no worse than a frozen kernel",
            max(near) < 1.02,
            f"its error over that of the kernel: {', '.join(f'{value:.2f}' for value in near)}",
        ),
        Statement(
            "Over 20 and 100 steps both err alike (within 40 %): flips, not products of weights, "
            "set the limit",
            all(abs(value - 1) < 0.4 for value in far),
            f"ratio {', '.join(f'{value:.2f}' for value in far)}; "
            f"{np.mean([f.sum() for f in flipped]):.0f} masks differ from the anchor's after "
            "100 steps",
        ),
        Statement(
            "Outputs for unseen inputs are predicted as well: error below a third of their change",
            max(explained["unseen"]) < 1 / 3,
            f"{_range(explained['unseen'])} of the change",
        ),
        Statement(
            "Inside the network flips weigh more: frozen masks leave up to two thirds of the "
            "change of u unexplained, and of b, which jumps where a mask above it flips, more "
            "than three quarters at every distance",
            max(explained["u"]) < 2 / 3 and min(explained["b"]) > 3 / 4,
            f"u: {_range(explained['u'])}; b: {_range(explained['b'])} of the change",
        ),
    ]


def _stuck(part: Part) -> Statement:
    loss, share, warned = (part[name].item() for name in ("loss", "share", "warned"))
    return Statement(
        "A mean of ReLUs cannot fit targets ±1: the loss stops at the share of −1, and a warning "
        "says so",
        share - 1e-6 < loss < share + 0.05 and warned,
        f"loss {loss:.3f} after 1000 steps, share {share:.3f} (L = 2)",
    )


def _range(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"


def mean_at(runs: Sequence[AnchoredRun], name: str, distance: int) -> float:
    """Average over anchors, layers and seeds at one distance from the anchor."""
    return float(np.mean([np.mean(getattr(run, name)[run.at(distance)]) for run in runs]))
