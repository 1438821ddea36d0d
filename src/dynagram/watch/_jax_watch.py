"""Watching parameters in JAX: a call with them after every step, outside `jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dynagram.errors import InvalidTypeError
from dynagram.watch._jax_recorder import JaxRecorder
from dynagram.watch._look import Look
from dynagram.watch._measure import one_line
from dynagram.watch._watcher import Watcher

Rate = float | Callable[[int], Any] | None


def as_function(model: Any, params: Any) -> tuple[Callable[[Any, Any], Any], Any]:
    """f(params, x) and the parameters, of a function or an equinox module.

    An equinox module takes one sample, and is mapped over the batch.
    """
    import equinox as eqx

    if params is not None:
        if not callable(model):
            raise InvalidTypeError("model", type(model).__name__, "expected f(params, x)")
        return model, params
    if not isinstance(model, eqx.Module) or not callable(model):
        allowed = "expected a torch.nn.Module, an equinox module, or f(params, x) with params="
        raise InvalidTypeError("model", type(model).__name__, allowed)
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)

    def call(arrays: Any, x: Any) -> Any:
        single: Any = eqx.combine(arrays, rest)
        return jax.vmap(single)(x)

    return call, arrays


class Steps:
    """Counts the calls of a watcher and records the parameters when it is time."""

    def __init__(
        self,
        watcher: Watcher,
        recorder: JaxRecorder,
        params: Any,
        rate: Rate,
        momentum: float | None,
    ):
        self._watcher = watcher
        self._recorder = recorder
        self._rate = rate
        self._momentum = momentum
        self._before: Any = _copied(params)

    def __call__(self, params: Any) -> None:
        """One more step is done, and these are the parameters; an equinox module will do."""
        watcher = self._watcher
        try:
            watcher.step += 1
            if watcher.is_due(watcher.step):
                arrays = _arrays(params)
                watcher.record(lambda: self.look(arrays, self._before), watcher.step)
            elif self._before is not None:
                # How far the first step went, which is often the farthest.
                watcher.memory.updates.update(self._recorder.updates(_arrays(params), self._before))
            is_next = watcher.is_due(watcher.step + 1)
            self._before = _copied(_arrays(params)) if is_next else None
        except Exception as error:
            watcher.fail(one_line(error))

    def look(self, params: Any, before: Any = None) -> Look:
        """A look, with what is known of the update rule."""
        look = self._recorder.look(params, before)
        step = self._watcher.step
        look.eta = float(self._rate(step)) if callable(self._rate) else self._rate
        look.momentum = self._momentum
        return look


def _copied(params: Any) -> Any:
    """Arrays of our own: a compiled step may be given the others to write over."""
    return jax.tree.map(np.array, params)


def _arrays(params: Any) -> Any:
    import equinox as eqx

    if isinstance(params, eqx.Module):
        return eqx.partition(params, eqx.is_inexact_array)[0]
    return params
