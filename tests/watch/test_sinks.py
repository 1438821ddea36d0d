"""Trackers get every number with its band, and alerts where they take texts."""

import pytest

from dynagram.errors import InvalidTypeError
from dynagram.watch import Alert, Band, MLflow, Record, TensorBoard, Tracker

RECORD = Record(
    100,
    2.5,
    values={("loss", ""): 0.5, ("dead", "fc[1]"): 0.25, ("activation", "fc[1]"): float("nan")},
    bands={("dead", "fc[1]"): Band(0.1, 0.0, 0.2)},
    alerts=(Alert(100, "warning", "dead", "fc[1]", "step 100: units have died"),),
)


def test_a_tracker_with_log_and_alert():
    class Run:
        def __init__(self):
            self.logged, self.told = [], []

        def log(self, numbers, step):
            self.logged.append((step, numbers))

        def alert(self, title, text):
            self.told.append((title, text))

    run = Run()
    sink = Tracker(run, prefix="d/")
    sink.begin(["fc[1]"], ["loss"])
    sink.write(RECORD)
    sink.close()
    ((step, numbers),) = run.logged
    assert step == 100
    assert numbers["d/loss"] == 0.5
    ends = [numbers[f"d/dead/fc[1]/{end}"] for end in ("expected", "low", "high")]
    assert ends == [0.1, 0.0, 0.2]
    assert run.told == [("dead fc[1]", "step 100: units have died")]
    with pytest.raises(InvalidTypeError, match="expected log"):
        Tracker(3)


def test_mlflow_gets_names_and_numbers_that_it_takes():
    logged = []
    MLflow(lambda metrics, step: logged.append((metrics, step))).write(RECORD)
    ((metrics, step),) = logged
    assert step == 100
    assert metrics["dynagram/dead/fc_1_"] == 0.25
    assert not [name for name in metrics if "activation" in name]


@pytest.mark.filterwarnings("ignore")  # of protobuf
def test_tensorboard_reads_the_bands_back(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoard(tmp_path)
    sink.begin(["fc[1]"], ["loss"])
    sink.write(RECORD)
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    (high,) = events.Scalars("dynagram/dead/fc[1]/high")
    assert (high.step, round(high.value, 6)) == (100, 0.2)
    (loss,) = events.Scalars("dynagram/loss")
    assert loss.value == 0.5
