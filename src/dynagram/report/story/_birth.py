"""Chapter (a): the network at birth. Signals, gradients, and what two draws differ by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynagram.ensembles._simulate import simulate
from dynagram.ensembles.engine._progress import Progress
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.observables import measure
from dynagram.report._blocks import Figure, Finding, Heading, Section, Table, Text, Tile
from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._export import Chart
from dynagram.report._phase import phase_figure
from dynagram.report._tensor_charts import entries_chart
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject, equal_rates
from dynagram.report.story._words import applies, kind_of, other_reasons, percent, with_error
from dynagram.results._comparison import compare
from dynagram.results._tensors import Tensors
from dynagram.theory._predict import predict
from dynagram.theory.criticality import critical_points, ntk_shares

TITLE = "Your network at birth"
# Networks whose gradients are measured: a standard error of fewer says little.
_MODELS = 12
_MADE = """from dynagram import compare, predict, simulate
T = predict(network, x, ("K", "V", "G1"), seed={seed})     # theory, order 1/n
T_ = simulate(network, x, ("K", "V", "G1"), members={members}, seed={seed})   # draws
compare(T, T_)"""
_SHARES = """from dynagram import measure
from dynagram.report.story import equal_rates
from dynagram.theory.criticality import ntk_shares
ntk_shares(equal_rates(network), (batch.x**2).mean(axis=1))      # every parameter at rate 1
[layer.kernel_share for layer in measure(network.init(seed={seed}), batch).layers]
# the same with the next seeds: {models} networks"""


def tell_birth(subject: Subject, effort: Effort, progress: Callable[[Progress], object]) -> Section:
    """Predicted and measured signals, and each layer's part in learning."""
    network = subject.network
    x = _three_inputs(subject)
    predicted = predict(network, x, ("K", "V", "G1"), seed=effort.seed)
    measured = simulate(
        network, x, ("K", "V", "G1"), members=effort.drawn, seed=effort.seed, progress=progress
    )
    agreement = compare(predicted, measured)
    made = _MADE.format(members=effort.drawn, seed=effort.seed)
    spread, spread_error, expected = _differences(predicted, measured)
    ratio = float(measured["K"][-1, 0, 0] / measured["K"][0, 0, 0])
    signal = "keeps its size" if 0.5 < ratio < 2.0 else "shrinks" if ratio < 1 else "grows"
    regime = predicted.regime
    verdicts = [(row.label, row.result) for row in agreement.rows]
    worst = max(verdicts, key=lambda entry: entry[1].max_abs_z)
    tile = Tile(
        "At birth",
        percent(expected),
        f"{regime.verdict}" if regime is not None else "",
        f"is what two draws of this network differ by in the size of their output signal, which "
        f"{signal} on its way. Measured: {percent(spread, spread_error)}.",
        kind_of(regime),
    )
    finding = Finding(
        f"The signal {signal} from the first layer to the last, and two draws of the network "
        f"differ by about {percent(expected)} in its mean square.",
        f"{percent(expected)} at the output, from the widths and the initialisation alone: "
        "√(V/n)/K, order 1/n",
        f"{percent(spread, spread_error)} over {effort.drawn} networks; of all "
        f"{sum(int(np.sum(~r.exact)) for _, r in verdicts)} entries compared the worst is "
        f"{worst[0]}, {abs(worst[1].worst_z):.1f} standard errors away",
        applies(regime),
        kind_of(regime),
        other_reasons(regime),
    )
    blocks = [
        finding,
        Heading("Signals"),
        Figure(
            _signal_chart(predicted, measured),
            "Mean square of a neuron, layer by layer, for three of your inputs. Lines: theory at "
            "this width; points: networks, ± 2 standard errors.",
            made,
        ),
        _layer_table(predicted, measured, made),
        Heading("What two draws differ by"),
        Figure(
            entries_chart(
                predicted, measured, "V", ["AAAA", "ABAB", "AACC"][: len(x)],
                y_title="V / (n K²), relative variance",
            ),
            "How much the signal of one draw differs from that of another: the relative variance "
            "of the mean square of input A, (AA)(AA), of the similarity of A and B, (AB)(AB), and "
            "how the mean squares of A and C vary together, (AA)(CC). It grows with depth over "
            "width. Below: distance in standard errors.",
            made,
        ),
    ]  # fmt: skip
    blocks += _gradients(subject, effort)
    blocks += _phase(network)
    return Section(TITLE, blocks, tile)


def _three_inputs(subject: Subject) -> np.ndarray:
    inputs = subject.data.inputs
    return inputs[[0, 1, -1]] if len(inputs) > 2 else inputs


