"""What `compute_influence` promises about its questions, answers and refusals."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import METHODS, LogProbabilitySum, SharedBase, compute_influence
from bounds.influence.answer import answer
from bounds.influence.build import build_request
from bounds.influence.choice import choose_method
from bounds.influence.methods import incremental
from bounds.influence.propagation.change_block import prepare
from tests.bounds.influence.asking import on_host
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import TOKENS, build

EXACT = list(METHODS)
MODEL = build({"num_layers": 1, "mask": "none"})


def ask(model, tokens, **question) -> Any:
    return compute_influence(model, tokens, **question)


N, V = len(TOKENS), MODEL.vocab_size


# ------------------------------------------------------------------------ answers


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
    dense, short = (
        ask(MODEL, TOKENS, **question),
        ask(MODEL, TOKENS, keep=keep, **question),
    )
    for field in dataclasses.fields(short):
        found, name = getattr(short, field.name), field.name
        if name in ("lower", "upper") or (
            keep == "max" and name.startswith("position_")
        ):
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
    found = []
    monkeypatch.setattr(
        incremental, "prepare", lambda *given: found.append(given) or prepare(*given)
    )
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


def test_the_cheapest_able_method_is_chosen_and_the_reason_given():
    def choose(model, method="auto", **question):
        found = choose_method(method, build_request(model, TOKENS, **question))
        return found.way.name, found.reason

    two_layers = build({"num_layers": 2, "mask": "future"})
    one, all_ = choose(two_layers, positions=[3]), choose(MODEL)
    assert (one[0], all_[0]) == ("exhaustive", "incremental")
    for _, reason in (one, all_):
        assert "cheapest" in reason
        assert "forward passes" in reason
    name, reason = choose(build({"num_layers": 0}))
    assert name == "exhaustive"
    assert "incremental cannot: it needs a layer, and the model has none" in reason
    assert choose(build({"num_layers": 3}))[0] == "partial"
    assert choose(MODEL, "exhaustive", positions=[0])[1] == "asked for"


def test_a_row_that_vanishes_before_the_final_norm_is_refused():
    # A final norm with epsilon 0 divides a constant row by its deviation, 0.
    constant = jax.tree.map(jnp.zeros_like, MODEL)
    norm = jm.LayerNorm(jnp.ones(8), jnp.zeros(8), 0)
    model = dataclasses.replace(constant, position=None, final_norm=norm)
    with refused(r"row at position \d+ vanishes before the final norm"):
        compute_influence(model, TOKENS)


def test_a_function_whose_value_is_not_finite_is_refused():
    def broken(tokens):
        return np.asarray([0.0, np.inf if tokens[3] == 0 else 1.0])

    tokens = np.ones(5, int)
    with refused("position 3, symbol 0"):
        compute_influence(on_host(broken, 2, check=False), tokens)


# Many inputs.

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


def test_a_checkpoint_is_of_one_input(tmp_path):
    with refused("checkpoint keeps the state of one input"):
        bounds.compute_influence(
            SHORT,
            INPUTS,
            method="screened",
            run=bounds.Run(checkpoint=tmp_path / "kept.npz"),
        )
