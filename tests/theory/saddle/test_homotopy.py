"""The escape-time homotopy: adjoint against differences, parts against the whole."""

import numpy as np
import pytest

from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.theory.saddle import BlockNetwork, block_escape, escape_homotopy
from dynagram.theory.saddle._homotopy import homotopy_slope, homotopy_time

SMALL = BlockNetwork("tanh", depth=3, betas=(1, 0.3), block_size=20, spacing=0.6)
START = SMALL.aligned(0.1)


def _slope(network, nu, **options):
    """dT/dν by the five-point rule; with a smaller step the solver's own errors would show."""
    step = 0.01
    near, far = (
        homotopy_time(network, START, 0.3, nu + d, **options)
        - homotopy_time(network, START, 0.3, nu - d, **options)
        for d in (step, 2 * step)
    )
    return (8 * near - far) / (12 * step)


@pytest.mark.slow
def test_the_integral_of_the_adjoint_is_the_shift():
    found = escape_homotopy(SMALL, START, 0.3, nodes=4)
    direct = found.end - found.start
    assert direct < -0.1  # off-block learning speeds the escape up
    assert abs(found.shift / direct - 1) < 1e-5
    assert sum(found.channels.values()) == pytest.approx(found.shift, rel=1e-12)
    assert found.normalisation < 1e-8
    # The ends are the closures themselves.
    assert float(block_escape(SMALL, START, 0.3).time) == pytest.approx(found.end, rel=1e-8)
    alone = block_escape(SMALL.closed(()), START, 0.3)
    assert float(alone.time) == pytest.approx(found.start, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rate", "literal"])
def test_slope_against_central_differences(family):
    slope = homotopy_slope(SMALL, START, 0.3, 0.4, family=family)
    assert np.sum(slope.channels) == pytest.approx(_slope(SMALL, 0.4, family=family), rel=1e-5)
    here = homotopy_time(SMALL, START, 0.3, 0.4, family=family)
    assert slope.time == pytest.approx(here, rel=1e-10)


@pytest.mark.slow
def test_channels_are_the_slopes_of_their_own_rates():
    """At ν = 0 each channel's A is the slope of T when that layer alone is opened."""
    together = homotopy_slope(SMALL, START, 0.3, 0.0).channels
    for channel, layer in zip(together, (1, 2), strict=True):
        assert channel == pytest.approx(_slope(SMALL.closed((layer,)), 0.0), rel=1e-5)


def test_refusals():
    with pytest.raises(InvalidValueError, match="expected 'rate' or 'literal'"):
        homotopy_time(SMALL, START, 0.3, 0.0, family="linear")
    with pytest.raises(AccuracyError, match="needs an escape at every ν"):
        homotopy_time(SMALL, START, 9.0, 0.0)
