"""Series of figures are made of the rows that have a column."""

from bounds.curves.series import points


def test_points_of_a_column_leave_out_rows_without_it():
    rows = [{"n": 1, "a": 2.0}, {"n": 2, "a": None}, {"n": 3}, {"n": 4, "a": 5}]
    n, values = points(rows, "a")
    assert (n.tolist(), values.tolist()) == ([1, 4], [2, 5])
    assert all(x.shape == (0,) for x in points(rows, "b"))
