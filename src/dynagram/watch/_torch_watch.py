"""Watching a PyTorch module: hooks on the steps of its optimizer, and nothing else."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from dynagram.errors import InvalidTypeError
from dynagram.watch._look import Look
from dynagram.watch._measure import one_line
from dynagram.watch._randomness import same_numbers
from dynagram.watch._torch_recorder import TorchRecorder
from dynagram.watch._watcher import Watcher


class StepHooks:
    """Calls a watcher around the steps of the optimizer that holds the model's parameters.

    Without an optimizer it is the first one that takes a step with any of them; of several only
    that one counts.
    """

    def __init__(self, watcher: Watcher, recorder: TorchRecorder, optimizer: Any):
        self._watcher = watcher
        self._recorder = recorder
        self._ids = {id(parameter) for parameter in recorder.parameters()}
        self._leader: Any = optimizer
        if optimizer is None:
            handles = [
                register_optimizer_step_pre_hook(self._before),
                register_optimizer_step_post_hook(self._after),
            ]
        else:
            handles = [
                optimizer.register_step_pre_hook(self._before),
                optimizer.register_step_post_hook(self._after),
            ]
        for handle in handles:
            watcher.on_close(handle.remove)

    @staticmethod
    def check(optimizer: Any) -> None:
        """Refuse what is no optimizer."""
        if not isinstance(optimizer, torch.optim.Optimizer | None):
            allowed = "expected a torch.optim.Optimizer"
            raise InvalidTypeError("optimizer", type(optimizer).__name__, allowed)

    def _is_ours(self, optimizer: Any) -> bool:
        if self._leader is None and any(
            id(p) in self._ids for group in optimizer.param_groups for p in group["params"]
        ):
            self._leader = optimizer
        return optimizer is self._leader

    def _before(self, optimizer: Any, *_: Any) -> None:
        try:
            coming = self._watcher.step + 1
            if self._is_ours(optimizer) and (self._watcher.is_due(coming) or coming == 1):
                self._recorder.remember()
        except Exception as error:
            self._watcher.fail(one_line(error))

    def _after(self, optimizer: Any, *_: Any) -> None:
        try:
            if not self._is_ours(optimizer):
                return
            watcher = self._watcher
            watcher.step += 1
            if watcher.is_due(watcher.step):
                with same_numbers():  # what is imported on demand may draw
                    watcher.record(lambda: self.look(optimizer), watcher.step)
            elif watcher.step == 1:
                self._note_first()
        except Exception as error:
            self._watcher.fail(one_line(error))

    def _note_first(self) -> None:
        """How far the first step went, which is often the farthest."""
        for index, moved in enumerate(self._recorder.updates() or ()):
            if moved is not None:
                self._watcher.memory.updates[index] = float((moved * moved).sum())

    def look(self, optimizer: Any = None) -> Look:
        """A look, with what the optimizer says of its steps, where it is known."""
        look = self._recorder.look()
        optimizer = optimizer or self._leader
        if optimizer is None:
            return look
        groups = [
            group
            for group in optimizer.param_groups
            if any(id(p) in self._ids for p in group["params"])
        ]
        look.eta = max((float(group["lr"]) for group in groups if "lr" in group), default=None)
        look.weight_decay = max((float(g.get("weight_decay", 0.0)) for g in groups), default=0.0)
        if isinstance(optimizer, torch.optim.SGD) and not any(
            g.get("dampening") or g.get("maximize") for g in groups
        ):
            look.momentum = max((float(g.get("momentum", 0.0)) for g in groups), default=0.0)
        return look
