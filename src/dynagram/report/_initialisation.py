"""The report on a network's initialisation: theory beside an ensemble of concrete networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from dynagram.ensembles._simulate import simulate
from dynagram.ensembles.engine._progress import Progress
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.networks._mlp import short_widths
from dynagram.report._figures import flow
from dynagram.report._page import Code, Figure, Notice, Section, Table, Text, render
from dynagram.report._phase import phase_figure
from dynagram.report._tensor_charts import entries_chart
from dynagram.report.prose._initialisation import jax_lines, paragraph, pytorch_lines
from dynagram.results._comparison import Comparison, compare
from dynagram.results._tensors import Tensors
from dynagram.theory._next_order import next_order
from dynagram.theory._predict import predict
from dynagram.theory.criticality import critical_initialisation, single_input

_FLOW_DEPTH = 100
_KIND = {"trust": "good", "careful": "warn", "do not use": "bad"}


def default_network() -> tuple[MLP, Float[np.ndarray, "samples n_0"]]:
    """A critical tanh network, six hidden layers of 128, and three inputs.

    A and B lie close together (0.3 rad), C is longer and points elsewhere (0.8 rad from A).
    """
    network = MLP.critical([8, *[128] * 6, 1], "tanh")
    A, aside, far = np.ones(8), np.array([1.0, -1.0] * 4), np.array([1.0, 1.0, -1.0, -1.0] * 2)
    B = np.cos(0.3) * A + np.sin(0.3) * aside
    C = np.sqrt(2.0) * (np.cos(0.8) * A + np.sin(0.8) * far)
    return network, np.stack([A, B, C])


def initialisation_report(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    progress: Callable[[Progress], object] | None = None,
) -> str:
    """The page as one string of HTML.

    **Arguments:**

    - `network`, `x`: what is looked at, and one input a row.
    - `members`, `seed`: of the ensemble, which dominates the cost.
    - `progress`: called with a `Progress` now and then.

    **Returns:** HTML that loads nothing.
    """
    require_plain(network, "this page")
    prediction = predict(network, x, ("K", "V", "G1"), seed=seed)
    ensemble = simulate(network, x, ("K", "V", "G1"), members=members, seed=seed, progress=progress)
    comparisons = _compare(prediction, ensemble)
    sections = [
        _verdict(prediction, ensemble),
        _inputs(x),
        _how_to_initialise(network),
        _flow_of_the_kernel(network),
        _vertex(prediction, ensemble),
        _metric(prediction, ensemble),
        _table(prediction, ensemble, comparisons),
        _reproduce(network, members, seed),
    ]
    return render(
        f"Before training: a {network.activation.name} network",
        sections,
        lead=(
            f"Widths {short_widths(network.widths)}. What the effective theory of deep networks "
            f"predicts about it at initialisation, beside what {members:,} random draws of it do."
        ),
        footer=(
            "Equation numbers: Roberts, Yaida, Hanin, The Principles of Deep Learning Theory, "
            "arXiv:2106.10165. Made by dynagram; this page loads nothing from the network."
        ),
    )


def _sample_names(samples: int) -> list[str]:
    return [chr(ord("A") + i) for i in range(samples)]


def _compare(prediction: Tensors, ensemble: Tensors) -> list[Comparison]:
    """Each quantity against the order that should describe it and the one that should not.

    The next order is shown for the first and the last input, the pair that needs it most.
    """
    ends = [0, len(prediction.x) - 1]
    first, last = (_sample_names(len(prediction.x))[end] for end in ends)
    pair, measured = prediction.select(ends), ensemble.select(ends).estimate("V")
    further = next_order(prediction.network, pair.x).vertex
    label = f"V of {first} and {last}"
    K, V = ensemble.estimate("K"), ensemble.estimate("V")
    return [
        compare(prediction["K"], K, name="mean metric, against K (order ∞)"),
        compare(prediction.metric, K, name="mean metric, against K + G1/n (order 1/n)"),
        compare(prediction["V"], V, name="four-point vertex V (order 1/n)"),
        compare(pair["V"], measured, name=f"{label} (order 1/n)"),
        compare(further, measured, name=f"{label}, against V + V1/n (one order more)"),
    ]


def _verdict(prediction: Tensors, ensemble: Tensors) -> Section:
    """The regime, and how the ensemble's precision compares with what the theory leaves out."""
    regime = prediction.regime
    assert regime is not None  # predictions have one
    lines = list(regime.reasons)
    following = regime.numbers.get("next_order_of_V")
    if following is not None:
        entry = (-1, 0, 0, 0, 0)
        precision = ensemble.error("V")[entry] / ensemble["V"][entry]
        lines.append(
            f"for a single input the next order changes V at the output by "
            f"{100 * following:.1f} %; this ensemble measures it to {100 * precision:.1f} %"
        )
        lines.append(
            "between different inputs the next order is relatively larger: the table below shows "
            "V with and without it"
        )
    heading = f"Verdict on the prediction: {regime.verdict}"
    return Section("", [Notice(heading, lines, kind=_KIND[regime.verdict])])


def _inputs(x: np.ndarray) -> Section:
    names, norms = _sample_names(x.shape[0]), np.linalg.norm(x, axis=1)
    rows = [
        [
            name,
            f"{norms[i] ** 2 / x.shape[1]:.3g}",
            "–" if i == 0 else f"{np.arccos(x[i] @ x[0] / (norms[i] * norms[0])):.3g} rad",
        ]
        for i, name in enumerate(names)
    ]
    header = ["input", "Σx²/n_0", f"angle to {names[0]}"]
    return Section("", [Table(header, rows, "The inputs the network is looked at with.")])


