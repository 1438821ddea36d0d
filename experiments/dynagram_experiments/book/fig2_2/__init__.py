"""Figure 2.2: the activations in common use, and what section 2.2 says about them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.activations import activation
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._records import draw_if_possible

NAME = "book-fig2-2"
PANELS = {
    "perceptron": "step", "sigmoid": "sigmoid", "tanh": "tanh", "sin": "sin", "linear": "linear",
    "ReLU": "relu", "softplus": "softplus", "SWISH": "swish", "GELU": "gelu",
}  # fmt: skip
Z = np.linspace(-4.0, 4.0, 641)


def _run(settings: Settings) -> Result:  # noqa: ARG001
    values = {title: activation(name).values(Z) for title, name in PANELS.items()}
    columns = {"z": Z.tolist(), **{title: line.tolist() for title, line in values.items()}}
    return Result(
        tuple(_statements(values)),
        {"figure2_2": columns},
        draw_if_possible(lambda: {"figure2_2": _figure(values)}),
    )


def _statements(values: dict[str, np.ndarray]) -> list[Statement]:
    logistic = float(np.max(np.abs(values["sigmoid"] - 0.5 * (1.0 + np.tanh(0.5 * Z)))))
    invariant = [
        title
        for title in values
        if np.allclose(activation(PANELS[title]).values(2.0 * Z), 2.0 * values[title], atol=1e-12)
    ]
    through = [title for title in values if abs(values[title][Z == 0.0][0]) < 1e-12]
    falling = [title for title in values if np.any(np.diff(values[title]) < -1e-12)]
    far = {
        title: float(activation(PANELS[title]).values(np.array([50.0]))[0] - 50.0)
        for title in ("softplus", "SWISH", "GELU")
    }
    return [
        Statement(
            "the sigmoid is ½ + ½ tanh(z/2) (2.10)",
            logistic < 1e-12,
            f"largest difference {logistic:.1e}",
        ),
        Statement(
            "of these only linear and ReLU are scale-invariant, σ(λz) = λσ(z) (2.13)",
            invariant == ["linear", "ReLU"],
            ", ".join(invariant),
        ),
        Statement(
            "sigmoid and softplus do not pass through the origin (5.76), the others do",
            set(values) - set(through) == {"sigmoid", "softplus"},
            f"zero at the origin: {', '.join(through)}",
        ),
        Statement(
            "softplus, SWISH and GELU tend to the ReLU",
            max(abs(gap) for gap in far.values()) < 1e-12,
            "σ(50) − 50: " + ", ".join(f"{title} {gap:.0e}" for title, gap in far.items()),
        ),
        Statement(
            "SWISH and GELU fall before they rise; of the others only the sine falls",
            set(falling) == {"sin", "SWISH", "GELU"},
            f"with a falling part: {', '.join(falling)}",
        ),
    ]


def _figure(values: dict[str, np.ndarray]) -> Any:
    from dynagram.report import Axis, Line, panels

    units = list(range(-4, 5))
    return panels(
        {title: {"σ(z)": Line(Z, line)} for title, line in values.items()},
        Axis("preactivation z", ticks=units, domain=(-4.3, 4.3), format="d"),
        Axis("activation σ", ticks=units, domain=(-2.3, 4.3), format="d"),
        columns=3,
        width=200,
        height=150,
    )


EXPERIMENT = Experiment(
    name=NAME,
    summary="the activations in common use and what section 2.2 says about them",
    source="The Principles of Deep Learning Theory, figure 2.2",
    run=_run,
)
