"""Series of figures: what coincides is one line, or stands aside."""

import numpy as np

from bounds.curves.series import Decades, Series, free_places, merge, points, reduced

N = np.array([16, 32])


def test_the_largest_is_taken_per_key():
    keys, tops = reduced(np.array([2, 1, 2, 2]), np.array([1.0, 7.0, 5.0, 3.0]))
    np.testing.assert_array_equal(keys, [1, 2])
    np.testing.assert_array_equal(tops, [7.0, 5.0])


def test_series_that_are_the_same_everywhere_are_one_with_the_bounds_of_any():
    bound = Decades("corrected", {}, N, np.ones(2))
    same = Series("a (exponent 1.00)", N, 1 / N), Series("b (exponent 1.00)", N, 1 / N)
    other = Series("c", N, 2 / N)
    first, second = merge([same[0], other, Series(same[1].label, N, 1 / N, (bound,))])
    assert (first.label, first.bounds) == ("a and b (exponent 1.00)", (bound,))
    assert second is not first
    assert second.label == "c"


def test_a_series_stands_aside_of_every_earlier_one_that_it_meets():
    heights = ([1.0, 0.0], [1.0, 0.5], [2.0, 0.0], [4.0, 8.0])
    series = [Series(str(k), N, np.array(y)) for k, y in enumerate(heights)]
    assert free_places(series) == [0, 1, 1, 0]


def test_points_of_a_column_leave_out_rows_without_it():
    rows = [{"n": 1, "a": 2.0}, {"n": 2, "a": None}, {"n": 3}, {"n": 4, "a": 5}]
    n, values = points(rows, "a")
    assert (n.tolist(), values.tolist()) == ([1, 4], [2, 5])
    assert all(x.shape == (0,) for x in points(rows, "b"))
