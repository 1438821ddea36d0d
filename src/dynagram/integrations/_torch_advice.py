"""`dynagram.advice` for PyTorch modules: set weights in place, make the optimizer's groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.advice import OPTIMIZERS, operating_point
from dynagram.advice._rates import input_share, layer_shares, rate_fraction
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks._checks import checked_integer
from dynagram.networks._mlp import Architecture
from dynagram.theory.criticality._operating_point import BUDGET, OperatingPoint

_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.Tanh: "tanh", nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid", nn.ELU: "elu",
    nn.SELU: "selu", nn.Softplus: "softplus", nn.Mish: "mish", nn.Softsign: "softsign",
    nn.Hardtanh: "hardtanh", nn.LeakyReLU: "leaky_relu", nn.GELU: "gelu",
}  # fmt: skip
_ITERATIONS = 40
# Modules with weights of another kind, and the architecture whose theory speaks of them.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
_OTHERS = ((_CONVOLUTIONS, "convnet"), ((nn.MultiheadAttention,), "pre-norm"))


@torch.no_grad()
def init_(
    model: nn.Module,
    x: torch.Tensor,
    *,
    activation: str | None = None,
    residual: bool = False,
    budget: float = BUDGET,
) -> OperatingPoint:
    """Set every `torch.nn.Linear` of a model in place: orthogonal, at its operating point on `x`.

    One pass of `x` through the model, in which each layer is placed before the next one sees its
    output: means of the preactivations at μ (the last layer's at 0), variance K (1). A layer
    without a bias is scaled and not centred. Other parameters stay as they are.

    **Arguments:**

    - `model`: any module that calls each of its linear layers once, and nothing linear besides.
    - `x`: a batch of the inputs to be trained on.
    - `activation`: its name, if the model does not hold one of torch.nn's.
    - `residual`: whether the hidden layers are branches beside a skip; each then adds 1/L.
    - `budget`: of `dynagram.advice.operating_point`.

    **Returns:** `OperatingPoint` of the hidden layers.

    >>> _ = torch.manual_seed(0)
    >>> layers = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)]
    >>> model = nn.Sequential(*layers)
    >>> x = torch.randn(64, 8) + 2.0
    >>> point = init_(model, x)
    >>> out = model(x).detach()
    >>> round(float(out.mean(0).abs().max()), 5), round(float(out.var(unbiased=False)), 4)
    (0.0, 1.0)
    """
    layers = _layers(model, x)
    depth = len(layers)
    point = operating_point(_name(model, activation), 2 if residual else depth, budget=budget)
    hooks = []
    for index, layer in enumerate(layers):
        is_last = index == depth - 1
        mean, variance = (0.0, 1.0) if is_last else (point.mean, point.variance)
        if residual and index > 0 and not is_last:
            mean, variance = 0.0, point.variance / depth
        hooks.append(layer.register_forward_hook(_placing(mean, variance)))
    try:
        _quietly(model, x)
    finally:
        for hook in hooks:
            hook.remove()
    return point


def param_groups(
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    optimizer: str = "sgd",
    activation: str | None = None,
    residual: bool = False,
    batch: int | None = None,
    budget: float = BUDGET,
) -> list[dict[str, Any]]:
    """Groups with a learning rate each, for a model set up by `init_`.

    **Arguments:**

    - `model`, `activation`, `residual`, `budget`: as for `init_`.
    - `x`, `y`: the data, or a good part of them.
    - `loss`: of (outputs, y), as torch.nn.CrossEntropyLoss().
    - `optimizer`: "sgd", "momentum" for SGD(momentum=0.9), "adam" or "adamw".
    - `batch`: samples in a step; by default all.

    **Returns:** groups for `torch.optim`, one for each learning rate, in the order of the model's
    parameters; what is no linear layer learns as the last one. Cost: that of about 100 gradients
    of the batch.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(),
    ...                       nn.Linear(16, 1)).double()
    >>> x = torch.randn(32, 4).double()
    >>> _ = init_(model, x)
    >>> groups = param_groups(model, x, x[:, :1], nn.MSELoss())
    >>> optimizer = torch.optim.SGD(groups)
    >>> [group["lr"] > 0.0 for group in optimizer.param_groups]
    [True, True, True, True]
    """
    if optimizer not in OPTIMIZERS:
        raise InvalidValueError("optimizer", optimizer, f"expected one of {', '.join(OPTIMIZERS)}")
    if not callable(loss):
        allowed = "expected a function of (outputs, y), as torch.nn.CrossEntropyLoss()"
        raise InvalidTypeError("loss", loss, allowed)
    layers = _layers(model, x[:2])
    samples = len(x) if batch is None else checked_integer("batch", batch, 1)
    is_adam, depth = optimizer.startswith("adam"), len(layers)
    point = operating_point(_name(model, activation), 2 if residual else depth, budget=budget)
    skips = [float(residual and 0 < index < depth - 1) for index in range(depth)]
    shares = layer_shares(1.0 if is_adam else point.amplification, skips).tolist()
    first = layers[0]
    inputs = input_share(
        _mean_square(model, first, x), first.in_features, first.out_features, is_adam=is_adam
    )
    of_parameter = {
        id(parameter): share
        for layer, share in zip(layers, shares, strict=True)
        for parameter in layer.parameters()
    }
    of_parameter[id(first.weight)] *= inputs
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    scales = {name: of_parameter.get(id(p), 1.0) for name, p in learning.items()}
    # Drawn, not the first ones: data are often sorted by class.
    chosen = torch.as_tensor(np.sort(np.random.default_rng(0).permutation(len(x))[:samples]))
    chosen = chosen.to(x.device)
    # Along signs of the gradient a step is the rate itself, along the gradient its square root.
    units = {name: scale if is_adam else math.sqrt(scale) for name, scale in scales.items()}
    stable, sign = _steps(model, x[chosen], y[chosen.to(y.device)], loss, units)
    step = rate_fraction(optimizer, samples < len(x)) * (sign if is_adam else stable)
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in learning.items():
        groups.setdefault(step * scales[name], []).append(parameter)
    return [{"params": members, "lr": rate} for rate, members in groups.items()]


def architecture_of(
    model: nn.Module, x: np.ndarray, *, activation: str | None = None
) -> Architecture:
    """The widths, activation and skips of a module that is an MLP, plain or with skips.

    Its linear layers are put together again, without and with skips of strength 1, and must give
    the outputs of the module: what else it does (norms, attention, other skips) is refused.

    **Arguments:**

    - `model`: any module that calls each of its linear layers once.
    - `x`: inputs, a row per sample.
    - `activation`: its name, if the model does not hold one of torch.nn's.

    **Returns:** `Architecture`.

    >>> module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    >>> architecture_of(module, np.ones((3, 4))).widths
    (4, 16, 2)
    """
    first = next(model.parameters())
    inputs = torch.as_tensor(x[:32]).to(first.device, first.dtype)
    layers = _layers(model, inputs)
    name = _name(model, activation)
    weights = [layer.weight.detach().cpu().double().numpy() for layer in layers]
    biases = [
        np.zeros(len(W)) if layer.bias is None else layer.bias.detach().cpu().double().numpy()
        for layer, W in zip(layers, weights, strict=True)
    ]
    expected = _quietly(model, inputs).detach().cpu().double().numpy()
    widths = [weights[0].shape[1], *(len(W) for W in weights)]
    equal = len(set(widths[1:-1])) == 1 and len(weights) > 2
    for skip in (0.0, 1.0) if equal else (0.0,):
        network = Architecture(widths, name, skip=skip)
        z, signal = np.zeros(()), inputs.cpu().double().numpy()
        for b, W, strength in zip(biases, weights, network.skip_of_layers, strict=True):
            z = signal @ W.T + b + (strength * z if strength else 0.0)
            signal = network.activation.values(z)
        if z.shape == expected.shape and np.allclose(z, expected, rtol=1e-3, atol=1e-4):
            return network
    allowed = "its linear layers alone do not give its outputs; init_ and param_groups may still do"
    raise InvalidValueError("model", type(model).__name__, allowed)


def _layers(model: nn.Module, x: torch.Tensor) -> list[nn.Linear]:
    """The linear layers in the order in which they are called, each once."""
    _check_module(model, x)
    called: list[Any] = []
    hooks = [
        module.register_forward_hook(lambda module, *_: called.append(module))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        _quietly(model, x)
    except (RuntimeError, TypeError) as error:
        given = f"{x.dtype} {tuple(x.shape)}"
        allowed = f"the model does not run on it: {str(error).splitlines()[0]}"
        raise InvalidValueError("x", given, allowed) from error
    finally:
        for hook in hooks:
            hook.remove()
    if len(called) != len(hooks) or len(set(map(id, called))) != len(called):
        allowed = "each of its torch.nn.Linear layers must be called once"
        raise InvalidValueError("model", type(model).__name__, allowed)
    if len(called) < 2:
        raise InvalidValueError("model", type(model).__name__, "at least two linear layers needed")
    return called


def _check_module(model: nn.Module, x: torch.Tensor) -> None:
    """Refuse what has weights that no rule here is for."""
    if not isinstance(x, torch.Tensor):
        raise InvalidTypeError("x", x, "expected a torch.Tensor")
    for module in model.modules():
        for kinds, architecture in _OTHERS:
            if isinstance(module, kinds):
                allowed = (
                    f"has {type(module).__name__}; advice is for networks of torch.nn.Linear. "
                    f"Before training, dynagram critical --arch {architecture} judges such ones"
                )
                raise InvalidValueError("model", type(model).__name__, allowed)


def _mean_square(model: nn.Module, first: nn.Linear, x: torch.Tensor) -> float:
    """Of what enters the first linear layer."""
    seen: list[float] = []
    hook = first.register_forward_pre_hook(lambda _, inputs: seen.append(_square(inputs[0])))
    try:
        _quietly(model, x)
    finally:
        hook.remove()
    return seen[0]


def _square(values: torch.Tensor) -> float:
    return float((values.detach().double() ** 2).mean())


def _quietly(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """One pass that leaves no trace in dropout, batch statistics or random numbers."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return model(x)
    finally:
        model.train(training)


