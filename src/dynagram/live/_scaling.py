"""Exponents in width or depth of a model that is made at three sizes, beside those of a scheme.

Mean squares of weights, of the output and of what a step of training changes go as powers of the
width n or the depth L. Standard parametrisation, the NTK one, muP and depth-muP differ in these
powers; weights are taken with the factors in front of them, so that only what is computed counts.

quantity                      sp     ntk    mup    depth-mup (in L)
variance of hidden weights    −1     −1     −1     0
variance of the readout       −1     −1     −2     0
square of the outputs          0      0     −1     0
what a branch adds             –      –      –     −1
growth of the stream           –      –      –     0

A few small steps at the rates of the scheme, or at those of the user's optimiser, tell the rest:
see `_scheme_rates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._causes import Cause
from dynagram.live._live import Live, is_torch, read_live, seeded
from dynagram.live._recognition import Recognised
from dynagram.live._redraw import redrawn
from dynagram.live._scheme_rates import expected_changes, roles_of, scheme_rule
from dynagram.live._stages import draw_stages
from dynagram.live._steps import OUTPUTS as ALL
from dynagram.live._steps import Rule, own_changes
from dynagram.live._walk import matrices_of
from dynagram.networks.blocks import Residual
from dynagram.results._table import Grid

HIDDEN, READOUT, OUTPUTS = "variance of hidden weights", "variance of the readout", "outputs²"
BRANCH, GROWTH = "what a branch adds", "growth of the stream"
SCHEMES: dict[str, dict[str, float]] = {
    "sp": {HIDDEN: -1.0, READOUT: -1.0, OUTPUTS: 0.0},
    "ntk": {HIDDEN: -1.0, READOUT: -1.0, OUTPUTS: 0.0},
    "mup": {HIDDEN: -1.0, READOUT: -2.0, OUTPUTS: -1.0},
    "depth-mup": {BRANCH: -1.0, GROWTH: 0.0},
}
_DRAWS = 8
_CHANCE = 1e-3  # of calling a right exponent wrong
_AVERAGED = 32  # networks behind a mean square
_SLACK = 0.15  # exponents of three finite sizes are never exact


@dataclass(frozen=True)
class Exponent:
    """A fitted power of the width or the depth.

    **Arguments:**

    - `quantity`: what goes as that power.
    - `value`, `low`, `high`: the power and its 95 % interval.
    - `expected`: that of the scheme.
    - `layer`: the layer whose step it is, "" for what is seen before any step.
    - `reach`: how far chance takes it from the scheme's once in a thousand times.
    """

    quantity: str
    value: float
    low: float
    high: float
    expected: float
    layer: str = ""
    reach: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether it is the scheme's power but for chance and finite sizes."""
        return abs(self.value - self.expected) <= self.reach + _SLACK


@dataclass(frozen=True)
class ScalingTable:
    """Exponents beside those of a scheme; made by `check` with `scheme=`.

    **Arguments:**

    - `scheme`: sp, ntk, mup or depth-mup.
    - `along`: "width" or "depth".
    - `sizes`: at which the model was made.
    - `exponents`: one for every quantity.
    """

    scheme: str
    along: str
    sizes: tuple[int, ...]
    exponents: tuple[Exponent, ...]

    def causes(self) -> list[Cause]:
        """What does not scale as declared; steps only where all is right before them."""
        wrong = [e for e in self.exponents if not e.is_right]
        before = [e for e in wrong if not e.layer]
        # What one layer does wrong is seen in the outputs too.
        of_layers = [e for e in wrong if e.layer and e.layer != ALL]
        return [
            Cause(
                f"not {self.scheme}",
                f"not {self.scheme}: {e.quantity} goes as {self.along}^{e.value:.2f} "
                f"({e.low:.2f} to {e.high:.2f}), {self.scheme} has {e.expected:g}"
                + (_remedy(self, e) if e.layer else _guess(self, e)),
            )
            for e in before or of_layers or wrong
        ]

    def summary(self) -> Grid:
        """A row for every quantity."""
        rows = tuple(
            (e.quantity, f"{e.value:.2f}", f"{e.low:.2f} … {e.high:.2f}", f"{e.expected:g}",
             "as declared" if e.is_right else "otherwise")
            for e in self.exponents
        )  # fmt: skip
        sizes = ", ".join(map(str, self.sizes))
        note = f"Powers of the {self.along}, fitted at {sizes}."
        headings = ("quantity", f"power of the {self.along}", "95 %", self.scheme, "")
        return Grid(headings, rows, (note,))

    def table(self) -> Any:
        """A rich table."""
        return self.summary().rich()

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        exponents = [vars(e) | {"is_right": e.is_right} for e in self.exponents]
        return vars(self) | {"sizes": list(self.sizes), "exponents": exponents}

    def __repr__(self) -> str:
        wrong = sum(not e.is_right for e in self.exponents)
        words = "as declared" if not wrong else f"{wrong} otherwise"
        return f"ScalingTable({self.scheme}, {len(self.exponents)} exponents, {words})"

    def _repr_html_(self) -> str:
        return self.summary().html(repr(self))


