"""Fixed-readout networks trained on digits and measured on the way: fields-coactivation's data."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.networks import Params
from dynagram.observables.fields._alignment import (
    class_contrast,
    kernel_target_alignment,
    residual_in_top,
)
from dynagram.observables.fields._metrics import metric_statistics
from dynagram.observables.fields._overlaps import coactivation, kernel_terms, layer_shares
from dynagram.observables.fields._state import Fields, fields
from dynagram.observables.spectra._spectra import WeightSpectrum, weight_spectrum
from dynagram.results import Estimate
from dynagram.theory.fields import descend
from dynagram_experiments._parts import Part, Table
from dynagram_experiments.fields._tasks import RATES, TASKS, WIDTH, he_network

STEPS = (0, 1, 3, 10, 30, 100, 300, 1000)
SAMPLES = {"0 vs 1": 200, "parity": 300}
SPECTRA = ("untrained", "trained", "shuffled")
_PAIRS = 300


@dataclass(frozen=True)
class Case:
    """What is trained: digits of two classes, L hidden layers, readout and targets."""

    name: str
    task: str
    L: int
    readout: str = "mean"
    targets: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Runs:
    """What the seeds of one case gave: numbers[name] is (seeds, steps), flips (seeds, all steps).

    `tails` has one row per weight matrix: `weights` is "untrained", "trained" or "shuffled" (the
    trained ones with their entries permuted), `layer` its number. `eigenvalues` are those of the
    last matrix of the first seed.
    """

    case: Case
    numbers: Mapping[str, np.ndarray]
    flips: np.ndarray
    tails: Table
    eigenvalues: Mapping[str, np.ndarray]

    def at(self, name: str, step: int) -> Estimate:
        """Mean ± s.e. of one quantity at one step."""
        return Estimate.of_samples(self.numbers[name][:, STEPS.index(step)])

    def change(self, name: str, end: int = STEPS[-1], start: int = 0) -> Estimate:
        """Mean ± s.e. of the change between two steps, seed by seed."""
        columns = self.numbers[name]
        return Estimate.of_samples(columns[:, STEPS.index(end)] - columns[:, STEPS.index(start)])

    def flips_between(self, first: int, last: int) -> Estimate:
        """The share of all (α, i) that flip in one step, averaged over steps first..last-1."""
        return Estimate.of_samples(self.flips[:, first:last].mean(axis=1))

    def part(self) -> Part:
        """As arrays, without the case."""
        return {
            "names": np.array(list(self.numbers)),
            "numbers": np.stack(list(self.numbers.values())),
            "flips": self.flips,
            **{f"tail {name}": column for name, column in self.tails.items()},
            **{f"eigenvalues {name}": values for name, values in self.eigenvalues.items()},
        }

    @classmethod
    def of_part(cls, case: Case, part: Part) -> Runs:
        """The inverse of `part`."""

        def named(prefix: str) -> dict[str, np.ndarray]:
            return {k.removeprefix(prefix): v for k, v in part.items() if k.startswith(prefix)}

        numbers = dict(zip(part["names"].tolist(), part["numbers"], strict=True))
        return cls(case, numbers, part["flips"], Table(named("tail ")), named("eigenvalues "))


def run_case(case: Case, seeds: list[int], dtype: str) -> Runs:
    """Train and measure one network per seed, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda seed: _run(case, seed, dtype), seeds))
    names = runs[0][0][0]
    numbers = {
        name: np.array([[row[name] for row in rows] for rows, _, _ in runs]) for name in names
    }
    tails = Table.of_rows(
        {"weights": which, "layer": layer} | _described(spectra[which][layer - 1])
        for which in SPECTRA
        for layer in range(1, case.L + 1)
        for _, _, spectra in runs
    )
    first = {which: runs[0][2][which][-1].eigenvalues for which in SPECTRA}
    return Runs(case, numbers, np.array([flips for _, flips, _ in runs]), tails, first)


def _described(spectrum: WeightSpectrum) -> dict[str, Any]:
    """What is told of a spectrum; nan where there is no fit."""

    def number(value: float | int | None) -> float:
        return float("nan") if value is None else float(value)

    tail, null = spectrum.tail, spectrum.distance_null
    return {
        "verdict": spectrum.verdict,
        "alpha": number(tail and tail.exponent),
        "in_tail": number(tail and tail.tail),
        "p_value": number(tail and tail.p_value),
        "random_alpha": number(spectrum.random_exponent),
        "spikes": number(spectrum.spikes),
        "largest_over_edge": number(
            spectrum.edge and float(spectrum.eigenvalues[-1]) / spectrum.edge
        ),
        "distance": number(spectrum.distance),
        "random_distance": number(null and null.mean),
    }


