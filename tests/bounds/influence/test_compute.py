"""What `compute_influence` promises about questions, answers, and ambiguous ties."""

import dataclasses
import re
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence import METHODS, LogProbabilitySum, SharedBase, compute_influence
from bounds.influence.answer import answer
from bounds.influence.build import build_request
from bounds.influence.choice import choose_method
from bounds.influence.methods import incremental
from bounds.influence.propagation.change_block import prepare
from jax_models.run.evaluate import AmbiguousTieWarning
from tests.bounds.influence.expect import refused
from tests.bounds.influence.many_digits import DIGITS
from tests.bounds.influence.models import TOKENS, build, edit_weights, scaled_weights
from tests.written import written

EXACT = list(METHODS)
MODEL = build({"num_layers": 1, "mask": "none"})
ask: Any = compute_influence
N, V = len(TOKENS), MODEL.vocab_size


def test_the_summary_is_that_of_the_tables():
    result = ask(MODEL, TOKENS, method="incremental")
    assert result.method == "incremental"
    assert result.exact
    assert result.query == N - 1
    assert result.target == "activation"
    asked = (np.arange(V) != TOKENS[:, None]) & (np.arange(N) != N - 1)[:, None]
    assert result.substitutions == asked.sum()
    for dense, ends, most in (
        (result.lower, result.position_lower, result.max_lower),
        (result.upper, result.position_upper, result.max_upper),
    ):
        np.testing.assert_array_equal(~np.isnan(dense), asked)
        np.testing.assert_array_equal(ends[:-1], np.nanmax(dense[:-1], axis=1))
        assert np.isnan(ends[-1])
        assert most == np.nanmax(dense)
    assert result.max_lower <= result.max <= result.max_upper
    assert result.upper[result.position, result.symbol] == result.max_upper
    np.testing.assert_array_equal(
        result.position_symbol[:-1], np.nanargmax(result.upper[:-1], axis=1)
    )
    assert result.position_symbol[-1] == -1
    assert result.zeros == 0
    assert result.ties is None
    assert result.seconds > 0
    assert "\n" not in repr(result)
    assert f"position={result.position}, symbol={result.symbol}" in repr(result)


@pytest.mark.parametrize("keep", ["position_max", "max"])
def test_tables_are_left_out_where_maxima_are_kept(keep):
    question: dict[str, Any] = {"method": "exhaustive", "dtype": "float64"}
    dense = ask(MODEL, TOKENS, **question)
    short = ask(MODEL, TOKENS, keep=keep, **question)
    left_out = ("lower", "upper") + ("position_",) * (keep == "max")
    for field in dataclasses.fields(short):
        found, name = getattr(short, field.name), field.name
        if name.startswith(left_out):
            assert found is None
        elif name not in ("enclosed", "seconds"):
            np.testing.assert_array_equal(found, getattr(dense, name))


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize(
    "question", [{"positions": []}, {"symbols": []}, {"positions": [N - 1]}], ids=str
)
def test_an_empty_question_has_the_answer_zero(question, method):
    result = ask(MODEL, TOKENS, method=method, **question)
    assert result.max == result.max_lower == result.max_upper == 0.0
    assert result.position is None
    assert result.symbol is None
    assert result.substitutions == result.zeros == 0
    assert np.isnan(result.upper).all()
    assert np.isnan(result.position_upper).all()


@pytest.mark.parametrize("method", EXACT)
def test_one_token_has_only_its_own_influence(method):
    alone = ask(MODEL, [1], method=method)
    assert alone.max == 0.0
    assert alone.position is None
    own = ask(MODEL, [1], method=method, include_query=True)
    assert own.position == 0
    base = jm.apply(MODEL, [1])
    for symbol in (0, 2):
        change = np.linalg.norm(jm.apply(MODEL, [symbol]) - base)
        assert own.upper[0, symbol] == pytest.approx(change, rel=1e-11)


def silent_model(weighting="softmax"):
    """All symbols have one embedding: nothing that is changed is seen."""
    model = build({"num_layers": 1, "mask": "future", "weighting": weighting})
    same = jnp.broadcast_to(model.embedding[:1], model.embedding.shape)
    return dataclasses.replace(model, embedding=same)


