"""What `compute_influence` promises about its questions, answers and refusals."""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence import METHODS, compute_influence
from jax_models.evaluate import AmbiguousTieWarning
from tests.bounds.influence.models import TOKENS, build

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = build({"num_layers": 1, "mask": "future"})


def ask(model, tokens, **question) -> Any:
    return compute_influence(model, tokens, **question)


N, V = len(TOKENS), MODEL.vocab_size


@pytest.fixture(scope="module")
def full():
    """All influences of the shared model, the query's own too."""
    return ask(MODEL, TOKENS, include_query=True, method="exhaustive")


def table(asked):
    """Whether (position, symbol) was asked for, as a table [n, V]."""
    return np.asarray(
        [[asked(i, s) and TOKENS[i] != s for s in range(V)] for i in range(N)]
    )


# ------------------------------------------------------------------------ answers


@pytest.mark.parametrize("method", METHODS)
def test_the_summary_is_that_of_the_tables(method):
    result = ask(MODEL, TOKENS, method=method)
    assert result.method == method
    assert result.exact
    assert result.query == N - 1
    assert result.target == "activation"
    asked = table(lambda i, s: i != N - 1)
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


def test_position_maxima_are_kept_without_the_tables():
    question: dict[str, Any] = {"method": "exhaustive", "include_query": True}
    dense = ask(MODEL, TOKENS, **question)
    short = ask(MODEL, TOKENS, keep="position_max", **question)
    assert short.lower is None
    assert short.upper is None
    for field in dataclasses.fields(short):
        if field.name not in ("lower", "upper", "seconds"):
            np.testing.assert_array_equal(
                getattr(short, field.name), getattr(dense, field.name)
            )


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ({}, lambda i, s: i != N - 1),
        ({"include_query": True}, lambda i, s: True),
        ({"symbols": [2]}, lambda i, s: s == 2 and i != N - 1),
        ({"symbols": [2, 0, 2]}, lambda i, s: s != 1 and i != N - 1),
        ({"positions": [7, 3, 3]}, lambda i, s: i in (3, 7)),
        ({"positions": [N - 1, 0]}, lambda i, s: i == 0),
        ({"positions": [N - 1], "include_query": True}, lambda i, s: i == N - 1),
        ({"positions": range(4), "symbols": [1]}, lambda i, s: i < 4 and s == 1),
    ],
    ids=str,
)
def test_only_what_is_asked_for_is_changed(full, question, asked):
    result = ask(MODEL, TOKENS, method="exhaustive", **question)
    wanted = table(asked)
    np.testing.assert_array_equal(~np.isnan(result.upper), wanted)
    np.testing.assert_allclose(
        result.upper[wanted], full.upper[wanted], rtol=1e-13, atol=0
    )


def test_substitutable_limits_both_the_changed_and_the_substitutes(full):
    model = dataclasses.replace(MODEL, substitutable=(2, 0))
    for question, symbols in (({}, (0, 2)), ({"symbols": [1, 2]}, (2,))):
        question = {**question, "include_query": True, "method": "exhaustive"}
        result = ask(model, TOKENS, **question)
        wanted = table(lambda i, s, to=symbols: TOKENS[i] != 1 and s in to)
        np.testing.assert_array_equal(~np.isnan(result.upper), wanted)
        np.testing.assert_allclose(result.upper[wanted], full.upper[wanted], rtol=1e-13)


def test_a_negative_query_counts_from_the_end():
    one, other = (
        ask(MODEL, TOKENS, query=query, method="exhaustive") for query in (5, 5 - N)
    )
    assert other.query == 5
    np.testing.assert_array_equal(one.upper, other.upper)


@pytest.mark.parametrize("method", METHODS)
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


@pytest.mark.parametrize("method", METHODS)
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


def constant_change(tokens):
    """Any change of the input moves the output by exactly 1."""
    return np.asarray([0.0 if np.array_equal(tokens, TOKENS) else 1.0, 5.0])


