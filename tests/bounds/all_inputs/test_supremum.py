"""The largest influence over all inputs: brute force where that can be had."""

import dataclasses
import math

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.all_inputs import counts
from bounds.all_inputs.ascent import AscentPlan
from bounds.all_inputs.counts import arrange, write_out
from bounds.all_inputs.universe import list_inputs, lump
from bounds.influence import compute_influence
from jax_models.model.position import Coordinates, ResidueTerm
from jax_models.run.evaluate import AmbiguousTieWarning
from jax_models.weighting import WEIGHTINGS
from tests.bounds.all_inputs.brute_force import all_strings, largest_influence
from tests.bounds.influence.models import build, scaled_weights
from tests.long_inputs import long_inputs

PERIODIC = Coordinates((ResidueTerm(0, 2, (0,)), ResidueTerm(3, 2, (1,))))
BINARY = {"vocab_size": 2, "position": None}
ASKED = (-1, "activation")  # query and target


def tied(model):
    """All keys tie, so that the tie order decides alone."""
    return scaled_weights(model, query=0.0, query_bias=0.0)


def assert_brute_force(model, length, *, plan="counts", **question):
    best = bounds.supremum(model, length, ties="ignore", **question)
    expected = largest_influence(model, length, **question)
    assert best.exact
    assert best.plan == plan
    # Brute force subtracts two outputs; its rounding is that of `exhaustive`.
    assert best.max == pytest.approx(expected, rel=1e-10, abs=1e-11)
    assert best.max_lower - 1e-11 <= expected <= best.max_upper + 1e-11
    if best.position is None:
        return best
    # The input that is named attains it, run by the definition.
    assert best.recomputed_by == "exhaustive"
    assert best.recomputed == pytest.approx(expected, rel=1e-10, abs=1e-11)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_all_binary_inputs_of_up_to_twelve_tokens(name, num_layers):
    options = {1: {"layer_norm": "post"}, 2: {}, 3: {"score": "additive"}}
    model = build(
        {**BINARY, **options[num_layers], "weighting": name, "num_layers": num_layers}
    )
    for length in (1, 2, 5, 12):
        assert_brute_force(model, length, target="logits")
    for query in (0, 5):
        assert_brute_force(tied(model), 9, query=query)


@pytest.mark.parametrize(
    ("names", "query"),
    [
        (("rightmost_hard",), 2),
        (("leftmost_hard", "rightmost_hard"), 3),
        (("leftmost_hard", "rightmost_hard"), 6),
        (("rightmost_hard", "average_hard"), 2),
    ],
    ids=str,
)
def test_tie_orders_are_part_of_the_state(names, query):
    case = {**BINARY, "num_layers": len(names), "weighting": names}
    # Cells so wide that some classes tie, and with a query of zero all do.
    assert_brute_force(build({**case, "tie_resolution": 3.0}), 7, query=query)
    assert_brute_force(tied(build(case)), 7, query=query)


@pytest.mark.parametrize(
    ("name", "plan"), [("softmax", "counts"), ("leftmost_hard", "inputs")]
)
def test_periodic_positions_and_more_symbols(name, plan):
    model = build({"weighting": name, "position": None})
    model = tied(model) if plan == "inputs" else model
    model = dataclasses.replace(model, position=PERIODIC)
    assert_brute_force(model, 6, plan=plan, query=1, target="logits")


def test_an_end_token_stands_at_the_query_and_nowhere_else():
    model = build({"position": None, "num_layers": 1})
    model = dataclasses.replace(model, substitutable=(0, 1))
    best = assert_brute_force(model, 7)
    assert best.tokens[-1] == 2
    assert (best.tokens[:-1] < 2).all()
    assert best.symbol in (0, 1)


def test_no_row_without_a_name_stands_at_the_query():
    model = build({"vocab_size": 5})
    checkpoint = dataclasses.replace(model, substitutable=(1, 2), special=(4,))
    found = list_inputs(checkpoint, 4, *ASKED)
    assert (found.symbols.tolist(), found.query_symbols.tolist()) == ([1, 2], [1, 2, 4])
    ended = dataclasses.replace(checkpoint, special=None)
    assert list_inputs(ended, 4, *ASKED).query_symbols.tolist() == [0, 3, 4]


def test_what_cannot_change_has_the_supremum_zero():
    model = build({**BINARY, "num_layers": 1})
    best = bounds.supremum(model, 1)
    assert (best.max, best.max_upper, best.position, best.exact) == (0, 0, None, True)
    alone = dataclasses.replace(model, substitutable=(1,))
    assert bounds.supremum(alone, 5).position is None


def test_the_comparison_catches_a_count_vector_left_out(monkeypatch):
    model = build({**BINARY, "num_layers": 1})
    best = bounds.supremum(model, 7)
    left = np.bincount(best.tokens[:-1], minlength=2)
    left[best.tokens[best.position]] -= 1
    vectors_of = counts.vectors_of

    def without_the_best(sizes, num_symbols):
        vectors = vectors_of(sizes, num_symbols)
        return vectors[(vectors != left).any(axis=1)]

    monkeypatch.setattr(counts, "vectors_of", without_the_best)
    with pytest.raises(AssertionError):
        assert_brute_force(model, 7)


