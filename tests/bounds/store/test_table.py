"""A table gives its columns the narrowest type that holds them."""

import importlib.util
import json

import numpy as np
import pytest

from bounds.store.table import Table
from jax_models import InputError

TABLE = Table(
    (
        {"n": 16, "influence": 0.5, "exact": True, "label": "softmax", "symbol": 1},
        {"n": 32, "influence": None, "exact": False, "label": "hard", "symbol": None},
        {"n": 64, "influence": 1, "exact": True, "label": "soft", "extra": [1]},
    )
)


def test_columns_have_one_type_and_stand_in_the_order_they_are_met():
    kinds = {name: TABLE.column(name).dtype.kind for name in TABLE.columns}
    assert list(kinds.items()) == [
        *(("n", "i"), ("influence", "f"), ("exact", "b"), ("label", "U")),
        *(("symbol", "f"), ("extra", "O")),
    ]
    # A missing number is NaN, and anything else missing None.
    np.testing.assert_array_equal(TABLE.column("influence"), [0.5, np.nan, 1.0])
    np.testing.assert_array_equal(TABLE.column("symbol"), [1.0, np.nan, np.nan])
    assert list(TABLE.column("extra")) == [None, None, [1]]
    assert set(TABLE.to_numpy()) == set(TABLE.columns)
    assert len(TABLE) == 3
    assert TABLE[1] == list(TABLE)[1]


def test_an_unknown_column_is_an_error_that_lists_the_known():
    with pytest.raises(KeyError, match="influence"):
        TABLE.column("influnce")


def test_a_table_is_shown_in_a_line_however_long_it_is():
    assert repr(TABLE) == (
        "Table(3 rows of 6 columns: n, influence, exact, label, symbol, extra)"
    )
    assert repr(Table(())) == "Table(0 rows of 0 columns: none)"
    wide = Table(({f"column {index}": index for index in range(40)},) * 10_000)
    assert repr(wide).startswith("Table(10000 rows of 40 columns: column 0, ")
    assert repr(wide).endswith("column 7, ...)")


def test_a_table_is_written_as_csv_and_json_lines(tmp_path):
    TABLE.to_csv(tmp_path / "file.csv")
    assert (tmp_path / "file.csv").read_text().splitlines()[1:] == [
        "16,0.5,true,softmax,1,",
        "32,,false,hard,,",
        "64,1,true,soft,,[1]",
    ]
    TABLE.to_json_lines(tmp_path / "file.jsonl")
    lines = (tmp_path / "file.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == list(
        TABLE
    )


@pytest.mark.parametrize("method", ["to_pandas", "to_parquet"])
def test_a_package_that_is_not_installed_is_named(monkeypatch, tmp_path, method):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    arguments = [tmp_path / "file"] if method == "to_parquet" else []
    with pytest.raises(InputError, match=r"not installed.*pip install"):
        getattr(TABLE, method)(*arguments)
    assert not list(tmp_path.iterdir())


def test_pandas_has_the_same_columns():
    pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert tuple(frame.columns) == TABLE.columns
    for name, column in TABLE.to_numpy().items():
        np.testing.assert_array_equal(frame[name].to_numpy(), column)


def test_parquet_keeps_kinds_and_nulls(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    TABLE.to_parquet(tmp_path / "file.parquet")
    read = parquet.read_table(tmp_path / "file.parquet").to_pydict()
    assert read["symbol"] == [1, None, None]
    assert read["influence"] == [0.5, None, 1.0]
    assert read["exact"] == [True, False, True]
    assert read["extra"] == [None, None, "[1]"]


def test_parquet_writes_integers_beyond_64_bits_as_json(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = ({"a": 2**63, "b": 2**63 - 1, "c": 0.5}, {"a": -1, "b": 1, "c": 10**400})
    Table(rows).to_parquet(tmp_path / "file.parquet")
    read = parquet.read_table(tmp_path / "file.parquet").to_pydict()
    assert read == {
        "a": [str(2**63), "-1"],
        "b": [2**63 - 1, 1],
        "c": ["0.5", str(10**400)],
    }
