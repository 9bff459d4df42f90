"""Files are written whole or not at all; JSON has one text per value and no NaN."""

import json
import math

import numpy as np
import pytest

from bounds.store.output import (
    canonical_json,
    plain,
    write_bytes,
    write_csv,
    write_json,
)


def test_a_file_is_written_in_a_folder_that_is_made(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    write_bytes(path, b"content")
    assert path.read_bytes() == b"content"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_what_is_not_finite_or_missing_is_null_or_nothing(tmp_path):
    found = {"a": math.nan, "b": [-math.inf, np.float64(1.5)], "c": np.int32(2)}
    write_json(tmp_path / "file.json", found)
    text = (tmp_path / "file.json").read_text()
    read = json.loads(text, parse_constant=pytest.fail)
    assert read == {"a": None, "b": [None, 1.5], "c": 2}
    rows = [{"a": True, "b": None}, {"a": np.False_, "b": 'x,"y"'}, {}]
    write_csv(tmp_path / "file.csv", ["a", "b"], rows)
    text = (tmp_path / "file.csv").read_text()
    assert text == 'a,b\ntrue,\nfalse,"x,""y"""\n,\n'


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    one = canonical_json({"b": [1, {"y": 2, "x": 3}], "a": "é"})
    assert one == canonical_json({"a": "é", "b": (1, {"x": 3, "y": 2})})
    assert one == '{"a":"\\u00e9","b":[1,{"x":3,"y":2}]}'


def test_what_json_has_no_form_for_is_refused():
    with pytest.raises(TypeError, match="complex"):
        plain({"a": 1j})
    with pytest.raises(TypeError, match="keys"):
        plain({1: "a"})
