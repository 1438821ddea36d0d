"""Where records go besides a run folder: JSON lines and the trackers that people already use."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.watch._record import Record


class JsonLines:
    """A file with a JSON object a line, appended to.

    **Arguments:**

    - `path`: the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sink = JsonLines(f"{place}/watch.jsonl")
    ...     sink.begin(["0"], ["loss"])
    ...     sink.write(Record(100, 1.5, values={("loss", ""): 0.5}))
    ...     sink.close()
    ...     print(json.loads(Path(f"{place}/watch.jsonl").read_text())["values"])
    {'loss': 0.5}
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file: IO[bytes] | None = None

    def begin(self, layers: Sequence[str], quantities: Sequence[str]) -> None:
        """Open the file."""
        del layers, quantities
        try:
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - until `close`
        except OSError as error:
            what = f"cannot be written: {error.strerror or error}"
            raise InvalidValueError("path", str(self.path), what) from error
        if self._file.tell() and not _ends_with_newline(self.path):
            self._file.write(b"\n")  # a writer that was killed left half a line

    def write(self, record: Record) -> None:
        """Append a line."""
        if self._file is not None:
            text = json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False)
            self._file.write(text.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


class _Logging:
    """What trackers have in common: numbers by name at a step, alerts as texts where possible."""

    def begin(self, layers: Sequence[str], quantities: Sequence[str]) -> None:
        """Nothing to do before the first record."""
        del layers, quantities

    def close(self) -> None:
        """The tracker belongs to its user, who closes it."""


class Tracker(_Logging):
    """Anything with `log(numbers, step=…)`: wandb, trackio, swanlab, or a run of one of them.

    Alerts go to `alert(title=…, text=…)` where it has that.

    **Arguments:**

    - `tracker`: the module or run.
    - `prefix`: in front of the names.

    >>> class Run:
    ...     def log(self, numbers, step):
    ...         print(step, numbers)
    >>> Tracker(Run()).write(Record(100, 1.5, values={("dead", "fc1"): 0.5}))
    100 {'dynagram/dead/fc1': 0.5}
    """

    def __init__(self, tracker: Any, prefix: str = "dynagram/"):
        if not callable(getattr(tracker, "log", None)):
            raise InvalidTypeError("tracker", type(tracker).__name__, "expected log(dict, step=…)")
        self._tracker = tracker
        self._prefix = prefix

    def write(self, record: Record) -> None:
        """Log the numbers and alerts of a record."""
        numbers = {f"{self._prefix}{name}": value for name, value in record.flat().items()}
        self._tracker.log(numbers, step=record.step)
        tell = getattr(self._tracker, "alert", None)
        if callable(tell):
            for alert in record.alerts:
                tell(title=f"{alert.quantity} {alert.layer}".strip(), text=alert.sentence)


class TensorBoard(_Logging):
    """TensorBoard: a scalar for every number, alerts as text.

    **Arguments:**

    - `log`: a folder for event files, or a SummaryWriter.
    - `prefix`: in front of the names.
    """

    def __init__(self, log: Any, prefix: str = "dynagram/"):
        self._is_ours = isinstance(log, str | Path)
        self._writer = _summary_writer()(str(log)) if self._is_ours else log
        self._prefix = prefix

    def write(self, record: Record) -> None:
        """Add the scalars and alerts of a record."""
        for name, value in record.flat().items():
            self._writer.add_scalar(f"{self._prefix}{name}", value, record.step)
        for alert in record.alerts:
            self._writer.add_text(f"{self._prefix}alerts", alert.sentence, record.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file, if it was opened here."""
        if self._is_ours:
            self._writer.close()


def _summary_writer() -> Callable[[str], Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        try:
            from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            from dynagram.errors import MissingExtraError

            raise MissingExtraError("tensorboard", "watch") from error
    return SummaryWriter


class MLflow(_Logging):
    """MLflow: metrics of the active run, or of a client's run.

    **Arguments:**

    - `log_metrics`: `mlflow.log_metrics`, or a function with its arguments (metrics, step=…).
    - `prefix`: in front of the names. MLflow refuses numbers that are not finite: they are left
        out.
    """

    def __init__(self, log_metrics: Callable[..., Any] | None = None, prefix: str = "dynagram/"):
        self._log_metrics = _mlflow() if log_metrics is None else log_metrics
        self._prefix = prefix

    def write(self, record: Record) -> None:
        """Log the metrics of a record."""
        metrics = {
            f"{self._prefix}{_allowed(name)}": value
            for name, value in record.flat().items()
            if math.isfinite(value)
        }
        self._log_metrics(metrics, step=record.step)


def _allowed(name: str) -> str:
    """MLflow allows letters, digits, _ - . / and blanks in names."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in name)


def _mlflow() -> Callable[..., Any]:
    try:
        import mlflow  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        from dynagram.errors import DynagramError

        raise DynagramError("mlflow is not installed: run  pip install mlflow") from error
    return mlflow.log_metrics
