"""What keys, queries and values annihilate of a replaced column leaves rounding.

Where nothing else reads it, what a score is off by is all that moves.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from bounds.influence import only_layer, replaced_sizes, score_sizes
from tests.bounds.influence.unread import (
    LINE,
    MANY,
    POSITION,
    QUERY,
    SYMBOL,
    TOKENS,
    holds,
    reading,
    unseen_rows,
    with_last,
    within,
    zeros_of,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")


def own(*names, **case):
    """The same where the query's own row is replaced, and its heads alone are read."""
    return unseen_rows(reading(*names, at=QUERY, num_classes=1, **case))


MODELS = {
    "keys": lambda: reading("key"),
    "keys of additive scores": lambda: reading("key", score="additive"),
    "keys of one temperature for each row": lambda: reading(
        "key", mask="future", temperature="power of the position"
    ),
}
OWN = {
    "queries": lambda: own("query"),
    "queries of additive scores": lambda: own("query", score="additive"),
    "keys": lambda: own("key"),
    "values": lambda: own("value"),
}


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((x, None) for x in MODELS), *((x, MANY) for x in MODELS if x != "keys")],
)
def test_what_keys_annihilate_is_enclosed(name, rows):
    assert holds(MODELS[name](), rows=rows)


@pytest.mark.parametrize(
    ("name", "rows"), [*((x, None) for x in OWN), ("queries", MANY), ("values", MANY)]
)
def test_what_the_replaced_row_annihilates_is_enclosed(name, rows):
    assert holds(OWN[name](), position=QUERY, rows=rows)


PLANTED = {
    "scores": (
        *(replaced_sizes, "score_slopes"),
        [(MODELS["keys"], POSITION), (OWN["queries"], QUERY), (OWN["keys"], QUERY)],
    ),
    "values": (replaced_sizes, "value_sizes", [(lambda: reading("value"), POSITION)]),
    "own values": (only_layer, "value_sizes", [(OWN["values"], QUERY)]),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_error_is_noticed(case, plant):
    """A size is taken for 0."""
    module, name, questions = PLANTED[case]
    plant(module, name, zeros_of(getattr(module, name)))
    assert not any(holds(model(), position=at) for model, at in questions)


def small_key(small):
    """The replaced row's key is the rounding of what cancels, which a norm draws out."""
    case = {"query_key_norm": "rms_norm", "layer_norm_epsilon": 1e-20, "biases": False}
    model = reading(position=None, **case)
    attention = model.layers[0].attention
    key = jnp.zeros_like(attention.key).at[:, 0, 3].set(1)
    key = key.at[:, 1, :3].set(jnp.array(LINE))
    query = jnp.zeros_like(attention.query).at[:, :2, 4].set(1)
    value = attention.value.at[..., 3].set(0)
    token = TOKENS[POSITION]
    embedding = model.embedding.at[SYMBOL, 3].set(0).at[SYMBOL, 2].add(-small)
    embedding = embedding.at[token, 3].set(1).at[1, :4].set(0.3)
    model = dataclasses.replace(model, embedding=embedding)
    return with_last(model, key=key, query=query, value=value)


def test_a_key_that_a_norm_draws_out_of_rounding_is_enclosed(plant):
    model = small_key(1e-6)
    assert within(model)
    plant(score_sizes, "carried_rounding", lambda *about: about[-1][0])
    assert not within(model)


def test_the_ends_of_a_substitution_do_not_hang_on_the_others():
    model = own("query", query_key_norm="rms_norm")
    model = dataclasses.replace(model, embedding=model.embedding.at[2].multiply(1e4))
    ask = {"query": QUERY, "include_query": True, "positions": [QUERY]}
    ask |= {"target": "logits", "method": "incremental"}
    alone, both = (
        bounds.compute_influence(model, TOKENS, symbols=symbols, **ask)
        for symbols in ([SYMBOL], [SYMBOL, 2])
    )
    widths = [(x.upper - x.lower)[QUERY, SYMBOL] for x in (alone, both)]
    np.testing.assert_allclose(*widths, rtol=1e-9)
