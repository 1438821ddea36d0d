"""Watching a PyTorch module: hooks on the steps of its optimizer, and nothing else."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from dynagram.errors import InvalidTypeError
from dynagram.watch._look import Look, square_of
from dynagram.watch._measure import one_line
from dynagram.watch._randomness import same_numbers
from dynagram.watch._torch_recorder import TorchRecorder
from dynagram.watch._watcher import Watcher

_PATIENCE = 100  # steps of another optimizer, at least, until it is the one whose steps count


class StepHooks:
    """Calls a watcher around the steps of the optimizer that holds the model's parameters.

    Without an optimizer it is the first one that takes a step with any of them; of several only
    that one counts, and of the others the updates are seen. When it is gone, or others have gone
    on without it for long, as in a second stage of training, the next one follows it.
    """

    def __init__(self, watcher: Watcher, recorder: TorchRecorder, optimizer: Any):
        self._watcher = watcher
        self._recorder = recorder
        self._parameters = {id(p): p for p in recorder.parameters()}
        self._is_given = optimizer is not None
        self._leader: Callable[[], Any] = lambda: None
        if optimizer is not None:
            self._leader = weakref.ref(_inmost(optimizer))
        self._held: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
        self._without_leader = 0
        self._versions: dict[int, int] | None = None  # of the parameters, after the last step
        self._is_written = False  # whether anything but steps writes to parameters
        # For all optimizers: hooks of one would be copied with it.
        for handle in (
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ):
            watcher.on_close(handle.remove)

    @staticmethod
    def check(optimizer: Any) -> None:
        """Refuse what is no optimizer."""
        if not isinstance(optimizer, torch.optim.Optimizer | None):
            allowed = "expected a torch.optim.Optimizer"
            raise InvalidTypeError("optimizer", type(optimizer).__name__, allowed)

    def _holds(self, optimizer: Any, *, again: bool = False) -> frozenset[int]:
        """The parameters of the model that an optimizer has, by identity."""
        if again or optimizer not in self._held:
            ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
            self._held[optimizer] = frozenset(ids & self._parameters.keys())
        return self._held[optimizer]

    def _held_by_others(self, optimizer: Any) -> set[int]:
        return set().union(*(held for o, held in self._held.items() if o is not optimizer))

    def _is_leader(self, optimizer: Any) -> bool:
        if self._leader() is None and self._holds(optimizer):
            self._leader = weakref.ref(optimizer)
        return self._leader() is optimizer

    def _before(self, optimizer: Any, *_: Any) -> None:
        try:
            coming = self._watcher.step + 1
            if not self._watcher.is_due(coming) and coming != 1:
                return
            if self._versions not in (None, self._versions_now()):
                self._is_written = True
            held = set(self._holds(optimizer, again=True))
            if self._is_leader(optimizer):  # what nobody moves is seen to rest
                held |= self._parameters.keys() - self._held_by_others(optimizer)
            if held:
                self._recorder.updates.remember(optimizer, held)
        except Exception as error:
            self._watcher.fail(one_line(error))

    def _after(self, optimizer: Any, *_: Any) -> None:
        try:
            self._recorder.updates.settle(optimizer)
            if not self._is_leader(optimizer):
                self._follow(optimizer)
                return
            self._without_leader = 0
            watcher = self._watcher
            watcher.step += 1
            if watcher.is_due(watcher.step):
                with same_numbers():  # what is imported on demand may draw
                    watcher.record(lambda: self.look(optimizer), watcher.step)
            elif watcher.step == 1:
                self._note_first()
            is_next = watcher.is_due(watcher.step + 1)
            self._versions = self._versions_now() if is_next else None
        except Exception as error:
            self._watcher.fail(one_line(error))

    def _versions_now(self) -> dict[int, int]:
        """How often parameters were written to: a projection between steps is seen by it."""
        seen = self._parameters.items()
        return {number: 0 if p.is_inference() else p._version for number, p in seen}

    def _follow(self, optimizer: Any) -> None:
        if self._is_given or not self._holds(optimizer):
            return
        self._without_leader += 1
        if self._without_leader >= max(_PATIENCE, self._watcher.every):
            self._leader = weakref.ref(optimizer)

    def _note_first(self) -> None:
        """How far the first step went, which is often the farthest."""
        for index, parts in self._recorder.updates.told().items():
            squares = [square_of(part) for part in parts if part is not None]
            self._watcher.memory.updates[index] = sum(squares)

    def look(self, optimizer: Any = None) -> Look:
        """A look, with what the optimizer says of its steps, where it is known."""
        look = self._recorder.look()
        optimizer = optimizer or self._leader()
        if optimizer is None:
            return look
        learning = {number for number, p in self._parameters.items() if p.requires_grad}
        groups = [
            group
            for group in optimizer.param_groups
            if any(id(p) in self._parameters for p in group["params"])
        ]
        look.eta = max((float(group["lr"]) for group in groups if "lr" in group), default=None)
        look.weight_decay = max((float(g.get("weight_decay", 0.0)) for g in groups), default=0.0)
        is_alone = learning <= self._holds(optimizer, again=True) - self._held_by_others(optimizer)
        look.is_written = self._is_written
        if is_alone and isinstance(optimizer, torch.optim.SGD):
            rules = {_rule(g) for g in groups if any(id(p) in learning for p in g["params"])}
            if len(rules) == 1 and (rule := rules.pop()) is not None:
                _, look.momentum, look.nesterov = rule
        return look


def _rule(group: dict[str, Any]) -> tuple[float, float, bool] | None:
    """Rate, momentum, and whether it is that of Nesterov; None where it is another update."""
    if group.get("dampening") or group.get("maximize"):
        return None
    momentum = float(group.get("momentum", 0.0))
    return float(group["lr"]), momentum, bool(group.get("nesterov"))


def _inmost(optimizer: Any) -> Any:
    """What takes the steps of one that is wrapped, as accelerate does."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer
