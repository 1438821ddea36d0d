"""What the effective theory says of a network drawn at criticality, number by number.

Every number is a `Statement`: its value, what it means, and the equation of the book that gave
it. Depth is judged against width by the NTK's fluctuation √((A + 2B)/n)/Θ (8.82).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._memory import require_memory
from dynagram.activations import Activation
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, ActivationLike, check_inputs, checked_activation, checked_widths
from dynagram.networks._parametrisations import (
    StandardParametrisation,
    mean_squared_error_factor,
    to_standard,
)
from dynagram.results._regime import Regime, Verdict
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._regime import tensor_regime
from dynagram.theory.criticality import CriticalPoint, critical_initialisation
from dynagram.theory.criticality._one_input_tangents import TangentFlow, single_input_tangents
from dynagram.theory.criticality._rates import DepthScaledRates, depth_scaled_rates, ntk_shares
from dynagram.theory.information._aspect import optimal_variance
from dynagram.theory.information._depth import SkipAdvice, skip_advice
from dynagram.training._losses import check_loss

_LEVELS: tuple[Verdict, ...] = ("trust", "careful", "do not use")
# NTK fluctuations: the first two lower the verdict (as in `tensor_regime`), below the third the
# network is close to its infinite-width limit.
_CAREFUL, _REFUSE, _LAZY = 0.25, 0.5, 0.05

_DEEPEST = 100_000  # layers: a few seconds of work


@dataclass(frozen=True)
class Statement:
    """One number (or one per layer), in words and with its equation."""

    name: str
    value: float | tuple[float, ...]
    meaning: str
    equation: str


@dataclass(frozen=True, eq=False)
class CriticalSetup:
    """A network ready to build and train, the numbers behind it, and a verdict on its shape.

    `network` carries C_b, C_W, λ_b, λ_W per layer; `pytorch` the same as standard deviations and
    SGD rates per tensor, for PyTorch's mean-reduced loss at the recommended step. `regime` says
    whether the finite-width theory holds here, `sweet_spot` whether depth fits width; `residual` is
    what skips would do.
    """

    network: MLP
    loss: str
    point: CriticalPoint
    statements: tuple[Statement, ...]
    regime: Regime
    sweet_spot: str
    notes: tuple[str, ...]
    pytorch: StandardParametrisation
    residual: SkipAdvice | None = None

    def __getitem__(self, name: str) -> Statement:
        """The statement of that name."""
        for statement in self.statements:
            if statement.name == name:
                return statement
        known = ", ".join(statement.name for statement in self.statements)
        raise InvalidValueError("name", name, f"known statements: {known}")

    def number(self, name: str) -> float:
        """The value of a statement that is one number."""
        value = self[name].value
        if isinstance(value, tuple):
            raise InvalidValueError("name", name, "has one value per layer: take setup[name].value")
        return value


def critical_setup(
    activation: ActivationLike,
    width: int,
    depth: int,
    *,
    outputs: int = 1,
    inputs: int | None = None,
    loss: str = "mean",
    x: object = None,
    residual: bool = False,
) -> CriticalSetup:
    """Critical initialisation, depth-scaled rates, largest stable step and what to expect.

    **Arguments:**

    - `activation`: a registered name or a function.
    - `width`, `depth`: the network has `depth` weight matrices and depth − 1 hidden layers of
        `width`.
    - `outputs`: n_L.
    - `inputs`: n_0; by default that of `x`, or else `width`.
    - `loss`: for which the step is given, a name of `dynagram.training.LOSSES`.
    - `x`: the inputs trained on, in full batch, a row each; by default one input with
        (1/n_0) Σ x² = 1.
    - `residual`: add what skips between hidden layers would change; the rest stays about the
        plain network.

    **Returns:** `CriticalSetup`. Raises `InvalidValueError` with the reason where the activation
    has no critical initialisation, or `residual` no answer. Cost: milliseconds, plus the NTK of
    `x` and its eigenvalues, O(N³).

    >>> setup = critical_setup("relu", width=512, depth=10)
    >>> setup.network.C_W[1], setup.network.lambda_W[1]
    (2.0, 0.1)
    >>> round(setup.number("largest_step"), 9), round(setup.number("ntk_fluctuation"), 3)
    (1.0, 0.195)
    >>> setup.regime.verdict
    'trust'
    """
    sigma = checked_activation(activation)
    width, depth = _whole("width", width, 1), _whole("depth", depth, 2)
    if depth > _DEEPEST:
        raise InvalidValueError("depth", depth, f"expected 2 to {_DEEPEST}")
    samples = _samples(x, inputs, width)
    widths = checked_widths([samples.shape[1], *[width] * (depth - 1), outputs])
    _check_loss(loss, outputs)
    point, rates = critical_initialisation(sigma), depth_scaled_rates(sigma, depth)
    typical = float(np.mean(samples**2))
    if typical == 0.0:
        raise InvalidValueError("x", "zeros", "expected inputs that are not all zero")
    # Where K* > 0 the first layer rescales the inputs to K^(1) = K*: its C_W and λ_W together.
    rescaling = (point.K_star - point.C_b) / point.C_W / typical if point.K_star else 1.0
    C_W = point.C_W + (point.exponents.c_W1 or 0.0) / width
    network = MLP(
        widths,
        sigma,
        C_b=point.C_b,
        C_W=[rescaling * point.C_W] + [C_W] * (depth - 1),
        lambda_b=rates.lambda_b,
        lambda_W=[rescaling * rates.lambda_W[0], *rates.lambda_W[1:]],
    )
    flow = single_input_tangents(network, typical)
    data = "one input with (1/n_0) Σ x² = 1" if x is None else f"these {len(samples)} inputs"
    steps = _steps(network, samples, loss, data)
    sizes = _sizes(network, flow, point)
    statements = (*_initialisation(network, point, rates, typical), *steps, *sizes)
    numbers = {s.name: s.value for s in statements if isinstance(s.value, float)}
    return CriticalSetup(
        network=network,
        loss=loss,
        point=point,
        statements=statements,
        regime=_regime(network, flow, numbers),
        sweet_spot=_sweet_spot(width, numbers["ntk_fluctuation"]),
        notes=_notes(sigma, flow, point, assumed_inputs=x is None and inputs is None),
        pytorch=to_standard(network, numbers["step"] * numbers["pytorch_factor"]),
        residual=_skips(network, typical) if residual else None,
    )


def _skips(network: MLP, mean_square: float) -> SkipAdvice:
    try:
        return skip_advice(network, mean_square)
    except InvalidValueError as error:
        allowed = f"no skip can be advised, as {error}; leave residual out for all other advice"
        raise InvalidValueError("residual", True, allowed) from error


def _whole(name: str, value: int, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidTypeError(name, value, f"expected an integer ≥ {least}") from None
    if number < least:
        raise InvalidValueError(name, number, f"expected an integer ≥ {least}")
    return number


def _samples(x: object, inputs: int | None, width: int) -> Float[np.ndarray, "n n_0"]:
    if x is None:
        name, n_0 = ("width", width) if inputs is None else ("inputs", _whole("inputs", inputs, 1))
        require_memory(name, n_0, 64.0 * n_0, "a layer is too wide")
        return np.ones((1, n_0))
    columns = np.shape(np.asarray(x, dtype=object))[-1:] or (1,)
    return check_inputs(x, columns[0] if inputs is None else inputs)


def _check_loss(loss: str, outputs: int) -> None:
    if check_loss(loss) not in ("mean", "cross-entropy"):
        allowed = "rates are given for losses that are means: 'mean' or 'cross-entropy'"
        raise InvalidValueError("loss", loss, allowed)
    if loss == "cross-entropy" and outputs < 2:
        raise InvalidValueError("outputs", outputs, "cross-entropy needs at least two classes")


def _initialisation(
    network: MLP, point: CriticalPoint, rates: DepthScaledRates, typical: float
) -> list[Statement]:
    shares = ntk_shares(network, typical)
    total = shares.bias + shares.weight
    equation, meaning = "(5.55), (5.56)", "weights ~ N(0, C_W/fan_in): χ∥ = χ⊥ = 1"
    if point.exponents.c_W1:
        equation += ", (5.142)"
        meaning += f"; from layer 2 on with {point.exponents.c_W1:.4g}/n against the drift of E z²"
    if point.K_star:
        meaning += f"; the first layer brings the inputs to K* = {point.K_star:.6g}"
    return [
        Statement("C_b", network.C_b, "biases ~ N(0, C_b)", "(5.55), (5.56)"),
        Statement("C_W", network.C_W, meaning, equation),
        Statement(
            "lambda_b", network.lambda_b, f"biases step with η λ_b; {rates.note}", rates.equation
        ),
        Statement("lambda_W", network.lambda_W, "weights step with η λ_W/fan_in", rates.equation),
        Statement(
            "layer_shares",
            tuple((total / np.sum(total)).tolist()),
            "fraction of the output's NTK that each layer's parameters contribute",
            "(9.28)",
        ),
    ]


def _steps(network: MLP, samples: np.ndarray, loss: str, data: str) -> list[Statement]:
    Theta = frozen_kernels(network, samples, layers="last").Theta[0]
    largest, count = float(np.linalg.eigvalsh(Theta)[-1]), samples.shape[0]
    limit, why, factor, torch_loss = (
        2.0 / largest, "2/λ_max(Θ), loss ½ Σ (z − y)²",
        mean_squared_error_factor(count, network.widths[-1]), "MSELoss",
    )  # fmt: skip
    if loss == "cross-entropy":
        # Eigenvalues of diag(q) − q qᵀ, the loss's Hessian in z, never exceed ½.
        limit, factor, torch_loss = 4.0 / largest, float(count), "CrossEntropyLoss"
        why = "4/λ_max(Θ), loss −Σ log q: its Hessian in the outputs is at most ½, so this is safe"
    more = "; a mean-reduced loss over more such inputs allows at least this much"
    return [
        Statement("largest_eigenvalue", largest, f"λ_max of the NTK Θ for {data}", "(8.63), (9.5)"),
        Statement(
            "largest_step",
            limit,
            f"gradient descent is stable below η = {why}, for {data}"
            + (more if count == 1 else ""),
            "(∞.93)",
        ),
        Statement("step", limit / 2, "recommended η: half the limit, as Ĥ fluctuates", "(∞.93)"),
        Statement(
            "pytorch_factor",
            factor,
            f"PyTorch's {torch_loss} is a mean: multiply η by this for it",
            "(10.5)" if loss == "mean" else "(10.6)",
        ),
    ]


def _sizes(network: MLP, flow: TangentFlow, point: CriticalPoint) -> list[Statement]:
    """Sizes of the 1/n effects at the output, for one typical input."""
    n, outputs = network.widths[-2:]
    last = {k: float(v[-1]) for k, v in vars(flow).items() if isinstance(v, np.ndarray)}
    Theta, spread = last["Theta"], math.sqrt((last["A"] + 2.0 * last["B"]) / n) / last["Theta"]
    meaning = "√((A + 2B)/n)/Θ: relative spread of Ĥ_ii between initialisations"
    statements = [
        Statement("Theta", Theta, "frozen NTK of a typical input", "(9.6)"),
        Statement("ntk_fluctuation", spread, meaning, "(8.82), (9.15), (9.16)"),
        Statement(
            "ntk_shift", abs(last["H1"]) / (n * Theta), "|H^{1}|/(nΘ): shift of E Ĥ", "(9.3)"
        ),
        Statement(
            "signal_fluctuation",
            math.sqrt(last["V"] / n) / last["K"],
            "√(V/n)/K: relative spread of the mean square of the outputs between initialisations",
            "(4.76)",
        ),
        Statement("aspect_ratio", network.depth / n, "L/n", "(A.68)"),
    ]
    if "P" in last:
        change = (abs(last["P"]) + abs(last["Q"])) / (n * Theta**2)
        meaning = "(|P| + |Q|)/(nΘ²): relative change of the NTK in training, up to a factor ~ n_L"
        statements.append(Statement("kernel_change", change, meaning, "(11.62)"))
    if "R" in last:
        second = max(abs(last[k]) for k in "RSTU") * last["K"] / (n * Theta**3)
        meaning = "max(|R|, |S|, |T|, |U|)K/(nΘ³): the same for the ddNTKs"
        statements.append(Statement("second_change", second, meaning, "(∞.21)"))
    slope = point.constants.S if point.kind == "half-stable" else point.exponents.vertex_slope
    if slope is not None:
        meaning = (
            "scale of L/n where the 1/n series stops being useful: the mutual information of two "
            "halves of the output peaks there at this order"
        )
        ratio = optimal_variance(outputs / 2, outputs / 2) / slope
        statements.append(Statement("optimal_aspect_ratio", ratio, meaning, "(A.73)"))
        meaning = (
            "r*·n: the depth at that scale for this width, right to about a factor 2 and no optimum"
        )
        statements.append(Statement("depth_scale", ratio * n, meaning, "(A.73)"))
    return statements


def _regime(network: MLP, flow: TangentFlow, numbers: dict[str, float]) -> Regime:
    """The regime of kernel and NTK fluctuations, lowered by what else the NTK does."""
    four = {name: getattr(flow, name)[:, None, None, None, None] for name in "AB"}
    base = tensor_regime(
        network,
        flow.K[:, None, None],
        flow.Theta[:, None, None],
        four,
        errors={"A": np.zeros_like(four["A"])},  # single-input averages are exact to rounding
    )
    level = _LEVELS.index(base.verdict)
    reasons = list(base.reasons) if level else []
    graded = (
        ("ntk_shift", "finite width shifts the mean NTK by {:.0%}"),
        ("kernel_change", "training changes the NTK by about {:.0%}: not a small perturbation"),
    )
    for name, sentence in graded:
        value = numbers.get(name, 0.0)
        if value > 0.1:
            level = max(level, 2 if value > 0.5 else 1)
            reasons.append(sentence.format(value))
    kept = {name: numbers[name] for name, _ in graded if name in numbers}
    good = "the 1/n effects on kernel and NTK are small at this depth and width"
    return Regime("1/n", _LEVELS[level], tuple(reasons or [good]), base.numbers | kept)


def _sweet_spot(width: int, fluctuation: float) -> str:
    if fluctuation > _CAREFUL:
        needed = math.ceil(width * (fluctuation / _CAREFUL) ** 2)
        severity = "far too deep" if fluctuation > _REFUSE else "deep"
        return (
            f"{severity} for its width: the NTK fluctuates by {fluctuation:.0%}; a width of "
            f"{needed} would bring it to {_CAREFUL:.0%}"
        )
    if fluctuation < _LAZY:
        return (
            f"nearly infinitely wide: the NTK fluctuates by {fluctuation:.1%} only and hardly "
            "moves in training, so features are hardly learned; go deeper or narrower"
        )
    return f"in the sweet spot: L/n is small but not negligible (NTK fluctuation {fluctuation:.0%})"


def _notes(
    sigma: Activation, flow: TangentFlow, point: CriticalPoint, *, assumed_inputs: bool
) -> tuple[str, ...]:
    notes = [*point.notes, *flow.missing]
    if any(any(kink.jumps[:2]) for kink in sigma.kinks):
        notes.append(
            "where σ' jumps the NTK changes in training like 1/√n, more than the dNTK says (∞.41)"
        )
    if assumed_inputs:
        notes.append(
            "the number of inputs was not given: the first layer is written for n_0 = width"
        )
    return tuple(notes)
