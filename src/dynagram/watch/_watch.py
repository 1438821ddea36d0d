"""`watch`: one line in a training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynagram.watch._randomness import same_numbers

if TYPE_CHECKING:
    from dynagram.watch._band import Alert, Band
    from dynagram.watch._record import Key
    from dynagram.watch._watcher import Sink, Watcher
else:
    Alert = Band = Key = Sink = Watcher = Any  # imported when a watch begins, see `same_numbers`

_SECONDS_OF_A_FORECAST = 5.0


def watch(
    model: Any,
    probe: Any,
    every: int = 100,
    *,
    run: str | Path | None = None,
    sinks: Sequence[Sink] = (),
    optimizer: Any = None,
    loss: Callable[..., Any] | None = None,
    fresh: Callable[[], Any] | None = None,
    draws: int = 16,
    theory: bool = False,
    quantities: Sequence[str] | None = None,
    samples: int = 32,
    step: int | None = None,
    on_alert: Callable[[Alert], object] | None = None,
    params: Any = None,
    rate: Any = None,
    momentum: float | None = None,
) -> Watcher:
    """Record what a model does while it trains, beside what it should do.

    A PyTorch module is watched from its optimizer's steps: nothing else in the loop changes, and
    training is the same bit for bit. In JAX the watcher is called with the parameters after every
    step, outside `jit`: `watcher(params)`. The first record is made at once.

    **Arguments:**

    - `model`: a `torch.nn.Module`; compiled and data-parallel ones are looked at in their eager
        form. Or an equinox module of one sample, or a JAX function f(params, x) with `params`.
    - `probe`: a batch that is looked at each time: x, or (x, y), or a mapping of arguments as
        Hugging Face models take, or (mapping, y). Some tens of samples do.
    - `every`: steps between records.
    - `run`: a folder that keeps the records; an existing one goes on.
    - `sinks`: where records go besides, such as `JsonLines("watch.jsonl")`.
    - `optimizer`: whose steps count; by default the first one that moves the model's parameters,
        and the next one when that is gone or others have gone on without it for 100 steps.
    - `loss`: loss(outputs, y), a mean over samples; by default what the model returns as `loss`,
        or as the only scalar of a tuple, else cross-entropy for classes and the mean squared error
        for reals.
    - `fresh`: makes the same model newly drawn; bands of the beginning are then measured on
        `draws` of them.
    - `draws`: how many.
    - `theory`: whether mean squares, gradients and cosines of tokens of dense and convolutional
        layers at the beginning are worked out, where the model is a network of ours, and the drift
        of the kernel, where it is an MLP; that takes seconds. Also whether the end of a plateau is
        forecast at once, and not only when that takes less than a hundredth of the run.
    - `quantities`: names from `dynagram.watch.QUANTITIES`; by default all.
    - `samples`: of the probe that gradients are taken of.
    - `step`: of the model as it is, where a run goes on from a checkpoint: later records are
        dropped. By default 0, or the last step in `run`.
    - `on_alert`: called with every `Alert`.
    - `params`: of a JAX function.
    - `rate`, `momentum`: in JAX, the learning rate, a number or a function of the step, and the
        momentum if the update rule is plain gradient descent with it.

    **Returns:** `Watcher`. Cost of a record: about that of two training steps on the probe, and
    the spectrum of at most 256 rows of one layer.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    >>> x = torch.randn(64, 4)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> watcher = watch(model, (x, x[:, :1]), every=10)
    >>> for _ in range(20):
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.mse_loss(model(x), x[:, :1]).backward()
    ...     _ = optimizer.step()
    >>> watcher.close()
    >>> watcher
    Watcher(2 layers, every 10, last at step 20)
    >>> watcher.last.bands["imbalance", "0"].holds(watcher.last.values["imbalance", "0"])
    True
    """
    with same_numbers():
        from dynagram.watch._arguments import (
            check_functions,
            check_rule,
            check_sinks,
            check_unused,
            chosen,
            integer,
        )

        every, samples, draws = (
            integer(name, value, least)
            for name, value, least in (
                ("every", every, 1), ("samples", samples, 2), ("draws", draws, 2),
            )
        )  # fmt: skip
        step = None if step is None else integer("step", step, 0)
        names = chosen(quantities)
        check_sinks(sinks)
        check_functions(loss=loss, fresh=fresh, on_alert=on_alert)
        # A forecast takes seconds, which few short runs are worth: asked for, it comes at once.
        reckoned = 0.0 if theory or quantities is not None else _SECONDS_OF_A_FORECAST
        if _framework(model) != "torch":
            check_unused("JAX", optimizer=optimizer, fresh=fresh)
            check_rule(rate, momentum)
            watcher = _watch_jax(
                model, params, probe, loss, samples, rate, momentum,
                theory, (every, names, run, sinks, on_alert, step),
            )  # fmt: skip
            watcher.memory.spent = reckoned
            return watcher
        from dynagram.watch._torch_recorder import TorchRecorder
        from dynagram.watch._torch_watch import StepHooks

        check_unused("PyTorch", params=params, rate=rate, momentum=momentum)
        recorder = TorchRecorder(model, probe, loss, samples)
        StepHooks.check(optimizer)
        birth: dict[Key, Band] = {}
        if fresh is not None:
            from dynagram.watch._torch_redrawn import redrawn_bands

            birth = redrawn_bands(fresh, probe, loss, samples, draws, recorder.names, names)
        watcher = begin(recorder.names, every, names, run, sinks, on_alert, step)
        watcher.birth |= birth
        if theory:
            _expect(watcher, recorder.module, recorder.probe.x, recorder.look)
        watcher.memory.spent = reckoned
        hooks = StepHooks(watcher, recorder, optimizer)
        if watcher.last is None:
            watcher.record(hooks.look, watcher.step)
        return watcher


def _watch_jax(
    model: Any,
    params: Any,
    probe: Any,
    loss: Callable[..., Any] | None,
    samples: int,
    rate: Any,
    momentum: float | None,
    theory: bool,
    settings: tuple[Any, ...],
) -> Watcher:
    from dynagram.watch._jax_recorder import JaxRecorder
    from dynagram.watch._jax_watch import Steps, as_function

    function, arrays = as_function(model, params)
    recorder = JaxRecorder(function, arrays, probe, loss, samples)
    every, names, run, sinks, on_alert, step = settings
    watcher = begin(recorder.names, every, names, run, sinks, on_alert, step)
    steps = Steps(watcher, recorder, arrays, rate, momentum)
    if theory:
        _expect(watcher, function, recorder.x, lambda: steps.look(arrays), arrays)
    if watcher.last is None:
        watcher.record(lambda: steps.look(arrays), watcher.step)
    watcher.takes_params(steps)
    return watcher


def _expect(
    watcher: Watcher, model: Any, x: Any, look: Callable[[], Any], params: Any = None
) -> None:
    """Bands of the beginning and of the kernel's drift; where there are none, a line says why."""
    from dynagram.watch._birth_bands import birth_bands
    from dynagram.watch._drift_band import expect_drift
    from dynagram.watch._measure import one_line

    if watcher.last is not None:
        watcher.fail("theory: the run goes on, and its weights are not those it began with")
        return
    if isinstance(x, Mapping):
        watcher.fail("theory: a model that takes its inputs by name is not read")
        return
    try:
        seen = look()
        bands, reason = birth_bands(model, x, seen, params)
        watcher.birth |= bands
        if not reason and "kernel_drift" in watcher.quantities and seen.task is not None:
            drift = expect_drift(seen)
            if isinstance(drift, str):
                watcher.fail(f"theory of the kernel's drift: {drift}")
            else:
                watcher.memory.drift = drift
    except Exception as error:
        reason = one_line(error)
    if reason:
        watcher.fail(f"theory: {reason}")


def begin(
    layers: Sequence[str],
    every: int,
    quantities: Sequence[str],
    run: str | Path | None,
    sinks: Sequence[Sink],
    on_alert: Callable[[Alert], object] | None,
    step: int | None,
) -> Watcher:
    """A watcher with its sinks; one that goes on in `run` knows what was before."""
    # The search for plateaus needs it: a tenth of a second before training, not in the midst of it.
    import scipy.optimize  # noqa: F401

    from dynagram.watch._run_folder import RunFolder
    from dynagram.watch._watcher import Watcher

    folder = None if run is None else RunFolder(run, step)
    targets = [*([] if folder is None else [folder]), *sinks]
    watcher = Watcher(
        layers, every=every, quantities=quantities, sinks=targets, on_alert=on_alert,
        step=step or 0,
    )  # fmt: skip
    if folder is not None:
        try:
            folder.restore(watcher)
        except BaseException:
            watcher.close()
            raise
    return watcher


def _framework(model: Any) -> str | None:
    """By the class and those it is derived from: nothing is imported for it."""
    for parent in type(model).__mro__:
        if parent.__module__.partition(".")[0] == "torch":
            return "torch"
    return None
