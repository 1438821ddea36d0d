"""fields-spectrum: does the accumulated metric G shape the spectrum of WᵀW (213)?

Two hidden layers of ReLU units on the parity of digits, weights at half of He's scale so that they
move much. Along full-batch descent the metrics G^αβ = WᵀD^αβW of the second layer are added up,
once over all pairs and once weighted with the residuals of the pair. They contain W, so the control
is the same sum with every unit counted as active: Σ_t W_tᵀW_t. The question is which of them points
at the eigenvalues of WᵀW that end above the random bulk.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dynagram.networks import Model
from dynagram.observables.fields._state import fields, fixed_readout
from dynagram.observables.spectra._spectra import weight_spectrum
from dynagram.results import Estimate
from dynagram.theory.fields import descend, loss_gradient
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.fields._tasks import he_network, parity

NAME = "fields-spectrum"
WIDTH, SAMPLES, SCALE, RATE = 128, 200, 0.5, 1.0
STRIDE, LOOKS, EARLY = 20, 60, 6
SEEDS = 4
SUMS = ("G, all pairs", "G, residuals", "WᵀW", "virtual covariance")


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(10 if settings.full else SEEDS)]
    makers: dict[str, Any] = {f"seed {seed}": functools.partial(_followed, seed) for seed in seeds}
    makers["law"] = functools.partial(_law, seeds[0])
    plan = {"stride": STRIDE, "looks": LOOKS, "width": WIDTH}
    parts = finish_parts(settings, NAME, makers, plan)
    table = Table.joined(part for key, part in parts.items() if key != "law")
    statements = _statements(table, float(parts["law"]["error"]))
    better = any(s.passed for s in statements if "better than the sum of WᵀW" in s.claim)
    return Result(
        statements,
        {"spikes": table.columns()},
        draw_if_possible(lambda: _figures(table)),
        (
            f"Parity of {SAMPLES} digits, two hidden layers of {WIDTH}, {STRIDE * LOOKS} steps, "
            f"{len(seeds)} seeds; the second layer. A share is that of the span of the spikes of "
            "WᵀW that lies in the span of as many leading eigenvectors of the sum; at random it "
            "is their number over the width.",
            "In short: an accumulated G says more of the spikes than the weights themselves."
            if better
            else "In short: an accumulated G points at the spikes no better than the weights that "
            "are in it, WᵀW without the masks. That G shapes the spectrum is not seen here.",
        ),
    )


def _start(seed: int) -> Model:
    model = he_network(2, seed, n_0=64, width=WIDTH, readout="signed")
    weights = [SCALE * np.asarray(layer.W) for layer in model.params[:-1]]
    readout = WIDTH * np.asarray(model.params[-1].W)[0]
    return fixed_readout(weights, "relu", readout=readout)


def _followed(seed: int) -> dict[str, Any]:
    """One run: how much of the final spikes each accumulated matrix holds, early and at the end."""
    task = parity(SAMPLES, seed)
    y = 2.0 * task.labels - 1.0
    model = _start(seed)
    sums = {name: np.zeros((WIDTH, WIDTH)) for name in SUMS}
    early: dict[str, np.ndarray] = {}
    losses = []
    for look in range(LOOKS):
        state = fields(model, task.x)
        residual = state.output - y
        W, masks = state.weights(2), state.a[1]
        gradient = np.asarray(loss_gradient(state, residual)[1].W)
        pull = W.T @ gradient
        usual = masks.mean(axis=0) ** 2
        weighted = (residual @ masks / SAMPLES) ** 2
        sums["G, all pairs"] += (W * usual[:, None]).T @ W
        sums["G, residuals"] += (W * weighted[:, None]).T @ W
        sums["WᵀW"] += W.T @ W
        sums["virtual covariance"] -= RATE * STRIDE * (pull + pull.T)
        losses.append(float(np.mean(residual**2)))
        if look + 1 == EARLY:
            early = {name: matrix.copy() for name, matrix in sums.items()}
        model = descend(model, task.x, y, eta=RATE, steps=STRIDE).model
    W = np.asarray(model.params[1].W, dtype=np.float64)
    spectrum = weight_spectrum(W, seed=seed)
    spikes = max(1, int(spectrum.spikes or 0))
    top = _leading(W.T @ W, spikes)
    return {
        "seed": seed,
        "spikes": spikes,
        "found": int(spectrum.spikes or 0),
        "loss": losses[-1],
        "null": spikes / WIDTH,
        **{f"{name}, all": _share(top, matrix) for name, matrix in sums.items()},
        **{f"{name}, early": _share(top, matrix) for name, matrix in early.items()},
    }


def _law(seed: int) -> dict[str, Any]:
    """(213) for the Gram itself: the sum of the steps' changes by the exact law (D16.3)."""
    task = parity(50, seed)
    y = 2.0 * task.labels - 1.0
    model = _start(seed)
    before = np.asarray(model.params[1].W)
    total = np.zeros((WIDTH, WIDTH))
    for _ in range(20):
        state = fields(model, task.x)
        gradient = np.asarray(loss_gradient(state, state.output - y)[1].W)
        pull = state.weights(2).T @ gradient
        total += RATE**2 * gradient.T @ gradient - RATE * (pull + pull.T)
        model = descend(model, task.x, y, eta=RATE, steps=1).model
    after = np.asarray(model.params[1].W)
    change = after.T @ after - before.T @ before
    return {"error": np.linalg.norm(total - change) / np.linalg.norm(change)}


