"""`dynagram critical`: how to initialise with this activation or architecture, and why."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dynagram.cli._options import DEEPEST, ArchitectureName, GradientBands, Tokens, Trust
from dynagram.cli._output import console, print_json, print_list, short, tell
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.theory._initialisation import Initialisation
    from dynagram.theory.criticality import CriticalPoint
else:
    Initialisation = CriticalPoint = object  # imported when the command runs


def critical(
    activation: Annotated[
        str | None,
        typer.Argument(
            help="A name such as gelu, a name with numbers such as leaky_relu(0.2), or "
            "package.module:function for your own."
        ),
    ] = None,
    arch: ArchitectureName = None,
    cb: Annotated[float | None, typer.Option(help="Judge this bias variance C_b.")] = None,
    cw: Annotated[
        float | None, typer.Option(help="Judge this weight variance C_W (times fan-in).")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    width: Annotated[int | None, typer.Option(help="Neurons in a hidden layer.")] = None,
    tokens: Tokens = 4,
    bands: GradientBands = "cheap",
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure: .svg, .png or .html.")
    ] = None,
) -> None:
    """How to initialise a network with this activation so that depth does it no harm, and why.

    With --arch, what depth does to a transformer, a convolutional or a residual network before it
    has learned anything: growth of the stream, similarity of tokens, gradients of every block, with
    their spread between networks, and how other scalings of its branches compare.
    """
    if plot is not None:
        from dynagram.report._export import check_plot_path

        check_plot_path(plot)
    if arch is not None:
        from dynagram.cli._architecture import show_architecture

        for name, value in (("ACTIVATION", activation), ("--cb", cb), ("--cw", cw)):
            if value is not None:
                raise InvalidValueError(name, value, "--arch has its own: leave this out")
        show_architecture(arch, tokens, width, depth, bands, as_json=json, plot=plot)
        return
    if activation is None:
        raise InvalidValueError("ACTIVATION", None, "needed, unless --arch is given")
    if cw is not None and cw <= 0:
        raise InvalidValueError("--cw", cw, "must be > 0")
    if depth is not None and not 1 <= depth <= DEEPEST:
        raise InvalidValueError("--depth", depth, f"expected 1 to {DEEPEST}")
    if width is not None and width < 1:
        raise InvalidValueError("--width", width, "a width must be at least 1")
    from dynagram.theory._initialisation import examine_initialisation

    answer = examine_initialisation(activation, cb, cw, depth=depth, width=width)
    if plot is not None:
        from dynagram.report import save
        from dynagram.report._criticality_figure import criticality_figure

        figure = criticality_figure(answer, depth or 100)
        tell(f"wrote {save(figure, plot, title=f'Criticality of {answer.sigma.name}')}")
    if json:
        print_json(_as_json(answer))
    else:
        _print(answer)


def _notes(answer: Initialisation) -> list[str]:
    """What is to be known about the critical point, and about the name in other frameworks."""
    from dynagram.report.prose._initialisation import FRAMEWORK_NOTES

    notes = list(answer.points[0].notes) if answer.points else []
    name = answer.sigma.name
    return [*notes, FRAMEWORK_NOTES[name]] if name in FRAMEWORK_NOTES else notes


def _as_json(answer: Initialisation) -> dict[str, Any]:
    from dynagram.report.prose._initialisation import without_criticality

    keys = ("activation", "class", "C_b", "C_W", "K_star", "chi_parallel", "chi_perp")
    data: dict[str, Any] = dict.fromkeys((*keys, "exponents", "notes"))
    data |= {"activation": answer.sigma.name, "class": "none", "notes": _notes(answer)}
    if answer.points:
        point = answer.points[0]
        parallel, perpendicular = _factors(answer)
        data |= {
            "class": point.kind,
            "C_b": point.C_b,
            "C_W": point.C_W,
            "K_star": point.K_star,
            "chi_parallel": parallel,
            "chi_perp": perpendicular,
            "exponents": asdict(point.exponents),
        }
    else:
        data["notes"].append(without_criticality(answer.reason))
    if answer.line:
        low, high = answer.line[0].line or (None, None)
        data["line"] = {
            "K_star_from": low,
            "K_star_to": high,
            "points": [{"K_star": p.K_star, "C_b": p.C_b, "C_W": p.C_W} for p in answer.line],
        }
    if answer.given is not None and answer.phase is not None:
        data["given"] = {
            "C_b": answer.given[0],
            "C_W": answer.given[1],
            "phase": answer.phase.verdict,
            "reason": answer.phase.reason,
            "fixed_points": [
                {
                    "K": fixed.K,
                    "chi_parallel": fixed.chi_parallel,
                    "chi_perp": fixed.chi_perpendicular,
                    "xi_parallel": fixed.xi_parallel,
                    "xi_perp": fixed.xi_perpendicular,
                    "stability": fixed.stability,
                }
                for fixed in answer.fixed_points
            ],
        }
    if answer.at_depth is not None:
        data["at_depth"] = answer.at_depth
    return data


def _factors(answer: Initialisation) -> tuple[float, float]:
    """χ∥ and χ⊥ at the critical point; any K where all are fixed."""
    from dynagram.theory.criticality import parallel_susceptibility, perpendicular_susceptibility

    point, sigma = answer.points[0], answer.sigma
    K = 1.0 if point.K_star is None else point.K_star
    return (
        float(parallel_susceptibility(sigma, K, point.C_W)),
        float(perpendicular_susceptibility(sigma, K, point.C_W)),
    )


def _print(answer: Initialisation) -> None:
    from dynagram.report.prose._initialisation import (
        jax_lines,
        paragraph,
        pytorch_lines,
        without_criticality,
    )

    out = console()
    table = Table(show_header=False, box=None, pad_edge=False, title_justify="left")
    table.title = f"[bold]{answer.sigma.name}[/bold]"
    for label, value in _rows(answer):
        table.add_row(label, value)
    out.print(table)
    out.print()
    out.print(paragraph(answer.points[0]) if answer.points else without_criticality(answer.reason))
    print_list(out, _notes(answer))
    if answer.line:
        _print_line(answer.line)
    if answer.given is not None:
        _print_given(answer)
    if answer.at_depth is not None:
        _print_depth(answer.at_depth)
    if answer.critical is not None:
        out.print("\n[bold]PyTorch[/bold], the critical initialisation")
        print(pytorch_lines(*answer.critical))
        out.print("\n[bold]JAX[/bold], the same (flax and others take these initialisers)")
        print(jax_lines(*answer.critical))


def _rows(answer: Initialisation) -> list[tuple[str, str]]:
    if not answer.points:
        return [("class", "none: no critical initialisation")]
    point = answer.points[0]
    powers = point.exponents
    parallel, perpendicular = _factors(answer)
    name = point.stability if point.kind in point.stability else f"{point.kind}, {point.stability}"
    rows = [
        ("class", name),
        ("C_b  bias variance", f"{point.C_b:.10g}"),
        ("C_W  weight variance × fan-in", f"{point.C_W:.10g}"),
        ("K*   fixed point", "every K" if point.K_star is None else f"{point.K_star:.10g}"),
        ("χ∥, χ⊥  factors per layer", f"{parallel:.10g}, {perpendicular:.10g}"),
        ("ξ∥, ξ⊥  correlation depths", "∞, ∞ (powers of the depth ℓ instead)"),
    ]
    laws = [
        ("K", powers.p_0, "signal variance"),
        ("δ∥", powers.p_parallel, "difference of norms"),
        ("δ⊥", powers.p_perpendicular, "squared distance"),
        ("V", powers.p_V, "four-point vertex"),
    ]
    if point.kind == "half-stable":
        laws = []
        rows.append(("depth laws", "only after thousands of layers, see below"))
    rows += [
        (f"{symbol:<4} {meaning}", f"~ ℓ^{-power + 0.0:.4g}")
        for symbol, power, meaning in laws
        if power is not None
    ]
    for other in answer.points[1:]:
        rows.append(
            (
                "also critical",
                f"(C_b, C_W) = ({other.C_b:.6g}, {other.C_W:.6g}), K* = {short(other.K_star)}, "
                f"{other.stability}",
            )
        )
    return rows


def _print_line(points: tuple[CriticalPoint, ...]) -> None:
    out, span = console(), points[0].line_range
    out.print(f"\n[bold]A line of critical points[/bold], one for every K* {span}")
    table = Table("K*", "C_b", "C_W", "")
    for point in points:
        table.add_row(short(point.K_star), f"{point.C_b:.8g}", f"{point.C_W:.8g}", point.stability)
    out.print(table)


def _print_given(answer: Initialisation) -> None:
    assert answer.given is not None
    assert answer.phase is not None
    out, (C_b, C_W) = console(), answer.given
    out.print(
        f"\n[bold]Your choice C_b = {C_b:.6g}, C_W = {C_W:.6g}: {answer.phase.verdict}[/bold]"
    )
    out.print(f"{answer.phase.reason}.", markup=False)
    point = answer.nearest or (answer.points[0] if answer.points else None)
    if answer.nearest is not None:
        K_star, C_b_there = answer.nearest.K_star, answer.nearest.C_b
        out.print(
            f"The line of critical points has this C_W at K* = {short(K_star)}, "
            f"C_b = {C_b_there:.6g}."
        )
    if point is not None:
        out.print(
            f"Distance from the critical point: C_b {C_b - point.C_b:+.4g}, "
            f"C_W {100 * (C_W / point.C_W - 1):+.3g} %."
        )
    if not answer.fixed_points:
        return
    table = Table("fixed point K", "χ∥", "χ⊥", "ξ∥ (layers)", "ξ⊥ (layers)", "")
    for fixed in answer.fixed_points:
        table.add_row(
            "every K" if fixed.K is None else short(fixed.K),
            short(fixed.chi_parallel),
            short(fixed.chi_perpendicular),
            short(fixed.xi_parallel, 4),
            short(fixed.xi_perpendicular, 4),
            fixed.stability,
        )
    out.print(table)
    out.print("ξ: layers over which a difference shrinks by a factor e; negative: it grows.")


def _print_depth(size: dict[str, Any]) -> None:
    out = console()
    depth, width = size["depth"], size["width"]
    out.print("\n[bold]At your size[/bold] (inputs with Σx²/n_0 = 1)")
    if depth is not None:
        out.print(f"K at layer {depth}: {short(size['K'])}")
        if size["perpendicular_gain"] is not None:
            out.print(
                "Squared distances of nearby inputs, and squared gradients on the way back, are "
                f"multiplied by {short(size['perpendicular_gain'], 3)} over these layers."
            )
        growth = size["relative_fluctuation_times_width"]
        if width is None and growth is not None:
            out.print(
                f"Two draws differ by V/(nK²) = {short(growth, 4)}/width: for less than 10 % take "
                f"a width of at least {10 * growth:.0f}."
            )
        elif width is not None:
            out.print(
                f"depth/width = {short(size['depth_over_width'], 3)}: two draws differ by "
                f"V/(nK²) = {short(size['relative_fluctuation'], 3)}, the mean is shifted by "
                f"{short(size['relative_shift_of_the_mean'], 2)}, the next order is "
                f"{short(size['relative_size_of_the_next_order'], 2)} of this one."
            )
            out.print(f"Can the 1/n theory be used here? [bold]{size['verdict']}[/bold]")
            print_list(out, size["reasons"])
    if "renormalised_C_W" in size:
        out.print(
            f"At width {width}, C_W = {size['renormalised_C_W']:.8g} in the hidden layers keeps "
            "the mean on the law of infinite width (5.142)."
        )
