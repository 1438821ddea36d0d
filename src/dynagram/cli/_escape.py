"""`dynagram escape`: how long a small network sits on its plateau before it learns a mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import (
    console,
    narrow_table,
    per_layer,
    print_json,
    print_list,
    short,
    working,
)
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.theory.saddle import SymmetricNetwork
    from dynagram.theory.saddle._escape import EscapeTimes
else:
    EscapeTimes = SymmetricNetwork = object  # imported when the command runs


def escape(
    activation: ActivationName,
    depth: Annotated[int, typer.Option(help="L, the number of weight matrices.")],
    width: Annotated[int, typer.Option(help="N, the size of every hidden layer.")],
    scale: Annotated[
        str, typer.Option(help="Initial scale of the layers, or one per layer, with commas.")
    ],
    bottleneck: Annotated[
        int | None, typer.Option(help="Only the first r layers have that scale.")
    ] = None,
    rest: Annotated[float, typer.Option(help="Scale of the layers after the bottleneck.")] = 1.0,
    threshold: Annotated[float, typer.Option(help="X_1 at which the network has escaped.")] = 0.3,
    beta: Annotated[float, typer.Option(help="Amplitude of the target β σ(v·x).")] = 1.0,
    clock: Annotated[
        str, typer.Option(help="reduced (t), matrix (s = N t) or steps (s = η × steps).")
    ] = "reduced",
    lr: Annotated[
        float | None,
        typer.Option("--lr", help="η of the first layer, 1/N of it for the others; with steps."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Escape time from a small symmetric start: two closed forms and the exact reduced flow."""
    from dynagram.theory.saddle import clock as make_clock
    from dynagram.theory.saddle import escape_times

    if (clock == "steps") != (lr is not None):
        raise InvalidValueError("--lr", lr, "needed with --clock steps, and only there")
    network = _network(activation, depth, width, scale, bottleneck, rest, beta)
    with working("following the reduced flow"):
        times = escape_times(network, threshold, make_clock(clock, width=width, learning_rate=lr))
    if as_json:
        print_json(_as_json(network, times))
    else:
        _print(network, times)


def _network(
    activation: str,
    depth: int,
    width: int,
    scale: str,
    bottleneck: int | None,
    rest: float,
    beta: float,
) -> SymmetricNetwork:
    from dynagram.theory.saddle import SymmetricNetwork

    scales = per_layer("--scale", scale)
    if not isinstance(scales, list):
        return SymmetricNetwork.balanced(
            activation, depth=depth, width=width, scale=scales, bottleneck=bottleneck, rest=rest,
            beta=beta,
        )  # fmt: skip
    if len(scales) != depth:
        raise InvalidValueError("--scale", scale, f"one number, or one per layer: {depth}")
    if bottleneck is not None:
        raise InvalidValueError("--bottleneck", bottleneck, "only with a single --scale")
    return SymmetricNetwork(activation, scales, width, beta)


def _as_json(network: SymmetricNetwork, times: EscapeTimes) -> dict[str, Any]:
    kind = times.activation_class
    return {
        "activation": network.activation.name,
        "class": kind.name,
        "alpha": kind.alpha,
        "h": kind.h,
        "scales": network.scales,
        "threshold": times.threshold,
        "clock": times.clock.name,
        "K": times.K,
        "leading": times.leading,
        "next_to_leading": times.next_to_leading,
        "ode": times.ode,
        "notes": times.notes,
    }


def _print(network: SymmetricNetwork, times: EscapeTimes) -> None:
    out = console()
    kind = times.activation_class
    scales = ", ".join(f"{X:g}" for X in network.scales)
    out.print(
        f"{network.activation.name}, class {kind.name}, depth {network.depth}, width "
        f"{network.width}, scales {scales}"
    )
    out.print(f"X_1 reaches {times.threshold:g} at, in {times.clock.words}:")
    table = narrow_table("law", "time", "against the ODE")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {"leading": times.leading, "next to leading": times.next_to_leading}
    for name, time in rows.items():
        ratio = time / times.ode - 1.0
        table.add_row(name, short(time, 7), "–" if ratio != ratio else f"{100 * ratio:+.2f} %")
    table.add_row("reduced ODE", short(times.ode, 7), "exact")
    out.print(table)
    out.print(f"K = {short(times.K, 7)} on this clock: dX/dt = K × the other layers' scales.")
    print_list(out, times.notes)
