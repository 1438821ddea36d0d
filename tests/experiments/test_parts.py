"""Parts of an experiment: made once, counted, kept, and not taken from another plan."""

from dataclasses import dataclass

import numpy as np
import pytest

from dynagram.errors import InvalidTypeError
from dynagram_experiments import Settings
from dynagram_experiments._parts import Table, finish_parts, stack_records, unstack_records


def test_finished_parts_are_read_back(tmp_path):
    values = {"loss": np.array([0.1, np.nan]), "name": "tanh", "times": [[1, 2], [3, 4]]}
    made = []

    def make():
        made.append(1)
        return values

    settings = Settings(seed=1, folder=tmp_path)
    first, second = (finish_parts(settings, "toy", {"a/b, c": make}) for _ in range(2))
    assert len(made) == 1
    for parts in (first, second):
        np.testing.assert_array_equal(parts["a/b, c"]["loss"], [0.1, np.nan])
        assert str(parts["a/b, c"]["name"]) == "tanh"
        assert parts["a/b, c"]["times"].shape == (2, 2)
    assert [path.name for path in (tmp_path / "toy-parts").iterdir()] == ["a_b_c.npz"]


@pytest.mark.parametrize("other", [{"seed": 2}, {"full": True}, {"plan": {"members": 9}}])
def test_parts_of_another_plan_are_not_used(tmp_path, other):
    plan = other.pop("plan", {"members": 8})
    start = Settings(folder=tmp_path)
    finish_parts(start, "toy", {"a": lambda: {"value": 1}}, {"members": 8})
    asked = Settings(folder=tmp_path, **other)
    again = finish_parts(asked, "toy", {"a": lambda: {"value": 2}}, plan)
    assert int(again["a"]["value"]) == 2


def test_a_damaged_part_is_made_anew(tmp_path):
    settings = Settings(folder=tmp_path)
    finish_parts(settings, "toy", {"a": lambda: {"value": 1}})
    (tmp_path / "toy-parts" / "a.npz").write_bytes(b"nothing of ours")
    assert int(finish_parts(settings, "toy", {"a": lambda: {"value": 2}})["a"]["value"]) == 2


def test_progress_counts_parts():
    seen = []
    settings = Settings(progress=lambda now: seen.append((now.done, now.members)))
    finish_parts(settings, "toy", {"a": dict, "b": dict})
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_a_part_holds_arrays_only():
    with pytest.raises(InvalidTypeError, match="expected an array"):
        finish_parts(Settings(), "toy", {"a": lambda: {"value": None}})


def test_records_are_stacked_and_come_back():
    @dataclass(frozen=True, eq=False)
    class Run:
        name: str
        steps: int
        losses: np.ndarray

    runs = [Run("gd", 2, np.array([1.0, 0.5])), Run("adam", 3, np.array([1.0, 0.2]))]
    back = unstack_records(Run, stack_records(runs))
    assert [(run.name, run.steps) for run in back] == [("gd", 2), ("adam", 3)]
    np.testing.assert_array_equal(back[1].losses, [1.0, 0.2])


def test_tables_choose_rows():
    table = Table.joined(
        [
            Table.of_rows([{"rate": 0.1, "kind": "a", "loss": 1.0}]),
            Table.of_rows([{"rate": r, "kind": "b", "loss": r} for r in (0.1, 0.2)]),
        ]
    )
    assert table.each("loss", kind="b", rate=0.1).tolist() == [0.1]
    assert table.columns()["kind"] == ["a", "b", "b"]
    assert f"{table.mean('loss', kind='b'):.2f}" == "0.15 ± 0.05"
