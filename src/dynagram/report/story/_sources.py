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
                "Each figure and table above unfolds the calls that give its numbers. These are "
                "the papers behind them, and the problem as a file."
            ),
            Table(["about", "paper", "equations"], rows),
            Heading("The whole page again"),
            Code(subject.command),
            *_problem(subject),
        ],
    )


def _problem(subject: Subject) -> list[Heading | Code]:
    network: MLP = subject.network
    python = (
        "from dynagram import Data, Model, Training, GradientDescent\n"
        "from dynagram.config import read_config\n"
        'problem = read_config("problem.toml")\n'
        "network, data, how = problem.network, problem.data, problem.how\n"
        "x = data.inputs[[0, 1, -1]]"
    )
    config = subject.config or network.to_toml() + subject.how.to_toml()
    return [
        Heading("The problem, as problem.toml"),
        Code(config.strip()),
        Heading("In Python, for the calls above"),
        Code(python),
    ]
