"""`dynagram bayes`: which networks the targets make probable, and what observing them moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynagram.cli._options import Json
from dynagram.cli._output import console, narrow_table, print_json, short
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.data import Data
    from dynagram.networks import MLP, Chain
    from dynagram.theory.bayes._hypotheses import Hypotheses
    from dynagram.training import Posterior
else:
    # imported when the command runs, so that --help stays quick
    Data = MLP = Chain = Hypotheses = Posterior = object


def bayes(
    configs: Annotated[
        list[Path],
        typer.Argument(help="TOML files with tables network, data and posterior, the same data."),
    ],
    order: Annotated[str, typer.Option(help="infinite, or 1/n.")] = "1/n",
    accuracy: Annotated[
        float | None,
        typer.Option(help="Numerical error allowed in four-sample averages, relative."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of quadrature nodes.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare networks by their evidence, the probability of the training targets under each.

    Every file is a hypothesis; all must have the same data and the same noise. Printed are the log
    evidence at infinite width and to order 1/n, Bayes factors and probabilities, the score of test
    targets where there are any, and how far the targets move the hidden layers of each MLP.
    What a network outputs given the targets is `dynagram train-predict` of the same file.
    """
    from dynagram.networks import MLP
    from dynagram.theory.bayes import compare_hypotheses, log_predictive_density

    networks, data, posterior = _read(configs)
    hypotheses = compare_hypotheses(
        networks, data, posterior, order=order, accuracy=accuracy, seed=seed
    )
    scores = [
        None
        if data.test_y is None
        else log_predictive_density(network, data, posterior, order=order)
        for network in networks
    ]
    shifts = [
        None
        if order == "infinite" or not isinstance(network, MLP)  # of blocks, not predicted
        else _shifts(network, data, posterior, accuracy, seed)
        for network in networks
    ]
    rows = _rows([str(path) for path in configs], hypotheses, scores, shifts)
    if as_json:
        order_label, noise = hypotheses.evidences[0].order, posterior.noise
        print_json({"order": order_label, "noise": noise, "networks": rows})
    else:
        _print(data, posterior, rows, order)


def _read(configs: list[Path]) -> tuple[list[MLP | Chain], Data, Posterior]:
    """The networks of the files, and the data and the noise that all of them share."""
    import numpy as np

    from dynagram.config import read_config
    from dynagram.training import Posterior

    networks, data, posterior = [], None, None
    for path in configs:
        problem = read_config(path)
        if not isinstance(problem.how, Posterior):
            allowed = "expected a [posterior] table, not [training]"
            raise InvalidValueError("config", str(path), allowed)
        if data is None or posterior is None:
            data, posterior = problem.data, problem.how
        same = all(
            np.array_equal(getattr(problem.data, name), getattr(data, name))
            for name in ("x", "y", "test_x")
        )
        if not same or problem.how != posterior:
            allowed = "expected the data and the noise of the first file"
            raise InvalidValueError("config", str(path), allowed)
        networks.append(problem.network)
    assert data is not None
    assert posterior is not None
    return networks, data, posterior


def _shifts(
    network: MLP, data: Data, posterior: Posterior, accuracy: float | None, seed: int
) -> list[float]:
    """The largest posterior shift of σσ on a training input, layer by layer."""
    import numpy as np

    from dynagram.theory.bayes import representation_shift

    shift = representation_shift(network, data, posterior, accuracy=accuracy, seed=seed)
    diagonals = np.diagonal(shift.activation_shift, axis1=1, axis2=2)[:, : data.x.shape[0]]
    return [float(layer[np.argmax(np.abs(layer))]) for layer in diagonals]


def _rows(
    names: list[str],
    hypotheses: Hypotheses,
    scores: list[float | None],
    shifts: list[list[float] | None],
) -> list[dict[str, Any]]:
    return [
        {
            "config": name,
            "network": str(network),
            "log_evidence_infinite": evidence.infinite,
            "log_evidence": evidence.value,
            "log_bayes_factor": float(factor),
            "probability": float(probability),
            "log_predictive_density": score,
            "representation_shift": shift,
        }
        for name, network, evidence, factor, probability, score, shift in zip(
            names, hypotheses.networks, hypotheses.evidences, hypotheses.log_bayes_factors,
            hypotheses.probabilities, scores, shifts, strict=True,
        )
    ]  # fmt: skip


def _print(data: Data, posterior: Posterior, rows: list[dict[str, Any]], order: str) -> None:
    out, noise = console(), short(posterior.noise)
    out.print(f"{data.x.shape[0]} samples with noise variance {noise}, order {order}")
    table = narrow_table("network", "log p(y), ∞", "log p(y)", "log factor", "p", "log p(test)")
    for row in rows:
        score = row["log_predictive_density"]
        table.add_row(
            Path(row["config"]).name, short(row["log_evidence_infinite"]),
            short(row["log_evidence"]), short(row["log_bayes_factor"]), short(row["probability"]),
            "–" if score is None else short(score),
        )  # fmt: skip
    out.print(table)
    for row in rows:
        out.print(f"{Path(row['config']).name}: {row['network']}", markup=False)
        if row["representation_shift"]:
            moved = ", ".join(short(value) for value in row["representation_shift"])
            out.print(f"  largest shift of σσ on a training input, layers 1…: {moved}")
