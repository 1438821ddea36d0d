"""Verdicts: what is not a number is no reason to trust."""

import math

import pytest

from dynagram.results._regime import Judge


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.01, "trust"), (0.2, "careful"), (0.9, "do not use"), (math.inf, "do not use"),
     (math.nan, "do not use")],
)  # fmt: skip
def test_the_verdict_of_one_number(value, verdict):
    judge = Judge()
    judge.measure("size_of_it", value, 0.1, 0.5, "it is {value:.1g}")
    assert judge.regime("1/n", "all is small").verdict == verdict


def test_what_is_not_a_number_is_named():
    judge = Judge()
    judge.measure("size_of_it", math.nan, 0.1, 0.5, "it is {value:.1g}")
    assert judge.reasons == [
        "the size of it is not a number: sizes here leave the range of float64"
    ]
