"""A few concrete networks, before and after training on the batch: what two chapters look into."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax
import numpy as np

from dynagram.data import Data
from dynagram.ensembles import train
from dynagram.networks import Model
from dynagram.observables import Measurement, measure
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject
from dynagram.results._outputs import Outputs
from dynagram.training import Training

# Test inputs whose tangent kernel is followed.
_FOLLOWED = 24
_MOMENTS = 12


@dataclass(frozen=True, eq=False)
class Trained:
    """Models before and after, what `measure` says of them, and the training between."""

    before: tuple[Measurement, ...]
    after: tuple[Measurement, ...]
    models: tuple[Model, ...]
    training: Training
    outputs: Outputs | None

    @property
    def steps(self) -> list[int]:
        """The recorded steps."""
        return [int(step) for step in self.training.recorded]


@lru_cache(maxsize=1)
def trained_models(subject: Subject, effort: Effort) -> Trained:
    """Networks drawn, trained on the batch and measured; of a checkpoint, the one that is given.

    **Arguments:**

    - `subject`: what the page is about.
    - `effort`: how many networks, and how many steps.

    **Returns:** `Trained`: `before` and `after` are what `measure` says of each, `models` the
    trained networks, `training` how they were trained and `outputs` what `train` recorded (None of
    a checkpoint).
    """
    batch = subject.batch
    drawn = [subject.network.init(seed=effort.seed + k) for k in range(effort.models)]
    before = tuple(measure(model, batch) for model in drawn)
    algorithm = subject.batch_training
    how = Training(algorithm.algorithm, loss=algorithm.loss, steps=effort.steps, record=_MOMENTS)
    if subject.model is not None:
        given = (subject.model,)
        return Trained(before, (measure(subject.model, batch),), given, how, None)
    few = batch.x if batch.test_y is None else batch.test_x
    data = Data(batch.x, batch.y, few[:_FOLLOWED])
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(model.params for model in drawn))
    outputs = train(
        subject.network, data, how, members=effort.models, parameters=stacked,
        observables=["loss", "ntk"], keep_parameters=True,
    )  # fmt: skip
    assert outputs.parameters is not None  # they were asked for
    models = tuple(
        Model(
            subject.network, jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], outputs.parameters)
        )
        for k in range(effort.models)
    )
    after = tuple(measure(model, batch) for model in models)
    return Trained(before, after, models, how, outputs)