@pytest.mark.parametrize(
    ("question", "argmax"),
    [
        ({}, (0, min({0, 1, 2} - {TOKENS[0]}))),
        ({"positions": [9, 4]}, (4, min({0, 1, 2} - {TOKENS[4]}))),
        ({"symbols": [2]}, (int(np.flatnonzero(TOKENS != 2)[0]), 2)),
    ],
    ids=str,
)
def test_the_argmax_is_the_smallest_position_and_symbol(question, argmax):
    result = ask(constant_change, TOKENS, vocab_size=3, **question)
    assert result.max == 1.0
    assert (result.position, result.symbol) == argmax
    at = ~np.isnan(result.position_upper)
    first = [
        int(np.flatnonzero(row == row[~np.isnan(row)].max())[0])
        for row in result.upper[at]
    ]
    np.testing.assert_array_equal(result.position_symbol[at], first)


def test_progress_is_told_after_every_block():
    told = []
    ask(MODEL, TOKENS, method="exhaustive", progress=lambda *step: told.append(step))
    done = [step[0] for step in told]
    assert done == sorted(set(done))
    assert {step[1] for step in told} == {2 * (N - 1)}
    assert done[-1] == 2 * (N - 1)


def test_the_cheapest_able_method_is_chosen_and_the_reason_given():
    two_layers = build({"num_layers": 2, "mask": "future"})
    one, all_ = ask(two_layers, TOKENS, positions=[3]), ask(MODEL, TOKENS)
    assert (one.method, all_.method) == ("exhaustive", "incremental")
    for result in (one, all_):
        assert "cheapest" in result.reason
        assert "forward passes" in result.reason
    for depth in (0, 3):
        model = build({"num_layers": depth})
        result = ask(model, TOKENS)
        assert result.method == "exhaustive"
        assert (
            f"incremental cannot: it does one and two layers, the model has {depth}"
            in (result.reason)
        )
    asked = ask(MODEL, TOKENS, method="exhaustive", positions=[0])
    assert asked.reason == "asked for"


# --------------------------------------------------------------------------- ties


def tied_model(*scores, num_layers=1):
    """Leftmost-hard on cells 1/4 wide; a key of symbol s has score scores[s]."""
    model = build(
        {
            "num_layers": num_layers,
            "weighting": "leftmost_hard",
            "score": "dot_product",
            "position": None,
            "tie_resolution": 0.25,
        }
    )

    def fixed(layer):
        attention = layer.attention
        attention = dataclasses.replace(
            attention,
            query=jnp.zeros_like(attention.query),
            query_bias=jnp.zeros_like(attention.query_bias).at[:, 0].set(1),
            key=jnp.zeros_like(attention.key).at[:, 0, 0].set(1),
            key_bias=jnp.zeros_like(attention.key_bias),
            output=attention.output.at[0].set(0),
            output_bias=attention.output_bias.at[0].set(0),
        )
        block = layer.feed_forward
        block = dataclasses.replace(
            block, w2=block.w2.at[0].set(0), b2=block.b2.at[0].set(0)
        )
        return dataclasses.replace(layer, attention=attention, feed_forward=block)

    embedding = model.embedding.at[:, 0].set(jnp.asarray(scores))
    layers = tuple(map(fixed, model.layers))
    return dataclasses.replace(model, embedding=embedding, layers=layers)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_an_ambiguous_tie_is_an_error_a_warning_or_ignored(num_layers, method):
    # Symbols 0 and 1 stand in neighbouring cells; 2 is far below.
    model = tied_model(1.0, 0.75, -3.0, num_layers=num_layers)
    tokens = np.asarray([2, 1, 0] * 4)
    positions = [0, 2, 3, 5, 6, 8, 9]
    question = {"method": method, "positions": positions, "symbols": [1]}
    with pytest.raises(
        jm.TieError, match=r"row \d+: .* 1\.0 .* 0\.75 .*cells"
    ) as caught:
        ask(model, tokens, **question)
    assert "\n" not in str(caught.value)
    with pytest.warns(AmbiguousTieWarning, match=r"1\.0 .* 0\.75") as warned:
        told = ask(model, tokens, ties="warn", **question)
    assert len(warned) == 1
    quiet = ask(model, tokens, ties="ignore", **question)
    np.testing.assert_array_equal(told.upper, quiet.upper)
    assert quiet.ties.ambiguous
    assert quiet.ties.scores == (1.0, 0.75)
    assert quiet.ties.gap == 0.25


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_tie_that_only_a_substitution_makes_ambiguous_is_seen(num_layers, method):
    model = tied_model(1.0, 0.75, -3.0, num_layers=num_layers)
    tokens = np.asarray([2, 2, 0, 2] * 3)
    question = {"method": method, "positions": [0, 1, 3, 4, 5, 7, 8]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clear = ask(model, tokens, symbols=[0], **question)
    assert not clear.ties.ambiguous
    assert clear.ties.gap == 4.0
    with pytest.raises(jm.TieError):
        ask(model, tokens, symbols=[1], **question)


# ----------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"query": N}, r"query = 12 .* n = 12; expected -12 to 11"),
        ({"query": -N - 1}, r"query = -13"),
        ({"symbols": [0, 3]}, "symbol 3 .* 0 to 2"),
        ({"symbols": [-1]}, "symbol -1"),
        ({"positions": [N]}, "position 12 .* 0 to 11"),
        ({"positions": [-1]}, "position -1"),
        ({"method": "lumpedd"}, "method = 'lumpedd'; .*auto.*incremental.*exhaustive"),
        ({"target": "row"}, "target = 'row'.*activation.*logits"),
        ({"keep": "all"}, "keep = 'all'.*pairs.*position_max"),
        ({"ties": "maybe"}, "ties = 'maybe'.*error.*warn.*ignore"),
        ({"dtype": "float32"}, "dtype = float32 .* float64"),
    ],
    ids=str,
)
def test_a_question_that_does_not_fit_is_refused(question, message):
    with pytest.raises(jm.InputError, match=message) as caught:
        ask(MODEL, TOKENS, **question)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], r"shape \(0,\)"),
        ([[0]], r"shape \(1, 1\)"),
        ([0, 7], "token 7 at position 1"),
        ([0.5, 1.0], "integers"),
    ],
    ids=str,
)
def test_tokens_that_do_not_fit_are_refused(tokens, message):
    with pytest.raises(jm.InputError, match=message):
        ask(MODEL, tokens)


