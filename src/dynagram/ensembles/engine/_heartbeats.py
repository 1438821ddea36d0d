"""Signs of life: worker processes count while they live, and those that fall silent are ended.

A process that was stopped, or that the machine does not let run, neither works nor ends: who waits
for it waits for ever. Every worker has a number in shared memory that a thread of it increases
each second.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from multiprocessing.context import SpawnContext
from typing import Any

# Seconds between two signs of life; without one after so many, a worker is given up.
BEAT = 1.0
SILENCE = 60.0
# Seconds a new process may take until its first: it imports JAX.
_START = 180.0
# One look at the workers accounts for this much at most: a run that was itself stopped (Ctrl-Z, a
# closed laptop) or busy for long blames nobody for the time it did not look.
_LONGEST_LOOK = 5.0
_NAME = "dynagram-worker-"


class Heartbeats:
    """The numbers of the workers of one pool, and for how long each has stood still."""

    def __init__(self, context: SpawnContext, count: int):
        self.counters: Any = context.RawArray("L", count)
        self._seen: list[int] = [0] * count
        self._silent: list[float] = [0.0] * count
        self._looked = time.monotonic()

    def name_of(self, worker: int) -> str:
        """The name of a process, by which it knows its number."""
        return f"{_NAME}{worker % len(self.counters)}"

    def silent(self, processes: Sequence[Any]) -> list[Any]:
        """Which of the processes have shown no sign of life for too long."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _LONGEST_LOOK), now
        lost = []
        for worker, process in enumerate(processes):
            count = self.counters[worker]
            stands = count == self._seen[worker]
            self._silent[worker] = self._silent[worker] + passed if stands else 0.0
            self._seen[worker] = count
            if self._silent[worker] > (SILENCE if count else max(SILENCE, _START)):
                lost.append(process)
        return lost


def start_beating(counters: Any) -> None:
    """In a worker: count for as long as this process lives."""
    worker = int(multiprocessing.current_process().name.removeprefix(_NAME))

    def beat() -> None:
        while True:
            counters[worker] += 1
            time.sleep(BEAT)

    threading.Thread(target=beat, daemon=True, name="heartbeat").start()
