"""Strict numerics for every test: float64, no silent broadcasting of ranks, fixed keys."""

import os

import jax
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")  # keras asks for TensorFlow otherwise
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def getkey():
    """A fresh key per call, the same sequence in every run."""
    state = {"key": jax.random.key(20260415)}

    def next_key():
        state["key"], key = jax.random.split(state["key"])
        return key

    return next_key


def _memory_maps() -> tuple[int, int]:
    """Mapped regions of this process and how many it may have; (0, 1) where nobody says."""
    try:
        with open("/proc/sys/vm/max_map_count") as most, open("/proc/self/maps") as mapped:
            return sum(1 for _ in mapped), int(most.read())
    except OSError:
        return 0, 1


_TESTS_SINCE_COUNT = 0


@pytest.fixture(autouse=True)
def compiled_code_is_dropped_in_time():
    """Every compiled function maps memory, of which Linux gives a process some 65 000 regions.

    A worker that has run a few hundred tests would die in its next compilation. Regions are
    counted after every eighth test, as counting takes some ten milliseconds.
    """
    global _TESTS_SINCE_COUNT
    yield
    _TESTS_SINCE_COUNT = (_TESTS_SINCE_COUNT + 1) % 8
    if _TESTS_SINCE_COUNT == 0:
        mapped, most = _memory_maps()
        if mapped > most / 3:
            jax.clear_caches()