@pytest.mark.parametrize("weighting", ["softmax", "average_hard"])
def test_a_model_that_sees_nothing_has_influence_zero_everywhere(weighting):
    result = ask(silent_model(weighting), TOKENS, method="incremental")
    assert result.max == result.max_lower == result.max_upper == 0.0
    assert result.zeros == result.substitutions == 2 * (N - 1)
    # Zero is attained by every substitution: the smallest is named.
    assert (result.position, result.symbol) == (0, min({0, 1, 2} - {TOKENS[0]}))
    # A subtraction of two passes finds no more than their rounding, and says so.
    passes = ask(silent_model(weighting), TOKENS, method="exhaustive")
    assert passes.max_lower == 0.0
    assert passes.max_upper < 1e-12


@pytest.fixture
def passes(monkeypatch):
    found, noted = [], lambda *given: found.append(given) or prepare(*given)
    monkeypatch.setattr(incremental, "prepare", noted)
    return found


def assert_equal(shared, question, model=MODEL, tokens=TOKENS, **more):
    """A question that may share its base pass has the answer of the question alone."""
    request = build_request(model, tokens, shared=shared, **question, **more)
    choice = choose_method("incremental", request)
    alone = ask(model, tokens, method="incremental", rounding="none", **question)
    asked = answer(request, choice, rounding="none")
    np.testing.assert_array_equal(asked.lower, alone.lower)


def test_parts_of_one_question_share_a_base_pass(passes):
    shared, other = SharedBase(), build({"num_layers": 1, "mask": "future"})
    turned = np.roll(TOKENS, 1)
    for positions in ([0, 1], [2, 3], [4]):
        assert_equal(shared, {"positions": positions}, tokens=TOKENS.copy())
    assert len(passes) == 3 + 1
    # What is asked about something else does not see it.
    assert_equal(shared, {"positions": [0]}, other)
    assert_equal(shared, {"positions": [0]}, other, turned)
    assert_equal(shared, {"positions": [0], "query": 1}, other, turned)
    assert len(passes) == 4 + 3 * 2


def test_questions_about_the_same_many_rows_share_a_base_pass(passes):
    shared = SharedBase()
    for symbols, query in [((0, 1), -1), ((0, 1), 0), ((2, 0), 1)]:
        question = {"target": LogProbabilitySum(symbols, (0, 1))}
        assert_equal(shared, question, query=query)
    assert len(passes) == 3 + 1
    # Another row does not see it, nor does the query that is this row.
    assert_equal(shared, {"target": LogProbabilitySum((0,), (1,))}, query=-1)
    assert_equal(shared, {"query": 1})
    assert len(passes) == 4 + 2 * 2


THREE, SOME = {"num_layers": 3, "mask": "future"}, {"positions": range(60)}
# Cases of models, lengths, questions, and the method that is chosen for them.
CHOSEN = [
    ({"num_layers": 1, "mask": "none"}, 12, {}, "incremental"),
    ({"mask": "future"}, 12, {"positions": [3]}, "exhaustive"),
    ({"num_layers": 3}, 12, {}, "partial"),
    ({"position": None}, 60, {}, "lumped"),
    ({}, 60, {}, "incremental"),
    # Rows that change are followed where positions are told apart.
    ({**THREE, "weighting": "leftmost_hard"}, 100, SOME, "incremental"),
    ({**THREE, "weighting": "average_hard"}, 100, SOME, "incremental"),
    ({**THREE, "weighting": "average_hard", "position": None}, 100, SOME, "partial"),
    (THREE, 100, SOME, "partial"),
]


@pytest.mark.parametrize(("case", "length", "question", "chosen"), CHOSEN)
def test_the_cheapest_able_method_is_chosen(case, length, question, chosen):
    tokens = np.random.default_rng(0).integers(0, 3, length)
    choice = choose_method("auto", build_request(build(case), tokens, **question))
    assert choice.way.name == chosen
    assert re.search("cheapest.*forward passes", choice.reason)


def test_a_method_that_is_asked_for_or_alone_is_chosen_with_the_reason():
    request = build_request(build({"num_layers": 0}), TOKENS)
    choice = choose_method("auto", request)
    assert choice.way.name == "exhaustive"
    said = "incremental cannot: it needs a layer, and the model has none"
    assert said in choice.reason
    assert choose_method("exhaustive", request).reason == "asked for"


INPUTS = ([0, 1, 1, 0], [1, 1, 0, 1])
SHORT = build({"num_layers": 1, "vocab_size": 2})


