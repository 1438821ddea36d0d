"""What fields-coactivation claims, decided by the runs: pass or fail with the numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynagram.results import Estimate
from dynagram_experiments import Statement
from dynagram_experiments._parts import Table
from dynagram_experiments.fields._tasks import WIDTH
from dynagram_experiments.fields.coactivation.runs import STEPS, Runs

MEAN, SIGNED, CONTROL = "L = 2, mean", "L = 2, signed", "L = 2, mean, targets 1 and 2"
DEEP, PARITY, SHALLOW = "L = 3, mean", "parity, L = 2, mean", "parity, L = 1, mean"
END = STEPS[-1]
PIXELS = 64


def statements(runs: Mapping[str, Runs]) -> tuple[Statement, ...]:
    """All of them, by topic."""
    return (
        *_training(runs),
        *_coactivation(runs),
        *_metrics(runs),
        *_kernels(runs),
        *_tails(runs),
    )


def _training(runs: Mapping[str, Runs]) -> list[Statement]:
    wanted = {MEAN: (0.01, 0.98), DEEP: (0.01, 0.98), PARITY: (0.01, 0.93)}
    learnt = {n: (runs[n].at("loss", END), runs[n].at("test accuracy", END)) for n in wanted}
    passed = all(
        loss.value < wanted[n][0] and accuracy.value > wanted[n][1]
        for n, (loss, accuracy) in learnt.items()
    )
    claim = (
        "A fixed mean readout learns targets {0, 1}: loss below 0.01, accuracy on unseen digits "
        "above 0.98 (0 vs 1) and 0.93 (parity)"
    )
    text = "; ".join(
        f"{n}: loss {loss:.3f}, accuracy {acc:.3f}" for n, (loss, acc) in learnt.items()
    )
    return [Statement(claim, passed, text)]


def _coactivation(runs: Mapping[str, Runs]) -> list[Statement]:
    widened = {n: runs[n].change(f"gap {runs[n].case.L}") for n in (MEAN, SIGNED, DEEP, PARITY)}
    mean, signed, control = runs[MEAN], runs[SIGNED], runs[CONTROL]
    same, upper, lower = (mean.change(f"{kind} 2") for kind in ("same", "upper", "lower"))
    apart = {n: runs[n].change(f"different {runs[n].case.L}") for n in (MEAN, SIGNED, DEEP)}
    least = {MEAN: -0.2, SIGNED: -0.1, DEEP: -0.2}
    levels = [control.change(f"{kind} 2") for kind in ("same", "different", "gap")]
    layers = [runs[DEEP].change(f"gap {layer}") for layer in (1, 2, 3)]
    scores = np.concatenate([r.numbers["shuffled gap score"][:, -1] for r in runs.values()])
    true = [r.at(f"gap score {r.case.L}", END) for r in runs.values()]
    return [
        Statement(
            "The gap between same-class and different-class co-activation of the last layer "
            "widens by more than 0.05 in every one of these settings",
            all(_above(gap, 0.05) for gap in widened.values()),
            _listed(widened),
        ),
        Statement(
            "Same-class co-activation need not grow: with the mean readout and targets {0, 1} it "
            "falls, because the pairs with target 0 go silent while those with target 1 rise",
            _below(same, 0.0)
            and _below(lower, -0.2)
            and bool(upper.value > 2.0 * upper.standard_error),
            f"same {same:.3f}; target 1 {upper:.3f}; target 0 {lower:.3f}",
        ),
        Statement(
            "Different-class co-activation falls, by more than 0.2 (mean) and 0.1 (signed)",
            all(_below(value, least[n]) for n, value in apart.items()),
            _listed(apart),
        ),
        Statement(
            "The levels follow the targets, not the classes: with targets {1, 2} both kinds of "
            "pairs rise by more than 0.1 and the gap changes by less than 0.03",
            _above(levels[0], 0.1) and _above(levels[1], 0.1) and bool(abs(levels[2].value) < 0.03),
            f"same {levels[0]:.3f}; different {levels[1]:.3f}; gap {levels[2]:.3f}",
        ),
        Statement(
            "The deeper the layer, the more its gap widens (L = 3)",
            bool(layers[0].value < layers[1].value < layers[2].value)
            and _above(layers[0], -0.01)
            and _above(layers[2], layers[1].value),
            _listed({f"layer {i}": gap for i, gap in enumerate(layers, start=1)}),
        ),
        Statement(
            "Null: with shuffled labels the same networks show no gap (in deviations of shuffles)",
            bool(np.all(np.abs(scores) < 4.5)) and all(value.value > 10 for value in true),
            f"shuffled: mean {np.mean(scores):.2f}, largest {np.max(np.abs(scores)):.2f} of "
            f"{len(scores)}; true labels: at least {min(value.value for value in true):.0f}",
        ),
        Statement(
            "With a signed readout and targets ±1 the class gap comes from different-class pairs: "
            "same-class co-activation moves by less than 0.1",
            bool(abs(signed.change("same 2").value) < 0.1),
            f"same {signed.change('same 2'):.3f}; different {apart[SIGNED]:.3f}",
        ),
    ]


def _metrics(runs: Mapping[str, Runs]) -> list[Statement]:
    deep = {n: r for n, r in runs.items() if r.case.L > 1}
    start = {
        f"{n}, {kind}": r.at(f"rank ratio {kind}", 0)
        for n, r in deep.items()
        for kind in ("same", "different")
    }
    falls = {
        n: (runs[n].at("rank different", 0), runs[n].at("rank different", END))
        for n in (MEAN, DEEP, PARITY)
    }
    against_null = {n: runs[n].at("rank ratio different", END) for n in (MEAN, DEEP)}
    concentrated = {
        kind: runs[PARITY].at(f"rank ratio {kind}", END) for kind in ("same", "different")
    }
    excess = [
        r.at(f"gram excess {kind}", 0) for r in deep.values() for kind in ("same", "different")
    ]
    return [
        Statement(
            "Null: untrained, the effective rank of the pullback metric is that of k Gaussian "
            "rows, kN/(N + k + 1), to 1 %, and its overlap with WᵀW that of k rows at random",
            all(abs(m.value - 1) < 0.01 + 3 * m.standard_error for m in start.values())
            and all(abs(m.value) < 0.01 + 3 * m.standard_error for m in excess),
            f"ratio {min(m.value for m in start.values()):.3f} to "
            f"{max(m.value for m in start.values()):.3f}; overlap off by at most "
            f"{max(abs(m.value) for m in excess):.3f}",
        ),
        Statement(
            "The effective rank of the last metric falls by more than half for pairs of "
            "different classes (mean readout, targets {0, 1})",
            all(_below(end, start.value / 2) for start, end in falls.values()),
            "; ".join(
                f"{n}: {a.value:.1f} → {b.value:.1f} ± {b.standard_error:.1f}"
                for n, (a, b) in falls.items()
            ),
        ),
        Statement(
            "On 0 vs 1 that is because fewer units are active for both: against the null of as "
            "many Gaussian rows the rank stays within 3 %",
            all(abs(ratio.value - 1) < 0.03 for ratio in against_null.values()),
            _listed(against_null),
        ),
        Statement(
            "On parity, where weights move more, the metric itself concentrates: ratio below "
            "0.9 (same class) and below 1 (different)",
            _below(concentrated["same"], 0.9) and _below(concentrated["different"], 1.0),
            _listed(concentrated),
        ),
    ]


def _kernels(runs: Mapping[str, Runs]) -> list[Statement]:
    moved = {
        n: (runs[n].change("share 1"), runs[n].change(f"share {runs[n].case.L}"))
        for n in (MEAN, DEEP, PARITY)
    }
    first = runs[SIGNED].at("share 1", 0)
    formula = PIXELS / (PIXELS + WIDTH)
    left = {
        n: (r.at("residual in top 5", 0), r.at("residual in top 5", 100)) for n, r in runs.items()
    }
    names = {MEAN: "stays", SIGNED: "rises", PARITY: "rises"}
    aligned = {n: runs[n].change("alignment") for n in names}
    null = runs[MEAN].at("alignment null", END)
    early, late = (runs[MEAN].flips_between(*span) for span in ((0, 10), (500, END)))
    return [
        Statement(
            "The first layer's share of tr K grows and the last layer's falls",
            all(_above(up, 0.0) and _below(down, 0.0) for up, down in moved.values()),
            "; ".join(f"{n}: first {up:.3f}, last {down:.3f}" for n, (up, down) in moved.items()),
        ),
        Statement(
            "Untrained with a signed readout, layer 1 holds n_0/(n_0 + N(L−1)) of tr K, to 15 %",
            bool(abs(first.value / formula - 1.0) < 0.15),
            f"{first:.3f} against {formula:.3f} (L = 2)",
        ),
        Statement(
            "The residual leaves the top of K's spectrum: the share of ‖r‖² in the five leading "
            "eigenvectors falls below 0.05 within 100 steps",
            all(end.value < 0.05 < start.value for start, end in left.values()),
            "; ".join(f"{n}: {a.value:.2f} → {b.value:.3f}" for n, (a, b) in left.items()),
        ),
        Statement(
            "Centred kernel–target alignment rises on parity and with a signed readout; on 0 vs 1 "
            "with the mean readout it stays within 0.1 of where it was",
            _above(aligned[SIGNED], 0.0)
            and _above(aligned[PARITY], 0.0)
            and bool(abs(aligned[MEAN].value) < 0.1),
            f"{_listed(aligned)}; null {null:.3f}",
        ),
        Statement(
            "Masks go on flipping, but late steps flip less than a third of what the first ten do "
            "(L = 2, mean)",
            bool(0.0 < late.value < early.value / 3),
            f"share of (α, i) per step: {early.value:.1e} ± {early.standard_error:.0e} in the "
            f"first ten, {late.value:.1e} ± {late.standard_error:.0e} in the last {END - 500}",
        ),
    ]


def _tails(runs: Mapping[str, Runs]) -> list[Statement]:
    tails = Table.joined(of_case.tails for of_case in runs.values())
    untrained, trained = (
        {name: tails.each(name, weights=which) for name in ("verdict", "alpha", "layer")}
        for which in ("untrained", "trained")
    )
    hidden = trained["verdict"][trained["layer"] > 1]
    shallow, alphas = runs[SHALLOW].tails, untrained["alpha"]
    first, copies = (
        shallow.each("verdict", weights=which, layer=1) for which in ("trained", "shuffled")
    )
    exponents = {
        which: shallow.mean("alpha", weights=which, layer=1)
        for which in ("trained", "untrained", "shuffled")
    }
    of_second = {"weights": "trained", "layer": 2}
    second = runs[PARITY].tails.each("verdict", **of_second)
    beyond = runs[PARITY].tails.mean("largest_over_edge", **of_second)
    heavy = "heavy-tailed"
    return [
        Statement(
            "Null: no untrained layer is judged heavy-tailed, though power laws can be fitted",
            heavy not in untrained["verdict"],
            f"{_verdicts(untrained['verdict'])}; fitted α {alphas.min():.1f} to {alphas.max():.1f}",
        ),
        Statement(
            "Trained hidden weights (ℓ ≥ 2) are a random bulk with a few eigenvalues above it "
            "(nine tenths or more of the layers), none is heavy-tailed",
            heavy not in hidden
            and int(np.isin(hidden, ("random", "spikes")).sum()) >= 0.9 * len(hidden),
            f"{_verdicts(hidden)}; W2 on parity: {_verdicts(second)}, λ_max over the edge "
            f"{beyond:.3f}",
        ),
        Statement(
            "W1 of one hidden layer on parity is judged heavy-tailed for most seeds, and copies "
            "with permuted entries never are",
            int(np.sum(first == heavy)) > 0.5 * len(first) and heavy not in copies,
            f"{_verdicts(first)}, copies: {_verdicts(copies)}; α {exponents['trained']:.3f}, "
            f"untrained {exponents['untrained']:.3f}, permuted {exponents['shuffled']:.3f}",
        ),
    ]


def _verdicts(verdicts: np.ndarray) -> str:
    names = verdicts.tolist()
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _above(estimate: Estimate, level: float | np.ndarray) -> bool:
    return bool(estimate.value - 3.0 * estimate.standard_error > level)


def _below(estimate: Estimate, level: float | np.ndarray) -> bool:
    return bool(estimate.value + 3.0 * estimate.standard_error < level)


def _listed(values: Mapping[str, Estimate]) -> str:
    return "; ".join(f"{name}: {value:.3f}" for name, value in values.items())
