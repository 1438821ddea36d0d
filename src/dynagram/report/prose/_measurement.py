"""What stands out in a measured network, in one paragraph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dynagram.observables._measurement import LayerMeasurement, Measurement

_SIGMAS = 4.0  # from where on a measure is said to differ from its null
_LINEARITY_STEP = 0.02


def describe_measurement(found: Measurement) -> str:
    """A measurement in one paragraph: result, linearity, tangent kernel, Gram, spectra, norms.

    **Arguments:**

    - `found`: what `measure` returned.

    **Returns:** sentences on what stands out, each against its null.

    >>> import numpy as np
    >>> from dynagram import Data, Model, measure
    >>> rng = np.random.default_rng(0)
    >>> model = Model.of_matrices([rng.normal(size=(20, 5)), rng.normal(size=(2, 20))], "relu")
    >>> x = rng.normal(size=(80, 5))
    >>> text = describe_measurement(measure(model, Data.of_classes(x, (x[:, 0] > 0).astype(int))))
    >>> text.startswith("On 80 samples the cross-entropy is")
    True
    """
    sentences = [
        _result(found),
        _linearity(found),
        _kernel(found.layers),
        _push(found.layers),
        _spectra(found.layers),
        _norms(found.layers),
        _dead(found.layers),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _result(found: Measurement) -> str:
    names = {"mean": "mean squared error", "half-sum": "half sum of squared errors"}
    loss = names.get(found.loss_name, found.loss_name)
    text = f"On {found.samples} samples the {loss} is {found.loss:.3g}"
    return (
        f"{text}." if found.accuracy is None else f"{text} and the accuracy {found.accuracy:.3f}."
    )


def _linearity(found: Measurement) -> str:
    hidden = [layer.linearity for layer in found.layers[:-1]]
    scores = [entry.score for entry in hidden]
    if not hidden:
        return ""
    best = max([found.input_linearity, *hidden], key=lambda entry: entry.above_null)
    if best.above_null < _SIGMAS:
        return (
            "No layer's features predict the targets linearly better than features that have "
            "nothing to do with them."
        )
    start, end = found.input_linearity.score, scores[-1]
    if len(scores) < 2:
        return f"Target linearity goes from {start:.2f} at the input to {end:.2f}."
    steps = [b - a for a, b in itertools.pairwise(scores)]
    if min(steps) > -_LINEARITY_STEP / 2 and sum(steps) > _LINEARITY_STEP:
        trend = "rises along the hidden layers, as after training"
    elif max(steps) < _LINEARITY_STEP / 2 and sum(steps) < -_LINEARITY_STEP:
        trend = "falls along the hidden layers, as it does before training"
    else:
        trend = "neither rises nor falls clearly along the hidden layers"
    return f"Target linearity {trend} (input {start:.2f}; layers {_listed(scores)})."


def _kernel(layers: Sequence[LayerMeasurement]) -> str:
    largest = max(layers, key=lambda layer: layer.kernel_share)
    if len(layers) < 2 or not largest.kernel_share >= 1.5 / len(layers):
        return ""
    share = f"{100 * largest.kernel_share:.0f} %"
    return f"At equal learning rates {share} of the tangent kernel is layer {largest.layer}'s."


def _push(layers: Sequence[LayerMeasurement]) -> str:
    grown = [entry for entry in layers if entry.alignment and entry.alignment.score > _SIGMAS]
    shrunk = [entry for entry in layers if entry.alignment and entry.alignment.score < -_SIGMAS]
    parts = []
    if grown:
        parts.append(f"a further step would make the Gram of {_names(grown)} grow along itself")
        if min(entry.alignment.value for entry in grown if entry.alignment) > 0.9:
            parts[-1] += ", as at rest under weight decay"
    if shrunk:
        parts.append(f"a further step would shrink the Gram of {_names(shrunk)}")
    return _sentence("; ".join(parts))


def _spectra(layers: Sequence[LayerMeasurement]) -> str:
    by_verdict: dict[str, list[LayerMeasurement]] = {}
    for layer in layers:
        by_verdict.setdefault(layer.spectrum.verdict, []).append(layer)
    judged = [layer for layer in layers if layer.spectrum.verdict != "too small"]
    if not judged:
        return "No layer is large enough to judge its spectrum."
    if len(by_verdict.get("random", [])) == len(judged):
        return "Every spectrum large enough to judge cannot be told from random weights."
    parts = []
    if spiked := by_verdict.get("spikes"):
        counts = ", ".join(f"{layer.spectrum.spikes} in layer {layer.layer}" for layer in spiked)
        parts.append(f"eigenvalues stand above a random bulk: {counts}")
    if heavy := by_verdict.get("heavy-tailed"):
        parts.append(f"{_names(heavy)} has a power-law tail that random weights do not have")
    if other := by_verdict.get("neither"):
        parts.append(f"the spectrum of {_names(other)} is neither random nor a power law")
    return _sentence("; ".join(parts))


def _norms(layers: Sequence[LayerMeasurement]) -> str:
    ratios = [
        (math.log(above.norm / below.norm), below, above)
        for below, above in itertools.pairwise(layers)
        if above.norm > 0 and below.norm > 0
    ]
    if not ratios:
        return ""
    ratio, below, above = max(ratios, key=lambda entry: abs(entry[0]))
    if abs(ratio) < math.log(4.0):
        return ""
    small, large = (above, below) if ratio < 0 else (below, above)
    return (
        f"The weights of layer {large.layer} have {math.exp(abs(ratio)):.0f} times the squared "
        f"norm of layer {small.layer}'s."
    )


def _dead(layers: Sequence[LayerMeasurement]) -> str:
    dead = [layer for layer in layers if layer.dead]
    if not dead:
        return ""
    counts = ", ".join(f"{layer.dead} of {layer.shape[0]} in layer {layer.layer}" for layer in dead)
    return f"Units that never change on this batch: {counts}."


def _names(layers: Sequence[LayerMeasurement]) -> str:
    numbers = [str(layer.layer) for layer in layers]
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    return f"layers {', '.join(numbers[:-1])} and {numbers[-1]}"


def _listed(scores: Sequence[float]) -> str:
    return ", ".join(f"{score:.2f}" for score in scores)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
