"""Running groups of members: how many fit the cache, one compiled program for all, two threads.

A group is the set of members one program trains at once. Its size depends on the network, the
data and the chunk, never on the machine, so that results do not either.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import parent_process
from typing import Any, TypeVar

import jax

T = TypeVar("T")
S = TypeVar("S")

# Parameters, gradients and signals of a group should stay in a core's second-level cache; a GPU
# wants all the members it can get.
_GROUP_BYTES = {"cpu": 2**20}
_GROUP_BYTES_ELSEWHERE = 2**30
_LARGEST_GROUP = 2**12
# Fewer members are trained by one core.
_WORTH_SPLITTING = 32
# Parameters of a member are there about four times (gradient, optimiser, transposes), and so are
# the signals of every layer.
_COPIES = 4


def group_size(numbers: int, samples: int, widths: int, itemsize: int, chunk: int) -> int:
    """Members per group: of `numbers` parameters each, on `samples` with Σ_ℓ n_ℓ = `widths`.

    An even number of groups, all full, makes up a chunk, so that two cores are busy to the end.

    >>> group_size(1377, 16, 73, 4, chunk=1000)
    25
    """
    member = _COPIES * itemsize * (numbers + samples * widths)
    budget = _GROUP_BYTES.get(jax.default_backend(), _GROUP_BYTES_ELSEWHERE)
    largest = min(max(budget // member, 1), _LARGEST_GROUP)
    groups = -(-chunk // largest)
    if chunk >= _WORTH_SPLITTING:
        groups += groups % 2
    return -(-chunk // groups)


def compiled(program: Callable[..., T], *arguments: Any, alone: bool) -> Callable[..., T]:
    """`program` compiled for arguments like these; unless `alone`, for one thread.

    Groups then run side by side, which is faster than sharing out the work of every operation.
    """
    lowered = jax.jit(program).lower(*arguments)
    if jax.default_backend() != "cpu" or alone:
        return lowered.compile()
    try:
        return lowered.compile(compiler_options={"xla_cpu_multi_thread_eigen": False})
    except Exception:  # a compiler that no longer knows this option
        return lowered.compile()


def in_threads(function: Callable[[S], T], work: Iterable[S]) -> Iterator[T]:
    """`function` of each piece of work, in order, a few at a time; XLA releases Python's lock.

    One thread per core in the main process, a single one in a worker of a pool.

    >>> list(in_threads(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    threads = _threads()
    if threads == 1:
        yield from map(function, work)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for piece in work:
                waiting.append(pool.submit(function, piece))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@functools.cache
def _threads() -> int:
    if parent_process() is not None or jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
