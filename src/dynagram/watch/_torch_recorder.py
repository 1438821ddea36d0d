"""Looks at a live PyTorch module on a probe batch: one pass forward, a few back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._torch_layers import first_tensor, kind_of, unwrapped
from dynagram.watch._context import KERNEL_SAMPLES
from dynagram.watch._look import LayerLook, Look, thinned
from dynagram.watch._measure import one_line
from dynagram.watch._mixing import first_direction, mixing_signs
from dynagram.watch._settings import FIRST_ITERATIONS, ITERATIONS, sample_counts
from dynagram.watch._targets import readable_targets
from dynagram.watch._torch_quiet import Copy, on_device, quiet, reference_parameter

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_UPDATE_NUMBERS = 2**22  # of a layer that are copied to see its update


@dataclass(eq=False)
class _Part:
    """A module with weights of its own."""

    name: str
    module: nn.Module
    weight: str  # its name in the module
    kind: str

    def parameter(self) -> torch.Tensor:
        return getattr(self.module, self.weight)


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
        self._arguments, self._options, self._y = _taken_apart(on_device(probe, self._like))
        self._count = _length(self._arguments, self._options)
        self._loss = loss
        self._parts, sizes = self._called(weighted_parts(self.module))
        self._samples, self._feature_samples = sample_counts(self._count, samples, *sizes)
        self._direction: torch.Tensor | None = None
        self._before: list[torch.Tensor] | None = None

    @property
    def names(self) -> list[str]:
        """Of the layers, in the order in which they are called."""
        return [part.name for part in self._parts]

    @property
    def x(self) -> Any:
        """The inputs of the probe."""
        return self._arguments[0] if len(self._arguments) == 1 else self._options

    def parameters(self) -> list[torch.Tensor]:
        """All parameters of the module."""
        return list(self.module.parameters())

    # --- updates ------------------------------------------------------------------------------

    @torch.no_grad()
    def remember(self) -> None:
        """Keep the weights (of very large layers some rows) until the coming step is done."""
        self._before = [_some_rows(part.parameter()).clone() for part in self._parts]

    @torch.no_grad()
    def updates(self) -> list[torch.Tensor] | None:
        """W after the step minus W before it."""
        if self._before is None:
            return None
        pairs = zip(self._parts, self._before, strict=True)
        moved = [_some_rows(part.parameter()) - before for part, before in pairs]
        self._before = None
        return [_real(values) for values in moved]

    # --- looking ------------------------------------------------------------------------------

    def look(self) -> Look:
        """Everything that quantities are measured on."""
        with quiet(self.module):
            copy, arguments, options, y = self._prepared(self._samples, gradients=True)
            with self._captured(self._parts) as calls:
                output = copy(arguments, options)
            z = first_tensor(output)
            if z.ndim < 2:
                z = z.reshape(len(z), -1)
            loss = self._loss_of(output, z, y)
            layers = self._layers(calls, z, loss, copy)
            curvature = None
            if loss is not None:
                leaves = [leaf for leaf in copy.leaves.values() if leaf.requires_grad]
                curvature = self._curvature(z, loss, leaves)
            return Look(
                layers,
                loss=None if loss is None else float(loss.detach()),
                curvature=curvature,
                features=self._features() if self._has_targets else None,
            )

    @property
    def _has_targets(self) -> bool:
        return self._y is not None or "labels" in self._options

    def _prepared(self, samples: int, *, gradients: bool) -> tuple[Copy, Any, Any, Any]:
        arguments, options, y = (
            _head(part, samples, self._count) for part in (self._arguments, self._options, self._y)
        )
        copy = Copy(self.module, gradients=gradients)
        copy.settle_batch_norms(arguments, options)
        return copy, arguments, options, y

    @contextlib.contextmanager
    def _captured(self, parts: list[_Part]) -> Iterator[dict[int, list[tuple[Any, Any]]]]:
        """Inputs and outputs of every call of these modules, by their number."""
        calls: dict[int, list[tuple[Any, Any]]] = {}
        numbers = {id(part.module): number for number, part in enumerate(self._parts)}

        def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
            if not isinstance(output, torch.Tensor) or not inputs:
                return None
            # Copies: what comes next may work in place.
            kept = output.clone()
            calls.setdefault(numbers[id(module)], []).append((inputs[0].detach().clone(), output))
            return kept

        handles = [part.module.register_forward_hook(note) for part in parts]
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()

    def _called(self, parts: list[_Part]) -> tuple[list[_Part], tuple[int, int]]:
        """The same in the order of their calls, those not called last.

        And how many tokens the output has for a sample, how many positions the widest layer.
        """
        order, positions = [], [1]

        def note(number: int, output: Any) -> None:
            order.append(number)
            if isinstance(output, torch.Tensor) and output.ndim > 2:
                axis = 1 if parts[number].kind == "conv" else -1
                positions.append(output.numel() // (2 * output.shape[axis]))

        handles = [
            part.module.register_forward_hook(lambda _, __, output, n=n: note(n, output))
            for n, part in enumerate(parts)
        ]
        try:
            with quiet(self.module), torch.no_grad():
                copy, arguments, options, _ = self._prepared(2, gradients=False)
                z = first_tensor(copy(arguments, options))
        except Exception as error:  # before training begins the user can mend it
            shapes = [tuple(v.shape) for v in self._arguments] or list(self._options)
            allowed = f"the model does not take it: {one_line(error)}"
            raise InvalidValueError("probe", shapes, allowed) from error
        finally:
            for handle in handles:
                handle.remove()
        first = list(dict.fromkeys(order))
        ordered = [parts[n] for n in first] + [p for n, p in enumerate(parts) if n not in first]
        return ordered, (max(1, z.numel() // (2 * z.shape[-1])), max(1, *positions))

    def _loss_of(self, output: Any, z: torch.Tensor, y: Any) -> torch.Tensor | None:
        if self._loss is not None and y is not None:
            return self._loss(output if isinstance(output, torch.Tensor) else z, y)
        own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if isinstance(own, torch.Tensor):
            return own
        return None if y is None else usual_loss(z, y)

    def _layers(
        self, calls: Any, z: torch.Tensor, loss: torch.Tensor | None, copy: Copy
    ) -> list[LayerLook]:
        numbers = [n for n in sorted(calls) for _ in calls[n]]
        signals = [signal for n in sorted(calls) for _, signal in calls[n]]
        signs = torch.from_numpy(mixing_signs(tuple(z.shape)))
        f = (z * signs.to(z)).sum() / signs.numel() ** 0.5
        responses = _slopes(f, signals)
        errors = None if loss is None else _slopes(loss, signals)
        learning = {id(p): p.requires_grad for p in self.module.parameters()}
        updates = self.updates()
        layers = []
        for number, part in enumerate(self._parts):
            parameter = part.parameter()
            layer = LayerLook(part.name, part.kind, _real(parameter.detach()))
            layer.learns = learning[id(parameter)]
            bias = getattr(part.module, "bias", None)
            layer.bias = _real(bias.detach()) if isinstance(bias, torch.Tensor) else None
            if updates is not None:
                layer.step, layer.step_stride = updates[number], _row_stride(parameter)
            own = [i for i, n in enumerate(numbers) if n == number]
            if own:
                _fill(layer, part, [calls[number][k] for k in range(len(own))],
                      [responses[i] for i in own],
                      None if errors is None else [errors[i] for i in own],
                      self._samples)  # fmt: skip
            layers.append(layer)
        del copy
        return layers

    def _curvature(
        self, z: torch.Tensor, loss: torch.Tensor, leaves: list[torch.Tensor]
    ) -> Callable[[], float]:
        """λ_max of JᵀL''J by the power method; the graph is kept until it is asked for."""

        def largest() -> float:
            with quiet(self.module):
                (slope,) = torch.autograd.grad(loss, z, create_graph=True)
                u = torch.zeros_like(z, requires_grad=True)
                pulled = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
                used = [(leaf, g) for leaf, g in zip(leaves, pulled, strict=True) if g is not None]
                inputs, graph = [leaf for leaf, _ in used], [g for _, g in used]
                direction, iterations = self._direction, ITERATIONS
                if direction is None or direction.shape != z.shape:
                    direction = torch.from_numpy(first_direction(tuple(z.shape))).to(z)
                    iterations = FIRST_ITERATIONS
                value = 0.0
                for _ in range(iterations):
                    back = torch.autograd.grad(z, inputs, direction, retain_graph=True)
                    (moved,) = torch.autograd.grad(graph, u, back, retain_graph=True)
                    (image,) = torch.autograd.grad(slope, z, moved, retain_graph=True)
                    size = sum(float((g * g).sum()) for g in back)
                    if size == 0.0:
                        return 0.0
                    value = float((moved * image).sum()) / size
                    norm = image.norm()
                    if not bool(torch.isfinite(norm)) or float(norm) == 0.0:
                        return value
                    direction = (image / norm).detach()
                self._direction = direction
                return value

        return largest

    def _features(self) -> Callable[[int], tuple[np.ndarray, np.ndarray] | None]:
        """What leaves a layer on more samples than gradients are taken of, and their targets.

        The pass is made when it is first asked for, once for all layers.
        """
        samples = self._feature_samples
        calls: dict[int, list[tuple[Any, Any]]] = {}
        targets: list[np.ndarray] = []

        def look() -> None:
            with quiet(self.module), torch.no_grad():
                copy, arguments, options, y = self._prepared(samples, gradients=False)
                with self._captured(self._parts) as captured:
                    copy(arguments, options)
            calls.update(captured)
            targets.append((y if y is not None else options["labels"]).cpu().numpy())

        def features(index: int) -> tuple[np.ndarray, np.ndarray] | None:
            if not targets:
                look()
            if index not in calls:
                return None
            z = _as_signal(calls[index][0][1], self._parts[index].kind, samples)
            if z is None:
                return None
            return readable_targets(z.cpu().double().numpy(), targets[0])

        return features


# --- parts ------------------------------------------------------------------------------------


def weighted_parts(module: nn.Module) -> list[_Part]:
    """The modules that hold a weight of two or more dimensions themselves."""
    parts = []
    for name, part in module.named_modules():
        for weight in ("weight", "in_proj_weight"):
            value = getattr(part, weight, None)
            if isinstance(value, nn.Parameter | torch.Tensor) and value.ndim >= 2:
                parts.append(_Part(name or type(part).__name__, part, weight, kind_of(part)))
                break
    if not parts:
        allowed = "has no module with a weight matrix of its own"
        raise InvalidValueError("model", type(module).__name__, allowed)
    return parts


def usual_loss(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy for classes, the mean squared error for reals, as torch.nn has them."""
    if y.is_floating_point():
        return F.mse_loss(z, y.reshape(z.shape))
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1))