@pytest.mark.parametrize(
    ("call", "tokens"),
    [
        (bounds.compute_influence, jnp.array(INPUTS)),
        (bounds.compute_influence, list(INPUTS)),
        (bounds.scan, np.array(INPUTS)),
        (bounds.scan, (INPUTS[0], np.array([1, 0]))),
    ],
    ids=["JAX's", "lists", "array", "of different lengths"],
)
def test_each_answer_is_that_of_the_input_alone(call, tokens):
    found = call(SHORT, tokens=tokens, positions=[0])
    assert isinstance(found, list)
    assert len(found) == len(tokens)
    for one, own in zip(found, tokens, strict=True):
        alone = call(SHORT, own, positions=[0])
        np.testing.assert_array_equal(one.lower, alone.lower)
        np.testing.assert_array_equal(one.upper, alone.upper)


def tied_model(*scores, num_layers=1):
    """Leftmost-hard on cells 1/4 wide; a key of symbol s has score scores[s]."""
    case = {"weighting": "leftmost_hard", "tie_resolution": 0.25, "position": None}
    model = build({**case, "num_layers": num_layers, "score": "dot_product"})
    nothing, no_row = jnp.zeros_like, lambda x: x.at[0].set(0)
    outputs = ("output", "output_bias", "w2", "b2")
    return edit_weights(
        model,
        query=nothing,
        query_bias=lambda x: nothing(x).at[:, 0].set(1),
        key=lambda x: nothing(x).at[:, 0, 0].set(1),
        key_bias=nothing,
        embedding=lambda x: x.at[:, 0].set(jnp.asarray(scores)),
        **dict.fromkeys(outputs, no_row),
    )


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_an_ambiguous_tie_is_an_error_a_warning_or_ignored(num_layers, method):
    # Symbols 0 and 1 stand in neighbouring cells; 2 is far below.
    model = tied_model(1.0, 0.75, -3.0, num_layers=num_layers)
    tokens = np.asarray([2, 1, 0] * 4)
    positions = [0, 2, 3, 5, 6, 8, 9]
    question = {"method": method, "positions": positions, "symbols": [1]}
    with refused(r"row \d+: .* 1\.0 .* 0\.75 .*cells", jm.TieError):
        compute_influence(model, tokens, **question)
    with pytest.warns(AmbiguousTieWarning, match=r"1\.0 .* 0\.75") as warned:
        told = compute_influence(model, tokens, ties="warn", **question)
    assert len(warned) == 1
    quiet = compute_influence(model, tokens, ties="ignore", **question)
    np.testing.assert_array_equal(told.upper, quiet.upper)
    assert quiet.ties.ambiguous
    assert quiet.ties.scores == (1.0, 0.75)
    assert quiet.ties.gap == 0.25


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_tie_that_only_a_substitution_makes_ambiguous_is_seen(num_layers, method):
    model = tied_model(1.0, 0.75, -3.0, num_layers=num_layers)
    tokens = np.asarray([2, 2, 0, 2] * 3)
    question = {"method": method, "positions": [0, 1, 3, 4, 5, 7, 8]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clear = compute_influence(model, tokens, symbols=[0], **question)
    assert not clear.ties.ambiguous
    assert clear.ties.gap == 4.0
    with refused(r"row \d+", jm.TieError):
        compute_influence(model, tokens, symbols=[1], **question)


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("weighting", ["average_hard", "leftmost_hard"])
def test_an_exact_zero_of_hard_attention_is_enclosed(weighting, method):
    """Without positions every column of a symbol is the same: all changes are zero."""
    model = build({"weighting": weighting, "position": None}, seed=1)
    given = {"arithmetic": DIGITS, "ties": "ignore"}
    exact = reference.influence(*written(model), TOKENS, **given)
    result = compute_influence(model, TOKENS, method=method, ties="ignore")
    asked = ~np.isnan(exact)
    assert (exact[asked] < 1e-30).all()
    assert (result.lower[asked] == 0).all()
    assert (result.upper[asked] < 1e-11).all()


@pytest.mark.slow
def test_the_methods_agree_that_cells_are_too_narrow_for_large_scores():
    """Equal columns and scores of some hundreds, in cells of 1e-4 in float32."""
    case = {"score": "dot_product", "position": None, "dtype": "float32"}
    model = build({"weighting": "average_hard", **case})
    for scale, ambiguous in ((1.0, False), (200.0, True)):
        scaled = scaled_weights(model, query=scale, query_bias=scale)
        for method in EXACT:
            result = compute_influence(scaled, TOKENS, method=method, ties="ignore")
            assert result.ties.ambiguous == ambiguous, (method, scale)
            if ambiguous:
                with refused(r"row \d+: .* may be rounded by", jm.TieError):
                    compute_influence(scaled, TOKENS, method=method)
