"""Chapter (g): what the page rests on. Papers, equations, commands that give every figure."""

from __future__ import annotations

from dynagram.networks import MLP
from dynagram.report._blocks import Code, Heading, Section, Table, Text
from dynagram.report.story._subject import Subject

TITLE = "What it rests on"
_PAPERS = (
    ("Signals, gradients, trained outputs at order 1/n, advice",
     "Roberts, Yaida, Hanin, The Principles of Deep Learning Theory, arXiv:2106.10165",
     "K (4.118), V (4.119), G1 (4.115); training (∞.160)-(∞.165); advice (5.55), (9.28), (11.62)"),
    ("Gram matrices, virtual covariance, target linearity",
     "Cha, Beaglehole, Radhakrishnan, Lee, The Weight Gram Matrix Captures Sequential Feature "
     "Linearization in Deep Networks, arXiv:2605.06258",
     "docs/theory/weight-gram.md"),
    ("Plateaus and escape times",
     "Rawal, DeWeese, A Theory of Saddle Escape in Deep Nonlinear Networks, arXiv:2605.01288",
     "docs/theory/saddle.md, docs/derivations/escape-times.md and surrogate-flow.md"),
    ("What dynagram derives itself", "docs/derivations",
     "trained outputs (D1.14), forecast of any weights, next order in 1/n"),
)  # fmt: skip


def tell_sources(subject: Subject) -> Section:
    """Which papers, which equations, which commands."""
    rows = [list(row) for row in _PAPERS]
    return Section(
        TITLE,
        [
            Text(
                "Each figure and table above unfolds the calls that give its numbers; they run "
                "after the lines at the end of this page. These are the papers behind them, and "
                "the problem."
            ),
            Table(["about", "paper", "equations"], rows),
            Heading("The whole page again"),
            Code(subject.command),
            *_problem(subject),
        ],
    )


def _problem(subject: Subject) -> list[Heading | Code]:
    network: MLP = subject.network
    maker = subject.python.partition("(")[0]
    given = "# model, data: yours (Model.of, load_weights; Data)\n" if subject.model else ""
    own = ", subject.model" if subject.model is not None else ""
    python = (
        f"from dynagram.report.story import {maker}\n"
        f"{given}subject = {subject.python}\n"
        f"network, data, batch, how{', model' if own else ''} = (\n"
        f"    subject.network, subject.data, subject.batch, subject.how{own}\n"
        ")\n"
        f"x = data.inputs{'[[0, 1, -1]]' if len(subject.data.inputs) > 2 else ''}"
    )
    config = subject.config or network.to_toml() + subject.how.to_toml()
    name = "The problem, as problem.toml" if subject.has_file else "Network and training, as TOML"
    return [
        Heading(name),
        Code(config.strip()),
        Heading("In Python, for the calls above"),
        Code(python),
    ]