def _remedy(table: ScalingTable, exponent: Exponent) -> str:
    """What a step changes is in proportion to its rate, its square to the square."""
    if exponent.layer == ALL:
        return ""
    power = (exponent.expected - exponent.value) / 2.0
    return f"; its rate lacks a factor {table.along}^{power:.2g}"


def _guess(table: ScalingTable, exponent: Exponent) -> str:
    others = [
        name
        for name, powers in SCHEMES.items()
        if name != table.scheme
        and exponent.quantity in powers
        and abs(powers[exponent.quantity] - exponent.value) < _SLACK
    ]
    return f"; that is {others[0]}" if others else ""


def fit_scaling(
    factory: Callable[..., Any],
    batch: Any,
    scheme: str,
    sizes: Sequence[int] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
) -> ScalingTable:
    """Make a model at several widths or depths and fit how its parts and its steps scale.

    **Arguments:**

    - `factory`: called with `width=` (for depth-mup with `depth=`), gives the model.
    - `batch`: inputs.
    - `scheme`: sp, ntk, mup or depth-mup.
    - `sizes`: at least three; by default 64, 128, 256, and 4, 8, 16 for depths.
    - `optimizer`: makes the `torch.optim.SGD`, `Adam` or `AdamW` of a model; by default SGD at the
        rates of the scheme.

    **Returns:** `ScalingTable`. Cost: at every size a few draws, each with three steps forth and
    back and a pass for every layer.
    """
    if scheme not in SCHEMES:
        raise InvalidValueError("scheme", scheme, f"expected one of {', '.join(SCHEMES)}")
    along = "depth" if scheme == "depth-mup" else "width"
    chosen = tuple(sorted(sizes or ((4, 8, 16) if along == "depth" else (64, 128, 256))))
    if len(set(chosen)) < 3 or any(not isinstance(s, int) or s < 2 for s in chosen):
        raise InvalidValueError("sizes", chosen, "at least three different whole numbers")
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    powers: dict[tuple[str, str], float] = {}
    largest = None
    for size in chosen:
        for draw in range(_DRAWS):
            model = _made(factory, along, size, draw)
            live = read_live(model, batch)
            read = _read(live, model)
            rule = _rule(scheme, model, live, read, optimizer)
            largest = largest or max(rule.rates.values())
            if largest <= 0.0:
                raise InvalidValueError("optimizer", "rates", "all are 0")
            changes = expected_changes(scheme, rule.kind)
            values = {(name, ""): value for name, value in _numbers(read, draw).items()
                      if name in SCHEMES[scheme]}  # fmt: skip
            powers |= {key: SCHEMES[scheme][key[0]] for key in values}
            # A function that sets its own seed gives one draw only: others are drawn here.
            start = redrawn(live.parameters, np.random.default_rng(draw)) if draw else None
            small = rule.scaled(largest)
            for layer, role, value in _steps(live, start, read, model, batch, small):
                if role in changes:
                    key = (f"step of {layer}, squared", layer)
                    values[key], powers[key] = value, changes[role]
            for key, value in values.items():
                if value > 0:
                    points.setdefault(key, []).append((np.log(size), np.log(value)))
    exponents = [
        _fit(*key, some, powers[key])
        for key, some in points.items()
        if len({x for x, _ in some}) == len(chosen)  # layers that are there at all sizes
    ]
    return ScalingTable(scheme, along, chosen, tuple(exponents))


