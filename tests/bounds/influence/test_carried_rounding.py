"""What a block makes of a change that comes in cancelled, or cancels itself, is rounding."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

import jax_models as jm
from bounds.influence import carried_rounding, pointwise
from jax_models.model.rows import Activation, Product
from jax_models.model.transformer import embed
from tests.bounds.influence.models import build
from tests.bounds.influence.unread import (
    MANY,
    QUERY,
    TOKENS,
    changed,
    holds,
    with_last,
    within,
    without,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
GATED = {"gated": True, "activation": "silu"}


def block_alone(**case):
    """Heads write the first three entries of rows; the block the others, which are read."""
    case = {"num_layers": 1, "mask": "none", "num_classes": 1, **case}
    model = build(case)
    last = model.layers[0]
    block = last.feed_forward
    block = dataclasses.replace(block, w2=block.w2.at[:3].set(0))
    output = last.attention.output.at[3:].set(0)
    weight = model.readout.weight.at[:, :3].set(0)
    readout = dataclasses.replace(model.readout, weight=weight)
    return dataclasses.replace(with_last(model, block, output=output), readout=readout)


def unread_heads(**case):
    """The output projection annihilates the change of the heads."""
    model = block_alone(**case)
    probe = with_last(model, output=jnp.eye(8), output_bias=jnp.zeros(8))
    block = jax.tree.map(jnp.zeros_like, model.layers[0].feed_forward)
    heads = changed(dataclasses.replace(with_last(probe, block), readout=None))
    return with_last(model, output=without(model.layers[0].attention.output, heads))


def closed(name, bias):
    """A factor of the block reads what does not change, and cancels to 0 at the query."""
    model = block_alone(**GATED)
    block = model.layers[0].feed_forward
    weight = getattr(block, name).at[:, :3].set(0)
    model = with_last(model, dataclasses.replace(block, **{name: weight}))
    # The rows of the residual sum, behind a block that writes nothing.
    bare = jax.tree.map(jnp.zeros_like, block)
    bare = dataclasses.replace(with_last(model, bare), readout=None)
    rows = jm.forward(bare, jnp.asarray(TOKENS))[0]
    change = {bias: -(weight @ rows[QUERY])}
    return with_last(model, dataclasses.replace(block, **{name: weight}, **change))


def cancelled_row(name, bias):
    """A factor reads an entry of the residual sum that is 0 at the query, to rounding."""
    model = block_alone(**GATED)
    attention, block = model.layers[0].attention, model.layers[0].feed_forward
    row = embed(model, jnp.asarray(TOKENS))[QUERY]
    weight = jnp.zeros_like(block.w1).at[:, 3].set(getattr(block, name)[:, 3])
    change = {name: weight, bias: jnp.zeros_like(block.b1)}
    block = dataclasses.replace(block, **change)
    return with_last(model, block, output_bias=attention.output_bias.at[3].set(-row[3]))


def stationary(terms):
    """A neuron of large terms that stands where gelu is flat, to rounding."""
    model = block_alone(activation="gelu")
    block = model.layers[0].feed_forward
    weight = block.w1.at[0, 3].set(terms)
    bare = jax.tree.map(jnp.zeros_like, block)
    bare = dataclasses.replace(with_last(model, bare), readout=None)
    reads = weight[0] @ jm.forward(bare, jnp.asarray(TOKENS))[0][QUERY]
    return with_last(
        model,
        dataclasses.replace(
            block,
            w1=weight,
            b1=block.b1.at[0].set(-0.7517915 - reads),
            w2=block.w2.at[:, 1:].set(0),
        ),
    )


CLOSED = "gate that is closed"
MODELS = {
    "activation": lambda: unread_heads(activation="gelu"),
    "gate": lambda: unread_heads(**GATED),
    CLOSED: lambda: closed("gate", "gate_bias"),
    "factor that is 0": lambda: closed("w1", "b1"),
    "gate of a row that cancels": lambda: cancelled_row("gate", "gate_bias"),
    "factor of a row that cancels": lambda: cancelled_row("w1", "b1"),
}


@functools.cache
def built(name):
    return MODELS[name]()


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((name, None) for name in MODELS), ("activation", MANY), (CLOSED, MANY)],
)
def test_what_cancels_in_a_block_is_enclosed(name, rows):
    assert holds(built(name), rows=rows)


def test_a_neuron_that_stands_at_a_flat_place_to_rounding_is_enclosed(plant):
    models = [stationary(terms) for terms in (1e3, 1e6, 1e9)]
    assert [within(model) for model in models] == [True] * 3
    plant_base(None, plant)
    assert [within(model) for model in models] == [False] * 3


def plant_rule(kind, plant):
    """What operations of a kind write is as accurate as it is large."""
    right = carried_rounding.carried_rounding

    def wrong(operation, *about):
        return (0 if isinstance(operation, kind) else 1) * right(operation, *about)

    plant(carried_rounding, "carried_rounding", wrong)


def plant_base(kind, plant):
    """And so are the rows before the change."""
    plant(carried_rounding, "by_base", lambda *_: jnp.zeros(()))


def plant_terms(kind, plant):
    """And so is what the block reads."""
    right = pointwise.base_terms

    def wrong(program, base, given):
        terms = right(program, base, given)
        return {name: jnp.abs(base[name]) for name in terms}

    plant(pointwise, "base_terms", wrong)


@pytest.mark.parametrize(
    ("names", "wrong", "kind"),
    [
        (["activation"], plant_rule, Activation),
        (["gate"], plant_rule, Product),
        ([CLOSED, "factor that is 0"], plant_base, None),
        (["gate of a row that cancels"], plant_terms, None),
    ],
)
def test_a_planted_error_is_noticed(names, wrong, kind, plant):
    models = [built(name) for name in names]
    wrong(kind, plant)
    assert not any(map(holds, models))
