"""The published family of flows between the closures, half-way, in figure 5's setting."""

import pytest

from dynagram.theory.saddle import BlockNetwork
from dynagram.theory.saddle._homotopy import homotopy_time


def test_the_literal_family_half_way():
    network = BlockNetwork("tanh", depth=4, betas=(1, 0.3, 0.08), block_size=20, spacing=0.6)
    time = homotopy_time(network, network.aligned(0.05), 0.3, 0.5, family="literal")
    assert time == pytest.approx(68.210120, rel=1e-5)
