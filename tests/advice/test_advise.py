"""`dynagram.advise`: one answer whose sentences agree with each other and with their sources."""

import json
from pathlib import Path

import numpy as np
import pytest

import dynagram
from dynagram import MLP, Data
from dynagram.advice import Advice, advise_rates, initialise
from dynagram.advice._others import USUAL
from dynagram.advice._sentences import EVIDENCE
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Architecture

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(40, 6)) + 1.0, RNG.normal(size=(40, 2))
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "advice.json"


def net(name="tanh", depth=5, skip=0.0):
    return MLP([6, *[16] * (depth - 1), 2], name, C_b=0.0, C_W=1.0, skip=skip)


@pytest.fixture(scope="module")
def advice():
    return dynagram.advise(net(), Data(X, Y))


def test_all_of_it_is_there(advice):
    assert isinstance(advice, Advice)
    assert not advice.is_stand_in
    assert len(advice.sentences) <= 10
    assert all(sentence.source for sentence in advice.sentences)
    assert [start.name for start in advice.starts] == [*USUAL, "advised"]
    z = advice.model.network.preactivations(advice.model.params, X)
    assert float(z[1].var(axis=0).mean()) == pytest.approx(advice.point.variance, rel=1e-6)
    assert repr(advice).startswith("Advice(tanh, 5 layers: sgd, rate ")
    json.dumps(advice.to_dict(), allow_nan=False)
    assert "theory (D15.1)" in advice.references
    assert "<table" in advice._repr_html_()


def test_one_judgement_of_depth():
    for depth, word in ((4, "few"), (60, "many")):
        texts = [s.text for s in dynagram.advise(net("relu", depth), Data(X, Y)).sentences]
        judged = [text for text in texts if text.startswith("Depth")]
        assert len(judged) == 1
        assert f"layers are {word} for relu" in judged[0]
    with_skips = dynagram.advise(net("relu", 60, skip=1.0), Data(X, Y)).sentences
    assert [s.source for s in with_skips if s.text.startswith("Depth")] == [
        "convention, as depth-μP"
    ]


def test_what_usual_initialisations_do():
    """Kaiming keeps ReLU's signal, PyTorch's default shrinks it by 6 a layer (C_W = 1/3)."""
    data = Data(RNG.normal(size=(50, 6)), RNG.normal(size=(50, 2)))
    wide = MLP([6, *[256] * 9, 2], "relu", C_b=0.0, C_W=2.0)
    starts = {start.name: start for start in dynagram.advise(wide, data).starts}
    assert starts["advised"].signal == pytest.approx(1.0, rel=1e-4)
    # Of the variance over the data ReLU keeps less than of the mean square: angles close.
    assert 0.02 < starts["Kaiming"].signal < 1.0
    assert starts["PyTorch default"].signal == pytest.approx(
        starts["Kaiming"].signal * 6.0**-8, rel=3.0
    )


def test_evidence_is_that_of_the_benchmark():
    rows = json.loads(RESULTS.read_text())
    counted = dict.fromkeys(EVIDENCE, (0, 0))
    for row in rows:
        floor = 1e-3 * row["chance"]
        best = min(
            max(row[who]["loss"], floor) for who in row if who not in ("cell", "chance", "ours")
        )
        *_, is_mini, has_skips = row["cell"]
        won, cells = counted[has_skips, is_mini]
        is_won = max(row["ours"]["loss"], floor) <= 1.1 * best
        counted[has_skips, is_mini] = (won + is_won, cells + 1)
    assert counted == EVIDENCE
    assert len({tuple(row["cell"]) for row in rows}) == len(rows)


def test_what_is_said_of_inputs():
    """Nothing of inputs in units of one; their rate where it is another; columns of other units."""
    texts = [
        [s.text for s in dynagram.advise(net(), Data(x, Y)).sentences if "Inputs" in s.text]
        for x in ((X - 1.0), 20.0 * X, X * np.array([1e3, 1, 1, 1, 1, 1]))
    ]
    assert texts[0] == []
    assert "the weights that see them step" in texts[1][0]
    assert "variance is that of 1 of 6 columns" in texts[2][1]


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adamw"])
def test_other_optimizers(optimizer):
    advice = dynagram.advise(net(), Data(X, Y), optimizer=optimizer, batch=8)
    assert advice.rates.optimizer == optimizer
    assert any("measured rule" in sentence.source for sentence in advice.sentences)


def test_a_batch_is_drawn_from_all_of_the_data():
    """Of a file sorted by class the first samples would be one class only."""
    x = np.concatenate([RNG.normal(size=(60, 6)), 50.0 * RNG.normal(size=(60, 6))])
    data = Data(x, np.repeat(np.eye(2), 60, axis=0))
    model = initialise(net(), data.x)
    rates = [
        advise_rates(model, data if flip else Data(x[::-1], data.y[::-1]), batch=30).layers[-1]
        for flip in (False, True)
    ]
    assert 0.5 < rates[0] / rates[1] < 2.0


def test_random_data_stand_in():
    for loss in ("mean", "cross-entropy", "half-sum", "logistic"):
        advice = dynagram.advise(net(), loss=loss)
        assert advice.is_stand_in
        assert "give your own data" in advice.sentences[-1].text


def test_refusals():
    with pytest.raises(InvalidTypeError, match="expected an MLP"):
        dynagram.advise("relu")
    with pytest.raises(InvalidValueError, match="has 2 outputs"):
        dynagram.advise(net(), Data(X, Y[:, :1]))
    with pytest.raises(InvalidValueError, match="at least two layers"):
        dynagram.advise(Architecture([6, 2], "relu"), Data(X, Y))
    with pytest.raises(InvalidValueError, match="expected one of sgd"):
        dynagram.advise(net(), optimizer="lion")
