"""`dynagram check`: a user's own model held against what it should be before training."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dynagram.cli._options import Json
from dynagram.cli._output import console, integers, print_json, print_list
from dynagram.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    from dynagram.live import Check
else:
    Check = object  # imported when the command runs, so that --help stays quick

_SAMPLES = 64


def check(
    model: Annotated[
        str,
        typer.Argument(
            help="package.module:function that makes the model (imported because you name it), or "
            "the config.json of a model, drawn here."
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Inputs: a .npy file, or a .npz file with x. Default: random."),
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(
            help="How it is meant to be drawn: kaiming, xavier, lecun, pytorch, gpt2, normal-0.02, "
            "or a file: TOML, or the config.json of a model."
        ),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="sp, ntk, mup or depth-mup: fit powers at three widths or depths."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="With --scheme: widths or depths, such as 64,128,256.")
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="With --scheme: package.module:function that makes the SGD, Adam or AdamW of a "
            "model. Default: SGD at the rates of the scheme."
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="With config.json: tokens.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of random inputs and drawn networks.")] = 0,
    as_json: Json = False,
) -> None:
    """Is this network initialised and scaled as you think? Exit code 1 when something is wrong."""
    from dynagram.live import check as check_model
    from dynagram.live._live import fitting_inputs

    chosen = None if sizes is None else integers("--sizes", sizes)
    if ":" in model:
        factory = _factory(model)
        made, batch = made_model(model)
        inputs = _inputs(data) if data is not None else batch
        if inputs is None:
            inputs = _random_inputs(made, seed)
        result = check_model(
            made, fitting_inputs(made, inputs), expected=expected, factory=_maker(factory),
            scheme=scheme, sizes=chosen, seed=seed,
            optimizer=None if optimizer is None else _factory(optimizer, "--optimizer"),
        )  # fmt: skip
    else:
        others = {"--data": data, "--scheme": scheme, "--sizes": sizes, "--optimizer": optimizer}
        for name, value in others.items():
            if value is not None:
                allowed = "only with package.module:function, not with the config.json of a model"
                raise InvalidValueError(name, str(value), allowed)
        result = _of_config(model, tokens, expected, seed)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)
    if not result.is_fine:
        raise typer.Exit(1)


def made_model(path: str) -> tuple[Any, Any]:
    """What package.module:function makes: the model, and what came with it, if anything."""
    made = _called(_factory(path), path)
    if not isinstance(made, tuple):
        return made, None
    if len(made) != 2:
        allowed = f"returned {len(made)} things; expected a model, or a model and its batch"
        raise InvalidValueError("model", path, allowed)
    return made


def _factory(path: str, name: str = "model") -> Any:
    from dynagram._trust import import_function

    return import_function(name, path)


def _called(factory: Any, name: str) -> Any:
    try:
        if isinstance(factory, type) or inspect.isfunction(factory) or callable(factory):
            return factory()
    except Exception as error:  # a user's function may do anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidValueError("model", name, f"fails when called: {reason}") from error
    raise InvalidTypeError("model", name, "expected a function that makes a model")


def _maker(factory: Any) -> Any:
    def make(**sizes: int) -> Any:
        made = factory(**sizes)
        return made[0] if isinstance(made, tuple) else made

    return make


def _inputs(path: Path) -> np.ndarray:
    from dynagram.data._files import load_array, load_arrays

    if path.suffix == ".npz":
        arrays = load_arrays(path, "--data")
        if "x" not in arrays:
            raise InvalidValueError("--data", str(path), "has no array x")
        return arrays["x"]
    return load_array(path, "--data")


def _random_inputs(model: Any, seed: int) -> Any:
    """Inputs of the size that the first layer says, as many as show dead units."""
    from dynagram.live._models import default_batch

    return default_batch(model, samples=_SAMPLES, seed=seed)


def _of_config(path: str, tokens: int, expected: str | None, seed: int) -> Check:
    from dynagram.live import check as check_model
    from dynagram.live._stages import require_room
    from dynagram.networks import load_architecture
    from dynagram.networks._architectures import ARCHITECTURES
    from dynagram.theory.chain._examination import typical_inputs

    if not Path(path).exists() and path not in ARCHITECTURES:
        allowed = "no such file: expected package.module:function or the config.json of a model"
        raise InvalidValueError("model", path, allowed)
    network = load_architecture(path, positions=tokens)
    require_room(network, 1)
    declared: Any = network if expected is None else expected
    return check_model(network.init(seed), typical_inputs(network), expected=declared, seed=seed)


def _print(result: Check) -> None:
    out, grid = console(), result.summary()
    out.print(result.network or "measured only", markup=False)
    for piece in grid.fitted(out.width):
        out.print(piece.rich())
        out.print()
    if result.scaling is not None:
        out.print(result.scaling.table())
        out.print()
    out.print(" ".join(grid.notes), markup=False)
    print_list(out, result.notes)
    if result.fix:
        out.print()
        out.print("The fix:")
        out.print(result.fix, markup=False)
