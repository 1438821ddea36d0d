"""Digits learned by networks of several widths: outputs predicted at ∞ and 1/n, and measured.

Threes against eights, targets ∓1, critical tanh networks of depth 3 with hidden widths n,
full-batch gradient descent to zero error. One prediction serves all widths: m^∞ + m^{1}/n for the
mean over initialisations, and the same for the covariance. Measured are 200 trained networks per
width, in pairs, which take out the spread of their initial outputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.data import Data, digits
from dynagram.ensembles import train
from dynagram.networks import MLP
from dynagram.theory.training._finite import predict_trained
from dynagram.theory.training._infinite import infinite_training
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._kept import Kept

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


@dataclass(frozen=True, eq=False)
class Comparison:
    """Predictions (coefficients of 1/n with numerical errors) and measurements by width."""

    targets: Float[np.ndarray, " test"]
    widths: tuple[int, ...]
    infinite: Float[np.ndarray, " test"]
    shift: Float[np.ndarray, " test"]
    shift_error: Float[np.ndarray, " test"]
    variance: Float[np.ndarray, " test"]
    variance_shift: Float[np.ndarray, " test"]
    mean: Float[np.ndarray, "width test"]
    mean_error: Float[np.ndarray, "width test"]
    joint_error: Float[np.ndarray, "width test test"]
    measured_variance: Float[np.ndarray, "width test"]
    measured_variance_error: Float[np.ndarray, "width test"]
    unfinished: tuple[int, ...]

    def left(self, order: str) -> Float[np.ndarray, "width test"]:
        """Measured mean less the prediction of order "∞" or "1/n"."""
        return self._left(order, self.mean, self.infinite, self.shift)

    def variance_left(self, order: str) -> Float[np.ndarray, "width test"]:
        """Measured variance less the prediction of order "∞" or "1/n"."""
        return self._left(order, self.measured_variance, self.variance, self.variance_shift)

    def _left(
        self, order: str, measured: np.ndarray, limit: np.ndarray, shift: np.ndarray
    ) -> np.ndarray:
        n = np.array(self.widths)[:, None]
        return measured - limit - (shift / n if order == "1/n" else 0.0)

    def amplitude(self) -> tuple[Float[np.ndarray, " width"], Float[np.ndarray, " width"]]:
        """The factor of the predicted shift that fits the measured one best, and its error."""
        n = np.array(self.widths)[:, None]
        predicted = self.shift / n
        square = np.sum(predicted**2, axis=1)
        factor = np.sum(self.left("∞") * predicted, axis=1) / square
        variance = np.einsum("nt,nts,ns->n", predicted, self.joint_error, predicted)
        numerical = np.sum(np.abs(predicted) * self.shift_error / n, axis=1)
        return factor, np.sqrt(variance + numerical**2) / square


def _run(settings: Settings) -> Result:
    plan = FULL if settings.full else QUICK
    size = "full" if settings.full else "quick"
    kept = Kept(settings.folder, f"trained_digits_{size}_{settings.seed}", asdict(plan))
    return judged(compared(plan, settings.seed, kept))


def compared(plan: Plan, seed: int, kept: Kept) -> Comparison:
    """Predict once, train at every width; finished parts come from `kept`."""
    x, y = _images(plan, seed)
    data = (x[: plan.train], y[: plan.train], x[plan.train :])
    limit = infinite_training(_network(plan.widths[0]), *data, algorithm="flow")
    eta = STEP / float(limit.eigenvalues[-1])

    def predicted() -> dict[str, Any]:
        found = predict_trained(
            _network(plan.widths[0]), *data, algorithm="gd", eta=eta, accuracy=plan.accuracy
        )
        return {
            "infinite": found.mean_infinite[:, 0].tolist(),
            "shift": found.mean_correction[:, 0].tolist(),
            "shift_error": found.mean_error[:, 0].tolist(),
            "variance": np.einsum("titi->t", found.covariance_infinite).tolist(),
            "variance_shift": np.einsum("titi->t", found.covariance_correction).tolist(),
        }

    def measured(width: int) -> dict[str, Any]:
        how = Training(GradientDescent(eta))
        found = train(
            _network(width), Data(*data), how, members=MEMBERS, seed=seed + width, pairs=True,
            kernels=KERNELS // MEMBERS, tolerance=TOLERANCE,
        )  # fmt: skip
        return {
            "mean": found.mean[:, 0].tolist(),
            "mean_error": found.error[:, 0].tolist(),
            "joint_error": found.joint_error.tolist(),
            "measured_variance": np.einsum("titi->t", found.covariance).tolist(),
            "measured_variance_error": np.einsum("titi->t", found.covariance_error).tolist(),
            "unfinished": found.about["unfinished"],
        }

    theory = kept.part("prediction", predicted)
    rows = [kept.part(f"width {n}", lambda n=n: measured(n)) for n in plan.widths]
    arrays = {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "unfinished"}
    return Comparison(
        targets=y[plan.train :, 0],
        widths=plan.widths,
        unfinished=tuple(row["unfinished"] for row in rows),
        **{key: np.array(values) for key, values in theory.items()},
        **arrays,
    )


def _network(width: int) -> MLP:
    return MLP([64, width, width, 1], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0, lambda_W=1.0)


def _images(plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images less the mean image, each of mean square 1, and ∓1 for the two classes."""
    data = digits()
    of_class = np.flatnonzero(np.isin(data.labels, CLASSES))
    centred = data.x - data.x[of_class].mean(axis=0)
    chosen = np.random.default_rng(seed).permutation(of_class)[: plan.train + plan.test]
    x = centred[chosen]
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    return x, np.where(data.labels[chosen] == CLASSES[0], -1.0, 1.0)[:, None]


