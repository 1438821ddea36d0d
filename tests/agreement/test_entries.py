"""What the regime says of small entries: the next order in 1/n stays below its bound.

The bound of V is ½ max (2 − δ_ab) V_(ab)(ab)/(n K_aa K_bb) of the deviations of the two entries.
It is held against the exact V^{1}, and against networks, which contain all orders.
"""

import numpy as np
import pytest

from dynagram import MLP, compare, predict, simulate
from dynagram.results._agreement import family_limit
from dynagram.results._next_order import left_out
from dynagram.theory._next_order import next_order

RNG = np.random.default_rng(5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "depth", "samples"),
    [("tanh", 3, 3), ("tanh", 20, 2), ("sin", 9, 2), ("gelu", 4, 3)],
)
def test_exact_next_order_is_below_its_bound(activation, depth, samples):
    x = RNG.normal(size=(samples, 16))
    network = MLP.critical([16, *[50] * (depth - 1), 1], activation)
    numbers = predict(network, x, ("V",)).regime.numbers
    exact = next_order(network, x)
    bound = left_out("V", exact.V[-1], exact.K[-1], 50, numbers)
    ratio = np.abs(exact.V1[-1] / 50) / bound
    # At most 1; twice too large a bound would be of no use at depth, where the ratio is 0.7.
    assert np.max(ratio) < 1.0
    assert np.max(ratio) > (0.55 if depth > 3 else 0.2)


@pytest.mark.slow
def test_networks_stay_within_what_the_regime_says():
    """Eight random inputs: "careful", and the entries it calls good are within half of themselves.

    The ensemble resolves the next order, so that without the bound the two would differ.
    """
    x = RNG.normal(size=(8, 3))
    network = MLP.critical([3, 24, 24, 24, 1], "tanh")
    theory = predict(network, x, ("K", "V"))
    measured = simulate(network, x, ("K", "V"), members=40_000, seed=2)
    assert theory.regime.verdict == "careful"
    assert "entries of V at the output are so small" in theory.regime.reasons[0]
    V, found = theory["V"][-1], measured["V"][-1]
    error = np.hypot(measured.error("V")[-1], theory.error("V")[-1])
    limit, difference = family_limit(4.0, V.size), np.abs(found - V)
    bound = left_out("V", V, theory["K"][-1], 24, theory.regime.numbers)
    assert np.max(difference / error) > limit
    assert np.all(difference <= bound + limit * error)
    good = bound <= 0.5 * np.abs(V)
    assert np.mean(~good) == pytest.approx(theory.regime.numbers["unresolved_entries_of_V"])
    assert np.all(difference[good] <= 0.5 * np.abs(V[good]) + limit * error[good])
    row = next(row for row in compare(theory, measured).rows if row.label == "V")
    assert row.verdict() == "next order"


def test_similar_inputs_are_trusted_and_orthogonal_ones_too():
    """Entries that vanish by symmetry are exact: nothing is left out of them."""
    network = MLP.critical([3, 50, 50, 50, 1], "tanh")
    alike = predict(network, [[1.0, 1.0, 1.0], [1.2, 1.0, 0.8]], ("V",)).regime
    assert (alike.verdict, alike.numbers["unresolved_entries_of_V"]) == ("trust", 0.0)
    apart = predict(network, np.eye(3), ("V",)).regime
    assert (apart.verdict, apart.numbers["unresolved_entries_of_V"]) == ("trust", 0.0)
