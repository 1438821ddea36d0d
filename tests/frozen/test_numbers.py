"""Numbers recorded at fixed seeds before the entrances moved: no formula moves with them.

`registry` says how closely; `record` how to move a number on purpose.
"""

import json
import math

import pytest

from frozen.registry import NUMBERS, all_cases, difference

FROZEN = json.loads(NUMBERS.read_text())
CASES = {case.name: case for case in all_cases()}


def test_every_frozen_number_is_computed():
    assert set(CASES) == set(FROZEN)


def with_speed(name):
    """Ensembles take seconds each: they are left to the slow run."""
    return pytest.param(name, marks=pytest.mark.slow) if name.startswith("ensembles.") else name


@pytest.mark.parametrize("name", [with_speed(name) for name in sorted(CASES)])
def test_number(name):
    case = CASES[name]
    numbers = case.numbers()
    assert set(numbers) == set(FROZEN[name])
    moved = {label: difference(FROZEN[name][label], numbers[label]) for label in numbers}
    assert {label: size for label, size in moved.items() if not size <= case.rtol} == {}


def test_difference_sees_a_moved_number():
    assert difference([1.0, 2.0], [1.0, 2.0 + 4e-12]) > 1e-12
    assert difference([1.0, math.nan], [1.0, math.nan]) == 0.0
    assert difference([1.0], [math.nan]) == math.inf
    assert difference([1.0], [1.0, 1.0]) == math.inf
