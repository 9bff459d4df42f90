"""A JSON text is read if it has its form, is finite and can be written again."""

import json

import pytest

from bounds.store.forms import COUNT, decode, each, fields

FORM = {
    "n": range(4, 5),
    "optional?": str,
    "size": (float, None),
    "pairs": [[range(-1, 2), 2]],
    "any": dict,
    "=": lambda found: len(found["pairs"]) < 3,
}
SOUND = {
    "n": 4,
    "size": 0.5,
    "pairs": [[0, 1], [-1, -1]],
    "any": {"a": [None, {}, "é"]},
}


@pytest.mark.parametrize(
    "change", [{}, {"optional": ""}, {"size": None}, {"size": 3}, {"pairs": []}]
)
def test_what_has_the_form_is_read(change):
    assert decode(json.dumps(SOUND | change), FORM) == SOUND | change


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"n": 5},
        {"n": 4.0},
        {"n": True},
        {"optional": None},
        {"size": "0.5"},
        {"size": float("nan")},
        {"size": 10**400},
        {"pairs": [[0]]},
        {"pairs": [[0, 2]]},
        {"pairs": 2},
        {"pairs": [[0, 0]] * 3},
        {"any": []},
        {"any": {"a": [float("-inf")]}},
        {"any": {"a": "\ud800"}},
        {"any": {"a": json.loads("[" * 40 + "]" * 40)}},
        {"any": {"a": 10**400}},
    ],
)
def test_what_departs_from_the_form_is_refused_in_one_line(change):
    with pytest.raises(ValueError, match="is no result of this command") as refusal:
        decode(json.dumps(SOUND | change), FORM)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("name", ["n", "size", "pairs", "any"])
def test_a_key_that_is_needed_is_not_left_out(name):
    lacking = {key: value for key, value in SOUND.items() if key != name}
    with pytest.raises(ValueError, match="is no result"):
        decode(json.dumps(lacking), FORM)


@pytest.mark.parametrize(
    "text", ["", "{", "\0", "[" * 9999, "9" * 5000, '{"a":1e999}', "NaN", "null", "[]"]
)
def test_a_text_that_is_no_object_is_refused_whatever_the_form(text):
    with pytest.raises(ValueError, match="is no result"):
        decode(text)


def test_names_have_the_form_that_they_have_everywhere():
    assert fields("n kind? size", max=None) == {
        "n": COUNT,
        "kind?": str,
        "size": (float, None),
        "max": None,
    }
    assert each("a b", str) == {"a": str, "b": str}
