"""Looks at a live PyTorch module on a probe batch: one pass forward, a few back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._torch_layers import unwrapped
from dynagram.networks import Model
from dynagram.watch._look import LayerLook, Look, Task
from dynagram.watch._measure import one_line
from dynagram.watch._mixing import mixing_signs
from dynagram.watch._named_loss import loss_name
from dynagram.watch._settings import other_samples, sample_counts
from dynagram.watch._targets import readable_targets
from dynagram.watch._torch_curvature import DenseCall, PowerMethod, curvature_along
from dynagram.watch._torch_outputs import is_scalar, one_number, outputs_of, usual_loss
from dynagram.watch._torch_parts import (
    Part,
    as_signal,
    fill,
    row_stride,
    slopes_of,
    weighted_parts,
)
from dynagram.watch._torch_probe import Probe
from dynagram.watch._torch_quiet import Copy, adapts, quiet, reference_parameter
from dynagram.watch._torch_updates import Updates

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class TorchRecorder:
    """Makes `Look`s of a module.

    **Arguments:**

    - `model`: a module; compiled and data-parallel ones are seen through.
    - `probe`: x, (x, y), or a mapping of arguments by name, as Hugging Face models take.
    - `loss`: loss(outputs, y); None: what the model returns as `loss`, else by the kind of y.
    - `samples`: how many of the probe are used for gradients.
    """

    framework = "torch"

    def __init__(self, model: nn.Module, probe: Any, loss: Loss | None, samples: int):
        self.module = unwrapped(model)
        self._like = reference_parameter(self.module)
        with torch.inference_mode(False):  # tensors that gradients go through
            self.probe = Probe(probe, self._like, self.module.forward)
        self._loss = loss
        is_module = isinstance(loss, nn.Module)
        self._quieted = nn.ModuleList([self.module, loss]) if is_module else self.module
        self._written: frozenset[str] | None = None  # parameters that a pass writes to
        self._parts, sizes = self._called(weighted_parts(self.module))
        self._samples, self._feature_samples = sample_counts(self.probe.count, samples, *sizes)
        self._power = PowerMethod()
        self.updates = Updates(self._parts)

    @property
    def names(self) -> list[str]:
        """Of the layers, in the order in which they are called."""
        return [part.name for part in self._parts]

    @functools.cached_property
    def task(self) -> Task | None:
        """What the model learns, where it takes one array and has targets."""
        y, x = self.probe.targets, self.probe.x
        if y is None or not isinstance(x, torch.Tensor):
            return None
        return Task(lambda: Model.of(self.module, x), x, y, loss_name(self._loss, y))

    def parameters(self) -> list[torch.Tensor]:
        """All parameters of the module."""
        return list(self.module.parameters())

    # --- looking ------------------------------------------------------------------------------

    def look(self) -> Look:
        """Everything that quantities are measured on."""
        self._check_parts()
        is_as_trained = not any(adapts(part) for part in self.module.modules())
        with quiet(self._quieted):
            copy, arguments, options, y = self._prepared(self._samples, gradients=True)
            with self._captured(self._parts) as calls:
                output = copy(arguments, options)
            z = outputs_of(output)
            if z.ndim < 2:
                z = z.reshape(len(z), -1)
            loss = self._loss_of(output, z, y)
            layers = self._layers(calls, z, loss, copy)
            curvature, elsewhere, leaves = None, None, self._learning(copy)
            if loss is not None and leaves:
                dense = self._dense_calls(calls, leaves)
                parts = z, loss, list(leaves.values()), dense
                curvature = functools.partial(self._curvature, *parts)
                if others := other_samples(self.probe.count, self._samples):
                    elsewhere = functools.partial(self._elsewhere, z, leaves, others)
            return Look(
                layers,
                loss=None if loss is None else float(loss.detach()),
                curvature=curvature,
                elsewhere=elsewhere,
                is_as_trained=is_as_trained,
                task=self.task,
                features=self._features(calls) if self.probe.has_targets else None,
            )

    def _check_parts(self) -> None:
        """Refuse a model whose layers are others than when the watch began."""
        present = {id(part) for part in self.module.modules()}
        for part in self._parts:
            if id(part.module) not in present:
                allowed = "is no part of the model any more: begin a new watch"
                raise InvalidValueError("layer", part.name, allowed)

    def _prepared(
        self, samples: int, *, gradients: bool, first: int = 0
    ) -> tuple[Copy, Any, Any, Any]:
        arguments, options, y = self.probe.head(samples, first)
        copy = Copy(self.module, gradients=gradients, apart=self._written)
        copy.settle_batch_norms(arguments, options)
        return copy, arguments, options, y

    @contextlib.contextmanager
    def _captured(self, parts: list[Part]) -> Iterator[dict[int, list[tuple[Any, Any]]]]:
        """Inputs and outputs of every call of these modules, by their number."""
        calls: dict[int, list[tuple[Any, Any]]] = {}
        numbers = {id(part.module): number for number, part in enumerate(self._parts)}

        def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
            # Attention returns its weights behind what it computes.
            signal = output[0] if isinstance(output, tuple) and output else output
            if not isinstance(signal, torch.Tensor) or not inputs:
                return None
            # Copies: what comes next may work in place.
            kept, number = signal.clone(), numbers[id(module)]
            self._parts[number].see()
            calls.setdefault(number, []).append((inputs[0].detach().clone(), signal))
            return (kept, *output[1:]) if isinstance(output, tuple) else kept

        handles = [part.module.register_forward_hook(note) for part in parts]
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()

    def _called(self, parts: list[Part]) -> tuple[list[Part], tuple[int, int]]:
        """The same in the order of their calls, those not called last.

        And how many tokens the output has for a sample, how many positions the widest layer.
        """
        order, positions = [], [1]

        def note(number: int, output: Any) -> None:
            order.append(number)
            parts[number].see()
            if isinstance(output, torch.Tensor) and output.ndim > 2:
                axis = 1 if parts[number].kind == "conv" else -1
                positions.append(output.numel() // (2 * output.shape[axis]))

        handles = [
            part.module.register_forward_hook(lambda _, __, output, n=n: note(n, output))
            for n, part in enumerate(parts)
        ]
        try:
            with quiet(self._quieted), torch.no_grad():
                copy, arguments, options, _ = self._prepared(2, gradients=False)
                z = outputs_of(copy(arguments, options))
                self._written = copy.written()
        except Exception as error:  # before training begins the user can mend it
            allowed = f"the model does not take it: {one_line(error)}"
            raise InvalidValueError("probe", self.probe, allowed) from error
        finally:
            for handle in handles:
                handle.remove()
        if not z.numel() or not z.ndim or len(z) % 2:
            allowed = "expected an array with the samples first"
            raise InvalidTypeError("output of the model", tuple(z.shape), allowed)
        first = list(dict.fromkeys(order))
        ordered = [parts[n] for n in first]
        ordered += [p for n, p in enumerate(parts) if n not in first and p.parameter() is not None]
        return ordered, (max(1, z.numel() // (2 * z.shape[-1])), max(1, *positions))

    def _loss_of(self, output: Any, z: torch.Tensor, y: Any) -> torch.Tensor | None:
        if self._loss is not None and y is not None:
            outputs = output if isinstance(output, torch.Tensor) else z
            return one_number(self._called_loss(outputs, y))
        own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if isinstance(own, torch.Tensor):
            return own
        if y is not None:
            return usual_loss(z, y)
        scalars = [v for v in output if is_scalar(v)] if isinstance(output, tuple) else []
        return scalars[0] if len(scalars) == 1 else None  # a pair (outputs, loss)

    def _called_loss(self, z: torch.Tensor, y: Any) -> Any:
        """The user's loss; one that is a module may have buffers that it writes to."""
        if isinstance(self._loss, nn.Module):
            return Copy(self._loss, gradients=False, apart=None)((z, y), {})
        assert self._loss is not None
        return self._loss(z, y)

    def _layers(
        self, calls: Any, z: torch.Tensor, loss: torch.Tensor | None, copy: Copy
    ) -> list[LayerLook]:
        numbers = [n for n in sorted(calls) for _ in calls[n]]
        signals = [signal for n in sorted(calls) for _, signal in calls[n]]
        signs = torch.from_numpy(mixing_signs(tuple(z.shape)))
        f = (z * signs.to(z)).sum() / signs.numel() ** 0.5
        responses = slopes_of(f, signals)
        errors = None if loss is None else slopes_of(loss, signals)
        updates = self.updates.told()
        layers = []
        for number, part in enumerate(self._parts):
            layer, W = part.look(), part.parameter()
            if W is not None and number in updates:
                layer.step, layer.bias_step = updates[number]
                layer.step_stride = row_stride(W)
            own = [i for i, n in enumerate(numbers) if n == number]
            if own:
                fill(layer, part, [calls[number][k] for k in range(len(own))],
                      [responses[i] for i in own],
                      None if errors is None else [errors[i] for i in own],
                      self._samples)  # fmt: skip
            layers.append(layer)
        del copy
        return layers

    def _learning(self, copy: Copy) -> dict[int, torch.Tensor]:
        """The leaves of the parameters that are trained, by the identity of these."""
        values = dict(self.module.named_parameters())
        pairs = [(values[name], leaf) for name, leaf in copy.leaves.items()]
        return {id(p): leaf for p, leaf in pairs if p.requires_grad}

    def _dense_calls(self, calls: Any, leaves: Mapping[int, torch.Tensor]) -> list[DenseCall]:
        """The dense layers whose weights are trained and that were called once."""
        dense = []
        for number, part in enumerate(self._parts):
            if part.kind != "linear" or part.is_made or len(calls.get(number, ())) != 1:
                continue
            W, b = (leaves.get(id(own)) for own in (part.parameter(), part.bias()))
            if W is not None:
                h, signal = calls[number][0]
                dense.append(DenseCall(signal, h, [W] if b is None else [W, b]))
        return dense

    def _curvature(
        self,
        z: torch.Tensor,
        loss: torch.Tensor,
        leaves: list[torch.Tensor],
        dense: list[DenseCall],
    ) -> float:
        """λ_max of JᵀL''J; the graph is kept until it is asked for."""
        with quiet(self._quieted):
            return self._power.largest(z, loss, leaves, dense)

    def _elsewhere(self, z: torch.Tensor, leaves: Mapping[int, torch.Tensor], others: int) -> float:
        """The curvature of other samples along the direction that the power method has found."""
        with quiet(self._quieted):
            direction = self._power.direction_in(z, list(leaves.values()))
            copy, arguments, options, y = self._prepared(
                others, gradients=True, first=self._samples
            )
            output = copy(arguments, options)
            z = outputs_of(output)
            loss = self._loss_of(output, z, y)
            assert loss is not None
            return curvature_along(z, loss, list(self._learning(copy).values()), direction)

    def _features(self, seen: Any) -> Callable[[int], tuple[np.ndarray, np.ndarray] | None]:
        """What leaves a layer on more samples than gradients are taken of, and their targets.

        The pass is made when it is first asked for, once for all layers; where the samples are no
        more, there is none, as all calls have been `seen`.
        """
        samples = self._feature_samples

        @functools.cache
        def calls() -> dict[int, list[tuple[Any, Any]]]:
            if samples == self._samples:
                return seen
            with quiet(self._quieted), torch.no_grad():
                copy, arguments, options, _ = self._prepared(samples, gradients=False)
                with self._captured(self._parts) as captured:
                    copy(arguments, options)
            return captured

        def features(index: int) -> tuple[np.ndarray, np.ndarray] | None:
            if index not in calls():
                return None
            z = as_signal(calls()[index][0][1].detach(), self._parts[index].kind, samples)
            if z is None:
                return None
            _, options, y = self.probe.head(samples)
            targets = (y if y is not None else options["labels"]).cpu().numpy()
            return readable_targets(z.cpu().double().numpy(), targets)

        return features
