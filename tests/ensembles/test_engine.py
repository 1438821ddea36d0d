"""The engine: any executor and chunk size, failing members, dying workers, precision goals."""

import signal
import threading
import time
import tomllib
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dynagram._toml import write_table
from dynagram.ensembles import simulate
from dynagram.ensembles._jobs import FailedMember, pack
from dynagram.ensembles.engine import _engine as engine
from dynagram.ensembles.engine import run_job
from dynagram.ensembles.engine._executors import Workers, open_workers
from dynagram.ensembles.engine._progress import Progress, WorstError, worst_relative_error
from dynagram.ensembles.initial import TensorJob
from dynagram.ensembles.initial._batches import moments_of
from dynagram.errors import AccuracyError, DynagramError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP
from dynagram.results._estimate import Estimate, Moments


@dataclass(frozen=True, eq=False)
class Numbers:
    """Three normal numbers of mean 1 per member; `bad` members fail."""

    kind: ClassVar[str] = "numbers"
    seed: int = 3
    chunk_members: int = 10
    bad: tuple[int, ...] = ()
    mean: float = 1.0
    jitter: float = 0.0

    def run_chunk(self, first, size):
        members = range(first, first + size)
        if self.jitter:
            time.sleep(self.jitter * np.random.default_rng(first).random())
        if fails := [member for member in members if member in self.bad]:
            raise NonFiniteError(f"member {fails[0]} is not finite")
        rows = [np.random.default_rng((self.seed, m)).normal(self.mean, 1, 3) for m in members]
        sums = moments_of([np.array(rows)], order=2, first=first)
        return {"rows": np.array(rows), "number": np.array(members), "sums": sums}

    def estimates(self, moments):
        return {"mean": moments["sums"].mean()}

    def to_toml(self):
        names = ("seed", "chunk_members", "bad", "mean", "jitter")
        return write_table("numbers", {name: getattr(self, name) for name in names})

    def arrays(self):
        return {}

    @classmethod
    def from_toml(cls, text, arrays):  # noqa: ARG003 (part of the interface)
        table = tomllib.loads(text)["numbers"]
        return cls(**(table | {"bad": tuple(table["bad"])}))

    def dims(self):
        return {"rows": ("place",), "number": (), "mean": ("place",)}


def equal(one, other):
    """The same bits in all results."""
    assert one.members == other.members
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])
    mine, theirs = pack(one.moments), pack(other.moments)
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name])


# --- chunks and executors ---------------------------------------------------------------------


def test_same_members_whatever_the_chunk_size():
    expected = run_job(Numbers(chunk_members=400), members=333)
    assert expected.arrays["rows"].shape == (333, 3)
    assert expected.arrays["number"].tolist() == list(range(333))
    for chunk in (1, 7, 100):
        found = run_job(Numbers(chunk_members=chunk), members=333)
        np.testing.assert_array_equal(found.arrays["rows"], expected.arrays["rows"])
        for name in ("value", "standard_error"):
            np.testing.assert_allclose(
                getattr(found.estimates["mean"], name),
                getattr(expected.estimates["mean"], name),
                rtol=1e-12,
            )


def test_chunks_that_end_in_any_order_give_the_same_bits():
    expected = run_job(Numbers(chunk_members=9), members=200)
    with ThreadPoolExecutor(5) as pool:
        found = run_job(Numbers(chunk_members=9, jitter=0.01), members=200, executor=pool)
    equal(found, expected)


def test_samples_and_moments_agree():
    found = run_job(Numbers(), members=300)
    rows = found.arrays["rows"]
    np.testing.assert_allclose(found.estimates["mean"].value, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.moments["sums"].covariance().value, np.cov(rows.T), rtol=1e-12)