def _name(model: nn.Module, activation: str | None) -> str:
    if activation is not None:
        return activation
    names = {_ACTIVATIONS[type(m)] for m in model.modules() if type(m) in _ACTIVATIONS}
    if len(names) != 1:
        found = ", ".join(sorted(names)) or "none"
        raise InvalidValueError("activation", found, "say which one the hidden layers have")
    return names.pop()


def _placing(mean: float, variance: float) -> Callable[..., torch.Tensor]:
    def place(layer: nn.Linear, inputs: tuple[torch.Tensor], _: torch.Tensor) -> torch.Tensor:
        nn.init.orthogonal_(layer.weight)
        z = inputs[0] @ layer.weight.T
        rows = z.reshape(-1, z.shape[-1])
        centre = rows.mean(0) if layer.bias is not None else torch.zeros_like(rows[0])
        spread = ((rows - centre) ** 2).mean()
        if not bool(torch.isfinite(spread)) or float(spread) == 0.0:
            raise NonFiniteError("a layer sees the same or no finite numbers for all of x")
        scale = (variance / spread).sqrt()
        layer.weight.mul_(scale)
        if layer.bias is None:
            return scale * z
        layer.bias.copy_(mean - scale * centre)
        return scale * z + layer.bias

    return place


def _steps(
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    units: dict[str, float],
) -> tuple[float, float]:
    """2/λ_max and Σ|g|/sᵀGs of `dynagram.observables` with parameters in these units."""
    parameters = dict(model.named_parameters())
    scaled = {name: parameters[name].detach() / unit for name, unit in units.items()}

    def outputs(q: dict[str, torch.Tensor]) -> torch.Tensor:
        real = {name: q[name] * units[name] for name in q}
        return torch.func.functional_call(model, real, (x,))

    z, pull, *_ = torch.func.vjp(outputs, scaled)
    slope = torch.func.grad(lambda z: loss(z, y))
    # Forward derivatives by transposing twice: torch's forward mode compiles, slowly, on first use.
    _, push, *_ = torch.func.vjp(lambda u: pull(u)[0], torch.zeros_like(z))
    _, bend, *_ = torch.func.vjp(slope, z)  # a Hessian is symmetric

    def gauss_newton(v: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return pull(bend(push(v)[0])[0])[0]

    def dot(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum(((a[name] * b[name]).sum() for name in a), start=z.new_zeros(()))

    generator = torch.Generator(device=z.device).manual_seed(0)
    v = {
        name: torch.randn(q.shape, generator=generator, dtype=q.dtype, device=q.device)
        for name, q in scaled.items()
    }
    largest = z.new_zeros(())
    for _ in range(_ITERATIONS):
        image = gauss_newton(v)
        largest = dot(image, image).sqrt()
        v = {name: part / largest for name, part in image.items()}
    g = pull(slope(z))[0]
    signs = {name: part.sign() for name, part in g.items()}
    steps = float(2.0 / largest), float(dot(g, signs) / dot(signs, gauss_newton(signs)))
    if not np.all(np.isfinite(steps)):
        raise NonFiniteError("the loss or its curvature is not finite: call init_ first")
    return steps
