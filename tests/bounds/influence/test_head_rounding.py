"""What the last layer takes from a change leaves rounding, and no radius relative to that.

Models that annihilate what one substitution carries, each at one place, against the reference
transformer with 40 digits.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence import carried_rounding, head_rounding, query_row
from tests.bounds.influence.models import build
from tests.bounds.influence.unread import (
    MANY,
    POSITION,
    QUERY,
    SYMBOL,
    TOKENS,
    changed,
    ends,
    holds,
    reading,
    reading_deep,
    with_last,
    without,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")


def unread_heads(**case):
    """The output projection annihilates the change of the heads, the residual has none."""
    model = build({"num_layers": 1, "mask": "none", "num_classes": None, **case})
    *below, last = model.layers
    # The query sees nothing of it before the last layer.
    below = [
        dataclasses.replace(x, attention=dataclasses.replace(x.attention, mask="past"))
        for x in below
    ]
    none = jax.tree.map(jnp.zeros_like, last.feed_forward)
    bare = dataclasses.replace(last, feed_forward=none)
    if last.layer_norm == "post":
        bare = dataclasses.replace(bare, layer_norm="none", norm1=None, norm2=None)
    model = dataclasses.replace(model, layers=(*below, last))
    probe = dataclasses.replace(model, layers=(*below, bare))
    heads = changed(with_last(probe, output=jnp.eye(8)))
    output = without(last.attention.output, heads)
    return with_last(model, output=output)


def unread_rows(**case):
    """Neither values nor keys of the only layer read what the substitution changes."""
    model = build({"num_layers": 1, "mask": "none", "num_classes": None, **case})
    change = np.asarray(model.embedding[SYMBOL] - model.embedding[TOKENS[POSITION]])
    attention = model.layers[0].attention
    parts = {x: without(getattr(attention, x), change) for x in ("key", "value")}
    return with_last(model, **parts)


def unread_shift(**case):
    """Two symbols differ by a number that norms take away."""
    model = build({"layer_norm": "pre", "mask": "none", "num_classes": None, **case})
    shifted = model.embedding[TOKENS[POSITION]] + 0.37
    return dataclasses.replace(model, embedding=model.embedding.at[SYMBOL].set(shifted))


def tiny_output():
    """Squares of the weights of the output underflow."""
    model = unread_heads()
    return with_last(model, output=model.layers[-1].attention.output * 1e-160)


def unread_shift_of_values():
    """Norms of two layers, before attention whose weights are all the same."""
    model = unread_shift(num_layers=2)
    return with_last(model, key=jnp.zeros_like(model.layers[-1].attention.key))


MODELS = {
    "values": unread_rows,
    "output": unread_heads,
    "output behind a gate": lambda: unread_heads(gated=True, activation="silu"),
    "output behind norms": lambda: unread_heads(layer_norm="post"),
    "output of two layers": lambda: unread_heads(num_layers=2),
    "output of three": lambda: unread_heads(num_layers=3, layer_norm="pre"),
    "values that are 0": lambda: reading("value"),
    "tiny output": tiny_output,
    "concatenated values": lambda: unread_rows(combine="concat"),
    "norm": lambda: unread_shift(num_layers=1),
    "norms of two layers": lambda: unread_shift(num_layers=2),
    "norms before values": unread_shift_of_values,
}


def unread_mean():
    """The head reads an entry that is the row's mean, which alone the heads' noise moves."""
    case = {"num_layers": 1, "mask": "none", "num_classes": 1, "final_norm": True}
    model = build(case)
    last = model.layers[0]
    none = jax.tree.map(jnp.zeros_like, last.feed_forward)
    model = dataclasses.replace(
        model, layers=(dataclasses.replace(last, feed_forward=none),)
    )
    probe = dataclasses.replace(
        with_last(model, output=jnp.eye(8)), final_norm=None, readout=None
    )
    output = without(last.attention.output, changed(probe)) * 100
    model = with_last(model, output=jnp.zeros((8, 8)).at[0].set(output[0]))
    bias = model.layers[0].attention.output_bias
    for _ in range(8):
        bare = dataclasses.replace(model, final_norm=None, readout=None)
        row = jm.forward(bare, jnp.asarray(TOKENS))[0][QUERY]
        bias = bias.at[3].add((row.mean() - row[3]) * 8 / 7)
        model = with_last(model, output_bias=bias)
    weight = jnp.zeros((1, 8)).at[0, 3].set(1)
    readout = dataclasses.replace(model.readout, weight=weight)
    return dataclasses.replace(model, readout=readout)


def test_what_a_norms_mean_rounds_is_enclosed():
    model = unread_mean()
    assert holds(model)
    assert ends(model)[0] > 0


@functools.cache
def built(name):
    return MODELS[name]()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_annihilated_leaves_nothing_exact(name):
    assert holds(built(name))


@pytest.mark.parametrize(
    "name",
    ["values", "output behind norms", "output of two layers", "norms before values"],
)
def test_nor_where_many_rows_are_watched(name):
    assert holds(built(name), rows=MANY)


LUMPED = {
    "values": lambda: unread_rows(position=None),
    "output": lambda: unread_heads(position=None),
    "norms": lambda: unread_shift(position=None, num_layers=2),
}


@pytest.mark.parametrize("name", LUMPED)
def test_nor_where_equal_rows_are_lumped(name):
    assert holds(LUMPED[name](), "lumped")


def plant_products(plant):
    """Products with matrices are as accurate as they are large."""
    plant(carried_rounding, "root_of_squares", lambda sizes, _: 0 * sizes[..., :1])


def plant_norms(plant):
    """So are the rows behind a norm."""
    right = query_row.RowTile.beside
    plant(query_row.RowTile, "beside", lambda tile, sizes: right(tile, 0 * sizes))


PLANTED = {"output": plant_products, "norms before values": plant_norms}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_noticed(name, plant):
    model = built(name)
    PLANTED[name](plant)
    assert not holds(model)


def alike(model):
    """Whether one row and many have much the same ends, which are summed in other ways."""
    (_, _, one), (_, _, many) = ends(model), ends(model, rows=MANY)
    return many / 5 < one < 5 * many


ALIKE = {
    "values": (head_rounding, lambda: reading_deep("value")),
    "norms": (query_row, unread_shift_of_values),
}


@pytest.mark.parametrize("name", ALIKE)
def test_ends_of_one_row_and_of_many_are_alike(name, plant):
    module, model = ALIKE[name][0], ALIKE[name][1]()
    assert alike(model)
    right = module.rms_entry
    plant(module, "rms_entry", lambda *about: right(*about) / 100)
    assert not alike(model)