def _run(
    case: Case, seed: int, dtype: str
) -> tuple[list[dict[str, float]], np.ndarray, dict[str, list[WeightSpectrum]]]:
    task = TASKS[case.task](SAMPLES[case.task], seed)
    low, high = case.targets
    y = np.where(task.labels == 1, high, low)
    model = he_network(case.L, seed, n_0=task.x.shape[1], readout=case.readout, dtype=dtype)
    start, rows, flips, now = model.params, [], [], 0
    spectra = {"untrained": _spectra(model.params)}
    for step in STEPS:
        run = descend(model, task.x, y, eta=RATES[case.L], steps=step - now)
        model, now = run.model, step
        flips.append(run.flips.sum(axis=1))
        seen = fields(model, task.x)
        row = _measure(seen, y, task.labels, seed)
        outside = fields(model, task.unseen).output
        right = (outside > (low + high) / 2) == (task.unseen_labels == 1)
        pairs = zip(start[:-1], model.params[:-1], strict=True)
        for layer, (old, new) in enumerate(pairs, start=1):
            distance = np.linalg.norm(_weights(new.W) - _weights(old.W))
            row[f"moved {layer}"] = float(distance / np.linalg.norm(_weights(old.W)))
        rows.append(row | {"test accuracy": float(np.mean(right))})
    units = len(y) * case.L * WIDTH
    rng = np.random.default_rng(seed)
    shuffled = [
        rng.permutation(_weights(layer.W).ravel()).reshape(layer.W.shape)
        for layer in model.params[:-1]
    ]
    spectra |= {
        "trained": _spectra(model.params),
        "shuffled": [weight_spectrum(W) for W in shuffled],
    }
    return rows, np.concatenate(flips) / units, spectra


def _weights(W: object) -> np.ndarray:
    return np.asarray(W, dtype=np.float64)


def _spectra(params: Params) -> list[WeightSpectrum]:
    return [weight_spectrum(_weights(layer.W)) for layer in params[:-1]]


def _measure(seen: Fields, y: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, float]:
    """All scalars of one moment; those of layers end in the layer's number."""
    A = coactivation(seen).astype(np.float64)
    contrast = class_contrast(A, labels)
    row = {}
    for layer in range(1, seen.hidden_layers + 1):
        row[f"same {layer}"] = float(contrast.same[layer - 1])
        row[f"different {layer}"] = float(contrast.different[layer - 1])
        row[f"gap {layer}"] = float(contrast.gap[layer - 1])
        row[f"gap score {layer}"] = float(
            contrast.gap[layer - 1] / contrast.gap_deviation[layer - 1]
        )
        for name, label in (("lower", 0), ("upper", 1)):
            inside = A[layer - 1][np.ix_(labels == label, labels == label)]
            pairs = len(inside) * (len(inside) - 1)
            row[f"{name} {layer}"] = float((inside.sum() - np.trace(inside)) / pairs)
    shuffled = np.random.default_rng(seed).permutation(labels)
    chance = class_contrast(A[-1:], shuffled)
    row["shuffled gap score"] = float(chance.gap[0] / chance.gap_deviation[0])
    terms = kernel_terms(seen).astype(np.float64)
    K, r = terms.sum(axis=0), seen.output.astype(np.float64) - y
    row |= {f"share {i}": float(s) for i, s in enumerate(layer_shares(terms)[:-1], start=1)}
    aligned = kernel_target_alignment(K, y)
    row |= {
        "loss": float(np.mean(r**2)),
        "residual in top 5": residual_in_top(K, r, 5).value,
        "alignment": aligned.value,
        "alignment null": aligned.null.mean,
    }
    return row | (_metrics(seen, labels, seed) if seen.hidden_layers > 1 else {})


def _metrics(seen: Fields, labels: np.ndarray, seed: int) -> dict[str, float]:
    """The last pullback metric on random pairs of each kind that have a common active unit."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.integers(0, seen.samples, (2, 20 * _PAIRS))
    row = {}
    for name, wanted in (("same", True), ("different", False)):
        kind = ((labels[alpha] == labels[beta]) == wanted) & (alpha != beta)
        pairs = alpha[kind][:_PAIRS], beta[kind][:_PAIRS]
        metrics = metric_statistics(seen, seen.hidden_layers - 1, *pairs)
        some = metrics.coactive > 0
        row[f"rank {name}"] = float(np.mean(metrics.effective_rank[some]))
        row[f"rank ratio {name}"] = float(np.mean(metrics.rank_ratio[some]))
        row[f"coactive {name}"] = float(np.mean(metrics.coactive))
        excess = metrics.gram_overlap[some] - metrics.gram_overlap_null[some]
        row[f"gram excess {name}"] = float(np.mean(excess))
    return row
