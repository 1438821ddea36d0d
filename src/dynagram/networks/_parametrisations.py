"""Learning rates and initialisations as other conventions write them: standard, NTK and μP.

The book draws b ~ N(0, C_b), W ~ N(0, C_W/n_{ℓ-1}) and steps with η λ_b on biases and
η λ_W/n_{ℓ-1} on weights (8.6), for the loss ½ Σ (z − y)² summed over samples and outputs. The
same network trained the same way in another convention only carries other numbers; here they are:

=============  ==========================================  =======================================
convention     trainable parameters at initialisation      what its learning rate multiplies
=============  ==========================================  =======================================
book           b ~ N(0, C_b), W ~ N(0, C_W/n_in)           λ_b ∂L/∂b and (λ_W/n_in) ∂L/∂W
standard       the same b and W                            ∂L/∂b and ∂L/∂W, one rate per tensor
NTK            β, w ~ N(0, 1); b = σ_b β, W = σ_W w/√n_in  ∂L/∂β and ∂L/∂w, one rate in all
μP             the same b and W                            a rule how C_W, λ_b, λ_W vary with width
=============  ==========================================  =======================================

Every rate is for the book's loss; `mean_squared_error_factor` converts to a mean over the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks import (
    MLP,
    ActivationLike,
    PerLayer,
    Widths,
    checked_activation,
    checked_number,
    checked_widths,
    per_layer,
)

_RATE = "a learning rate must be ≥ 0"
_STD = "a standard deviation must be ≥ 0"
_POSITIVE_STD = "must be > 0: with zero weights the output does not depend on the input"
_ETA = "the global learning rate must be > 0"


@dataclass(frozen=True, init=False)
class StandardParametrisation:
    """What to type into PyTorch or optax: plain b, W with a standard deviation and a rate each.

    PyTorch's own `nn.Linear` draws uniformly with std_b = std_W = 1/√(3 n_in), and plain SGD has
    one rate for all tensors. Skips are not part of it: they have no parameters.

    **Arguments:**

    - `widths`, `activation`: as in `MLP`.
    - `std_b`, `std_W`: standard deviations at the start, one number or one per layer.
    - `rate_b`, `rate_W`: SGD learning rates per tensor, b ← b − rate_b ∂L/∂b, likewise.
    """

    widths: tuple[int, ...]
    activation: Activation
    std_b: tuple[float, ...]
    std_W: tuple[float, ...]
    rate_b: tuple[float, ...]
    rate_W: tuple[float, ...]

    def __init__(
        self,
        widths: Widths,
        activation: ActivationLike,
        std_b: PerLayer,
        std_W: PerLayer,
        rate_b: PerLayer,
        rate_W: PerLayer,
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        store("widths", checked_widths(widths))
        depth = len(self.widths) - 1
        store("activation", checked_activation(activation))
        store("std_b", per_layer("std_b", std_b, depth, _STD))
        store("std_W", per_layer("std_W", std_W, depth, _POSITIVE_STD, positive=True))
        store("rate_b", per_layer("rate_b", rate_b, depth, _RATE))
        store("rate_W", per_layer("rate_W", rate_W, depth, _RATE))


@dataclass(frozen=True, init=False)
class NTKParametrisation:
    """The NTK convention, as in neural-tangents: unit-normal parameters and one rate.

    b = sigma_b·β and W = sigma_W·w/√n_in with β, w ~ N(0, 1); the single SGD `rate` acts on β
    and w, so the step of W is (rate·sigma_W²/n_in) ∂L/∂W. A layer with sigma_b = 0 has no bias.

    **Arguments:**

    - `widths`, `activation`: as in `MLP`.
    - `sigma_b`, `sigma_W`: one number or one per layer.
    - `rate`: of all parameters.
    """

    widths: tuple[int, ...]
    activation: Activation
    sigma_b: tuple[float, ...]
    sigma_W: tuple[float, ...]
    rate: float

    def __init__(
        self,
        widths: Widths,
        activation: ActivationLike,
        sigma_b: PerLayer,
        sigma_W: PerLayer,
        rate: float,
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        store("widths", checked_widths(widths))
        depth = len(self.widths) - 1
        store("activation", checked_activation(activation))
        store("sigma_b", per_layer("sigma_b", sigma_b, depth, _STD))
        store("sigma_W", per_layer("sigma_W", sigma_W, depth, _POSITIVE_STD, positive=True))
        store("rate", checked_number("rate", rate, _RATE))


def to_standard(net: MLP, eta: float) -> StandardParametrisation:
    """The book's network at global rate `eta` in the standard parametrisation.

    std_b = √C_b, std_W = √(C_W/n_in), rate_b = η λ_b, rate_W = η λ_W/n_in.

    **Arguments:**

    - `net`: an `MLP`; its skips, if it has some, stay with the architecture.
    - `eta`: the global learning rate.

    **Returns:** a `StandardParametrisation`.

    >>> net = MLP([4, 100, 1], "relu", C_b=0.0, C_W=2.0)
    >>> to_standard(net, eta=0.5).rate_W
    (0.125, 0.005)
    """
    eta = checked_number("eta", eta, _ETA, positive=True)
    fan_in = net.widths[:-1]
    return StandardParametrisation(
        net.widths,
        net.activation,
        std_b=[math.sqrt(C) for C in net.C_b],
        std_W=[math.sqrt(C / n) for C, n in zip(net.C_W, fan_in, strict=True)],
        rate_b=[eta * rate for rate in net.lambda_b],
        rate_W=[eta * rate / n for rate, n in zip(net.lambda_W, fan_in, strict=True)],
    )


def from_standard(standard: StandardParametrisation, *, eta: float = 1.0) -> MLP:
    """The book's network that, trained at global rate `eta`, is this standard one.

    **Arguments:**

    - `standard`: standard deviations and rates.
    - `eta`: which part of the products η λ, which alone matter, to call η.

    **Returns:** an `MLP`.

    >>> pytorch = StandardParametrisation([4, 100, 1], "relu", 0.0, [0.5, 0.1], 0.01, 0.01)
    >>> from_standard(pytorch, eta=0.01).lambda_W      # plain SGD: λ_W = n_in
    (4.0, 100.0)
    """
    eta = checked_number("eta", eta, _ETA, positive=True)
    fan_in = standard.widths[:-1]
    return MLP(
        standard.widths,
        standard.activation,
        C_b=[std * std for std in standard.std_b],
        C_W=[std * std * n for std, n in zip(standard.std_W, fan_in, strict=True)],
        lambda_b=[rate / eta for rate in standard.rate_b],
        lambda_W=[rate / eta * n for rate, n in zip(standard.rate_W, fan_in, strict=True)],
    )


def to_ntk(net: MLP, eta: float) -> NTKParametrisation:
    """The book's network at global rate `eta` in the NTK parametrisation.

    One rate for all tensors exists only where the learning rates are tied to the variances,
    λ_W = c C_W and λ_b = c C_b with the same c in every layer; then rate = η c. Other networks
    are refused.

    **Arguments:**

    - `net`: an `MLP`.
    - `eta`: the global learning rate.

    **Returns:** an `NTKParametrisation`.

    >>> net = MLP([4, 100, 1], "relu", C_b=0.1, C_W=2.0, lambda_b=0.1, lambda_W=2.0)
    >>> to_ntk(net, eta=0.5).rate
    0.5
    """
    eta = checked_number("eta", eta, _ETA, positive=True)
    tied = net.lambda_W[0] / net.C_W[0]
    for name, rates, variances in (
        ("lambda_b", net.lambda_b, net.C_b),
        ("lambda_W", net.lambda_W, net.C_W),
    ):
        for index, (rate, variance) in enumerate(zip(rates, variances, strict=True)):
            if not math.isclose(rate, tied * variance, rel_tol=1e-12, abs_tol=0.0):
                raise InvalidValueError(
                    f"{name} of layer {index + 1}",
                    rate,
                    f"one NTK rate needs lambda_b = c·C_b and lambda_W = c·C_W in all layers; "
                    f"with c = {tied:g} of layer 1 this must be {tied * variance:g}",
                )
    sigma_b, sigma_W = [math.sqrt(C) for C in net.C_b], [math.sqrt(C) for C in net.C_W]
    return NTKParametrisation(net.widths, net.activation, sigma_b, sigma_W, eta * tied)


def from_ntk(ntk: NTKParametrisation, *, eta: float = 1.0) -> MLP:
    """The book's network that, trained at global rate `eta`, is this one.

    C_b = sigma_b², C_W = sigma_W², η λ_b = rate·C_b, η λ_W = rate·C_W; with `eta=ntk.rate` the
    learning-rate tensor is the initialisation variance itself.

    **Arguments:**

    - `ntk`: scales and the rate.
    - `eta`: which part of the products η λ to call η.

    **Returns:** an `MLP`.

    >>> from_ntk(NTKParametrisation([4, 100, 1], "relu", 0.0, 2.0, rate=0.1), eta=0.1)
    MLP((4, 100, 1), 'relu', C_b=0.0, C_W=4.0, lambda_b=0.0, lambda_W=4.0)
    """
    eta = checked_number("eta", eta, _ETA, positive=True)
    C_b, C_W = [std * std for std in ntk.sigma_b], [std * std for std in ntk.sigma_W]
    ratio = ntk.rate / eta
    return MLP(
        ntk.widths,
        ntk.activation,
        C_b,
        C_W,
        lambda_b=[ratio * C for C in C_b],
        lambda_W=[ratio * C for C in C_W],
    )


def maximal_update(base: MLP, widths: Widths) -> MLP:
    """The network `base` with its hidden layers widened (or narrowed) to `widths` by the μP rule.

    At the same η the rates tuned on `base` then serve the new width. The rule is the SGD column
    of Table 3 in Yang et al., Tensor Programs V (arXiv:2203.03466), with base widths: written
    with r_ℓ = n_ℓ/n_ℓ^base (r_0 = r_L = 1) for plain b and W,

    ============  ==================  ==================  ==================  ================
    tensor        input W             hidden W            output W            all b
    ============  ==================  ==================  ==================  ================
    variance      1/n_in              1/n_in              1/n_in · 1/r_in     unchanged
    SGD rate      × r_out             × r_out/r_in        × 1/r_in            × r_out
    ============  ==================  ==================  ==================  ================

    In the book's letters: C_W^(L) ∝ 1/r_{L-1}; λ_b^(ℓ), λ_W^(ℓ) ∝ r_ℓ; nothing else changes.
    `maximal_update(wide, base.widths)` is `base` again. What to type into an optimiser is
    `to_standard(maximal_update(base, widths), eta)`.

    **Arguments:**

    - `base`: the network whose rates were tuned.
    - `widths`: (n_0, …, n_L) with other hidden widths.

    **Returns:** an `MLP`, with the skips of `base`.

    >>> base = MLP([4, 64, 64, 1], "relu", C_b=0.0, C_W=2.0)
    >>> maximal_update(base, [4, 256, 256, 1])
    MLP((4, 256, 256, 1), 'relu', C_b=0.0, C_W=[2.0, 2.0, 0.5], lambda_b=[4.0, 4.0, 1.0],
        lambda_W=[4.0, 4.0, 1.0])
    """
    new, old = checked_widths(widths), base.widths
    if len(new) != len(old) or (new[0], new[-1]) != (old[0], old[-1]):
        raise InvalidValueError(
            "widths", new, f"only the hidden widths of {old} may change: μP keeps n_0, n_L and L"
        )
    ratios = [after / before for after, before in zip(new, old, strict=True)]
    return MLP(
        new,
        base.activation,
        base.C_b,
        C_W=[*base.C_W[:-1], base.C_W[-1] / ratios[-2]],
        lambda_b=[rate * ratio for rate, ratio in zip(base.lambda_b, ratios[1:], strict=True)],
        lambda_W=[rate * ratio for rate, ratio in zip(base.lambda_W, ratios[1:], strict=True)],
        skip=base.skip or 0.0,
    )


def mean_squared_error_factor(samples: int, outputs: int) -> float:
    """N n_L/2: multiply η by it when the loss is the mean of (z − y)² over samples and outputs.

    The book's loss ½ Σ (z − y)² is N n_L/2 times PyTorch's `mse_loss`, so the gradient of the
    mean needs a rate larger by this factor: `to_standard(net, eta * factor)`. The other way
    round, a rate used with `mse_loss` is divided by it to get the book's η. (For ½ mean, as in
    neural-tangents' `gradient_descent_mse`, the factor is twice this: N n_L.)

    **Arguments:**

    - `samples`, `outputs`: N and n_L, both ≥ 1.

    **Returns:** the factor.

    >>> mean_squared_error_factor(samples=100, outputs=10)
    500.0
    """
    for name, value in (("samples", samples), ("outputs", outputs)):
        if value < 1:
            raise InvalidValueError(name, value, "expected a positive count")
    return samples * outputs / 2
