"""What trained-digits finds: predicted and measured outputs by width, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram_experiments import Result, Statement
from dynagram_experiments._records import draw_if_possible


@dataclass(frozen=True, eq=False)
class OutputsByWidth:
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
    members: int
    tolerance: float

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


def judged(outputs: OutputsByWidth) -> Result:
    """Statements, tables and figures."""
    n = np.array(outputs.widths, dtype=float)
    rms = {order: _rms(outputs.left(order)) for order in ("∞", "1/n")}
    noise = _rms(outputs.mean_error)
    spread = {order: _rms(outputs.variance_left(order)) for order in ("∞", "1/n")}
    spread_noise = _rms(outputs.measured_variance_error)
    factor, error = outputs.amplitude()
    gain = rms["∞"] / rms["1/n"]
    seen = rms["∞"] > 3 * noise
    statements = (
        Statement(
            "every network reaches zero training error",
            sum(outputs.unfinished) == 0,
            f"{sum(outputs.unfinished)} of {outputs.members * n.size} stopped above "
            f"{outputs.tolerance:g}",
        ),
        Statement(
            "the measured mean outputs are shifted as predicted: the best factor of the "
            "predicted shift is 1 within three standard errors at the two largest widths",
            bool(np.all(np.abs(factor[-2:] - 1.0) < 3 * error[-2:])),
            _by_width(outputs, [f"{f:.2f} ± {e:.2f}" for f, e in zip(factor, error, strict=True)]),
        ),
        Statement(
            "1/n is closer to the measured means than ∞ wherever the shift stands above the noise",
            bool(np.any(seen) and np.all(gain[seen] > 1.0)),
            "error of ∞ over error of 1/n: " + _by_width(outputs, [f"{g:.1f}" for g in gain]),
        ),
        Statement(
            "1/n is closer to the measured variances than ∞ at every width",
            bool(np.all(spread["1/n"] < spread["∞"])),
            "error of ∞ over error of 1/n: "
            + _by_width(outputs, [f"{g:.1f}" for g in spread["∞"] / spread["1/n"]]),
        ),
    )
    table = {
        "width": list(outputs.widths),
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
        {"trained_digits": table, "trained_digits_images": _image_table(outputs)},
        draw_if_possible(lambda: _figures(outputs, table)),
        (
            f"{outputs.members} networks of each width, {len(outputs.targets)} test images.",
            "Errors are root mean squares over the test images. Where the error of 1/n is near "
            "the standard error of the measurement, the gain is a lower bound.",
            f"The numerical error of the predicted shift is {_relative(outputs):.1%} of it.",
        ),
    )


def _relative(outputs: OutputsByWidth) -> float:
    return float(_rms(outputs.shift_error[None])[0] / _rms(outputs.shift[None])[0])


def _rms(values: Float[np.ndarray, "width test"]) -> Float[np.ndarray, " width"]:
    return np.sqrt(np.mean(values**2, axis=1))


def _by_width(outputs: OutputsByWidth, values: list[str]) -> str:
    pairs = zip(outputs.widths, values, strict=True)
    return ", ".join(f"{value} (n = {width})" for width, value in pairs)


def _image_table(outputs: OutputsByWidth) -> dict[str, list[float]]:
    columns = {
        "target": outputs.targets,
        "mean_infinite": outputs.infinite,
        "mean_correction": outputs.shift,
        "variance_infinite": outputs.variance,
        "variance_correction": outputs.variance_shift,
    }
    for index, width in enumerate(outputs.widths):
        columns[f"mean_{width}"] = outputs.mean[index]
        columns[f"mean_{width}_error"] = outputs.mean_error[index]
        columns[f"variance_{width}"] = outputs.measured_variance[index]
        columns[f"variance_{width}_error"] = outputs.measured_variance_error[index]
    return {name: values.tolist() for name, values in columns.items()}


def _figures(outputs: OutputsByWidth, table: dict[str, Any]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    n = np.array(outputs.widths, dtype=float)
    figures = {}
    for stem, prefix, title in (
        ("trained_digits_mean", "", "RMS error of the mean output"),
        ("trained_digits_variance", "variance_", "RMS error of the variance"),
    ):
        lines = {
            "prediction at ∞": Line(n, table[f"{prefix}error_infinite"]),
            "prediction to order 1/n": Line(n, table[f"{prefix}error_order_1_n"]),
            "standard error of the measurement": Line(n, table[f"{prefix}standard_error"]),
        }
        figures[stem] = line_chart(
            lines, Axis("width n", "log", ticks=outputs.widths), Axis(title, "log")
        )
    shifts = {
        f"n = {width}": Line(outputs.shift, width * outputs.left("∞")[index])
        for index, width in enumerate(outputs.widths)
    }
    x, y = Axis("predicted shift × n"), Axis("measured shift × n")
    figures["trained_digits_shifts"] = line_chart({}, x, y, points=shifts, diagonal=True)
    return figures
