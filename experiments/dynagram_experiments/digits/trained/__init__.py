"""Digits learned by networks of several widths: outputs predicted at ∞ and 1/n, and measured.

Threes against eights, targets ∓1, critical tanh networks of depth 3 with hidden widths n,
full-batch gradient descent to zero error. One prediction serves all widths: m^∞ + m^{1}/n for the
mean over initialisations, and the same for the covariance. Measured are 200 trained networks per
width, with the spread of their initial outputs taken out (`train` with pairs).
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dynagram.data import Data, digits
from dynagram.ensembles import train
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._parts import finish_parts, part_folder
from dynagram_experiments.digits.trained.statements import OutputsByWidth, judged

NAME = "trained-digits"
CLASSES = (3, 8)
MEMBERS = 200
# Untrained networks, for the part of the shift that a frozen NTK gives.
KERNELS = 32_000
# In units of 1/λ_max of the training NTK: half of the networks lie above it, 2 is the limit.
STEP = 1.3
TOLERANCE = 3e-5


@dataclass(frozen=True)
class Plan:
    """How many images are learned and predicted, at which widths, with which averages."""

    train: int
    test: int
    widths: tuple[int, ...]
    accuracy: float


QUICK = Plan(train=16, test=16, widths=(64, 128, 256, 512), accuracy=0.05)
FULL = Plan(train=32, test=32, widths=(128, 256, 512, 1024), accuracy=0.05)


def _run(settings: Settings) -> Result:
    return judged(compared(FULL if settings.full else QUICK, settings))


def compared(plan: Plan, settings: Settings) -> OutputsByWidth:
    """Predict once, train at every width."""
    data = _data(plan, settings.seed)
    Theta = frozen_kernels(_network(plan.widths[0]), data.x, layers="last").Theta[-1]
    eta = STEP / float(np.linalg.eigvalsh(Theta)[-1])
    makers = {"prediction": functools.partial(_predicted, plan, data, eta)}
    for n in plan.widths:
        makers[f"width {n}"] = functools.partial(_measured, settings, data, eta, n)
    parts = finish_parts(settings, NAME, makers, asdict(plan))
    rows = [parts[f"width {n}"] for n in plan.widths]
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    targets = data.test_y
    assert targets is not None
    return OutputsByWidth(
        targets=targets[:, 0],
        widths=plan.widths,
        unfinished=tuple(columns.pop("unfinished").tolist()),
        members=MEMBERS,
        tolerance=TOLERANCE,
        **parts["prediction"],
        **columns,
    )


def _predicted(plan: Plan, data: Data, eta: float) -> dict[str, Any]:
    how = Training(GradientDescent(eta))
    outputs = predict_outputs(_network(plan.widths[0]), data, how, accuracy=plan.accuracy)
    return {
        "infinite": outputs.mean_infinite[:, 0],
        "shift": outputs.mean_correction[:, 0],
        "shift_error": outputs.width * outputs.error[:, 0],
        "variance": np.einsum("titi->t", outputs.covariance_infinite),
        "variance_shift": np.einsum("titi->t", outputs.covariance_correction),
    }


def _measured(settings: Settings, data: Data, eta: float, width: int) -> dict[str, Any]:
    outputs = train(
        _network(width), data, Training(GradientDescent(eta)),
        members=MEMBERS, seed=settings.seed + width, pairs=True, kernels=KERNELS // MEMBERS,
        tolerance=TOLERANCE, run=part_folder(settings, NAME, f"width {width}"),
    )  # fmt: skip
    errors = outputs.covariance_errors
    assert errors is not None
    return {
        "mean": outputs.mean[:, 0],
        "mean_error": outputs.error[:, 0],
        "joint_error": outputs.joint_error,
        "measured_variance": np.einsum("titi->t", outputs.covariance),
        "measured_variance_error": np.einsum("titi->t", errors[-1]),
        "unfinished": outputs.about["unfinished"],
    }


def _network(width: int) -> MLP:
    return MLP([64, width, width, 1], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0, lambda_W=1.0)


def _data(plan: Plan, seed: int) -> Data:
    """Images less the mean image, each of mean square 1, and ∓1 for the two classes."""
    images = digits()
    of_class = np.flatnonzero(np.isin(images.labels, CLASSES))
    centred = images.x - images.x[of_class].mean(axis=0)
    chosen = np.random.default_rng(seed).permutation(of_class)[: plan.train + plan.test]
    x = centred[chosen]
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    y = np.where(images.labels[chosen] == CLASSES[0], -1.0, 1.0)[:, None]
    return Data(x[: plan.train], y[: plan.train], x[plan.train :], y[plan.train :])


EXPERIMENT = Experiment(
    name=NAME,
    summary="Trained networks on digits: outputs predicted at ∞ and 1/n against measured ones.",
    source="The Principles of Deep Learning Theory, arXiv:2106.10165v2, chapter ∞, corrected",
    run=_run,
)