def judged(found: Comparison) -> Result:
    """Statements, tables and figures."""
    n = np.array(found.widths, dtype=float)
    rms = {order: _rms(found.left(order)) for order in ("∞", "1/n")}
    noise = _rms(found.mean_error)
    spread = {order: _rms(found.variance_left(order)) for order in ("∞", "1/n")}
    spread_noise = _rms(found.measured_variance_error)
    factor, error = found.amplitude()
    gain = rms["∞"] / rms["1/n"]
    seen = rms["∞"] > 3 * noise
    statements = (
        Statement(
            "every network reaches zero training error",
            sum(found.unfinished) == 0,
            f"{sum(found.unfinished)} of {MEMBERS * n.size} stopped above {TOLERANCE:g}",
        ),
        Statement(
            "the measured mean outputs are shifted as predicted: the best factor of the "
            "predicted shift is 1 within three standard errors at the two largest widths",
            bool(np.all(np.abs(factor[-2:] - 1.0) < 3 * error[-2:])),
            _by_width(found, [f"{f:.2f} ± {e:.2f}" for f, e in zip(factor, error, strict=True)]),
        ),
        Statement(
            "1/n is closer to the measured means than ∞ wherever the shift stands above the noise",
            bool(np.any(seen) and np.all(gain[seen] > 1.0)),
            "error of ∞ over error of 1/n: " + _by_width(found, [f"{g:.1f}" for g in gain]),
        ),
        Statement(
            "1/n is closer to the measured variances than ∞ at every width",
            bool(np.all(spread["1/n"] < spread["∞"])),
            "error of ∞ over error of 1/n: "
            + _by_width(found, [f"{g:.1f}" for g in spread["∞"] / spread["1/n"]]),
        ),
    )
    table = {
        "width": list(found.widths),
        "error_infinite": rms["∞"].tolist(),
        "error_order_1_n": rms["1/n"].tolist(),
        "standard_error": noise.tolist(),
        "factor_of_shift": factor.tolist(),
        "factor_error": error.tolist(),
        "variance_error_infinite": spread["∞"].tolist(),
        "variance_error_order_1_n": spread["1/n"].tolist(),
        "variance_standard_error": spread_noise.tolist(),
    }
    return Result(
        statements,
        {"trained_digits": table, "trained_digits_images": _image_table(found)},
        _figures(found, table),
        (
            "Errors are root mean squares over the test images. Where the error of 1/n is near "
            "the standard error of the measurement, the gain is a lower bound.",
            f"The numerical error of the predicted shift is {_relative(found):.1%} of it.",
        ),
    )


def _relative(found: Comparison) -> float:
    return float(_rms(found.shift_error[None])[0] / _rms(found.shift[None])[0])


def _rms(values: Float[np.ndarray, "width test"]) -> Float[np.ndarray, " width"]:
    return np.sqrt(np.mean(values**2, axis=1))


def _by_width(found: Comparison, values: list[str]) -> str:
    pairs = zip(found.widths, values, strict=True)
    return ", ".join(f"{value} (n = {width})" for width, value in pairs)


def _image_table(found: Comparison) -> dict[str, list[float]]:
    columns = {
        "target": found.targets,
        "mean_infinite": found.infinite,
        "mean_correction": found.shift,
        "variance_infinite": found.variance,
        "variance_correction": found.variance_shift,
    }
    for index, width in enumerate(found.widths):
        columns[f"mean_{width}"] = found.mean[index]
        columns[f"mean_{width}_error"] = found.mean_error[index]
        columns[f"variance_{width}"] = found.measured_variance[index]
        columns[f"variance_{width}_error"] = found.measured_variance_error[index]
    return {name: values.tolist() for name, values in columns.items()}


def _figures(found: Comparison, table: dict[str, Any]) -> dict[str, Any]:
    from dynagram.report._charts import xy_chart

    n = np.array(found.widths, dtype=float)
    figures = {}
    for stem, prefix, title in (
        ("trained_digits_mean", "", "RMS error of the mean output"),
        ("trained_digits_variance", "variance_", "RMS error of the variance"),
    ):
        first, second = table[f"{prefix}error_infinite"], table[f"{prefix}error_order_1_n"]
        named = {"prediction at ∞": (n, first), "prediction to order 1/n": (n, second)}
        lines = named | {"standard error of the measurement": (n, table[f"{prefix}standard_error"])}
        figures[stem] = xy_chart(
            named, lines, x_title="width n", y_title=title, log_x=True, log_y=True
        )
    shifts = {
        f"n = {width}": (found.shift, width * found.left("∞")[index])
        for index, width in enumerate(found.widths)
    }
    figures["trained_digits_shifts"] = xy_chart(
        shifts, x_title="predicted shift × n", y_title="measured shift × n", diagonal=True
    )
    return figures


EXPERIMENT = Experiment(
    name="trained-digits",
    summary="Trained networks on digits: outputs predicted at ∞ and 1/n against measured ones.",
    source="The Principles of Deep Learning Theory, arXiv:2106.10165v2, chapter ∞, corrected",
    run=_run,
    continues=True,
)
