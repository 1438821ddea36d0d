"""Ctrl-C, SIGTERM and SIGHUP during a run: they end it, and leave one that can go on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# What ends a run, and how the system handles it when nobody asked for anything else.
_USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
_USUAL |= {
    getattr(signal, name): signal.SIG_DFL for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
}
# Seconds that a compiled program may keep Python from hearing of SIGTERM or SIGHUP.
GRACE = 10.0
# Where an exception would be thrown away, or leave a process half started.
_SHELTERED = ("__del__", "submit")


@contextlib.contextmanager
def interrupts(at_last: Callable[[], None] = lambda: None) -> Iterator[Callable[[], None]]:
    """Signals raise `KeyboardInterrupt` with their number; the function yielded raises a lost one.

    Python throws away what is raised in a destructor, and Dask's futures have long ones: the
    `KeyboardInterrupt` of a Ctrl-C that arrives there would end nothing. It is not raised there,
    but by the next call of the function. Python hears of a signal when a compiled program
    returns; a SIGTERM or SIGHUP that it has not heard of after `GRACE` seconds ends the process
    with `at_last`. Only the main thread and handlers that nobody has changed are concerned.
    """
    asked: list[int] = []

    def raise_lost_interrupt() -> None:
        if asked:
            raise KeyboardInterrupt(asked[0])

    def handle(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if not _is_sheltered(frame):
            raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield raise_lost_interrupt
        return
    mine = [number for number, usual in _USUAL.items() if signal.getsignal(number) is usual]
    for number in mine:
        signal.signal(number, handle)
    try:
        with _watch([number for number in mine if number != signal.SIGINT], at_last):
            yield raise_lost_interrupt
    finally:
        for number in mine:
            signal.signal(number, _USUAL[number])


@contextlib.contextmanager
def _watch(numbers: list[int], at_last: Callable[[], None]) -> Iterator[None]:
    """A thread that hears of signals even while the main one is inside a compiled program."""
    if os.name != "posix" or not numbers:
        yield
        return
    hear, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    over = threading.Event()

    def listen() -> None:
        while heard := os.read(hear, 1):
            if heard[0] in numbers and not over.wait(GRACE):
                at_last()
                os._exit(128 + heard[0])

    listener = threading.Thread(target=listen, daemon=True, name="signals")
    listener.start()
    try:
        if before != -1:  # somebody else listens already
            signal.set_wakeup_fd(before)
        yield
    finally:
        over.set()
        if before == -1:
            signal.set_wakeup_fd(-1)
        os.close(tell)
        listener.join()
        os.close(hear)


def _is_sheltered(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _SHELTERED:
            return True
        frame = frame.f_back
    return False
