"""The comparison of a prediction with a measurement."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.results._comparison import compare
from dynagram.results._estimate import Estimate


def estimate(value, error):
    return Estimate(np.array(value, dtype=float), np.array(error, dtype=float), 1000)


def test_of_equal_entries_the_first_is_named():
    value = np.array([[0.0, 2.0], [2.0, 0.0]])
    value[1, 0] += 1e-14  # rounding
    assert compare(np.zeros((2, 2)), estimate(value, np.ones((2, 2)))).worst_index == (0, 1)


def test_summary_of_scores():
    measured = estimate([[1.0, 2.5], [3.0, 4.4]], [[0.1, 0.1], [0.2, 0.1]])
    result = compare(np.array([[1.1, 2.0], [3.0, 4.0]]), measured, name="V")
    np.testing.assert_allclose(result.z, [[-1.0, 5.0], [0.0, 4.0]], rtol=1e-12, atol=1e-12)
    assert result.worst_index == (0, 1)
    assert result.worst_z == pytest.approx(5.0)
    assert result.max_abs_z == pytest.approx(5.0)
    assert result.fraction_within_3 == 0.5
    assert result.chi2_per_entry == pytest.approx((1.0 + 25.0 + 16.0) / 4)
    assert not result.ok()
    assert result.ok(limit=5.01)
    assert (
        str(result) == "V: 4 entries, worst z = +5.00 at (0, 1), 50 % within 3σ, χ²/entry = 10.50"
    )


def test_the_worst_entry_keeps_its_sign():
    result = compare(np.array([0.0, 0.0]), estimate([1.0, -2.0], [1.0, 1.0]))
    assert (result.worst_index, result.worst_z, result.max_abs_z) == ((1,), -2.0, 2.0)


def test_prediction_errors_add_in_quadrature():
    measured = estimate([1.0, 1.0], [0.3, 0.3])
    result = compare(np.array([0.5, 0.5]), measured, prediction_error=np.array([0.4, 0.0]))
    np.testing.assert_allclose(result.z, [1.0, 0.5 / 0.3], rtol=1e-12)
    assert compare(np.array([0.5, 0.5]), measured, prediction_error=0.4).max_abs_z == (
        pytest.approx(1.0)
    )


def test_entries_without_error_bar_must_agree_and_are_counted():
    predicted = np.array([0.0, 2.0, 1.0])
    good = compare(predicted, estimate([1e-17, 2.0 * (1 + 1e-10), 1.1], [0.0, 0.0, 0.1]))
    assert good.exact.tolist() == [True, True, False]
    assert good.z[:2].tolist() == [0.0, 0.0]
    assert good.chi2_per_entry == pytest.approx(1.0)
    assert good.exact_mismatches == 0
    assert good.ok()
    assert str(good).endswith("2 of 2 entries without error bar agree")
    bad = compare(predicted, estimate([0.0, 2.0 * (1 - 1e-8), 1.1], [0.0, 0.0, 0.1]))
    assert bad.exact_mismatches == 1
    assert (bad.worst_index, bad.worst_z) == ((1,), -np.inf)
    assert bad.chi2_per_entry == pytest.approx(1.0)
    assert bad.fraction_within_3 == 1.0
    assert not bad.ok(limit=1e300)
    assert "worst z = -inf at (1,)" in str(bad)
    assert str(bad).endswith("1 of 2 entries without error bar agree")


def test_only_exact_entries():
    result = compare(np.zeros(3), estimate(np.zeros(3), np.zeros(3)))
    assert result.ok()
    assert (result.fraction_within_3, result.chi2_per_entry) == (1.0, 0.0)
    assert not compare(np.ones(3), estimate(np.zeros(3), np.zeros(3))).ok()


def test_a_single_number():
    result = compare(1.0, estimate(1.3, 0.1))
    assert result.worst_index == ()
    assert result.worst_z == pytest.approx(3.0)
    assert str(result).startswith("1 entries, worst z = +3.00, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prediction": np.zeros(3)}, "shape of prediction"),
        ({"prediction": np.array([0.0, np.nan])}, "prediction = nan"),
        ({"prediction_error": np.inf}, "prediction_error = inf"),
        ({"prediction_error": -0.1}, "prediction_error = -0.1: an error must be ≥ 0"),
        ({"estimate": estimate([0.0, np.inf], [1.0, 1.0])}, "estimate.value = inf"),
        ({"estimate": estimate([0.0, 0.0], [1.0, np.nan])}, "estimate.standard_error = nan"),
    ],
)
def test_bad_input_names_the_argument(arguments, message):
    usual = {"prediction": np.zeros(2), "estimate": estimate([0.0, 0.0], [1.0, 1.0])}
    asked = usual | arguments
    prediction, measured = asked.pop("prediction"), asked.pop("estimate")
    with pytest.raises(InvalidValueError, match=message):
        compare(prediction, measured, **asked)