def test_a_bare_function_needs_a_vocabulary_and_sensible_tokens():
    with pytest.raises(jm.InputError, match="vocab_size"):
        ask(constant_change, TOKENS)
    for tokens, message in (
        ([], r"shape \(0,\)"),
        ([0, 3], "token 3 at position 1"),
        ([0.5, 1.0], "integers"),
    ):
        with pytest.raises(jm.InputError, match=message):
            ask(constant_change, tokens, vocab_size=3)


def test_a_method_that_cannot_do_the_model_says_why():
    deep = build({"num_layers": 3})
    with pytest.raises(jm.InputError, match=r"incremental.*the model has 3.*auto"):
        ask(deep, TOKENS, method="incremental")
    with pytest.raises(jm.InputError, match=r"incremental.*bare function"):
        ask(constant_change, TOKENS, vocab_size=3, method="incremental")


def test_logits_need_a_readout():
    mute = dataclasses.replace(MODEL, readout=None)
    with pytest.raises(jm.InputError, match="no read-out"):
        ask(mute, TOKENS, target="logits")


def test_float64_needs_x64():
    with jax.enable_x64(False), pytest.raises(jm.InputError, match="enable"):
        ask(MODEL, TOKENS)


def test_a_dtype_that_is_the_models_own_is_an_assertion_that_holds(full):
    result = ask(
        MODEL, TOKENS, dtype="float64", include_query=True, method="exhaustive"
    )
    assert result.max == full.max


@pytest.mark.parametrize("method", METHODS)
def test_an_influence_that_is_not_finite_is_refused(method):
    # A final norm with epsilon 0 divides a constant row by its deviation, 0.
    model = silent_model()
    constant = jax.tree.map(jnp.zeros_like, model)
    norm = jm.LayerNorm(jnp.ones(8), jnp.zeros(8), 0)
    model = dataclasses.replace(constant, position=None, final_norm=norm)
    with pytest.raises(
        jm.InputError, match=r"position 0, symbol \d .*not a finite"
    ) as caught:
        ask(model, TOKENS, method=method)
    assert "\n" not in str(caught.value)


def test_a_function_whose_value_is_not_finite_is_refused():
    def broken(tokens):
        return np.asarray([0.0, np.inf if tokens[3] == 0 else 1.0])

    tokens = np.ones(5, int)
    with pytest.raises(jm.InputError, match="position 3, symbol 0"):
        ask(broken, tokens, vocab_size=2)
