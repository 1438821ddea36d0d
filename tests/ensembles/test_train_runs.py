"""Gradient flow, stopping, chunks, failures and statistics of trained ensembles."""

import jax
import numpy as np
import pytest

from dynagram import MLP, Training, train_ensemble
from dynagram.ensembles.engine._engine import run_job
from dynagram.ensembles.trained._train import TrainingJob
from dynagram.errors import DynagramError

RNG = np.random.default_rng(3)
NET = MLP([2, 5, 2], "tanh", 0.1, 1.2, lambda_b=0.5, lambda_W=2.0)
X = RNG.standard_normal((4, 2))
Y = np.sin(X)


# --- gradient flow ------------------------------------------------------------------------------


@pytest.mark.slow
def test_flow_is_the_limit_of_small_steps():
    """GD at η differs from the flow by O(η): half the step, half the difference; and so for stops.

    Member 1 meets the condition before it starts, others on the way, each at its own time.
    """
    options, names = {"rtol": 1e-9, "atol": 1e-11}, ["loss", "outputs"]
    rule = {"record": [2], "stop": ["loss < 0.55"]}
    flow = train_ensemble(
        NET, Training(4, 0.05, "flow", options=options, **rule), X, Y, members=6, observables=names
    )
    runs, gaps = [], []
    for finer in (16, 32):
        rule["record"] = [2 * finer]
        descent = train_ensemble(
            NET, Training(4 * finer, 0.05 / finer, **rule), X, Y, members=6, observables=names
        )
        gaps.append(descent["outputs"] - flow["outputs"])
        runs.append(descent.stopped / finer)
    stopped = flow.stopped
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
    """With the last layer trained alone z(t) − y = exp(−η t Ĥ)(z(0) − y), Ĥ = λ_b + λ_W u·u/n.

    The fourth member is too stiff for the work allowed, and is reported.
    """
    network = MLP([2, 5, 2], "linear", 0.1, 1.2, lambda_b=0.5, lambda_W=2.0)
    options = {"rtol": 1e-9, "atol": 1e-12, "max_solver_steps": 2000}
    training = Training(8, 0.1, "flow", options=options, fixed=[1], record=5)
    start = [
        [np.array(a) for a in layer] for layer in TrainingJob(network, training, X, Y).initial(0, 4)
    ]
    start[0][1][3] *= 1000.0
    found = train_ensemble(
        network, training, X, Y, parameters=start, observables=["outputs"], keep_parameters=True
    )
    for member in range(3):
        u = X @ start[0][1][member].T + start[0][0][member]
        np.testing.assert_array_equal(found.parameters[0].W[member], start[0][1][member])
        values, vectors = np.linalg.eigh(0.5 + 2.0 / 5 * u @ u.T)
        gap = u @ start[1][1][member].T + start[1][0][member] - Y
        for step, z in zip(found.steps, found["outputs"][member], strict=True):
            decay = vectors @ np.diag(np.exp(-0.1 * step * values)) @ vectors.T
            np.testing.assert_allclose(z, Y + decay @ gap, rtol=1e-7, atol=1e-7)
    (failure,) = found.failures
    assert failure.member == 3
    assert 0.0 < failure.step < 8.0
    assert "raise max_solver_steps" in failure.cause
    assert np.all(np.isnan(found["outputs"][3, found.steps >= failure.step]))
    assert np.all(np.isfinite(found["outputs"][3, found.steps < failure.step]))


# --- stopping -----------------------------------------------------------------------------------


def norm_of_first(params, x):
    """A user's observable."""
    return np.sqrt(2) * 0 * x[0, 0] + (params[0].W ** 2).sum()


