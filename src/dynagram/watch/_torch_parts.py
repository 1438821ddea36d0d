"""The modules of a PyTorch model that hold weights, and what enters and leaves each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized

from dynagram.errors import InvalidValueError
from dynagram.live._torch_layers import kind_of
from dynagram.watch._context import KERNEL_SAMPLES
from dynagram.watch._look import LayerLook, thinned

_UPDATE_NUMBERS = 2**22  # of a layer that are copied to see its update


@dataclass(eq=False)
class Part:
    """A module with weights of its own.

    A weight may be made from others, by a parametrisation, a hook or a mask. To ask for it may
    draw random numbers or move buffers: it is seen where the model is called on the probe.
    """

    name: str
    module: nn.Module
    weight: str  # its name in the module
    kind: str
    seen: torch.Tensor | None = None  # a weight that is made, at the last call

    @property
    def is_made(self) -> bool:
        """Whether weight or bias are made from other parameters."""
        return self.parameter() is None or is_parametrized(self.module, "bias")

    def parameter(self) -> torch.Tensor | None:
        """The weight, as it is now; None where it is no parameter itself."""
        return self.module._parameters.get(self.weight)

    def bias(self) -> torch.Tensor | None:
        """The bias, where it is a parameter."""
        return self.module._parameters.get("bias")

    def see(self) -> None:
        """Within a pass: keep a weight that is made."""
        if self.parameter() is None:
            self.seen = getattr(self.module, self.weight).detach().clone()

    def look(self) -> LayerLook:
        """What is known of it without a pass: weights, and whether they are trained."""
        W, b = self.parameter(), None if self.is_made else self.bias()
        values = self.seen if W is None else W.detach()
        assert values is not None  # parts that were never called have a parameter
        trained = self.module.parameters() if W is None else [W]
        return LayerLook(
            self.name, "other" if self.is_made else self.kind, as_real(values),
            bias=None if b is None else as_real(b.detach()),
            learns=any(p.requires_grad for p in trained),
        )  # fmt: skip


def weighted_parts(module: nn.Module) -> list[Part]:
    """The modules that hold a weight of two or more dimensions themselves."""
    parts = []
    for name, part in module.named_modules():
        for weight in ("weight", "in_proj_weight"):
            if _is_matrix(part, weight):
                parts.append(Part(name or type(part).__name__, part, weight, kind_of(part)))
                break
    if not parts:
        allowed = "has no module with a weight matrix of its own"
        raise InvalidValueError("model", type(module).__name__, allowed)
    return parts


def _is_matrix(part: nn.Module, weight: str) -> bool:
    """Whether it has a real weight of this name, without asking for one that has to be made."""
    if isinstance(part, torch.jit.ScriptModule):
        return False
    if is_parametrized(part, weight):
        sources: Any = getattr(part.parametrizations, weight)
        return any(p.ndim >= 2 and p.is_floating_point() for p in sources.parameters())
    places = part._parameters, part._buffers, vars(part)
    value = next((place[weight] for place in places if place.get(weight) is not None), None)
    return isinstance(value, torch.Tensor) and value.ndim >= 2 and value.is_floating_point()


def fill(
    layer: LayerLook,
    part: Part,
    calls: list[tuple[torch.Tensor, torch.Tensor]],
    responses: list[torch.Tensor | None],
    errors: list[torch.Tensor | None] | None,
    samples: int,
) -> None:
    """Put the signals of all calls of a module into the look at it."""
    if part.kind == "attention" and not getattr(part.module, "batch_first", True):
        return  # samples come second
    outputs = [as_signal(z.detach(), part.kind, samples) for _, z in calls]
    if any(z is None for z in outputs):
        return
    layer.outputs = _joined(outputs)

    def joined_slopes(slopes: list[torch.Tensor | None]) -> torch.Tensor:
        filled = [
            torch.zeros_like(z) if slope is None else slope
            for slope, (_, z) in zip(slopes, calls, strict=True)
        ]
        return _joined([as_signal(slope, part.kind, samples) for slope in filled])

    layer.response = joined_slopes(responses)
    if errors is not None:
        layer.errors = samples * joined_slopes(errors)
    if part.is_made:
        return  # the kernel is not that of its weights
    inputs = [_as_inputs(h, part, samples) for h, _ in calls]
    if all(h is not None for h in inputs):
        layer.inputs = _joined(inputs)
    elif _is_transposed(part, calls[0]):
        layer.kind, layer.weight = "linear", layer.weight.T
        layer.step = None if layer.step is None else layer.step.T
        layer.inputs = _joined([as_real(h).reshape(samples, -1, h.shape[-1]) for h, _ in calls])


def slopes_of(value: torch.Tensor, signals: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """∂value/∂signal, None where a signal has no part in it."""
    usable = [signal for signal in signals if signal.requires_grad]
    if not usable or not value.requires_grad:
        return [None] * len(signals)
    slopes = torch.autograd.grad(value, usable, retain_graph=True, allow_unused=True)
    by_signal = {id(signal): slope for signal, slope in zip(usable, slopes, strict=True)}
    return [by_signal.get(id(signal)) for signal in signals]


def _joined(signals: list[Any]) -> torch.Tensor:
    return signals[0] if len(signals) == 1 else torch.cat(signals, dim=1)


def as_signal(z: torch.Tensor, kind: str, samples: int) -> torch.Tensor | None:
    """(samples, tokens, channels); None where the samples do not come first."""
    if z.ndim < 2 or len(z) % samples:
        return None
    if kind == "conv":
        z = z.flatten(2).transpose(1, 2) if z.ndim > 2 else z
    return as_real(z).reshape(samples, -1, z.shape[-1])


def _as_inputs(h: torch.Tensor, part: Part, samples: int) -> torch.Tensor | None:
    """What multiplies the weights, (samples, tokens, n_in); of convolutions for some samples."""
    if part.kind == "linear" and len(h) % samples == 0:
        return as_real(h).reshape(samples, -1, h.shape[-1])
    if part.kind == "embedding" and len(h) == samples:
        return h.reshape(samples, -1)
    module = part.module
    if isinstance(module, nn.Conv2d) and module.groups == 1 and len(h) == samples:
        if isinstance(module.padding, str) or module.padding_mode != "zeros":
            return None
        patches = F.unfold(
            as_real(h[:KERNEL_SAMPLES]), module.kernel_size, module.dilation, module.padding,
            module.stride,
        )  # fmt: skip
        return patches.transpose(1, 2)
    return None


def _is_transposed(part: Part, call: tuple[torch.Tensor, torch.Tensor]) -> bool:
    """Whether a module of another class computes x W + b, W of shape (n_in, n_out)."""
    h, z = call
    W, b = part.parameter(), part.bias()
    if W is None or part.kind != "other" or W.ndim != 2 or h.ndim != z.ndim:
        return False
    if not h.is_floating_point() or (h.shape[-1], z.shape[-1]) != tuple(W.shape):
        return False
    linear = as_real(h) @ as_real(W.detach()) + (0.0 if b is None else as_real(b.detach()))
    rounding = 1e-3 if torch.finfo(z.dtype).bits > 16 else 0.05  # of autocast in `forward`
    return bool(torch.allclose(linear, as_real(z.detach()), rtol=rounding, atol=1e-2 * rounding))


def row_stride(W: torch.Tensor) -> int:
    """Every how many rows of a weight its update is looked at."""
    return thinned(W.numel(), _UPDATE_NUMBERS)


def some_rows(W: torch.Tensor) -> torch.Tensor:
    """Those rows."""
    return W.detach()[:: row_stride(W)]


def as_real(values: torch.Tensor) -> torch.Tensor:
    """At least float32: half precision is too coarse for sums of squares."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