def _differences(predicted: Tensors, measured: Tensors) -> tuple[float, float, float]:
    """√(V/n)/K of the first input at the output: measured, its error, and predicted."""
    n, at = predicted.network.fan_in(predicted.network.depth), (-1, 0, 0, 0, 0)
    K = float(predicted["K"][-1, 0, 0])
    V, error = float(measured["V"][at]), float(measured.error("V")[at])
    spread = np.sqrt(max(V, 0.0) / n) / K
    return spread, 0.5 * spread * error / max(V, 1e-300), float(np.sqrt(predicted["V"][at] / n) / K)


def _signal_chart(predicted: Tensors, measured: Tensors) -> Chart:
    layers = list(predicted.layers["K"])
    names = [f"input {chr(ord('A') + i)}" for i in range(len(predicted.x))]
    metric, values, errors = predicted.metric, measured["K"], measured.error("K")
    lines = {name: Line(layers, metric[:, i, i]) for i, name in enumerate(names)}
    points = {
        name: Line(layers, values[:, i, i], 2.0 * errors[:, i, i]) for i, name in enumerate(names)
    }
    x = Axis("layer ℓ", ticks=layers, format="d")
    return line_chart(lines, x, Axis("mean square of a neuron", zero=True), points=points)


def _layer_table(predicted: Tensors, measured: Tensors, made: str) -> Table:
    rows = []
    for index, layer in enumerate(predicted.layers["K"]):
        n, V = predicted.network.fan_in(layer), (index, 0, 0, 0, 0)
        K = float(predicted["K"][index, 0, 0])
        rows.append(
            [
                str(layer),
                f"{K:.4g}",
                f"{predicted.metric[index, 0, 0]:.4g}",
                with_error(
                    float(measured["K"][index, 0, 0]), float(measured.error("K")[index, 0, 0])
                ),
                f"{predicted['V'][V] / n / K**2:.4g}",
                with_error(
                    float(measured["V"][V]) / n / K**2, float(measured.error("V")[V]) / n / K**2
                ),
            ]
        )
    return Table(
        ["layer", "K, n = ∞", "K + G1/n", "measured", "V/(nK²)", "measured "],
        rows,
        "Input A. K: mean square of a neuron, infinitely wide; K + G1/n: at this width; V/(nK²): "
        "relative variance of that mean square between draws. ±: standard error of what was "
        "measured; without: exact.",
        made,
    )


def _gradients(subject: Subject, effort: Effort) -> list[Heading | Figure | Text]:
    """Each layer's share in the tangent kernel, which is what its gradients do to the output."""
    network = subject.network
    if network.has_skips or network.activation.jumps:
        return []
    squares = np.mean(subject.batch.x**2, axis=1)
    shares = ntk_shares(equal_rates(network), squares)
    total = (shares.bias + shares.weight).sum(axis=1)
    expected = total / total.sum()
    models = [network.init(seed=effort.seed + k) for k in range(_MODELS)]
    try:
        found = [measure(model, subject.batch) for model in models]
    except InvalidValueError as error:  # too few samples, or targets that do not vary
        return [Text(f"Gradients were not measured: {error}.")]
    seen = np.array([[layer.kernel_share for layer in result.layers] for result in found])
    mean, error = seen.mean(axis=0), seen.std(axis=0, ddof=1) / np.sqrt(len(seen))
    layers = list(range(1, network.depth + 1))
    chart = line_chart(
        {"theory, n = ∞": Line(layers, expected)},
        Axis("layer ℓ", ticks=layers, format="d"),
        Axis("share of the layer in what is learned", zero=True),
        points={"networks": Line(layers, mean, 2.0 * error)},
    )
    most = int(np.argmax(expected))
    return [
        Heading("Gradients"),
        Text(
            f"At equal learning rates layer {most + 1} does {percent(float(expected[most]))} of "
            "the first step of learning: that is the share of its gradients in the tangent kernel."
        ),
        Figure(
            chart,
            f"Line: theory at infinite width; points: mean of {len(models)} networks, ± 2 standard "
            "errors.",
            _SHARES.format(seed=effort.seed, models=len(models)),
        ),
    ]


def _phase(network: MLP) -> list[Heading | Figure]:
    points = {
        f"critical, {point.kind}": (point.C_W, point.C_b)
        for point in critical_points(network.activation)
        if point.C_W > 0.0
    }
    here = (network.C_W[-1], network.C_b[-1])
    same = [name for name, place in points.items() if np.allclose(place, here, rtol=1e-3)]
    if same:
        points = {f"this network: {k}" if k in same else k: v for k, v in points.items()}
    else:
        points["this network"] = here
    return [
        Heading("Where it stands"),
        Figure(
            phase_figure(network.activation, points),
            "Choices of the variances of weights (C_W, times the inputs of the layer) and biases "
            "(C_b). On one line the norms of signals neither grow nor shrink from layer to layer, "
            "on the other the angles between them; where the lines meet, both survive depth.",
            "from dynagram.report import phase_figure\n"
            "here = (network.C_W[-1], network.C_b[-1])\n"
            "phase_figure(network.activation, {'this network': here})",
        ),
    ]