def _leading(matrix: np.ndarray, count: int) -> np.ndarray:
    """Eigenvectors of the eigenvalues largest in size."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors[:, np.argsort(-np.abs(values))[:count]]


def _share(top: np.ndarray, matrix: np.ndarray) -> float:
    """The part of the span of `top` within as many leading eigenvectors of `matrix`."""
    return float(np.sum((top.T @ _leading(matrix, top.shape[1])) ** 2) / top.shape[1])


def _statements(table: Table, law: float) -> tuple[Statement, ...]:
    def mean(name: str, when: str) -> Estimate:
        return table.mean(f"{name}, {when}")

    def told(when: str) -> str:
        return ", ".join(f"{name} {mean(name, when):.3f}" for name in SUMS)

    def beats(name: str, when: str) -> tuple[bool, Estimate]:
        gain = Estimate.of_samples(table.each(f"{name}, {when}") - table.each(f"{SUMS[2]}, {when}"))
        return bool(gain.value > 2 * gain.standard_error), gain

    found, covariance = table["found"], mean(SUMS[3], "all")
    statements = [
        Statement(
            "The Gram's change is the sum of its steps' virtual covariances and remainders",
            law < 1e-10,
            f"relative error {law:.1e} after 20 steps",
        ),
        Statement(
            "Eigenvalues of WᵀW leave the random bulk in every run",
            bool(found.min() >= 1),
            f"spikes: {', '.join(str(int(count)) for count in found)}",
        ),
        Statement(
            "The accumulated virtual covariance points at them: share above 0.8",
            bool(covariance.value > 0.8),
            f"{covariance:.3f}, random {float(np.mean(table['null'])):.3f}",
        ),
    ]
    for name in SUMS[:2]:
        for when, words in (("all", "over the run"), ("early", "over its first tenth")):
            holds, gain = beats(name, when)
            statements.append(
                Statement(
                    f"{name}, accumulated {words}, points at them better than the sum of WᵀW "
                    "itself, by 2 standard errors",
                    holds,
                    f"gain {float(gain.value):+.3f} ± {float(gain.standard_error):.3f}; shares: "
                    f"{told(when)}",
                )
            )
    return tuple(statements)


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    lines = {
        name: Line.through(
            {moment: table.mean(f"{name}, {when}") for moment, when in ((1, "early"), (10, "all"))}
        )
        for name in SUMS
    }
    x = Axis("tenths of the run added up", "log")
    return {"spikes": line_chart(lines, x, Axis("share of the spikes of WᵀW"))}


EXPERIMENT = Experiment(
    name=NAME,
    summary="does the accumulated pullback metric shape the spectrum of the weights (213)",
    source="Nordio, arXiv:2606.09744v3, section 10.3",
    run=_run,
)
