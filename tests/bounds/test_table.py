"""A table gives its columns the narrowest type that holds them."""

import numpy as np
import pytest

from bounds.table import Table

TABLE = Table(
    (
        {"n": 16, "influence": 0.5, "exact": True, "label": "softmax", "symbol": 1},
        {"n": 32, "influence": None, "exact": False, "label": "hard", "symbol": None},
        {"n": 64, "influence": 1, "exact": True, "label": "soft", "extra": [1]},
    )
)


def test_columns_are_named_in_the_order_they_are_met():
    assert TABLE.columns == ("n", "influence", "exact", "label", "symbol", "extra")


@pytest.mark.parametrize(
    ("name", "kind"), [("n", "i"), ("influence", "f"), ("exact", "b"), ("label", "U")]
)
def test_a_column_has_one_type(name, kind):
    assert TABLE.column(name).dtype.kind == kind


def test_a_missing_number_is_nan_and_anything_else_missing_is_none():
    np.testing.assert_array_equal(TABLE.column("influence"), [0.5, np.nan, 1.0])
    np.testing.assert_array_equal(TABLE.column("symbol"), [1.0, np.nan, np.nan])
    assert list(TABLE.column("extra")) == [None, None, [1]]


def test_an_unknown_column_is_an_error_that_lists_the_known():
    with pytest.raises(KeyError, match="influence"):
        TABLE.column("influnce")


def test_rows_and_arrays_agree():
    assert len(TABLE) == 3
    assert TABLE[1] == list(TABLE)[1]
    assert set(TABLE.to_numpy()) == set(TABLE.columns)


def test_a_table_is_written_as_csv(tmp_path):
    TABLE.to_csv(tmp_path / "file.csv")
    assert (tmp_path / "file.csv").read_text().splitlines()[1:] == [
        "16,0.5,true,softmax,1,",
        "32,,false,hard,,",
        "64,1,true,soft,,[1]",
    ]
