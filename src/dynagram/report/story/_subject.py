"""What a page tells of: a network or one given model, its data, and how it is trained."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.config import parse_config
from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Architecture, Model
from dynagram.networks._layers import short_widths
from dynagram.report._page import asset
from dynagram.results._outputs import Outputs
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training import step_sizes
from dynagram.training import GradientDescent, Training
from dynagram.training._losses import SQUARED, half_sum_factor

# Images on which one network is trained and measured, where a named set has them.
_BATCH = (240, 100)
# Inputs whose tangent kernel gives the learning rate of a batch.
_KERNEL_SAMPLES = 64


@dataclass(frozen=True, eq=False)
class Subject:
    """What the chapters of a page are about.

    `network` is what networks are drawn from; of a checkpoint its weights are in `model`, and
    `network` is the draw of the same variances. `data` is what theory and ensembles are asked
    about, `batch` what one network is trained and measured on; `measured` are the outputs of a
    run that is there already. `command` is what was typed, `config` the problem as TOML, `python`
    the expression that makes this subject again, from `config` saved as problem.toml if it has one.
    """

    network: MLP
    data: Data
    batch: Data
    how: Training
    command: str
    config: str
    model: Model | None = None
    measured: Outputs | None = None
    python: str = 'of_config("problem.toml")'

    @property
    def has_file(self) -> bool:
        """Whether `config` is the whole problem."""
        return self.python == 'of_config("problem.toml")'

    @property
    def title(self) -> str:
        """The title of the page."""
        sigma = self.network.activation.name
        kind = "A checkpoint" if self.model is not None else "How this network learns"
        return f"{kind}: {sigma}, widths {short_widths(self.network.widths)}"

    @property
    def lead(self) -> str:
        """What the page is about, in two sentences."""
        samples = f"{len(self.data.x)} inputs, judged on {len(self.data.test_x)} others"
        start = "weights that you gave" if self.model is not None else "networks drawn at random"
        return (
            f"What theory expects of {start}, beside what concrete networks do: before, during and "
            f"after training on {samples}. Every number has an error bar or an order, and every "
            "prediction says whether it applies here."
        )

    @cached_property
    def batch_training(self) -> Training:
        """Gradient descent on the batch, at half the largest stable step."""
        loss = self.how.loss if self.how.loss in SQUARED else "mean"
        return Training(GradientDescent(stable_rate(self.network, self.batch, loss)), loss=loss)


def stable_rate(network: MLP, data: Data, loss: str) -> float:
    """Half the step size at which gradient descent on `data` diverges, for a squared error."""
    x = data.x[:_KERNEL_SAMPLES]
    Theta = frozen_kernels(network, x, layers="last").Theta[0]
    return 0.5 * step_sizes(Theta).largest / half_sum_factor(loss, len(x), data.outputs)


def equal_rates(network: MLP) -> MLP:
    """The same draw with every parameter at the same rate, as under plain gradient descent.

    **Arguments:**

    - `network`: the network.

    **Returns:** the `MLP` with λ_b = 1 and λ_W = the inputs of each layer.
    """
    return MLP(
        network.widths, network.activation, network.C_b, network.C_W, 1.0, network.widths[:-1],
        skip=network.skip or 0.0,
    )  # fmt: skip


def default_subject() -> Subject:
    """Two handwritten digits and a GELU network, from the text in `assets/default.toml`.

    **Arguments:** none; needs the extra `sklearn`.

    **Returns:** a `Subject`.
    """
    return _of_text(asset("default.toml"), Path(), "default.toml", "dynagram report")


def of_config(path: str | Path) -> Subject:
    """The problem of a TOML file.

    **Arguments:**

    - `path`: the file, as `dynagram.config.read_config` reads it, with a table [training].

    **Returns:** a `Subject`.
    """
    from dynagram.data._files import read_bytes

    path = Path(path)
    text = read_bytes(path, "config").decode(errors="replace")
    return _of_text(text, path.parent, str(path), f"dynagram report {shlex.quote(str(path))}")


def _of_text(text: str, folder: Path, name: str, command: str) -> Subject:
    problem = parse_config(text, folder, name=name)
    if not isinstance(problem.how, Training):
        raise InvalidValueError("config", name, "a table [training] is needed for a report")
    batch = parse_config(text, folder, name=name, at_most=_BATCH).data
    batch = problem.data if len(batch.x) < len(problem.data.x) else batch
    network = _require_mlp(problem.network)
    return Subject(network, problem.data, batch, problem.how, command, text)


def of_run(folder: str | Path) -> Subject:
    """A stored run of `dynagram train`, whose outputs are the measurement.

    **Arguments:**

    - `folder`: of the run.

    **Returns:** a `Subject`.
    """
    from dynagram.ensembles._runs import open_run
    from dynagram.ensembles.engine._engine import read_job

    measured, job = open_run(folder), read_job(folder).job
    data = getattr(job, "data", None)
    if not isinstance(measured, Outputs) or not isinstance(data, Data):
        allowed = "a report needs a run of `dynagram train` on given data"
        raise InvalidValueError("run", str(folder), allowed)
    network, how = _require_mlp(measured.network), measured.how
    assert isinstance(how, Training)  # what runs are made of
    config = network.to_toml() + how.to_toml()
    command = f"dynagram report {shlex.quote(str(folder))}"
    python = f"of_run({str(folder)!r})"
    return Subject(network, data, data, how, command, config, measured=measured, python=python)


def of_model(
    model: Any, data: Data, *, rate: float | None = None, command: str = "", params: Any = None
) -> Subject:
    """Weights that are given; they are held against a random draw of the same variances.

    **Arguments:**

    - `model`: the network with its weights: a `Model`, or a live one of PyTorch, JAX, equinox or
        flax that `Model.of` reads as a plain or residual network.
    - `data`: what it is trained and measured on.
    - `rate`: the learning rate of the training to come; None for half the largest stable one.
    - `command`: what reproduces the page, shown on it; if empty, the lines of Python.
    - `params`: the parameters of a JAX function or a linen module of flax.

    **Returns:** a `Subject`.
    """
    if not isinstance(model, Model):
        from dynagram.live._live import fitting_inputs

        x = fitting_inputs(model, data.x[:_KERNEL_SAMPLES])
        model = Model.of(model, x, params=params)
    network = _same_variances(model)
    how = Training(GradientDescent(rate or 1.0), loss="mean", steps=100, record=9)
    given = "" if rate is None else f", rate={rate!r}"
    python = f"of_model(model, data{given})"
    command = command or (
        "from dynagram.report.story import of_model, write_story\n"
        f'write_story({python}, "dynagram-report")'
    )
    subject = Subject(network, _few(data), data, how, command, "", model, python=python)
    if rate is not None:
        return subject
    safe = subject.batch_training.eta
    assert safe is not None
    how = Training(GradientDescent(safe), loss="mean", steps=100, record=9)
    return dataclasses.replace(subject, how=how)


def _few(data: Data, train: int = 12, test: int = 8) -> Data:
    """The first samples, few enough for predictions at order 1/n; some are kept for the test."""
    x, y = data.x, data.y
    has_test = data.test_y is not None and len(data.test_x) > 0
    if has_test and len(x) <= train + test:
        return data
    if not has_test:
        if len(x) < 2:
            raise InvalidValueError("samples of --data", len(x), "at least two, or x_test, y_test")
        train = min(train, max(1, 3 * len(x) // 5))
    if has_test:
        assert data.test_y is not None
        return Data(x[:train], y[:train], data.test_x[:test], data.test_y[:test])
    return Data(x[:train], y[:train], x[train : train + test], y[train : train + test])


def _require_mlp(network: object) -> MLP:
    if not isinstance(network, MLP):
        allowed = "a report needs an MLP: networks of blocks have `dynagram critical --arch`"
        raise InvalidTypeError("network", type(network).__name__, allowed)
    return network


def _same_variances(model: Model) -> MLP:
    """The random network whose layers have the variances of these weights."""
    network, plain = model.network, model.in_float64()
    if not isinstance(network, Architecture):
        _require_mlp(network)
    C_b = [float(np.mean(np.square(layer.b))) for layer in plain.params]
    C_W = [float(np.sum(np.square(layer.W))) / layer.W.shape[0] for layer in plain.params]
    rates = {"lambda_b": network.lambda_b, "lambda_W": network.lambda_W}
    return MLP(network.widths, network.activation, C_b, C_W, **rates, skip=network.skip or 0.0)
