"""Keras with the backend JAX: a callback that watches the model while it trains."""

from __future__ import annotations

import importlib.util
from typing import Any

from dynagram.errors import DynagramError, InvalidValueError

try:
    import keras
except ModuleNotFoundError as error:  # pragma: no cover
    if importlib.util.find_spec("keras") is not None:
        message = f"keras finds no {error.name}: set KERAS_BACKEND=jax before it is imported"
        raise DynagramError(message) from error
    raise DynagramError("keras is not installed: run  pip install keras") from error

from dynagram.watch import Watcher
from dynagram.watch import watch as begin_watch


class WatchCallback(keras.callbacks.Callback):
    """Watches the model of `fit`: `model.fit(…, callbacks=[WatchCallback(probe)])`.

    The model is called as the pure function `stateless_call` of its variables, in evaluation mode.

    **Arguments:**

    - `probe`: (x, y), or x.
    - `every`: batches between records.
    - `options`: more arguments of `dynagram.watch`, such as `run` and `loss`.
    """

    def __init__(self, probe: Any, every: int = 100, **options: Any):
        super().__init__()
        self.watcher: Watcher | None = None
        self._probe = probe
        self._every = every
        self._options = options

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin the watch."""
        del logs
        backend = keras.backend.backend()
        if backend != "jax":
            allowed = "set KERAS_BACKEND=jax: models of Keras are watched with this backend"
            raise InvalidValueError("backend of keras", backend, allowed)
        model: Any = self.model
        paths = [variable.path for variable in model.trainable_variables]
        fixed = [variable.value for variable in model.non_trainable_variables]

        def call(params: dict[str, Any], x: Any) -> Any:
            values = [params[path] for path in paths]
            return model.stateless_call(values, fixed, x, training=False)[0]

        self.watcher = begin_watch(
            call, self._probe, self._every, params=self._params(model), **self._options
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a step, and record it when it is time."""
        del batch, logs
        watcher = self.watcher
        if watcher is None:
            return
        # Asking for the model brings its variables up to date, which is not free.
        if any(watcher.is_due(watcher.step + ahead) for ahead in (1, 2)):
            watcher(self._params(self.model))
        else:
            watcher.step += 1

    def on_train_end(self, logs: Any = None) -> None:
        """End the watch."""
        del logs
        if self.watcher is not None:
            self.watcher.close()

    @staticmethod
    def _params(model: Any) -> dict[str, Any]:
        return {variable.path: variable.value for variable in model.trainable_variables}
