"""Reading stored runs: `open_run` gives an xarray.Dataset with names and coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram.ensembles._jobs import FailedMember, JobClass, unpack
from dynagram.ensembles.engine._stored import read_outcome
from dynagram.ensembles.store._durable import RunError
from dynagram.ensembles.store._store import RunStore
from dynagram.ensembles.trained._job import TrainingJob
from dynagram.errors import MissingExtraError
from dynagram.results._estimate import Moments
from dynagram.results._outputs import Outputs

if TYPE_CHECKING:
    import xarray
else:
    xarray = Any  # imported when a run is read


def open_run(path: str | Path, *, job_class: JobClass | None = None) -> xarray.Dataset | Outputs:
    """The results of a stored run, finished or not, as an `xarray.Dataset`.

    A run of `train` gives the `Outputs` that `train` gave, of the members that are there.
    Estimates come as `V` and `V_error`, its standard errors; arrays with one entry per member
    are read from disk when they are used, and the coordinate `missing` marks members that
    could not be computed (NaN). Of a run that is not finished these are the members up to the first
    that is missing: `attrs["complete"]` tells. Every chunk is checked against its checksums
    first, and `RunError` names one that is damaged. `job_class` is needed for jobs of your own.
    Needs the extra `runs`.

    >>> import tempfile
    >>> from dynagram import MLP
    >>> from dynagram.ensembles.engine._engine import run_job
    >>> from dynagram.ensembles.initial._metric import KernelJob
    >>> job = KernelJob(MLP([3, 20, 1], "tanh", C_b=0.0, C_W=1.0), np.ones((1, 3)), ("V",), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run_job(job, members=1000, folder=f"{folder}/run")
    ...     found = open_run(f"{folder}/run")
    >>> found.V.dims, found.attrs["members"], found.attrs["complete"]
    (('layer', 'a', 'b', 'c', 'd'), 1000, True)
    """
    store = RunStore.open(Path(path))
    job = store.job(job_class)
    if isinstance(job, TrainingJob):
        return job.result(read_outcome(store, job))
    try:
        import xarray
        import zarr  # noqa: F401 (xarray reads through it)
    except ImportError as error:
        raise MissingExtraError("xarray with zarr", "runs") from error
    moments: dict[str, Moments] = {}
    failed: list[FailedMember] = []
    members, arrays = 0, set[str]()
    for chunk, number in enumerate(store.chunks()):
        if number != chunk:
            break
        record, packed = store.load(chunk)
        for name, value in unpack(packed).items():
            if isinstance(value, Moments):
                moments[name] = moments[name].merge(value) if name in moments else value
            else:
                arrays.add(name)
        failed.extend(record.failed)
        members += record.size
    if members == 0:
        raise RunError(f"{path} holds no finished chunk yet")
    dims = job.dims()
    data: dict[str, Any] = {}
    for name, estimate in (job.estimates(moments) if moments else {}).items():
        data[name] = dims[name], estimate.value
        data[f"{name}_error"] = dims[name], estimate.standard_error
    data |= {name: (dims[name], array) for name, array in job.arrays().items() if name in dims}
    found = xarray.Dataset(data)
    if arrays:
        stored = xarray.open_zarr(store.folder / "arrays", consolidated=False, chunks=None)
        found = found.merge(stored[sorted(arrays)].isel(member=slice(0, members)))
        found = found.assign_coords(
            member=np.arange(members),
            missing=("member", np.isin(np.arange(members), [f.member for f in failed])),
        )
    sizes = {name: values for name, values in job.coordinates().items() if name in found.sizes}
    return found.assign_coords(sizes).assign_attrs(
        spec=store.spec,
        members=members,
        complete=_is_complete(store, members),
        failed_members=[str(member) for member in failed],
    )


def _is_complete(store: RunStore, members: int) -> bool:
    if store.run.get("until_error") is None:
        return members == store.run["members"]
    status = store.status()
    return status.get("state") == "complete" and status.get("members") == members
