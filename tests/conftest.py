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
