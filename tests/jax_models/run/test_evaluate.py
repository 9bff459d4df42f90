"""`apply` refuses what does not fit the model, and decides no tie in silence."""

import dataclasses
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.reweight import with_dtype
from jax_models.run.evaluate import AmbiguousTieWarning
from tests.architecture import small_model
from tests.bounds.influence.expect import refused

MODEL = small_model(
    d_model=2,
    d_ff=2,
    vocab_size=3,
    weighting="leftmost_hard",
    score="dot_product",
    position=None,
    dtype="float64",
    biases=False,
    num_classes=2,
    tie_resolution=0.25,
)


def with_scores(*scores):
    """The model whose key of symbol s has score scores[s] at every row."""
    layer = MODEL.layers[0]
    one = jnp.ones((1, 1), jnp.float64)
    attention = dataclasses.replace(
        layer.attention,
        query=jnp.zeros((1, 1, 2), jnp.float64),
        query_bias=one,
        key=jnp.asarray([[[1.0, 0.0]]]),
        value=jnp.asarray([[[0.0, 1.0]]]),
        output=jnp.ones((2, 1), jnp.float64),
    )
    silent = jax.tree.map(jnp.zeros_like, layer.feed_forward)
    layer = dataclasses.replace(layer, attention=attention, feed_forward=silent)
    embedding = jnp.asarray([scores, [1.0, 2.0, 4.0]]).T
    return dataclasses.replace(MODEL, embedding=embedding, layers=(layer,))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 1, 3], r"token 3 at position 2 .* 3 symbols; .* 0 to 2"),
        ([0, -1, 3], "token -1 at position 1"),
        ([], "the empty word"),
        ([[0, 1]], r"shape \(1, 2\)"),
        (0, r"shape \(\)"),
        ([0.0, 1.0], "float64.*integers"),
        ([True, False], "bool.*integers"),
    ],
    ids=str,
)
def test_tokens_that_do_not_fit_are_refused(tokens, message):
    with refused(message):
        jm.apply(MODEL, tokens)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.int32])
def test_any_integers_are_tokens(kind):
    tokens = [0, 2, 1]
    model = with_scores(0.0, 1.0, 3.0)
    found = jm.apply(model, np.asarray(tokens, kind))
    np.testing.assert_array_equal(found, jm.apply(model, tokens))


def test_an_ambiguous_tie_is_an_error_unless_told_otherwise():
    model = with_scores(1.0, 0.75, 0.0)
    tokens = [2, 1, 0]
    with pytest.raises(
        jm.TieError, match=r"layer 0, row 0: .* 1\.0 .* 0\.75"
    ) as caught:
        jm.apply(model, tokens)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, jm.InputError)
    with pytest.warns(AmbiguousTieWarning, match=r"1\.0 .* 0\.75") as warned:
        found = jm.apply(model, tokens, ties="warn")
    assert len(warned) == 1
    np.testing.assert_array_equal(found, jm.apply(model, tokens, ties="ignore"))
    # The symbol 0 wins: its value 1 is added to every row.
    np.testing.assert_array_equal(found - model.embedding[jnp.asarray(tokens)], 1)
    with refused("ties = 'maybe'"):
        jm.apply(model, tokens, ties="maybe")  # pyright: ignore[reportArgumentType]


def test_a_wide_gap_and_a_true_tie_are_no_ambiguity():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jm.apply(with_scores(1.0, 0.5, 0.0), [2, 1, 0])
        jm.apply(with_scores(1.0, 1.0, 0.0), [2, 1, 0])


def test_nothing_is_raised_under_a_transformation():
    model = with_scores(1.0, 0.75, 0.0)
    tokens = jnp.asarray([2, 1, 0])
    inside = jax.jit(lambda x: jm.apply(model, x))(tokens)
    np.testing.assert_array_equal(inside, jm.apply(model, tokens, ties="ignore"))


def test_acceptance_is_the_logit_at_the_query_against_the_threshold():
    model = with_scores(0.0, 0.5, 1.0)
    weight = jnp.asarray([[0.0, 0.0], [0.0, 1.0]])
    model = dataclasses.replace(model, readout=jm.Readout(weight, None))
    # Row q has y = own value + the winner's, the leftmost 2 where there is one.
    tokens = [0, 1, 2]
    logits = jm.apply_logits(model, tokens)
    np.testing.assert_array_equal(logits, [[0, 1 + 4], [0, 2 + 4], [0, 4 + 4]])
    for query, threshold, verdict in ((-1, 8, True), (1, 6.5, False), (1, 6, True)):
        judge = dataclasses.replace(model, accept=jm.Accept(1, threshold))
        assert jm.accepts(judge, tokens, query=query) is verdict


def test_logits_need_a_readout_and_acceptance_a_rule():
    mute = dataclasses.replace(MODEL, readout=None)
    with refused("no read-out"):
        jm.apply_logits(mute, [0])
    with refused("no accept rule"):
        jm.accepts(MODEL, [0])


@pytest.mark.parametrize("score", [1.0, -1.0])
def test_a_tie_of_scores_that_are_rounded_by_a_cell_is_ambiguous(score):
    # 9 roundings: 2 products and a bias for query and key, 1 product, 2 divisions.
    size = 0.25 / (9 * 2.0**-53)
    tokens = [2, 1, 0]
    model = with_scores(*(score * size * factor for factor in (1.001, 1.001, 1.5)))
    if score > 0:  # Symbol 2 is alone at the top, and far from the others.
        jm.apply(model, tokens)
        tokens = [1, 0]
    with pytest.raises(
        jm.TieError, match=r"row 0: .* rounded by 0\.25.*= 0\.25"
    ) as told:
        jm.apply(model, tokens)
    assert repr(float(score * size * 1.001)) in str(told.value)
    assert "\n" not in str(told.value)
    # A little smaller, and a cell is wider than that.
    jm.apply(with_scores(*[score * size * 0.99] * 3), tokens)
    # A score that may be rounded onto the best is no clear loser either.
    near = with_scores(1.01 * size, 1.01 * size - 0.5, 0.0)
    with pytest.raises(jm.TieError, match="rounded by"):
        jm.apply(near, tokens)


def test_the_remedy_for_coarse_scores_is_float64_where_it_is_not_taken():
    model = with_dtype(with_scores(3e6, 3e6, 0.0), "float32")
    with pytest.raises(jm.TieError, match="use float64, or set") as told:
        jm.apply(model, [2, 1, 0])
    above = float(re.findall(r"tie_resolution above (\S+),", str(told.value))[0])
    assert above == pytest.approx(9 * 2.0**-24 * 3e6, rel=0.1)
