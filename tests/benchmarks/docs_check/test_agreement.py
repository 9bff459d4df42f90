"""Outputs agree up to the digits that a page states, and no further."""

import pytest

from benchmarks.docs_check.agreement import (
    difference,
    find_tables,
    same_line,
    same_made,
    stated_numbers,
    table_difference,
    unaccounted,
)


@pytest.mark.parametrize(
    ("stated", "made", "same"),
    [
        ("| 0.00 ± 0.01 |", "| -0.00 ± 0.01 |", True),
        ("| 2.50 s |", "| 2.51 s |", True),
        ("| 2.50 s |", "| 2.52 s |", False),
        ("| 0.1 |", "| 0.0999 |", True),
        ("| 1.5e-05 |", "| 1.6e-05 |", True),
        ("| 1.5e-05 |", "| 1.5e-04 |", False),
        ("| 1024 |", "| 1025 |", False),
        ("jax 0.10.2", "jax 0.11.2", False),
        ("commit `12e5678901`", "commit `12e5678902`", False),
    ],
)
def test_generated_text_may_move_by_one_last_digit_and_by_nothing_else(
    stated, made, same
):
    assert same_made(stated, made) == same
    assert same_made(made, stated) == same


@pytest.mark.parametrize(
    ("stated", "found", "same"),
    [
        ("max 0.406123 at 459", "max  0.4061228 at 459", True),
        ("max 0.406123 at 459", "max 0.406123 at 460", False),
        ("0.569", "0.5696", False),
        ("8.1e-15", "8.14e-15", True),
        ("8.1e-15", "8.1e-14", False),
        ("found in 0.8 s", "found in 13.1 s", True),
        ("0.8 MiB", "0.9 GiB", False),
        ("[True False]", "[ True  False]", True),
        ("-0.010", "-0.0104", True),
        ("-0.010", "0.010", False),
        ("12 of 16", "12 of 16 of 3", False),
    ],
)
def test_the_same_to_stated_digits_agrees_and_nothing_else(stated, found, same):
    assert same_line(stated, found) == same


def test_outputs_are_compared_line_by_line_and_dots_skip():
    assert difference("a\n...\nb 1", "a\nx\ny\nb 1\n") is None
    assert difference("a\n...", "a\nx\n") is None
    assert "'b 2' is printed" in str(difference("a\nb 1", "a\nb 2"))
    assert "nothing is printed" in str(difference("a\n...\nb", "a\nx"))
    assert "nothing is stated" in str(difference("a", "a\nb"))


def test_what_is_waited_for_is_not_compared():
    waiting = (
        "compiling ... (4 s)\n0 of 7 positions done, at work ... (8 s, about 9 s left)"
    )
    assert difference("one\ntwo", f"one\n{waiting}\ntwo") is None
    assert difference("one\ntwo", f"one\n{waiting}\nthree") is not None
    assert difference("one", "one\ncompiling two") is not None


def test_numbers_of_prose_are_those_a_program_has_to_print():
    prose = (
        "For n = 16 it is 0.83 (Hahn 2020), `--x=17`, 10^18785 [a](b-19.md), 4 ways."
    )
    assert stated_numbers(prose) == ["16", "0.83", "18785"]
    assert unaccounted(prose, "16 0.8301 18784.9") == []
    assert unaccounted(prose, "16 0.8501 18784.9") == ["0.83"]
    assert unaccounted("65536 strings", "range(65_536)") == []


@pytest.mark.parametrize(
    ("prose", "numbers"),
    [
        ("Lemmas 25, 29 and Theorem 26. Section 2, section 13.1: n^-0.5.", ["-0.5"]),
        ("arXiv 2412.09925, jax 0.10.2, Apache-2.0: n^-0.5.", ["-0.5"]),
        # A length is no year.
        ("Hahn (2020, Theorem 1), n = 2047, Yang 2024", ["2047"]),
        ("Yang et al. 2024, ACL 2022; TACL 8, 2020; (2026)", []),
        ("Higham\n2002 takes 2048 or (3000)", ["2048", "3000"]),
        ("arXiv\n2412.09925,\n  2024, section\n2.7", []),
        # A value from stored rows needs no other source.
        ("<!-- value: x on y, s -->9.6<!-- end of value --> s, 5.1 MiB", ["5.1"]),
    ],
)
def test_names_years_and_values_of_stored_rows_are_no_numbers(prose, numbers):
    assert stated_numbers(prose) == numbers


TABLE = "| n | seconds | x |\n| --- | --- | --- |\n| 16 | 1.8 | 17.334 |"


def test_tables_agree_up_to_digits_and_seconds():
    assert table_difference(TABLE, TABLE.replace("1.8", "9")) is None
    assert table_difference(TABLE, TABLE.replace("17.334", "17.3338")) is None
    for old, new in (("16", "17"), ("17.334", "17.4")):
        assert "is stated" in str(table_difference(TABLE, TABLE.replace(old, new)))
    assert table_difference(TABLE, TABLE.rpartition("\n")[0])


def test_tables_are_found_by_their_marks():
    page = (
        f"a\n<!-- rows of one -->\n{TABLE}\n<!-- rows of one -->\n\n<!-- two -->\nx\n"
    )
    page += "<!-- end of two -->\n"
    assert find_tables(page) == {"one": TABLE, "two": "x"}