def _taken_apart(probe: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Arguments, arguments by name, targets."""
    if isinstance(probe, Mapping):
        return (), dict(probe), None
    if isinstance(probe, torch.Tensor):
        return (probe,), {}, None
    if isinstance(probe, tuple) and len(probe) == 2:
        x, y = probe
        if isinstance(x, Mapping):
            return (), dict(x), y
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            return (x,), {}, y
    allowed = "expected a batch x, a pair (x, y), or a mapping of arguments"
    raise InvalidTypeError("probe", type(probe).__name__, allowed)


def _length(arguments: Any, options: Mapping[str, Any]) -> int:
    tensors = [v for v in (*arguments, *options.values()) if isinstance(v, torch.Tensor) and v.ndim]
    if not tensors or len(tensors[0]) < 2:
        raise InvalidValueError("probe", len(tensors[0]) if tensors else 0, "at least 2 samples")
    return len(tensors[0])


def _head(values: Any, samples: int, count: int) -> Any:
    """The first samples of everything that has a row for each."""
    if isinstance(values, torch.Tensor):
        return values[:samples] if values.ndim and len(values) == count else values
    if isinstance(values, Mapping):
        return {key: _head(value, samples, count) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_head(value, samples, count) for value in values)
    return values


def _slopes(value: torch.Tensor, signals: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """∂value/∂signal, None where a signal has no part in it."""
    usable = [signal for signal in signals if signal.requires_grad]
    if not usable or not value.requires_grad:
        return [None] * len(signals)
    slopes = torch.autograd.grad(value, usable, retain_graph=True, allow_unused=True)
    by_signal = {id(signal): slope for signal, slope in zip(usable, slopes, strict=True)}
    return [by_signal.get(id(signal)) for signal in signals]


def _fill(
    layer: LayerLook,
    part: _Part,
    calls: list[tuple[torch.Tensor, torch.Tensor]],
    responses: list[torch.Tensor | None],
    errors: list[torch.Tensor | None] | None,
    samples: int,
) -> None:
    """Put the signals of all calls of a module into the look at it."""
    outputs = [_as_signal(z.detach(), part.kind, samples) for _, z in calls]
    if any(z is None for z in outputs):
        return
    layer.outputs = _joined(outputs)
    zeros = [torch.zeros_like(z) for _, z in calls]
    slopes = [z if r is None else r for r, z in zip(responses, zeros, strict=True)]
    layer.response = _joined([_as_signal(r, part.kind, samples) for r in slopes])
    if errors is not None:
        slopes = [z if e is None else e for e, z in zip(errors, zeros, strict=True)]
        layer.errors = samples * _joined([_as_signal(e, part.kind, samples) for e in slopes])
    inputs = [_as_inputs(h, part, samples) for h, _ in calls]
    if all(h is not None for h in inputs):
        layer.inputs = _joined(inputs)
    elif _is_transposed(part, calls[0]):
        layer.kind, layer.weight = "linear", layer.weight.T
        layer.step = None if layer.step is None else layer.step.T
        layer.inputs = _joined([_real(h).reshape(samples, -1, h.shape[-1]) for h, _ in calls])


def _joined(signals: list[Any]) -> torch.Tensor:
    return signals[0] if len(signals) == 1 else torch.cat(signals, dim=1)


def _as_signal(z: torch.Tensor, kind: str, samples: int) -> torch.Tensor | None:
    """(samples, tokens, channels); None where the samples do not come first."""
    if z.ndim < 2 or len(z) % samples:
        return None
    if kind == "conv":
        z = z.flatten(2).transpose(1, 2) if z.ndim > 2 else z
    return _real(z).reshape(samples, -1, z.shape[-1])


def _as_inputs(h: torch.Tensor, part: _Part, samples: int) -> torch.Tensor | None:
    """What multiplies the weights, (samples, tokens, n_in); of convolutions for some samples."""
    if part.kind == "linear" and len(h) % samples == 0:
        return _real(h).reshape(samples, -1, h.shape[-1])
    if part.kind == "embedding" and len(h) == samples:
        return h.reshape(samples, -1)
    module = part.module
    if isinstance(module, nn.Conv2d) and module.groups == 1 and len(h) == samples:
        if isinstance(module.padding, str) or module.padding_mode != "zeros":
            return None
        patches = F.unfold(
            _real(h[:KERNEL_SAMPLES]), module.kernel_size, module.dilation, module.padding,
            module.stride,
        )  # fmt: skip
        return patches.transpose(1, 2)
    return None


def _is_transposed(part: _Part, call: tuple[torch.Tensor, torch.Tensor]) -> bool:
    """Whether a module of another class computes x W + b, W of shape (n_in, n_out)."""
    h, z = call
    W, b = part.parameter().detach(), getattr(part.module, "bias", None)
    if part.kind != "other" or W.ndim != 2 or h.ndim != z.ndim or not h.is_floating_point():
        return False
    if (h.shape[-1], z.shape[-1]) != tuple(W.shape):
        return False
    linear = h @ W + (0.0 if b is None else b.detach())
    return bool(torch.allclose(linear, z.detach(), rtol=1e-3, atol=1e-5))


def _row_stride(W: torch.Tensor) -> int:
    return thinned(W.numel(), _UPDATE_NUMBERS)


def _some_rows(W: torch.Tensor) -> torch.Tensor:
    return W.detach()[:: _row_stride(W)]


def _real(values: torch.Tensor) -> torch.Tensor:
    """At least float32: half precision is too coarse for sums of squares."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
