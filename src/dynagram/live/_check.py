"""`check`: is this network initialised and scaled as its user thinks?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.live._bands import family_threshold
from dynagram.live._causes import Cause, WeightReading, explain_weights
from dynagram.live._cropping import crop
from dynagram.live._drift import find_drift
from dynagram.live._expectation import expect_stages
from dynagram.live._faults import (
    find_dead_units,
    find_large_epsilon,
    find_large_readout,
    find_lost_signal,
    find_no_effect,
    find_no_numbers,
    find_silent_layers,
    find_unscaled_inputs,
    find_wrong_softmax,
)
from dynagram.live._live import (
    Live,
    batch_of,
    is_torch,
    read_live,
)
from dynagram.live._lone_blocks import find_lone_block
from dynagram.live._lone_layers import (
    find_frozen,
    find_lone_layer,
    find_lone_linear,
    find_lone_sharing,
    find_odd_gains,
)
from dynagram.live._measured_only import check_measured
from dynagram.live._recipes import (
    OF_TABLES,
    RECIPES,
    Recipe,
    as_chain,
    constant_biases,
    declared_network,
    is_causal,
    name_recipe,
    pooled_network,
    recipe_of,
)
from dynagram.live._recognition import Recognised
from dynagram.live._redraw import error_of_square, looks_uniform, without_padding
from dynagram.live._result import Check, LayerReading
from dynagram.live._scaling import fit_scaling
from dynagram.live._signals import explain_signals, row_of_weight
from dynagram.live._stages import NUMBERS, measure_stages
from dynagram.live._structure import (
    compare_structures,
    find_copies,
    find_dropout,
    find_lone_mask,
    find_zeros,
)
from dynagram.live._unread_weights import (
    branch_ends,
    layer_of_size,
    sizes_beside,
    weights_of,
)
from dynagram.live._walk import matrices_of, with_variances
from dynagram.networks import Chain
from dynagram.networks._checks import checked_integer
from dynagram.networks.blocks import Attention, Dense
from dynagram.networks.blocks._composite import every_block
from dynagram.theory.chain._scalings import count_layers

_FEWEST = 16


def check(
    model: Any,
    data: Any,
    *,
    expected: Any = None,
    params: Any = None,
    factory: Callable[..., Any] | None = None,
    scheme: str | None = None,
    sizes: Sequence[int] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
    seed: int = 0,
) -> Check:
    """Hold a model, before training, against what it should be, layer by layer.

    Where the model is a network of ours, the expected values and bands are those of theory at
    order 1/n; what theory does not give is taken from networks drawn anew. Where it is not, all of
    it is measured and held against the same model drawn anew.

    **Arguments:**

    - `model`: a `torch.nn.Module`, a JAX function of (params, x), an equinox or flax module or a
        `Model`.
    - `data`: a batch of inputs: an array, a tensor, a `Data` or a tuple of arguments.
    - `expected`: how the model is meant to be drawn: a recipe (kaiming, xavier, lecun, pytorch,
        gpt2, normal-0.02), the config.json of a model (path or contents) or a network of ours. By
        default the variances that its weights have, one for all matrices of the same role.
    - `params`: the parameters of a JAX function, or the variables of a linen module.
    - `factory`: a function that makes the model anew; by default its weights are drawn again with
        the variances they have. Used where there is no theory, and for `scheme`.
    - `scheme`: "sp", "ntk", "mup" or "depth-mup": `factory` is called with `width=` (or `depth=`)
        at three sizes, a few steps are taken, and powers of the size are compared with those of
        the scheme.
    - `sizes`: these widths or depths; by default 64, 128, 256 or 4, 8, 16.
    - `optimizer`: with `scheme`, a function that makes the `torch.optim.SGD`, `Adam` or `AdamW` of
        a model, whose rates are looked at; by default SGD at the rates of the scheme.
    - `seed`: of drawn networks.

    **Returns:** `Check`. Cost: a few passes; theory and a hundred small networks take seconds.

    >>> from dynagram.networks import MLP
    >>> net = MLP([8, 64, 64, 64, 1], "relu", C_b=0.0, C_W=2.0)
    >>> x = np.random.default_rng(0).normal(size=(32, 8))
    >>> check(net.init(seed=0), x, expected="kaiming").is_fine
    True
    >>> check(net.init(seed=0), x, expected="lecun").causes[0].message.partition(":")[0]
    'doubled init'
    """
    if optimizer is not None and scheme is None:
        raise InvalidValueError("optimizer", optimizer, "only with scheme, whose rates it has")
    seed, batch = checked_integer("seed", seed, 0), batch_of(data)
    live = read_live(model, batch, params=params)
    causes, shares = find_dead_units(live.graph)
    causes += find_no_numbers(live.graph)
    if not causes:
        causes += (
            find_lost_signal(live.graph)
            or find_odd_gains(live.graph, live.parameters)
            or find_silent_layers(live.graph)
        )
    causes += find_dropout(model, live.graph) + find_wrong_softmax(live.graph)
    weights = weights_of(live.graph)
    added_to_nothing = find_lone_layer(weights, branch_ends(live.graph))
    causes += find_lone_linear(live.graph, weights, added_to_nothing)
    causes += find_lone_sharing(live.shared, {n: v.shape for n, v in live.parameters.items()})
    causes += find_large_epsilon(live.graph)
    causes += [] if expected is not None else find_large_readout(live.graph)
    unscaled, more = find_unscaled_inputs(live.graph)
    causes, notes = [*causes, *unscaled], [*_notes(live), *more]
    if is_torch(model):
        causes += find_no_effect(model, batch, live.graph, live.unused)
        stopped, more = _frozen(model)
        causes, notes = [*causes, *stopped], [*notes, *more]
        leaks, more = _dependence(live, model, batch, expected)
        causes, notes = [*causes, *leaks], [*notes, *more]
    notes += [f"{100 * s:.0f} % of the units behind {name} are 0 on the whole batch"
              for name, s in shares.items() if s > 0.3]  # fmt: skip
    if live.recognised is None:
        positions = live.graph.nodes[0].value.shape[-1]
        recipe = None if expected is None else recipe_of(expected, positions)
        if expected is not None and recipe is None:
            allowed = f"only a model that can be read may be compared with it: {live.reason}"
            raise InvalidValueError("expected", expected, allowed)
        if recipe is not None and not (isinstance(expected, str) and expected in RECIPES):
            notes.append("of what is declared only the sizes of weights are compared")
        made = check_measured(live, recipe, factory, batch, seed, causes, notes)
    else:
        beside = sizes_beside(live.graph, _recipe_beside(live.recognised, expected))
        made = _with_theory(live, live.recognised, expected, seed, causes, notes, beside)
    if scheme is None:
        return made
    if factory is None:
        raise InvalidValueError("factory", None, "needed with scheme: it makes the model at a size")
    table = fit_scaling(factory, batch, scheme, sizes, optimizer)
    return replace(made, scaling=table, causes=(*made.causes, *table.causes()))


def _notes(live: Live) -> list[str]:
    notes = []
    if live.unused:
        more = f" and {len(live.unused) - 4} more" if len(live.unused) > 4 else ""
        notes.append(f"the output does not depend on {', '.join(live.unused[:4])}{more}")
    for group in live.shared:
        notes.append(f"{' and '.join(group)} are one parameter")
    if live.recognised is not None:
        notes += live.recognised.notes
        if live.recognised.factors:
            notes.append("logits of attention are not divided by √d")
        heads = [b for b in every_block(live.recognised.network.blocks) if isinstance(b, Attention)]
        if any(not block.causal for block in heads):
            notes.append(
                "attention is not causal: positions read later ones, which is wrong in a model "
                "that predicts the next token"
            )
    else:
        notes.append(f"measured only, no theory of ours applies: {live.reason}")
    return notes


def _dependence(live: Live, model: Any, batch: Any, expected: Any) -> tuple[list[Cause], list[str]]:
    """Outputs that depend on later tokens, or on other samples: a fault only where declared so."""
    from dynagram.live._dependence import mixes_samples, reads_later_tokens

    notes = []
    if mixes_samples(model, batch):
        notes.append(
            "outputs of a sample depend on others of the batch: samples are expected on the first "
            "axis (batch_first=True), and nothing but batch norms between them"
        )
    if live.recognised is not None or not reads_later_tokens(model, batch):
        return [], notes  # masks of what is read are compared as such
    text = "logits of a position depend on later tokens"
    if expected is not None and is_causal(expected):
        return [Cause("other attention", f"other attention: {text}, causal is declared")], notes
    return [], [*notes, f"{text}: no fault in a model of masked words"]


def _frozen(model: Any) -> tuple[list[Cause], list[str]]:
    """What is not trained: as a fault where it must be one, else as a note."""
    from dynagram.live._torch_layers import unwrapped

    parameters = dict(unwrapped(model).named_parameters())
    causes = find_frozen(
        {name: p.requires_grad for name, p in parameters.items()},
        {name: len(p) for name, p in parameters.items() if p.ndim > 1},
    )
    frozen = [name for name, p in parameters.items() if not p.requires_grad]
    if causes or not frozen:
        return causes, []
    more = f" and {len(frozen) - 4} more" if len(frozen) > 4 else ""
    return [], [f"frozen, not trained: {', '.join(frozen[:4])}{more} (requires_grad is False)"]


# --- with theory ------------------------------------------------------------------------------


def _with_theory(
    live: Live, read: Recognised, expected: Any, seed: int, causes: list[Cause], notes: list[str],
    beside: list[WeightReading],
) -> Check:  # fmt: skip
    weights = {(w.block, *w.place): w for w in read.weights}
    errors = {place: error_of_square(weight.values) for place, weight in weights.items()}
    own, wholes = read.network, _whole_fans(read)
    constant = constant_biases(read.weights)
    other: list[Cause] = []
    causes = [*causes, *find_lone_mask(own), *find_lone_block(own, read.weights)]
    if expected is None:
        meant, shared = pooled_network(own, lambda m: errors.get(m.place, 1.0))
        errors = {p: error for p, error in shared.items() if p in errors}  # alone it says nothing
        recipe = name_recipe(own, wholes)
        if recipe is not None:
            notes.append(f"all matrices are drawn as by {recipe}")
    else:
        if not (isinstance(expected, str) and expected in RECIPES):
            other = compare_structures(own, as_chain(expected, own), read.factors)
            causes = [*causes, *other]
        meant = _with_factors(_declared(own, expected, wholes, bool(other)), read)
        if isinstance(expected, str) and expected in RECIPES and expected not in OF_TABLES:
            # Recipes of matrices alone do not forbid them: they are judged by what they do.
            meant = with_variances(meant, lambda m: 0.0 if m.place in constant else m.variance)
            errors = {place: error for place, error in errors.items() if place not in constant}
        recipe = name_recipe(own, wholes)
        if recipe is not None and recipe != expected:
            notes.append(f"all matrices are drawn as by {recipe}")
    readings = _weight_readings(meant, own, read, errors)
    network, params, rows = crop(read)
    wanted = Chain([*meant.blocks[:-1], _as_wide(meant.blocks[-1], network)], network.inputs)
    uniform = {place for place, w in weights.items() if looks_uniform(w.values)}
    bands, birth, reason = expect_stages(wanted, rows, seed, uniform, theory=not other)
    if reason:
        notes.append(f"bands are those of networks drawn anew: {reason}")
    measured = measure_stages(network, params, rows)
    names, listed = _stage_names(read), []
    stages: list[tuple[int, LayerReading]] = []
    for number in range(len(network.blocks)):
        if number not in names:
            continue
        for quantity in NUMBERS:
            value = float(measured.numbers[quantity][number])
            if np.isfinite(value):
                band = bands.get((number, quantity))
                stages.append((number, LayerReading.of(names[number], quantity, value, band)))
        listed += [r for n, r in stages if n == number]
        listed += [row_of_weight(names[number], r) for r in readings if r.matrix.place[0] == number]
    listed += [row_of_weight(layer_of_size(size), size) for size in beside]
    readings += beside
    checks = [r for r in listed if r.z is not None]
    threshold = family_threshold(len(checks))
    branches = count_layers(own)[1]
    causes = [*causes, *find_copies(read.weights, live.frozen)]
    if not any(cause.name == "skip missing" for cause in causes):
        causes += find_lone_layer(weights_of(live.graph), branch_ends(live.graph))
    causes += explain_weights(readings, branches, threshold, declared=expected is not None)
    if not any(cause.name == "weights are zero" for cause in causes):
        slopes = measured.numbers[NUMBERS[3]]
        causes += find_zeros(own, read.weights) or find_drift(
            own, birth, slopes.tolist(), expected is not None, notes
        )
    if not causes:
        causes += explain_signals(listed, threshold, live.parameters, constant.values())
    if constant and not any(cause.name == "constant biases" for cause in causes):
        names = ", ".join(list(constant.values())[:4])
        notes.append(f"biases that are one number other than 0: {names}")
    return Check(tuple(listed), tuple(causes), threshold, str(own), live.unread, tuple(notes))


def _recipe_beside(read: Recognised, expected: Any) -> Recipe | None:
    """What is declared for weights beside the network that was read, where it says something."""
    return None if expected is None else recipe_of(expected, read.network.in_shape.positions)


def _declared(own: Chain, expected: Any, wholes: dict[Any, int], has_causes: bool) -> Chain:
    """The variances declared; its own where a part is missing, which has its name already."""
    try:
        return declared_network(own, expected, wholes)
    except InvalidValueError:
        if not has_causes:
            raise
        return own


def _as_wide(readout: Any, network: Chain) -> Any:
    """The readout of a declared network, with as many outputs as are looked at."""
    seen = network.blocks[-1]
    assert isinstance(readout, Dense)
    assert isinstance(seen, Dense)
    return replace(readout, width=seen.width)


def _with_factors(network: Chain, read: Recognised) -> Chain:
    """A declared network whose queries hold the factors that stand in the model, as it was read."""
    factors = {(w.block, *w.place): read.factors[w.name] for w in read.weights
               if w.letter == "q" and w.name in read.factors}  # fmt: skip
    if not factors:
        return network
    return with_variances(network, lambda m: m.variance * factors.get(m.place, 1.0) ** 2)


def _whole_fans(read: Recognised) -> dict[Any, int]:
    """Fan-outs of parameters that hold several matrices of a block, at the places of each."""
    fans: dict[tuple[str, int], list[int]] = {}
    for weight in read.weights:
        fans.setdefault((weight.name, weight.block), []).append(weight.fan_out)
    return {(w.block, *w.place): sum(several) for w in read.weights
            if len(several := fans[w.name, w.block]) > 1}  # fmt: skip


def _weight_readings(
    meant: Chain, own: Chain, read: Recognised, errors: Mapping[Any, float]
) -> list[WeightReading]:
    wanted = {matrix.place: matrix for matrix in matrices_of(meant)}
    names = {(w.block, *w.place): w for w in read.weights}
    several = [w.name for w in read.weights]
    readings = []
    for matrix in matrices_of(own):
        if matrix.place not in errors:
            continue
        if matrix.variance == wanted[matrix.place].variance == 0.0:
            continue
        weight = names[matrix.place]
        name = f"{weight.name} ({weight.letter})" if several.count(weight.name) > 1 else weight.name
        measured = float(np.mean(np.square(without_padding(weight.values))))
        readings.append(WeightReading(name, wanted[matrix.place], measured, errors[matrix.place]))
    return readings


def _stage_names(read: Recognised) -> dict[int, str]:
    """The common beginning of the names of the parameters of every block with weights."""
    names: dict[int, list[str]] = {}
    for weight in read.weights:
        names.setdefault(weight.block, []).append(weight.name.rpartition(".")[0] or weight.name)
    made: dict[int, str] = {}
    for number, members in names.items():
        unique = list(dict.fromkeys(members))
        label = unique[0] if len(unique) == 1 else _common(unique)
        made[number] = label if label not in made.values() else f"{label} [{number}]"
    return made


def _common(names: list[str]) -> str:
    parts = [name.split(".") for name in names]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    ends = [".".join(part[len(shared) :]) for part in parts]
    inside = "+".join(end for end in ends if end)
    return ".".join([*shared, inside]) if inside else ".".join(shared)