def _how_to_initialise(network: MLP) -> Section:
    point = critical_initialisation(network.activation)
    points = {"critical": (point.C_W, point.C_b)}
    here = (network.C_W[1], network.C_b[1])
    if here != points["critical"]:
        points["this network"] = here
    return Section(
        "How it is initialised",
        [
            Text(paragraph(point)),
            Figure(
                phase_figure(network.activation, points),
                "Each line collects the choices of C_W and C_b for which one of the two factors "
                "per layer is exactly 1 where the kernel settles. Only where they meet do norms "
                "and directions both survive depth (5.55), (5.56). To the left of the solid line "
                "inputs become alike with depth, to the right of it they drift apart.",
            ),
            Code("# PyTorch\n" + pytorch_lines(network.C_b[1], network.C_W[1])),
            Code("# JAX\n" + jax_lines(network.C_b[1], network.C_W[1])),
        ],
    )


def _flow_of_the_kernel(network: MLP) -> Section:
    point = critical_initialisation(network.activation)
    layers = np.arange(1, _FLOW_DEPTH + 1)
    series = {}
    for factor, name in ((0.8, "C_W 20 % too small"), (1.0, "critical"), (1.2, "20 % too large")):
        C_W = factor * point.C_W
        deep = MLP([1] * (_FLOW_DEPTH + 1), network.activation, point.C_b, C_W)
        flowing = single_input(deep, 1.0)
        series[name] = np.where(flowing.K > 1e-6, flowing.K, np.nan)
    law = None
    if point.kind == "K*=0" and point.constants.a1 is not None:
        law = ("law 1/(−a₁ℓ)", 1.0 / (-point.constants.a1 * layers))
    return Section(
        "How the signal flows",
        [
            Text(
                "The kernel K is the variance of a preactivation of an infinitely wide network "
                "(4.118). Started at K = 1 and continued to a hundred layers, it shows what "
                "criticality buys: a power of the depth instead of an exponential."
            ),
            Figure(
                flow(layers, series, y_title="kernel K (signal variance)", law=law, log=True),
                "With C_W too small the signal dies out exponentially. With C_W too large it "
                "settles, but where norms are forgotten and nearby inputs drift apart. "
                "At criticality it follows the power law (5.92), dashed.",
            ),
        ],
    )


def _vertex(prediction: Tensors, ensemble: Tensors) -> Section:
    entries = ["AAAA", "ABAB", "AACC"][: 1 + 2 * (len(prediction.x) > 2)]
    title = "V / (n K²), relative variance"
    return Section(
        "How much two draws differ",
        [
            Text(
                "At finite width every draw has its own covariance of preactivations. The "
                "four-point vertex V (4.119) is the variance of that covariance, and it is what "
                "makes a finite network differ from the Gaussian limit. Relative to the signal it "
                "grows with depth over width."
            ),
            Figure(
                entries_chart(prediction, ensemble, "V", entries, y_title=title),
                "V for one input with itself (AA)(AA), for a pair of close inputs (AB)(AB), and "
                "between two different inputs (AA)(CC), divided by width and kernels. The lower "
                "panel shows the difference in units of its standard error.",
            ),
        ],
    )


def _metric(prediction: Tensors, ensemble: Tensors) -> Section:
    entries = ["AA", "AC", "CC"][: 1 + 2 * (len(prediction.x) > 2)]
    title = "metric correction G1"
    return Section(
        "How finite width moves the mean",
        [
            Text(
                "The mean over draws is K + G1/n (4.104). G1 is small against the scatter of a "
                "single draw, so it takes an ensemble to see it."
            ),
            Figure(
                entries_chart(prediction, ensemble, "G1", entries, y_title=title),
                "n (E[G] − K) measured on the ensemble, against the recursion (4.115).",
            ),
        ],
    )


def _table(prediction: Tensors, ensemble: Tensors, comparisons: list[Comparison]) -> Section:
    network, errors = prediction.network, ensemble.error("K")
    rows = [
        [
            result.name,
            str(int(np.sum(~result.exact))),
            f"{result.worst_z:+.2f}",
            f"{100 * result.fraction_within_3:.1f} %",
            f"{result.chi2_per_entry:.2f}",
        ]
        for result in comparisons
    ]
    layers = [
        [
            str(layer + 1),
            f"{prediction['K'][layer, 0, 0]:.5f}",
            f"{prediction.metric[layer, 0, 0]:.5f}",
            _with_error(ensemble["K"][layer, 0, 0], errors[layer, 0, 0]),
        ]
        for layer in range(network.depth)
    ]
    return Section(
        "Prediction and measurement in numbers",
        [
            Table(
                ["quantity", "entries", "worst z", "within 3 s.e.", "χ² per entry"],
                rows,
                "z = (measured − predicted)/standard error, over all layers and all combinations "
                "of the samples; the entries are correlated. The ensemble contains all orders in "
                "1/n: what is left of V at order 1/n should go when the next order is added.",
            ),
            Table(
                ["layer", "K", "K + G1/n", "measured ± s.e."],
                layers,
                "Variance of a preactivation for input A.",
            ),
        ],
    )


def _with_error(value: float, error: float) -> str:
    return f"{value:.5f} ± {error:.5f}" if error > 0 else f"{value:.5f} (exact)"


def _reproduce(network: MLP, members: int, seed: int) -> Section:
    return Section(
        "Reproduce",
        [
            Code(f"dynagram demo --members {members} --seed {seed}"),
            Code(network.to_toml()),
        ],
    )
