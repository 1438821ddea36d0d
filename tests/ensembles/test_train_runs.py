"""Gradient flow, stopping, chunks, failures and statistics of trained ensembles."""

import jax
import numpy as np
import pytest

from dynagram import (
    MLP,
    Data,
    GradientDescent,
    GradientFlow,
    Optax,
    Training,
    TwoStep,
    open_run,
    train,
)
from dynagram.ensembles.engine import run_job
from dynagram.ensembles.trained._job import TrainingJob
from dynagram.errors import DynagramError

RNG = np.random.default_rng(3)
NET = MLP([2, 5, 2], "tanh", 0.1, 1.2, lambda_b=0.5, lambda_W=2.0)
X = RNG.standard_normal((4, 2))
Y = np.sin(X)
DATA = Data(X, Y)


# --- gradient flow ------------------------------------------------------------------------------


@pytest.mark.slow
def test_flow_is_the_limit_of_small_steps():
    """GD at η differs from the flow by O(η): half the step, half the difference; and so for stops.

    Member 1 meets the condition before it starts, others on the way, each at its own time.
    """
    names, stop = ["loss", "outputs"], ["loss < 0.55"]
    how = Training(GradientFlow(1e-9, 1e-11), time=0.2, record=[0, 0.1], stop=stop)
    flow = train(NET, DATA, how, members=6, observables=names)
    runs, gaps = [], []
    for finer in (16, 32):
        how = Training(
            GradientDescent(0.05 / finer), steps=4 * finer, record=[0, 2 * finer], stop=stop
        )
        descent = train(NET, DATA, how, members=6, observables=names)
        gaps.append(descent["outputs"] - flow["outputs"])
        runs.append(descent.stopped / finer)
    stopped = flow.stopped / 0.05
    assert np.isnan(stopped).sum() == 2
    assert (stopped > 0.0).sum() == 3
    assert np.flatnonzero(stopped == 0.0).tolist() == [1]
    np.testing.assert_allclose(flow["loss"][stopped > 0.0, -1], 0.55, rtol=1e-7)
    np.testing.assert_array_equal(flow["loss"][1], flow["loss"][1, 0])
    for finer, times in zip((16, 32), runs, strict=True):
        assert np.nanmax(np.abs(times - stopped)) < 3 / finer
    running = np.isnan(stopped)
    coarse, fine = gaps[0][running], gaps[1][running]
    assert np.abs(coarse[:, 0]).max() < 1e-12
    assert np.abs(coarse[:, 1:]).max() > 1e-3
    assert abs(np.median(coarse[:, 1:] / fine[:, 1:]) - 2.0) < 0.05
    # Extrapolated to step size zero the difference is gone, to second order.
    assert np.abs(2 * fine - coarse).max() < 0.02 * np.abs(fine).max()
    assert flow.failures == ()


def test_flow_of_a_linear_model():
    """With the last layer trained alone z(τ) − y = exp(−τĤ)(z(0) − y), Ĥ = λ_b + λ_W u·u/n.

    The fourth member is too stiff for the work allowed, and is reported.
    """
    network = MLP([2, 5, 2], "linear", 0.1, 1.2, lambda_b=0.5, lambda_W=2.0)
    how = Training(GradientFlow(1e-9, 1e-12), time=0.8, fixed=[1], record=[0.0, 0.1, 0.2, 0.4])
    drawn = TrainingJob(network, DATA, how).initial(0, 4)
    start = [[np.array(a) for a in layer] for layer in drawn]
    start[0][1][3] *= 1000.0
    request = {"observables": ["outputs"], "keep_parameters": True, "max_steps": 2000}
    found = train(network, DATA, how, parameters=start, **request)
    for member in range(3):
        u = X @ start[0][1][member].T + start[0][0][member]
        np.testing.assert_array_equal(found.parameters[0].W[member], start[0][1][member])
        values, vectors = np.linalg.eigh(0.5 + 2.0 / 5 * u @ u.T)
        gap = u @ start[1][1][member].T + start[1][0][member] - Y
        for time, z in zip(found.times, found["outputs"][member], strict=True):
            decay = vectors @ np.diag(np.exp(-time * values)) @ vectors.T
            np.testing.assert_allclose(z, Y + decay @ gap, rtol=1e-7, atol=1e-7)
    (failure,) = found.failures
    assert failure.member == 3
    assert 0.0 < failure.step < 0.8
    assert "raise max_steps" in failure.error
    times = np.array(found.times)
    assert np.all(np.isnan(found["outputs"][3, times >= failure.step]))
    assert np.all(np.isfinite(found["outputs"][3, times < failure.step]))


