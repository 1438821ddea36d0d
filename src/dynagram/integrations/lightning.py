"""PyTorch Lightning: a callback that watches the module while it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagram.errors import DynagramError, InvalidValueError

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:  # pragma: no cover
        raise DynagramError("lightning is not installed: run  pip install lightning") from error

from dynagram.watch import Watcher
from dynagram.watch import watch as begin_watch


class WatchCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Watches the module of a `Trainer`: `Trainer(callbacks=[WatchCallback(probe)])`.

    The records go to `run`, `sinks`, and with `log=True` to the trainer's own logger. Only the
    first process of several records.

    **Arguments:**

    - `probe`: a batch as for `dynagram.watch`.
    - `every`: steps of the optimizer between records.
    - `module`: which part of the LightningModule is watched, by its name; "" for all of it.
    - `log`: whether numbers go to the trainer's logger too.
    - `options`: more arguments of `dynagram.watch`, such as `run` and `loss`.
    """

    def __init__(
        self, probe: Any, every: int = 100, *, module: str = "", log: bool = True, **options: Any
    ):
        super().__init__()
        self.watcher: Watcher | None = None
        self._probe = probe
        self._every = every
        self._module = module
        self._log = log
        self._options = options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the watch."""
        if not trainer.is_global_zero:
            return
        from dynagram.watch import Tracker

        sinks: list[Any] = list(self._options.get("sinks") or ())
        if self._log and trainer.logger is not None:
            sinks.append(Tracker(_Logger(trainer.logger.log_metrics)))
        try:
            model = pl_module.get_submodule(self._module)
        except AttributeError as error:
            allowed = "the LightningModule has no part of this name"
            raise InvalidValueError("module", self._module, allowed) from error
        options: dict[str, Any] = {"step": trainer.global_step or None, **self._options}
        options["sinks"] = sinks
        self.watcher = begin_watch(model, self._probe, self._every, **options)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the watch."""
        del trainer, pl_module
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the watch, which then can be continued."""
        del trainer, pl_module, exception
        self._close()

    def _close(self) -> None:
        if self.watcher is not None:
            self.watcher.close()


class _Logger:
    """A logger of Lightning as a tracker."""

    def __init__(self, log_metrics: Callable[..., Any]):
        self._log_metrics = log_metrics

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Hand the numbers on."""
        self._log_metrics(numbers, step=step)
