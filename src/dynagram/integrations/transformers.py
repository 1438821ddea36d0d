"""Hugging Face Trainer: a callback that watches the model while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynagram.errors import DynagramError

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:  # pragma: no cover
    raise DynagramError("transformers is not installed: run  pip install transformers") from error

from dynagram.watch import Watcher
from dynagram.watch import watch as begin_watch


class WatchCallback(TrainerCallback):
    """Watches the model of a `Trainer`: `Trainer(…, callbacks=[WatchCallback(probe)])`.

    Only the first process of several records. What the trainer reports to (wandb, TensorBoard …)
    can be given as `sinks`.

    **Arguments:**

    - `probe`: a mapping of arguments of the model, with labels, as a data collator makes it.
    - `every`: steps of the optimizer between records.
    - `options`: more arguments of `dynagram.watch`, such as `run`.
    """

    def __init__(self, probe: Any, every: int = 100, **options: Any):
        self.watcher: Watcher | None = None
        self._probe = probe
        self._every = every
        self._options = options

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the watch."""
        del args, control
        if not state.is_world_process_zero:
            return
        options: dict[str, Any] = {"step": state.global_step or None, **self._options}
        probe = dict(self._probe) if isinstance(self._probe, Mapping) else self._probe
        self.watcher = begin_watch(kwargs["model"], probe, self._every, **options)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the watch."""
        del args, state, control, kwargs
        if self.watcher is not None:
            self.watcher.close()