def _rule(
    scheme: str, model: Any, live: Live, read: Recognised, optimizer: Callable[[Any], Any] | None
) -> Rule:
    if optimizer is None:
        return scheme_rule(scheme, read, live.parameters)
    if not is_torch(model):
        allowed = "only models of PyTorch have optimisers that can be read"
        raise InvalidTypeError("optimizer", type(model).__name__, allowed)
    from dynagram.live._torch_steps import rule_of

    return rule_of(optimizer(model), model)


def _steps(
    live: Live, start: Any, read: Recognised, model: Any, batch: Any, rule: Rule
) -> Iterator[tuple[str, str, float]]:
    """Name, role and squared step of every layer with a matrix, and of the outputs.

    On one sample: the products x_a·x_b of others are √n where x_a·x_a is n, and blur the powers.
    """
    batch = tuple(p[:1] for p in batch) if isinstance(batch, tuple) else batch[:1]
    if is_torch(model):
        from dynagram.live._torch_steps import probe_torch

        probe = probe_torch(model, batch)
    else:
        from dynagram.live._jax_steps import probe_jax

        probe = probe_jax(model, batch, None)
    made = own_changes(probe, start or live.parameters, rule)
    roles = roles_of(read)
    letters: dict[str, set[str]] = {}
    for weight in read.weights:
        letters.setdefault(weight.name, set()).add(weight.letter)
    owners = probe(live.parameters, None).owners
    for name, role in roles.items():
        layer = owners.get(name, "")
        # Queries and keys act through the logits, whose slopes have other powers.
        if layer in made and not letters[name] <= {"q", "k"}:
            yield layer, role, made[layer]
    yield ALL, ALL, made[ALL]


def _made(factory: Callable[..., Any], along: str, size: int, draw: int) -> Any:
    try:
        with seeded(1000 * size + draw):
            return factory(**{along: size})
    except TypeError as error:
        allowed = f"must take {along}= to be made at several sizes: {' '.join(str(error).split())}"
        raise InvalidTypeError("factory", getattr(factory, "__name__", "?"), allowed) from error


def _read(live: Live, model: Any) -> Recognised:
    if live.recognised is None:
        allowed = f"exponents need a model that can be read: {live.reason}"
        raise InvalidTypeError("model", type(model).__name__, allowed)
    return live.recognised


def _numbers(read: Recognised, seed: int) -> dict[str, float]:
    """What scales, for one draw; a function that sets its own seed is drawn again here."""
    network = read.network
    weights = [m for m in matrices_of(network) if m.is_weight and m.fan_in > 1]
    last, hidden = weights[-1], weights[1:-1]
    measured = draw_stages(network, read.rows[:4], _AVERAGED, seed)
    numbers = {READOUT: last.variance, OUTPUTS: float(np.mean(measured.outputs**2))}
    if hidden:
        numbers[HIDDEN] = float(np.exp(np.mean([np.log(m.variance) for m in hidden])))
    places = [i for i, b in enumerate(network.blocks) if isinstance(b, Residual)]
    if places and places[0] > 0:
        stream = measured.numbers["mean square"].mean(axis=0)
        first, last_square = stream[places[0] - 1], stream[places[-1]]
        numbers[GROWTH] = float(last_square / first)
        numbers[BRANCH] = float((last_square - first) / (first * len(places)))
    return numbers


def _fit(
    name: str, layer: str, points: list[tuple[float, float]], expected: float
) -> Exponent:  # fmt: skip
    x, y = np.array(points).T
    fit: Any = stats.linregress(x, y)
    spread, reach = (
        float(stats.t.ppf(1.0 - p / 2.0, len(x) - 2) * fit.stderr) for p in (0.05, _CHANCE)
    )
    value = float(fit.slope)
    return Exponent(name, value, value - spread, value + spread, expected, layer, reach)
