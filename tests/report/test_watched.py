"""The page of a watched training: lines, ranges, alerts; damaged, hostile and long runs."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram.cli import app
from dynagram.errors import InvalidValueError
from dynagram.report._watch_charts import extremes, history_chart
from dynagram.watch import Alert, Band, Record, RunFolder, read_watch

HOSTILE = '<img src=x onerror="document.title=1">'
LAYERS = ["first", HOSTILE, "third"]
NAMES = ["loss", "rate", "top_eigenvalue", "plateau", "weight_norm", "activation", "linearity"]
LIMIT = Band(None, 0.0, 2.0)
DRAWN = Band(1.0, 0.8, 1.2, "redrawn", (0.7, 1.3))


def record(step, *, end):
    values = {("loss", ""): 3.0 * 0.99**step, ("rate", ""): 0.1, ("top_eigenvalue", ""): 1.0}
    values["plateau", ""] = 1.0
    bands, alerts = {("top_eigenvalue", ""): LIMIT}, ()
    for index, layer in enumerate(LAYERS):
        values["weight_norm", layer] = 1.0 + index + 0.01 * step
        values["activation", layer] = 10.0**index
        values["linearity", layer] = -40.0 if step == 0 else 0.5
        bands["activation", layer] = DRAWN
    if step == end:
        values["top_eigenvalue", ""] = 4.0
        words = f"step {step}: too large {HOSTILE}"
        alerts = (Alert(step, "warning", "top_eigenvalue", "", words),)
        bands["top_eigenvalue", ""] = Band(None, 0.0, 3.0)
    return Record(step, 0.1 * step + 0.1, 0.01, values=values, bands=bands, alerts=alerts)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "it's a run"
    sink = RunFolder(folder)
    sink.begin(LAYERS, NAMES)
    for step in range(0, 50, 10):
        sink.write(record(step, end=40))
    sink.close()
    return folder


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def rows(chart):
    """The data of all layers of a chart, as the page has them."""

    def found(part):
        if isinstance(part, dict):
            return part.get("values", []) + [row for inner in part.values() for row in found(inner)]
        return [row for inner in part for row in found(inner)] if isinstance(part, list) else []

    return found(chart.to_dict())


def test_ranges_hold_from_their_step_on(run):
    shown = [row for row in rows(history_chart(read_watch(run), "top_eigenvalue")) if "y" in row]
    assert [row["y"] for row in shown] == pytest.approx([1.0, 1.0, 1.0, 1.0, 4.0], rel=1e-4)
    assert [row["to"] for row in shown] == [2.0, 2.0, 2.0, 2.0, 3.0]
    assert read_watch(run).bands["top_eigenvalue", ""].high == 3.0


def test_alerts_stand_at_their_number(run):
    marks = [row for row in rows(history_chart(read_watch(run), "top_eigenvalue")) if "said" in row]
    assert [(row["step"], round(row["value"], 3)) for row in marks] == [(40, 4.0)]
    assert "too large" in marks[0]["said"]


def test_every_layer_is_a_line_and_one_outlier_hides_no_other(run):
    chart = history_chart(read_watch(run), "linearity")
    assert {row["name"] for row in rows(chart)} == set(LAYERS)
    text = str(chart.to_dict())
    low = min(float(part) for part in re.findall(r"'domain': \[(-[\d.]+)", text))
    assert -2.0 < low < -0.9


def test_what_was_not_recorded_is_named(run):
    with pytest.raises(InvalidValueError, match="nothing is recorded of it; there are loss, rate"):
        history_chart(read_watch(run), "dead")


def test_a_spike_of_a_long_run_is_drawn():
    values = np.random.default_rng(0).normal(size=100_000)
    values[54_321] = 99.0
    kept = extremes(values, 400)
    assert len(kept) <= 400
    assert {0, 54_321, 99_999} <= set(kept.tolist())


def test_the_page_tells_the_run(run, tmp_path):
    result = report(run, "-o", tmp_path / "page")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert HOSTILE not in page  # names stay text
    for words in ("5 records of 3 layers, from step 0 to 40", "133 % of its limit", "too large",
                  "stands on a plateau", "2 of 3", "Layer by layer"):  # fmt: skip
        assert words in page, words
    assert "dynagram report &#x27;" in page or "dynagram report &quot;" in page


def test_the_page_of_a_damaged_run_says_so(run, tmp_path):
    file = run / "records.bin"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert report(run, "-o", tmp_path / "page").exit_code == 0
    assert "The file of records is damaged" in (tmp_path / "page" / "index.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--lr", "0.1"], "--lr = 0.1: does not go with the folder of a watch"),
     (["--quick"], "--quick = True: does not go with the folder of a watch")],
)  # fmt: skip
def test_options_that_change_nothing_are_refused(run, tmp_path, options, words):
    result = report(run, *options, "-o", tmp_path / "page")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_a_run_without_records_is_refused_in_one_line(tmp_path):
    sink = RunFolder(tmp_path / "run")
    sink.begin(LAYERS, NAMES)
    sink.close()
    result = report(tmp_path / "run", "-o", tmp_path / "page")
    assert result.exit_code == 2
    assert "holds no record yet" in result.stderr
    assert not (tmp_path / "page" / "index.html").exists()
