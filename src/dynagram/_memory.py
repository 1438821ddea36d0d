"""How much memory there is, asked before much of it is taken."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dynagram.errors import InvalidValueError

# Of the memory there is, what one request may fill: Python, JAX and copies need the rest.
_SHARE = 0.75
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int | None:
    """Bytes of memory of this machine, or of the container it is; None where nobody says.

    >>> size = machine_memory()
    >>> size is None or size > 1e8
    True
    """
    sizes = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CONTAINER:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number and no limit
            sizes.append(int(Path(name).read_text()))
    return min(sizes, default=None)


def require_memory(argument: str, value: object, needed: float | int, remedy: str) -> None:
    """Refuse, before it is begun, what would need more bytes than there are.

    **Arguments:**

    - `argument`, `value`: what is blamed.
    - `needed`: bytes.
    - `remedy`: what to ask for instead.

    >>> try:
    ...     require_memory("samples", 10**6, 8e24, "give fewer")
    ... except InvalidValueError as error:
    ...     print(str(error).partition(";")[0])
    samples = 1000000: would need 7450580596923828 GiB
    """
    memory = machine_memory()
    if memory is not None and needed > _SHARE * memory:
        room = f"here are {memory / 2**30:.3g}"
        words = f"would need {needed / 2**30:.0f} GiB; {room}: {remedy}"
        raise InvalidValueError(argument, value, words)
