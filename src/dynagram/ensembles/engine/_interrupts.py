"""Ctrl-C during a run: it always ends the run, and between two chunks at the latest."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Remembers Ctrl-C for the duration; the function it yields raises one that got lost.

    Python throws away what is raised in a destructor, and Dask's futures have long ones: the
    `KeyboardInterrupt` of a Ctrl-C that arrives there would end nothing. It is not raised there,
    but by the next call of the function. Only the main thread with Python's own handler is
    concerned.
    """
    asked = False

    def raise_lost_interrupt() -> None:
        if asked:
            raise KeyboardInterrupt

    def handle(_: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        if not _in_destructor(frame):
            raise KeyboardInterrupt

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield raise_lost_interrupt
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield raise_lost_interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _in_destructor(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
