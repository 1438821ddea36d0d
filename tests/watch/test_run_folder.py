"""The run folder: crash-safe, resumable, small; and the command that shows it."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from typer.testing import CliRunner

import dynagram.watch
from dynagram.cli import app
from dynagram.ensembles.store import RunError
from dynagram.errors import InvalidValueError
from dynagram.watch import QUANTITIES, Band, JsonLines, Record, RunFolder, read_watch
from dynagram.watch._history import columns_of

LAYERS = ["fc1", "fc2"]
NAMES = ["loss", "weight_norm", "dead"]


def record(step, loss=1.0, **more):
    values = {("loss", ""): loss, ("weight_norm", "fc1"): 2.0 + step, ("dead", "fc2"): 0.25}
    return Record(step, 0.5 * step, 0.01, values=values, **more)


def write(folder, steps, start=None, **options):
    sink = RunFolder(folder, start)
    sink.begin(LAYERS, NAMES)
    for step in steps:
        sink.write(record(step, **options))
    sink.close()


def test_numbers_come_back(tmp_path):
    write(tmp_path / "run", range(0, 1000, 5), loss=1 / 3)
    history = read_watch(tmp_path / "run")
    assert history.steps.tolist() == list(range(0, 1000, 5))
    np.testing.assert_allclose(history.values["loss"], 1 / 3, rtol=2e-5)
    np.testing.assert_allclose(history.values["weight_norm"][:, 0], 2.0 + history.steps, rtol=2e-5)
    assert np.all(np.isnan(history.values["weight_norm"][:, 1]))
    assert history.to_xarray().dead.sel(layer="fc2").values.tolist() == [0.25] * 200


@pytest.mark.parametrize("lost", [1, 7, 30])
def test_half_a_record_at_the_end_is_dropped_and_written_over(tmp_path, lost):
    folder = tmp_path / "run"
    write(folder, range(70))
    file = folder / "records.bin"
    os.truncate(file, file.stat().st_size - lost)
    with open(folder / "events.jsonl", "ab") as events:
        events.write(b'{"event": "ale')
    kept = read_watch(folder).steps.tolist()
    assert kept == list(range(len(kept)))
    assert 67 <= len(kept) < 70
    write(folder, range(len(kept), 75))
    assert read_watch(folder).steps.tolist() == list(range(75))
    for line in (folder / "events.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_damaged_record_ends_what_can_be_read(tmp_path):
    write(tmp_path / "run", range(20))
    data = bytearray((tmp_path / "run" / "records.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "run" / "records.bin").write_bytes(data)
    history = read_watch(tmp_path / "run")
    assert 5 < len(history.steps) < 15
    assert history.lost == len(data) - history.end
    text = " ".join(show(tmp_path / "run").stdout.split())
    assert f"{history.lost} bytes after this step cannot be read" in text
    # A length that cannot be is no frame that is being written.
    data[history.end : history.end + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "run" / "records.bin").write_bytes(data)
    assert read_watch(tmp_path / "run").lost == history.lost
    (tmp_path / "run" / "records.bin").write_bytes(data[: history.end + 3])
    assert read_watch(tmp_path / "run").lost == 0


def test_going_on_from_a_checkpoint_drops_what_came_after(tmp_path):
    write(tmp_path / "run", range(0, 100, 10))
    write(tmp_path / "run", range(50, 80, 10), start=45, loss=9.0)
    history = read_watch(tmp_path / "run")
    assert history.steps.tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    assert history.values["loss"].tolist() == [1.0] * 5 + [9.0] * 3


def test_another_model_or_writer_is_refused(tmp_path):
    write(tmp_path / "run", [0])
    other = RunFolder(tmp_path / "run")
    with pytest.raises(InvalidValueError, match="a watch of other layers"):
        other.begin(["fc1"], NAMES)
    other.close()
    sink = RunFolder(tmp_path / "run")
    sink.begin(LAYERS, NAMES)
    with pytest.raises(RunError, match="is in use by process"):
        RunFolder(tmp_path / "run").begin(LAYERS, NAMES)
    sink.close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    with pytest.raises(InvalidValueError, match="is not an empty folder"):
        RunFolder(tmp_path / "full").begin(LAYERS, NAMES)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1, "layers": [1], "quantities": []}',
             '{"format": 1, "layers": [], "quantities": ["speed"]}', "[" * 100_000],
)  # fmt: skip
def test_a_forged_header_is_one_line(tmp_path, text):
    write(tmp_path / "run", [0])
    (tmp_path / "run" / "watch.json").write_text(text)
    with pytest.raises(InvalidValueError, match="run = ") as caught:
        read_watch(tmp_path / "run")
    assert "\n" not in str(caught.value)


def watched(folder):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 1), torch.randn(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dynagram.watch(model, (x, x[:, :1]), every=1, run=folder) as watcher:
        for _ in range(2):
            model(x).square().mean().backward()
            optimizer.step()
    return watcher


@pytest.mark.parametrize("step", [None, "x", [], {}, 1e308])
def test_events_with_odd_steps_are_not_ours(tmp_path, step):
    watched(tmp_path / "run")
    events = tmp_path / "run" / "events.jsonl"
    with open(events, "a") as file:
        file.write(json.dumps({"event": "alert", "step": step, "sentence": "forged"}) + "\n")
    assert watched(tmp_path / "run").failures == []
    assert "forged" not in events.read_text()


@pytest.mark.parametrize("kind", ["empty", "missing", "folder", "other", "text", "link"])
def test_a_lost_beginning_is_told_and_not_made_up(tmp_path, kind):
    """A drift from a later kernel would be a wrong number."""
    watched(tmp_path / "run")
    start = tmp_path / "run" / "start.npz"
    start.rename(tmp_path / "kept")
    if kind == "empty":
        start.write_bytes(b"")
    elif kind == "folder":
        start.mkdir()
    elif kind == "link":
        start.symlink_to(tmp_path / "kept")
    elif kind != "missing":
        kernel = {"other": np.ones(3), "text": np.array("x")}[kind]
        np.savez(start, kind=np.array("watch start"), about=np.array("{}"), kernel=kernel)
    watcher = watched(tmp_path / "run")
    assert ("kernel_drift", "") not in watcher.last.values
    if kind != "other":
        (line,) = watcher.failures
        assert line.startswith("kernel_drift: the kernel at the beginning is lost: ")


def test_a_folder_that_cannot_be_locked_names_what_reads_it(tmp_path):
    write(tmp_path / "run", [0])
    (tmp_path / "run" / "lock").unlink()
    (tmp_path / "run" / "lock").mkdir()
    with pytest.raises(RunError, match="or read it with dynagram.watch.read_watch"):
        RunFolder(tmp_path / "run").begin(LAYERS, NAMES)


def test_a_writer_that_is_killed_loses_nothing_it_had_written(tmp_path):
    program = f"""
        import itertools, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_run_folder import LAYERS, NAMES, record
        from dynagram.watch import RunFolder
        sink = RunFolder({str(tmp_path / "run")!r})
        sink.begin(LAYERS, NAMES)
        for step in itertools.count():
            sink.write(record(step))
            print(step, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = [int(process.stdout.readline()) for _ in range(200)][-1]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    steps = read_watch(tmp_path / "run").steps
    assert steps.tolist() == list(range(len(steps)))
    assert len(steps) > seen
    write(tmp_path / "run", [len(steps)])  # the lock went with the process
    assert len(read_watch(tmp_path / "run").steps) == len(steps) + 1


@pytest.mark.slow
def test_a_hundred_thousand_records_of_a_transformer_take_less_than_100_mb(tmp_path):
    """26 layers, all quantities, dear ones in turn, numbers that wander by a per cent a record."""
    layers = [f"blocks.{i}" for i in range(26)]
    columns = columns_of(layers, list(QUANTITIES))
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(size=len(columns)))
    sink = RunFolder(tmp_path / "run")
    sink.begin(layers, list(QUANTITIES))
    count = 10_000
    for step in range(count):
        values *= np.exp(0.01 * rng.normal(size=len(columns)))
        row = {
            key: value
            for key, value in zip(columns, values, strict=True)
            if not QUANTITIES[key[0]].turn or layers[step // 3 % 26] == key[1]
        }
        sink.write(Record(step, float(step), 0.01, values=row))
    sink.close()
    size = sum(path.stat().st_size for path in (tmp_path / "run").iterdir())
    assert size * (100_000 / count) < 100e6


@pytest.mark.parametrize(
    "forged",
    [{"low": 10**400}, {"high": "wide"}, {"alarm": [1]}, {"alarm": {}}, {"expected": "much"},
     {"expected": [1.0]}, {"origin": "hearsay"}, {"origin": []}, {"step": 10**400}, {"step": {}}],
)  # fmt: skip
def test_forged_bands_and_alerts_are_none(tmp_path, forged):
    write(tmp_path / "run", [0, 100])
    band = {"event": "band", "step": 0, "quantity": "dead", "layer": "fc2", "expected": None,
            "low": 0.0, "high": 1.0, "origin": "theory", "alarm": None}  # fmt: skip
    alert = {"event": "alert", "step": 0, "level": "note", "quantity": "dead", "layer": "fc2",
             "sentence": "words"}  # fmt: skip
    events = [band | forged, {**alert, "step": forged.get("step", "soon")}, {**alert, "layer": 3}]
    with open(tmp_path / "run" / "events.jsonl", "a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    history = read_watch(tmp_path / "run")
    assert history.ranges == {}
    assert [(a.step, a.layer) for a in history.alerts] == [(0, "3")]
    result = show(tmp_path / "run")
    assert result.exit_code == 0, result.output


def test_json_lines_go_on_after_half_a_line(tmp_path):
    path = tmp_path / "watch.jsonl"
    path.write_text('{"step": 0}\n{"ste')
    sink = JsonLines(path)
    sink.begin(LAYERS, NAMES)
    sink.write(record(100, loss=float("nan"), bands={("dead", "fc2"): Band(0.0, 0.0, 0.1)}))
    sink.close()
    line = json.loads(path.read_text().splitlines()[-1])
    assert line["values"] == {"loss": None, "weight_norm": {"fc1": 102.0}, "dead": {"fc2": 0.25}}
    assert line["bands"]["dead"]["fc2"]["high"] == 0.1


def show(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["watch", *map(str, arguments)])


def test_the_command_prints_once_in_a_pipe(tmp_path):
    band = {("dead", "fc2"): Band(0.0, 0.0, 0.1, "redrawn")}
    write(tmp_path / "run", [0, 100], bands=band)
    result = show(tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "step 100" in result.stdout
    assert "0.25↑" in result.stdout
    assert "fc1" in result.stdout
    answer = json.loads(show(tmp_path / "run", "--json").stdout)
    assert (answer["records"], answer["step"]) == (2, 100)
    assert answer["bands"]["dead"]["fc2"]["high"] == 0.1


def test_the_command_refuses_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "broken", [0])
    (tmp_path / "broken" / "watch.json").write_text('{"format": 1')
    for name, words in (
        ("nothing", "no such folder"), ("empty", "holds no watch"), ("broken", "cannot be read"),
    ):  # fmt: skip
        result = show(tmp_path / name)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: run = ")
        assert result.stderr.count("\n") == 1
        assert words in result.stderr


def test_the_command_shows_the_state_of_the_loss_in_words(tmp_path):
    sink = RunFolder(tmp_path / "run")
    sink.begin(["0"], ["loss", "plateau", "escape"])
    assert "No record yet." in show(tmp_path / "run").stdout
    values = {("loss", ""): 1.0, ("plateau", ""): 1.0, ("escape", ""): 523.0}
    sink.write(Record(0, 0.0, values=values, bands={("escape", ""): Band(523.0, 400.0, 700.0)}))
    text = show(tmp_path / "run").stdout
    assert "plateau" in text
    assert "523 (400 to 700)" in text
    sink.write(Record(100, 1.0, values={("loss", ""): 0.1, ("plateau", ""): 0.0}))
    sink.close()
    text = show(tmp_path / "run").stdout
    assert "falling" in text
    assert "523" not in text  # the plateau is over


@pytest.mark.parametrize("interval", ["nan", "inf", "1e300", "0"])
def test_intervals_that_nobody_waits_for(tmp_path, interval):
    write(tmp_path / "run", [0])
    result = show(tmp_path / "run", "--interval", interval)
    assert result.exit_code == 2
    assert "--interval" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="terminals of Unix")
def test_however_it_ends_the_terminal_has_its_cursor_back(tmp_path):
    import pty

    write(tmp_path / "run", [0])
    program = f"import sys; sys.argv = ['dynagram', 'watch', {str(tmp_path / 'run')!r}]"
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program + "; from dynagram.cli import main; main()"],
        stdin=side, stdout=side, stderr=side, env=os.environ | {"TERM": "xterm"},
    )  # fmt: skip
    shown, stopped = b"", False
    try:
        while b"\x1b[?25h" not in shown and select.select([terminal], [], [], 60)[0]:
            shown += os.read(terminal, 4096)
            if b"weight norm" in shown and not stopped:
                process.send_signal(signal.SIGTERM)
                stopped = True
        assert process.wait(60) == 143
    finally:
        process.kill()
        os.close(side)
        os.close(terminal)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
