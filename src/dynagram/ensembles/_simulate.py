"""`simulate`: the tensors of a network at initialisation, measured on networks drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dynagram.ensembles._runs import check_resumable, finish
from dynagram.ensembles.engine._engine import run_job
from dynagram.ensembles.engine._progress import Progress
from dynagram.ensembles.initial._batches import check_integers, check_members, chunk_for
from dynagram.ensembles.initial._job import TensorJob
from dynagram.networks import Network
from dynagram.results._tensors import Tensors

MEMBERS = 20_000


def simulate(
    network: Network,
    x: Float[np.ndarray, "samples n_0"],
    tensors: Sequence[str] = ("K", "V", "G1"),
    *,
    members: int | None = None,
    seed: int = 0,
    until_error: float | None = None,
    sampler: str = "auto",
    run: str | Path | None = None,
    resume: bool = False,
    executor: Executor | str | None = None,
    chunk_members: int | None = None,
    time_limit: float | int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Tensors:
    """Draw networks and measure their tensors on the rows of `x`, with standard errors.

    K and Theta are the measured means, which contain all orders in 1/n; G1 and H1 are n times
    their distance from infinite width; the other letters are n (six_point: n²) times the cumulant
    or mean that defines them. K, V, G1, six_point and odd are measured in every layer, the tangent
    tensors at the output, where `layers` is (L,) and the first axis has length 1. V to 1 % takes
    about 1e5 networks; six_point is noisier, and its memory grows as N⁶.

    **Arguments:**

    - `network`, `x`: the specification, and one input a row.
    - `tensors`: letters of `dynagram.results.LETTERS`; odd is there with skips only, six_point
        without. Those read off two outputs (A, B, F, P to U) need n_L ≥ 2, those with higher
        derivatives (P to U) a smooth activation.
    - `members`: networks, 20 000 by default; with `until_error` the most allowed, or None.
    - `seed`: of the ensemble. The same seed gives the same networks, whatever else is asked.
    - `until_error`: go on until the worst relative standard error is this; judged chunk by chunk.
    - `sampler`: "weights" draws weights, which the tangent tensors need; "metric" draws
        preactivations only, the same law at every width and far faster; "auto" is the second
        where it can.
    - `run`: a folder that keeps the run, chunk by chunk; `open_run` reads it. The same run in it
        is continued, to the same bits, or read if it is complete.
    - `resume`: whether there must be one.
    - `executor`: None for this process, "process:N", "dask", "dask:N", "tcp://host:port", or any
        `concurrent.futures.Executor`.
    - `chunk_members`: networks per chunk; by default about a second of work.
    - `time_limit`: seconds that a chunk may take on a worker of "process:N" or Dask; one that takes
        longer is ended, and the members at fault are found and left out.
    - `progress`: called with a `Progress` after every chunk.

    **Returns:** `Tensors` of order "measured"; bit-identical on every executor, resumed or not.

    Cost per network and layer: n N² for "metric", n² N for "weights", n_L times that for the NTK.

    >>> from dynagram.networks import MLP
    >>> net = MLP([3, 20, 10, 1], "linear", C_b=0.0, C_W=1.0)
    >>> T = simulate(net, np.ones((1, 3)), ("V",), members=100_000)
    >>> T
    Tensors(V; order measured; 100000 networks; 1 sample; MLP((3, 20, 10, 1), 'linear', …))
    >>> T["V"].ravel().round(1)            # 0, 2 and n_2 ((1 + 2/n_1)(1 + 2/n_2) − 1)
    array([0. , 2. , 3.2])
    >>> T.error("V").ravel().round(2)
    array([0.  , 0.01, 0.02])
    """
    if members is None and until_error is None:
        members = MEMBERS
    check_members(members)
    check_resumable(run, resume=resume)
    job = TensorJob(network, x, tuple(tensors), seed, sampler)
    if chunk_members is None:
        chunk_members = chunk_for(members, job.smallest_chunk)
    check_integers(chunk_members=(chunk_members, 1))
    job = job.in_chunks(chunk_members)
    outcome = run_job(
        job,
        members=members,
        executor=executor,
        folder=run,
        resume=run is not None,
        until_error=until_error,
        # A member that fails is left out of a long run, and is an error at once in a short one.
        failures=0 if run is None else 100,
        time_limit=time_limit,
        progress=progress,
    )
    return finish(job, outcome)