def test_members_stop_on_their_own():
    """Each at its own step, frozen from there on, and the run ends when all have stopped."""
    every = Training(300, 0.1, record=301, spacing="linear")
    names = {"loss": "loss", "size": norm_of_first}
    full = train_ensemble(NET, every, X, Y, members=6, observables=names, keep_parameters=True)
    loss, size = full["loss"], full["size"]
    threshold = float(np.median(loss[:, 120]))
    largest = float(np.sort(size.max(axis=1))[3])
    rules = [f"loss < {threshold!r}", f"size > {largest!r}"]
    # Without the early exit this would take hours.
    training = Training(10**9, 0.1, record=[100, 300], stop=rules)
    found = train_ensemble(NET, training, X, Y, members=6, observables=names, keep_parameters=True)
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
    training = Training(40, 0.1, "momentum", batch=3, record=4)
    runs = [
        train_ensemble(NET, training, X, Y, members=11, chunk_members=chunk, keep_parameters=True)
        for chunk in (11, 11, 4)
    ]
    leaves = [[run["loss"], *jax.tree.leaves(run.parameters)] for run in runs]
    for one, same, other in zip(*leaves, strict=True):
        np.testing.assert_array_equal(one, same)
        np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-13)
    assert len(np.unique(runs[0]["loss"][:, -1])) == 11


def test_job_in_the_engine():
    """The engine's chunks, from the description of the job, hold what `train_ensemble` returns."""
    training = Training(30, 0.1, record=4)
    request = {"seed": 2, "observables": ["loss", "outputs"], "chunk_members": 40}
    whole = train_ensemble(NET, training, X, Y, members=150, **request)
    job = TrainingJob(NET, training, X, Y, **request)
    again = TrainingJob.from_toml(job.to_toml(), job.arrays())
    arrays = run_job(again, members=150).arrays
    np.testing.assert_array_equal(arrays["loss"], whole["loss"])
    np.testing.assert_array_equal(arrays["outputs"], whole["outputs"])
    streamed = TrainingJob(
        NET, training, X, Y, keep_members=False, covariances=["outputs"], **request
    )
    estimates = run_job(streamed, members=150).estimates
    for name, expected in (
        ("loss", whole.mean("loss")),
        ("outputs", whole.mean("outputs")),
        ("outputs_covariance", whole.covariance("outputs")),
    ):
        np.testing.assert_allclose(estimates[name].value, expected.value, rtol=1e-9, atol=1e-12)
        errors = estimates[name].standard_error
        np.testing.assert_allclose(errors, expected.standard_error, rtol=1e-8, atol=1e-12)


# --- failures and statistics --------------------------------------------------------------------


def test_a_divergent_member_is_reported_alone():
    """Its number, step and cause; NaN from then on; the others go on."""
    network = MLP([2, 5, 2], "relu", 0.1, 1.2, lambda_b=0.5, lambda_W=2.0)
    training = Training(60, 0.05, record=61, spacing="linear")
    job = TrainingJob(network, training, X, Y)
    start = [[np.array(a) for a in layer] for layer in job.initial(0, 70)]
    start[1][1][4] *= 10.0  # λ_max grows with W²
    run = {"observables": ["loss"], "keep_parameters": True}
    found = train_ensemble(network, training, X, Y, parameters=start, **run)
    (failure,) = found.failures
    assert failure.member == 4
    step = int(failure.step)
    assert 1 < step < 60
    assert np.all(np.isfinite(found["loss"][4, :step]))
    assert np.all(np.isnan(found["loss"][4, step:]))
    assert np.all(np.isfinite(np.delete(found["loss"], 4, axis=0)))
    assert "above 2/λ_max = 0.000" in failure.cause
    assert str(failure).startswith(f"member 4, step {step}: eta = 0.05 is above 2/λ_max")

    others = np.delete(np.arange(70), 4)
    mean, covariance = found.mean("loss"), found.covariance("loss")
    assert mean.count == 69
    losses = found["loss"][others]
    np.testing.assert_allclose(mean.value, losses.mean(axis=0), rtol=1e-12)
    spread = losses.std(axis=0, ddof=1)
    np.testing.assert_allclose(covariance.value, spread**2, rtol=1e-9)
    # With fewer members than batches the jackknife leaves one out: the exact standard error.
    np.testing.assert_allclose(mean.standard_error, spread / np.sqrt(69), rtol=1e-9)

    streamed = train_ensemble(
        network, training, X, Y, parameters=start, keep_members=False, covariances=["loss"], **run
    )
    assert streamed.recorded == {}
    assert [failure.member for failure in streamed.failures] == [4]
    np.testing.assert_allclose(streamed.mean("loss").value, mean.value, rtol=1e-12)
    np.testing.assert_allclose(streamed.covariance("loss").value, covariance.value, rtol=1e-9)
    with pytest.raises(DynagramError, match="members were not kept"):
        streamed["loss"]