class Counting(ThreadPoolExecutor):
    """Remembers how many tasks were on their way at once."""

    def __init__(self):
        super().__init__(2)
        self.now = self.most = 0
        self.lock = threading.Lock()

    def submit(self, *args):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        future = super().submit(*args)
        future.add_done_callback(self.less)
        return future

    def less(self, _):
        with self.lock:
            self.now -= 1


def test_few_chunks_are_on_their_way(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with Counting() as pool:
        run_job(Numbers(chunk_members=2, jitter=0.002), members=200, executor=pool)
    assert 2 <= pool.most <= 4


def test_few_chunks_wait_for_a_slow_one(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    run_chunk, begun, slow = Numbers.run_chunk, [], threading.Event()

    def chunk(self, first, size):
        begun.append(first)
        if first == 0:
            slow.wait(10)
        elif first == 2:  # many could have come after this one
            threading.Timer(0.2, slow.set).start()
        return run_chunk(self, first, size)

    monkeypatch.setattr(Numbers, "run_chunk", chunk)
    before = []
    with ThreadPoolExecutor(2) as pool:
        run_job(
            Numbers(chunk_members=2),
            members=200,
            executor=pool,
            progress=lambda _: before.append(len(begun)),
        )
    assert before[0] <= 6
    assert len(begun) == 100


def test_progress_and_stopping_by_an_exception():
    seen: list[Progress] = []
    run_job(Numbers(), members=45, progress=seen.append)
    assert [progress.done for progress in seen] == [10, 20, 30, 40, 45]
    assert {(progress.members, progress.failed) for progress in seen} == {(45, 0)}

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(Numbers(), members=45, progress=stop)


class Sensitive:
    """Ctrl-C arrives while this object is thrown away."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_a_destructor_ends_the_run():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    seen: list[int] = []

    def report(progress):
        seen.append(progress.done)
        if progress.done == 20:
            Sensitive()

    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(Numbers(), members=100, progress=report)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [10, 20]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"members": None}, "members = None: needed unless until_error"),
        ({"members": 0}, "members = 0: expected 1"),
        ({"members": 2**32}, "to 2**32 − 1"),
        ({"until_error": 2.0}, "until_error = 2.0: expected a fraction"),
        ({"executor": "fork:3"}, "executor = 'fork:3': expected process:N"),
        ({"executor": "process:0"}, "expected process:N"),
        ({"retries": -1}, "retries = -1"),
    ],
)
def test_bad_requests(options, words):
    with pytest.raises(DynagramError) as error:
        run_job(Numbers(), **({"members": 10} | options))
    assert words in str(error.value)


def test_jobs_that_workers_cannot_import_are_refused():
    @dataclass(frozen=True, eq=False)
    class Local(Numbers):
        pass

    with ThreadPoolExecutor(1) as pool, pytest.raises(InvalidValueError, match="can import"):
        run_job(Local(), members=10, executor=pool)


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 3])
def test_failing_members_are_named_and_left_out(threads):
    good = run_job(Numbers(chunk_members=64), members=200)
    bad = (0, 77, 78, 199)
    if threads:
        with ThreadPoolExecutor(threads) as pool:
            found = run_job(Numbers(chunk_members=64, bad=bad), members=200, executor=pool)
    else:
        found = run_job(Numbers(chunk_members=64, bad=bad), members=200)
    assert found.failed == tuple(FailedMember(m, 3, f"member {m} is not finite") for m in bad)
    assert str(found.failed[0]) == "member 0 (seed 3): member 0 is not finite"
    rest = np.setdiff1d(np.arange(200), bad)
    np.testing.assert_array_equal(found.arrays["rows"][rest], good.arrays["rows"][rest])
    assert np.all(np.isnan(found.arrays["rows"][list(bad)]))
    assert found.estimates["mean"].count == 196
    expected = Moments.from_samples(good.arrays["rows"][rest]).mean().value
    np.testing.assert_allclose(found.estimates["mean"].value, expected, rtol=1e-12)


def test_a_chunk_of_failures_only():
    found = run_job(Numbers(chunk_members=2, bad=(0, 1)), members=60)
    assert [failure.member for failure in found.failed] == [0, 1]
    assert found.moments["sums"].count == 58
    assert found.arrays["rows"].shape == (60, 3)
    assert np.all(np.isnan(found.arrays["rows"][:2]))
    assert found.arrays["number"].tolist() == [0, 0, *range(2, 60)]


def test_too_many_failures_end_the_run():
    with pytest.raises(DynagramError, match="more than 5 members failed, the first: member"):
        run_job(Numbers(bad=tuple(range(50))), members=50, failures=5)


def test_with_no_failures_allowed_the_error_itself_is_raised():
    with pytest.raises(NonFiniteError, match="member 12 is not finite"):
        run_job(Numbers(bad=(12,)), members=50, failures=0)


def test_complaints_about_the_job_end_the_run(monkeypatch):
    def complain(*_):
        raise InvalidValueError("eta", -1, "must be positive")

    monkeypatch.setattr(Numbers, "run_chunk", complain)
    with pytest.raises(InvalidValueError, match="eta = -1"):
        run_job(Numbers(), members=50)


def test_what_fails_by_chance_is_tried_again(monkeypatch):
    expected = run_job(Numbers(), members=50)
    run_chunk, calls = Numbers.run_chunk, []

    def unreliable(self, first, size):
        calls.append(first)
        if calls.count(first) <= 2:
            raise ConnectionError("lost")
        return run_chunk(self, first, size)

    monkeypatch.setattr(Numbers, "run_chunk", unreliable)
    equal(run_job(Numbers(), members=50, retries=2), expected)
    assert sorted(calls) == sorted(3 * list(range(0, 50, 10)))
    calls.clear()
    with pytest.raises(ConnectionError):
        run_job(Numbers(), members=50, retries=1, failures=0)
    calls.clear()
    with pytest.raises(DynagramError, match="more than 3 members failed.*ConnectionError: lost"):
        run_job(Numbers(), members=50, retries=0, failures=3)


class Mortal(Workers):
    """Loses all that is on its way when a member of `deadly` is computed, or at some moments."""

    window = 4

    def __init__(self, deadly=(), accidents=()):
        self.deadly, self.accidents = set(deadly), set(accidents)
        self.flying: list[Future] = []
        self.renewed = self.submitted = 0

    def submit(self, job, first, size):
        future: Future = Future()
        self.flying.append(future)
        self.submitted += 1
        dies = self.deadly & set(range(first, first + size)) or self.submitted in self.accidents
        if dies:
            for lost in self.flying:
                if not lost.done():
                    lost.set_exception(BrokenExecutor("a process died"))
        elif len(self.flying) > 2 or self.renewed:
            future.set_result(pack(job.run_chunk(first, size)))
        else:
            threading.Timer(
                0.02, lambda: future.done() or future.set_result(pack(job.run_chunk(first, size)))
            ).start()
        return future

    def renew(self):
        self.renewed += 1
        self.flying.clear()


def test_a_worker_that_dies_costs_nothing_but_time(monkeypatch):
    expected = run_job(Numbers(), members=100)
    workers = Mortal(accidents=(3, 9))
    monkeypatch.setattr(engine, "open_workers", lambda *_: workers)
    equal(run_job(Numbers(), members=100), expected)
    assert workers.renewed == 2


def test_the_member_that_kills_workers_is_found_and_others_are_not_blamed(monkeypatch):
    workers = Mortal(deadly=(37,))
    monkeypatch.setattr(engine, "open_workers", lambda *_: workers)
    run_chunk, calls = Numbers.run_chunk, []

    def remembered(self, first, size):
        calls.append((first, size))
        return run_chunk(self, first, size)

    monkeypatch.setattr(Numbers, "run_chunk", remembered)
    found = run_job(Numbers(), members=100, retries=0)
    assert found.failed == (FailedMember(37, 3, "its worker process died"),)
    assert found.moments["sums"].count == 99
    # Only the chunk of the culprit was cut up.
    assert {first // 10 for first, size in calls if size < 10} == {3}


def test_an_executor_that_cannot_be_renewed():
    class Broken(ThreadPoolExecutor):
        def submit(self, *_):
            raise BrokenExecutor("no")

    with Broken(1) as pool, pytest.raises(DynagramError, match="cannot be restarted"):
        run_job(Numbers(), members=100, executor=pool)


# --- precision --------------------------------------------------------------------------------


def test_until_error_stops_at_the_same_member_on_every_executor():
    job = Numbers(chunk_members=40, jitter=0.002)
    found = run_job(job, members=None, until_error=0.03)
    # 1/√M = 0.03 at M = 1111, up to the uncertainty of the standard error.
    assert 800 < found.members < 1500
    assert found.members % 40 == 0
    assert found.worst.value <= 0.03
    before = run_job(job, members=found.members - 40)
    assert before.worst.value > 0.03
    with ThreadPoolExecutor(4) as pool:
        equal(run_job(job, members=None, until_error=0.03, executor=pool), found)


def test_until_error_respects_the_limit_of_members():
    found = run_job(Numbers(), members=310, until_error=1e-3)
    assert found.members == 310
    assert found.worst.value > found.until_error


def test_until_error_out_of_reach():
    with pytest.raises(AccuracyError, match="mean is known to .* 1e-06 would take"):
        run_job(Numbers(chunk_members=300), members=None, until_error=1e-6)


def test_expected_members_follow_the_precision():
    progress = Progress(1000, None, 0.01, 0, lambda: WorstError("V", 0.02))
    assert progress.expected == 4000
    assert Progress(1000, 3000, 0.01, 0, lambda: WorstError("V", 0.02)).expected == 3000
    assert Progress(1000, 3000, None, 0, lambda: None).expected == 3000
    assert Progress(10, None, 0.01, 0, lambda: WorstError("V", np.inf)).expected is None


def test_worst_relative_error_by_layers():
    value = np.array([[0.0, 0.0], [10.0, 0.0], [1e-3, 2e-3], [0.01, 0.02]])
    error = np.array([[0.0, 0.0], [0.2, 0.1], [1e-4, 1e-4], [0.1, 0.3]])
    estimate = {"V": Estimate(value, error, 1000)}
    # 0.2/10, 1e-4/2e-3; the last layer is zero within its errors: 0.3/10.
    assert worst_relative_error(estimate, {"V": ("layer", "a")}).value == pytest.approx(0.05)
    assert worst_relative_error(estimate, {"V": ("a", "b")}).value == pytest.approx(0.03)
    last = {"V": Estimate(value[[0, 1, 3]], error[[0, 1, 3]], 1000)}
    assert worst_relative_error(last, {"V": ("layer", "a")}).value == pytest.approx(0.03)


# --- the ensembles of the house ---------------------------------------------------------------


def test_tensors_in_chunks_are_those_measured_at_once():
    network = MLP((3, 12, 8, 2), "tanh", C_b=0.1, C_W=1.3)
    x = np.random.default_rng(0).normal(size=(2, 3))
    expected = simulate(network, x, ("K", "V"), members=700, seed=4, chunk_members=700)
    job = TensorJob(network, x, ("K", "V"), seed=4, chunk_members=300)
    again = TensorJob.from_toml(job.to_toml(), job.arrays())
    outcome = run_job(again, members=700)
    found = again.result(outcome)
    assert found.members == 700
    for name in ("K", "V"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(found.error(name), expected.error(name), rtol=1e-9, atol=1e-14)


def test_a_scheduler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("dynagram.ensembles.engine._dask.PATIENCE", 1)
    with pytest.raises(InvalidValueError, match="no Dask scheduler answers"):
        open_workers("tcp://127.0.0.1:9")
