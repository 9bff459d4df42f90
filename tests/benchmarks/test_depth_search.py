"""Searches for parameters: what they find is proved, and no worse than the closed form."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks import depth_search
from benchmarks.depth_search import found_rows, search_dyck_parameters, search_steps
from bounds.restriction.closed_form import (
    Tower,
    closed_form_switching,
    computable_length,
    depth_tails,
    dyck_threshold,
    switching_proof,
)
from bounds.restriction.closed_form.routes import RELEASED, _dyck_parameters


@pytest.mark.parametrize(("layers", "heads"), [(2, 3), (3, 4), (6, 1)])
def test_a_search_lies_between_what_is_possible_and_the_closed_form(layers, heads):
    proof = switching_proof(heads, search_steps(layers, heads))
    assert proof.length > computable_length(layers, heads)
    assert Tower.of(proof.length) <= closed_form_switching(layers, heads).length


def test_what_is_too_large_to_search_is_left_alone():
    assert search_steps(500, 8) is None
    assert search_steps(2, 10**6) is None
    assert search_dyck_parameters(10**6, RELEASED[2, 2]) is None
    assert list(found_rows(500, 8)) == []


def test_a_search_finds_what_the_table_has_within_a_tenth():
    found = search_dyck_parameters(2, RELEASED[2, 2])
    lengths = [dyck_threshold(one) for one in (found, _dyck_parameters(2, 2)) if one]
    ours, released = [length for length in lengths if length]
    assert ours <= 1.1 * released


def test_rows_are_printed_as_the_table_has_them():
    parity, dyck = found_rows(2, 1)
    assert parity == "2 1: 141/400 5"
    assert dyck.startswith("2 1: ")
    assert " | " in dyck


def test_a_search_looks_at_the_same_numbers():
    p = np.array([0.02, 0.1, 0.25])
    for width, heads in ((1, 4), (4, 1), (7, 3)):
        found = depth_search._tails(width, heads, 9, p)
        for row, star in zip(found, p, strict=True):
            exact = depth_tails(width, heads, 9, Fraction(float(star)))
            np.testing.assert_allclose(row, [float(x) for x in exact], 1e-9, 1e-14)