# --- stopping -----------------------------------------------------------------------------------


def norm_of_first(params, x):
    """A user's observable."""
    return np.sqrt(2) * 0 * x[0, 0] + (params[0].W ** 2).sum()


def test_members_stop_on_their_own():
    """Each at its own step, frozen from there on, and the run ends when all have stopped."""
    every = Training(GradientDescent(0.1), steps=300, record=301, spacing="linear")
    names = {"loss": "loss", "size": norm_of_first}
    full = train(NET, DATA, every, members=6, observables=names, keep_parameters=True)
    loss, size = full["loss"], full["size"]
    threshold = float(np.median(loss[:, 120]))
    largest = float(np.sort(size.max(axis=1))[3])
    rules = [f"loss < {threshold!r}", f"size > {largest!r}"]
    # Without the early exit this would take hours.
    how = Training(GradientDescent(0.1), steps=10**9, record=[0, 100, 300], stop=rules)
    found = train(NET, DATA, how, members=6, observables=names, keep_parameters=True)
    met = (loss < threshold) | (size > largest)
    assert met.any(axis=1).all()
    first = met.argmax(axis=1)
    assert len(set(first)) > 3
    assert {"loss", "size"} == {
        "loss" if loss[m, s] < threshold else "size" for m, s in enumerate(first)
    }
    np.testing.assert_array_equal(found.stopped, first)
    for member, step in enumerate(first):
        for column, recorded in ((1, 100), (2, 300), (3, 300)):
            expected = loss[member, min(step, recorded)]
            np.testing.assert_allclose(found["loss"][member, column], expected, rtol=1e-10)
    np.testing.assert_array_equal(full.stopped, np.nan)


# --- chunks, precision, jobs --------------------------------------------------------------------


def test_chunks_change_nothing():
    """The same members whatever the chunk; the same bits for the same chunk."""
    how = Training(Optax("momentum", 0.1), steps=40, batch=3, record=4)
    runs = [
        train(NET, DATA, how, members=11, chunk_members=chunk, keep_parameters=True)
        for chunk in (11, 11, 4)
    ]
    leaves = [[run["loss"], *jax.tree.leaves(run.parameters)] for run in runs]
    for one, same, other in zip(*leaves, strict=True):
        np.testing.assert_array_equal(one, same)
        np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-13)
    assert len(np.unique(runs[0]["loss"][:, -1])) == 11


def test_job_in_the_engine():
    """A job from its own description gives what `train` gives, and sums what members give."""
    how = Training(GradientDescent(0.1), steps=30, record=4)
    request = {"seed": 2, "observables": ["loss", "outputs"], "chunk_members": 40}
    whole = train(NET, DATA, how, members=150, **request)
    job = TrainingJob(NET, DATA, how, **request)
    again = TrainingJob.from_toml(job.to_toml(), job.arrays())
    same(again.result(run_job(again, members=150)), whole)
    request |= {"keep_members": False, "covariances": ["loss"]}
    streamed = train(NET, DATA, how, members=150, **request)
    assert streamed.recorded == {}
    for name in STATISTICS:
        np.testing.assert_allclose(
            getattr(streamed, name), getattr(whole, name), rtol=1e-8, atol=1e-12
        )
    loss, kept = streamed.estimates["loss"], whole.estimates["loss"]
    np.testing.assert_allclose(loss.value, kept.value, rtol=1e-9)
    np.testing.assert_allclose(loss.standard_error, kept.standard_error, rtol=1e-8)
    spread = whole["loss"].var(axis=0, ddof=1)
    np.testing.assert_allclose(streamed.estimates["loss_covariance"].value, spread, rtol=1e-9)


