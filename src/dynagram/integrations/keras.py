"""Keras with the backend JAX: a callback that watches the model while it trains."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

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
        import jax

        model: Any = self.model
        paths = [variable.path for variable in model.trainable_variables]
        others = [variable.path for variable in model.non_trainable_variables]
        moving = {variable.path for variable in _statistics(model)}
        # Copies: the training step writes over the arrays that it is given.
        fixed = {v.path: np.array(v.value) for v in model.non_trainable_variables}

        def call(params: dict[str, Any], x: Any) -> Any:
            values = [params[path] for path in paths]
            rest = [
                jax.lax.stop_gradient(params[path]) if path in moving else fixed[path]
                for path in others
            ]
            return model.stateless_call(values, rest, x, training=False)[0]

        options = dict(self._options)
        if moving:  # the curvature with constant statistics is not that of the training
            options["momentum"] = None
        self.watcher = begin_watch(
            call, self._probe, self._every, params=self._params(model), **options
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
        seen = [*model.trainable_variables, *_statistics(model)]
        return {variable.path: variable.value for variable in seen}


def _statistics(model: Any) -> list[Any]:
    """What training moves without gradients, such as the means of batch norms."""
    return [
        variable
        for variable in model.non_trainable_variables
        if len(variable.shape) < 2 and keras.backend.is_float_dtype(variable.dtype)
    ]
