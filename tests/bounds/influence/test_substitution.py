"""Substitutes that differ by position are the union of what each position is asked alone."""

import numpy as np
import pytest

import bounds
from bounds.influence.substitution import list_substitutions
from tests.bounds.influence.models import build

V = 5
TOKENS = np.array([0, 3, 1, 4, 2, 2])
# Repeated, unordered, the token itself and nothing at all.
ROWS = np.array(
    [[4, 1, 4], [3, 0, -1], [-1, 2, -1], [-1, -1, -1], [2, 0, 1], [0, 1, 3]]
)


LAST = len(TOKENS) - 1


def pairs(symbols=None, positions=None, **options):
    options |= {"symbols": symbols, "positions": positions}
    found = list_substitutions(TOKENS, V, query=LAST, **options)
    return list(zip(found.position.tolist(), found.symbol.tolist(), strict=True))


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ({}, lambda i, s: i != LAST),
        ({"include_query": True}, lambda i, s: True),
        ({"symbols": [2]}, lambda i, s: s == 2 and i != LAST),
        ({"symbols": [2, 0, 2]}, lambda i, s: s in (0, 2) and i != LAST),
        ({"positions": [3, 1, 1]}, lambda i, s: i in (1, 3)),
        ({"positions": [LAST, 0]}, lambda i, s: i == 0),
        ({"positions": [LAST], "include_query": True}, lambda i, s: i == LAST),
        ({"positions": range(4), "symbols": [1]}, lambda i, s: i < 4 and s == 1),
    ],
    ids=lambda x: "" if callable(x) else str(x),
)
def test_only_what_is_asked_for_is_listed_once_and_in_order(question, asked):
    wanted = [(i, s) for i in range(len(TOKENS)) for s in range(V) if asked(i, s)]
    assert pairs(**question) == [(i, s) for i, s in wanted if s != TOKENS[i]]


@pytest.mark.parametrize("include_query", [False, True])
@pytest.mark.parametrize("substitutable", [None, [0, 1, 2, 3]])
def test_rows_list_the_union_of_single_questions(include_query, substitutable):
    options = {"include_query": include_query, "substitutable": substitutable}
    one_by_one = []
    for position, row in enumerate(ROWS):
        one_by_one += pairs(row[row >= 0].tolist(), [position], **options)
    assert pairs(ROWS, **options) == one_by_one
    assert pairs(ROWS.tolist(), **options) == one_by_one


def test_row_p_belongs_to_the_p_th_of_the_positions_that_are_given():
    assert pairs([[0, 1], [2, -1]], [4, 1]) == [(1, 2), (4, 0), (4, 1)]
    assert pairs([[0, 1], [2, -1]], [1, 4]) == [(1, 0), (1, 1)]  # 2 stands at 4
    assert pairs([[0], [1]], [1, 1]) == [(1, 0), (1, 1)]


@pytest.mark.parametrize("symbols", [None, [2, 3, 4], np.tile([2, 3, 4], (6, 1))])
def test_special_symbols_are_replaced_and_put_in_where_they_are_listed(symbols):
    limits = {"substitutable": [0, 1, 2], "special": [3]}
    put_in = [0, 1, 2] if symbols is None else [2, 3]
    for positions, changed in ((None, {0, 1, 2}), (range(6), {0, 1, 2, 3})):
        assert pairs(symbols, positions, **limits) == [
            (at, symbol)
            for at, token in enumerate(TOKENS[:5].tolist())
            for symbol in put_in
            if token in changed and token != symbol
        ]


def test_padding_alone_and_empty_lists_substitute_nothing():
    assert pairs(np.full((6, 2), -1)) == []
    assert pairs(np.zeros((0, 2), int), []) == []
    for symbols in ([], [[], [], []], np.zeros((3, 0))):
        assert pairs(symbols, [0, 1, 2]) == []


@pytest.mark.parametrize(("method", "layers"), [("incremental", 1), ("screened", 2)])
def test_influences_of_rows_are_those_of_single_calls(method, layers):
    model = build({"num_layers": layers, "vocab_size": V})
    asked = np.zeros((6, V), bool)
    for position, row in enumerate(ROWS[:5]):
        asked[position, row[(row >= 0) & (row != TOKENS[position])]] = True
    whole = bounds.compute_influence(model, TOKENS, symbols=ROWS, method=method)
    every = bounds.compute_influence(model, TOKENS, method="exhaustive")
    assert np.array_equal(~np.isnan(whole.lower), asked)
    assert (whole.lower[asked] <= every.upper[asked]).all()
    assert (whole.upper[asked] >= every.lower[asked]).all()
    at = np.where(asked, every.upper, -1).argmax()
    assert (whole.position, whole.symbol) == divmod(at, V)
    assert whole.substitutions == asked.sum()