STATISTICS = (
    "measured_mean", "mean_errors", "measured_covariance", "covariance_errors", "joint_errors",
)  # fmt: skip


def same(one, other):
    """The same result to the bit."""
    for name in STATISTICS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.recorded.keys() == other.recorded.keys()
    for name, values in one.recorded.items():
        np.testing.assert_array_equal(values, other.recorded[name])
    assert one.estimates.keys() == other.estimates.keys()
    for name, estimate in one.estimates.items():
        np.testing.assert_array_equal(estimate.value, other.estimates[name].value)
        np.testing.assert_array_equal(estimate.standard_error, other.estimates[name].standard_error)
    assert (one.times, one.members, one.about) == (other.times, other.members, other.about)
    assert (one.failures, one.notes) == (other.failures, other.notes)
    for mine, theirs in zip(
        jax.tree.leaves(one.parameters), jax.tree.leaves(other.parameters), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def interrupted_after(chunks):
    def stop(progress):
        if progress.done >= chunks:
            raise KeyboardInterrupt

    return stop


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_a_stored_run_is_continued_and_opened_to_the_same_bits(tmp_path, pairs):
    data = Data(X, Y, X[:2] + 0.5)
    how = Training(GradientDescent(0.1), steps=20, record=[0, 5])
    request = {"members": 70, "seed": 3, "chunk_members": 16, "pairs": pairs}
    request |= {"kernels": 2} if pairs else {"keep_parameters": True}
    expected = train(NET, data, how, **request)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(NET, data, how, **request, run=folder, progress=interrupted_after(32))
    begun = open_run(folder)
    assert begun.members == 32
    assert not begun.about["complete"]
    seen = []
    same(train(NET, data, how, **request, run=folder, progress=seen.append), expected)
    assert [progress.done for progress in seen] == [16, 32, 48, 64, 70]
    same(open_run(folder), expected)
    same(train(NET, data, how, **request, run=folder, resume=True), expected)
    other = Training(GradientDescent(0.2), steps=20, record=[0, 5])
    with pytest.raises(DynagramError, match="a run with another specification: take a new"):
        train(NET, data, other, **request, run=folder)
    with pytest.raises(DynagramError, match="holds a run with another members"):
        train(NET, data, how, **(request | {"members": 80}), run=folder)
    with pytest.raises(DynagramError, match="holds no run to resume"):
        train(NET, data, how, **request, run=tmp_path / "none", resume=True)
    with pytest.raises(DynagramError, match="run = None: holds no run to resume"):
        train(NET, data, how, **request, resume=True)


def test_until_a_precision_is_reached():
    """A sum over members is needed; pairs are one."""
    how = Training(GradientDescent(0.1), steps=20)
    request = {"keep_members": False, "observables": ["loss"], "chunk_members": 128}
    found = train(NET, DATA, how, until_error=0.05, **request)
    loss = found.estimates["loss"]
    assert loss.standard_error[-1] < 0.05 * loss.value[-1]
    assert found.members % 128 == 0
    fewer = train(NET, DATA, how, members=found.members - 128, **request).estimates["loss"]
    assert fewer.standard_error[-1] > 0.05 * fewer.value[-1]
    with pytest.raises(DynagramError, match="until_error = 0.05: needs keep_members=False, or pai"):
        train(NET, DATA, how, until_error=0.05)


# --- to the end ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", [GradientDescent(0.2), GradientFlow(), Optax("momentum", 0.05)]
)
def test_training_to_the_end(algorithm):
    """Until every error is below the tolerance; what the steps did not reach is counted."""
    data = Data(X[:2], Y[:2], X[2:])
    found = train(NET, data, Training(algorithm), members=6, observables=["loss", "all_outputs"])
    assert found.times == (np.inf,)
    assert found.about["unfinished"] == 0
    assert 0.0 < found.about["largest_error"] < 1e-6
    errors = np.abs(found["all_outputs"][:, -1, :2] - Y[:2])
    np.testing.assert_allclose(errors.max(), found.about["largest_error"], rtol=1e-8)
    short = train(NET, data, Training(algorithm), members=6, max_steps=5)
    assert short.about["unfinished"] == 6
    assert short.about["largest_error"] > 1e-3
    assert short.failures == ()