def test_a_long_maximum_is_attained_and_no_sampled_input_exceeds_it():
    model, length = build({**BINARY, "num_layers": 1, "weighting": "softmax"}), 1000
    best = bounds.supremum(model, length)
    assert best.exact
    assert best.configurations == 2 * (length - 1)
    assert f"all {length} count vectors" in best.reason
    assert best.recomputed == pytest.approx(best.max, rel=1e-10)
    rng = np.random.default_rng(0)
    for share in (0.02, 0.3, 0.7, 1.0):
        tokens = (rng.random(length) < share).astype(int)
        result = compute_influence(model, tokens, keep="position_max")
        assert result.max_lower <= best.max_upper


@long_inputs
@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_a_hundred_thousand_tokens_take_less_than_a_minute(name):
    model = build({**BINARY, "weighting": name})
    best = bounds.supremum(model, 100_000)
    assert best.exact
    assert best.seconds < 60


@pytest.mark.slow
def test_beyond_the_budget_it_is_an_estimate_and_says_so():
    model = build({"position": None, "num_layers": 1})
    exact = bounds.supremum(model, 7)
    found = bounds.supremum(model, 7, budget=30)
    assert not found.exact
    assert found.plan == "search"
    assert "estimated" in repr(found)
    assert "estimated" not in repr(exact)
    assert found.max_upper == math.inf
    # Few classes: a search that compares inputs by them does not stop below the top.
    assert found.max == pytest.approx(exact.max, rel=1e-10)
    assert found.recomputed == pytest.approx(found.max, rel=1e-9)
    assert bounds.supremum(model, 7, budget=30).max == found.max, "it is repeatable"
    assert "more than the budget of 30 configurations" in found.reason


def test_the_search_over_classes_goes_to_any_length():
    model = build({"position": None, "num_layers": 1})
    inputs = list_inputs(model, 10_000, *ASKED)
    plan = AscentPlan(lump(inputs), seed=0, rounds=1)
    found = plan.run(1)
    assert found.tokens.shape == (10_000,)
    again = compute_influence(
        model,
        found.tokens,
        positions=[found.position],
        symbols=[found.symbol],
    )
    assert again.max == pytest.approx(found.max, rel=1e-10)


def ends_in_order(string, orders):
    """What unique-hard attention reads of a string of classes: its events in order."""
    events = []
    for at, kind in enumerate(string):
        first, last = kind not in string[:at], kind not in string[at + 1 :]
        if (first and orders[0]) or (last and orders[1]):
            events.append(int(kind))
    return tuple(events)


@pytest.mark.parametrize("orders", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("query", [0, 2, 5])
def test_arrangements_are_the_orders_that_strings_have(orders, query):
    length, classes, replaced, own = 6, 2, 2, 3
    strings = []
    for rest in all_strings(range(classes), length - 2):
        for at in range(length - 1):
            strings.append(
                np.insert(np.insert(rest, at, replaced), query, own).tolist()
            )
    for zeros in range(length - 1):
        vector = np.asarray([zeros, length - 2 - zeros])
        expected = {
            ends_in_order(string, orders)
            for string in strings
            if string.count(0) == zeros
        }
        found = set()
        for one in arrange(np.minimum(vector, sum(orders)), query, length):
            _, possible = counts.others_before(one, vector[None], orders, query)
            if possible[0]:
                assert one.sequence not in found
                found.add(one.sequence)
                string = write_out(one, vector, orders, query).tolist()
                assert string in strings
                assert ends_in_order(string, orders) == one.sequence
        assert found == expected


@pytest.mark.parametrize(
    ("case", "length", "question", "message"),
    [
        ({"position": None}, 0, {}, "length n = 0; .* from 1 to"),
        ({"position": None}, 8.5, {}, "length n = 8.5; .* integer from 1 to"),
        ({"position": None}, 8, {"query": 8}, "query = 8 is out of range"),
        ({"position": None}, 8, {"budget": 0}, "budget = 0"),
        ({"position": None}, 8, {"target": "row"}, "target = 'row'"),
        ({"position": None}, 8, {"ties": "maybe"}, "ties = 'maybe'"),
    ],
    ids=str,
)
def test_a_question_that_does_not_fit_is_refused(case, length, question, message):
    with pytest.raises(jm.InputError, match=message) as caught:
        bounds.supremum(build(case), length, **question)
    assert "\n" not in str(caught.value)
    if "budget" in question:
        return
    with pytest.raises(jm.InputError) as same:
        bounds.search_inputs(build(case), length, **question)
    assert str(same.value) == str(caught.value)


def test_a_bare_function_is_refused():
    with pytest.raises(jm.InputError, match="model is a function"):
        bounds.supremum(lambda tokens: tokens, 8)  # pyright: ignore[reportArgumentType]


def test_an_ambiguous_tie_on_some_input_is_an_error_a_warning_or_ignored():
    hard = {"weighting": "average_hard", "tie_resolution": 2.0}
    model = build({**BINARY, "num_layers": 1, **hard})
    with pytest.raises(jm.TieError, match=r"on some input of length 9: .*cells"):
        bounds.supremum(model, 9)
    with pytest.warns(AmbiguousTieWarning, match="on some input"):
        told = bounds.supremum(model, 9, ties="warn")
    assert told.ties is not None
    assert told.ties.ambiguous
    assert bounds.supremum(model, 9, ties="ignore").max == told.max
