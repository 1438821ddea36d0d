"""One thread for small linear algebra."""

from __future__ import annotations

import contextlib
import functools

from threadpoolctl import ThreadpoolController


@functools.cache
def _openblas() -> ThreadpoolController:
    """NumPy's linear algebra; that of PyTorch and JAX has threads of its own."""
    return ThreadpoolController().select(internal_api="openblas")


def one_thread() -> contextlib.AbstractContextManager[object]:
    """NumPy's linear algebra on one thread, afterwards on as many as before.

    After a product on many threads each of them waits for the next one awake, for some 20 ms: with
    matrices as small as ours that takes more of the processors than the product, and takes it from
    whatever runs beside.

    >>> with one_thread():
    ...     all(library["num_threads"] == 1 for library in _openblas().info())
    True
    """
    return _openblas().limit(limits=1)