def test_repeated_inputs_end_at_their_mean_target():
    data = Data(X[[0, 1, 0]], Y[[0, 1, 2]], X[3:])
    how = Training(GradientDescent(0.1))
    found = train(NET, data, how, members=3, observables=["all_outputs"])
    assert found.about["unfinished"] == 0
    expected = [0.5 * (Y[0] + Y[2]), Y[1]]
    np.testing.assert_allclose(found.train.mean, expected, atol=1e-5)
    assert "training ends at their mean" in found.notes[0]


@pytest.mark.slow
def test_two_leaps():
    """What they leave is of second order in Ĥ − Θ: it falls by more than four per width × 4."""
    left = []
    for width in (100, 1600):
        network = MLP([2, width, 1], "tanh", 0.1, 1.2)
        data = Data(X[:2], Y[:2, :1], X[2:])
        found = train(network, data, Training(TwoStep()), members=40)
        left.append(found.about["largest_error"])
        assert "unfinished" not in found.about
    assert left[1] < left[0] / 4


# --- failures and statistics --------------------------------------------------------------------


def test_a_divergent_member_is_reported_alone():
    """Its number, step and cause; NaN from then on; the others go on."""
    network = MLP([2, 5, 2], "relu", 0.1, 1.2, lambda_b=0.5, lambda_W=2.0)
    how = Training(GradientDescent(0.05), steps=60, record=61, spacing="linear")
    job = TrainingJob(network, DATA, how)
    start = [[np.array(a) for a in layer] for layer in job.initial(0, 70)]
    start[1][1][4] *= 10.0  # λ_max grows with W²
    run = {"observables": ["loss"], "covariances": ["loss"], "keep_parameters": True}
    found = train(network, DATA, how, parameters=start, **run)
    (failure,) = found.failures
    assert failure.member == 4
    step = int(failure.step)
    assert 1 < step < 60
    assert np.all(np.isfinite(found["loss"][4, :step]))
    assert np.all(np.isnan(found["loss"][4, step:]))
    assert np.all(np.isfinite(np.delete(found["loss"], 4, axis=0)))
    assert "above 2/λ_max = 0.000" in failure.error
    assert str(failure).startswith(f"member 4 (seed 0), step {step}: eta = 0.05 is above 2/λ_max")
    assert "1 of 70 networks failed and are left out" in found.notes[0]

    others = np.delete(np.arange(70), 4)
    mean, covariance = found.estimates["loss"], found.estimates["loss_covariance"]
    assert mean.count == 69
    losses = found["loss"][others]
    np.testing.assert_allclose(mean.value, losses.mean(axis=0), rtol=1e-12)
    spread = losses.std(axis=0, ddof=1)
    np.testing.assert_allclose(covariance.value, spread**2, rtol=1e-9)
    # With fewer members than batches the jackknife leaves one out: the exact standard error.
    np.testing.assert_allclose(mean.standard_error, spread / np.sqrt(69), rtol=1e-9)

    streamed = train(network, DATA, how, parameters=start, keep_members=False, **run)
    assert streamed.recorded == {}
    assert [failure.member for failure in streamed.failures] == [4]
    np.testing.assert_allclose(streamed.estimates["loss"].value, mean.value, rtol=1e-12)
    spread = streamed.estimates["loss_covariance"].value
    np.testing.assert_allclose(spread, covariance.value, rtol=1e-9)
    with pytest.raises(DynagramError, match="members were not kept"):
        streamed["loss"]
