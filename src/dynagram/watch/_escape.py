"""When a loss that stands still will fall again: the forecast for MLPs, once for every plateau."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynagram.data import Data
from dynagram.errors import DynagramError
from dynagram.networks._mlp import Architecture
from dynagram.training import GradientDescent, Optax, Training
from dynagram.watch._look import Look, Task, to_numpy

_MOST_SAMPLES = 512
_MOST_PARAMETERS = 500_000  # of networks whose forecast takes seconds


@dataclass(frozen=True)
class Escape:
    """What is forecast for the plateau that a loss stands on.

    **Arguments:**

    - `step`: of the run, at which half of the next fall is done; None where nothing can be said.
    - `low`, `high`: hold it with a probability of 90 %.
    - `sentence`: the same in words, or why not.
    """

    step: float | None
    low: float
    high: float
    sentence: str


def forecast_escape(look: Look, step: int) -> Escape:
    """The forecast from the present weights; abstains with a reason, as `forecast` does.

    The probe stands for the training set, and every step for one of full-batch gradient descent
    at the present rate: the scatter of mini-batches is not in the interval.
    """
    try:
        return _forecast(look, step)
    except DynagramError as error:
        return _none(step, str(error))


def _none(step: int, reason: str) -> Escape:
    words = f"step {step}: the loss stands on a plateau; its end is not forecast: {reason}"
    return Escape(None, math.nan, math.nan, words)


def _data(task: Task, outputs: int) -> Data:
    x, y = to_numpy(task.x[:_MOST_SAMPLES]), task.y[:_MOST_SAMPLES]
    x = x.reshape(len(x), -1)
    if task.loss == "mean":
        return Data(x, y.reshape(len(y), -1))
    return Data.of_classes(x, y.ravel(), outputs=outputs)


def _forecast(look: Look, step: int) -> Escape:
    from dynagram.theory.saddle._forecast import forecast

    task = look.task
    if task is None or task.loss is None:
        return _none(step, "the loss is not known as a mean squared error or cross-entropy")
    if any(layer.kind != "linear" for layer in look.layers):
        return _none(step, "only MLPs are forecast")
    if look.momentum is None or look.eta is None or not look.eta > 0:
        return _none(step, "steps are not those of gradient descent with a known rate")
    if look.weight_decay != 0.0:
        return _none(step, "a forecast is without weight decay")
    if sum(math.prod(layer.weight.shape) for layer in look.layers) > _MOST_PARAMETERS:
        return _none(step, f"the network has more than {_MOST_PARAMETERS} parameters")
    if not all(layer.learns for layer in look.layers):
        return _none(step, "some layers are frozen")
    model = task.read()
    if not isinstance(model.network, Architecture):
        return _none(step, "only MLPs are forecast")
    data = _data(task, model.network.output_size)
    rule = GradientDescent(look.eta)
    if look.momentum:
        rule = Optax("momentum", look.eta, momentum=look.momentum)
    answer = forecast(model, data, Training(rule, loss=task.loss))
    if answer.escape_step is None or answer.interval is None:
        return _none(step, "; ".join(answer.reasons))
    if not math.isfinite(answer.escape_step):
        return _none(step, "no descent is possible from here")
    end, low, high = (step + part for part in (answer.escape_step, *answer.interval))
    words = (
        f"step {step}: the loss stands on a plateau and will leave it at step {end:.0f} "
        f"(90 %: {low:.0f} to {high:.0f})"
    )
    return Escape(end, low, high, words)
