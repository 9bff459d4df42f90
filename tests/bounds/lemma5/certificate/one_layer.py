"""One layer by both kernels, its rows changed by centres and unknown errors in radii."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.lemma5.certificate.base_radius import rule_of
from bounds.lemma5.certificate.mean_deviation import Roundoff
from bounds.lemma5.certificate.one_row import move_one_row
from bounds.lemma5.certificate.own_column import move_all_rows
from bounds.lemma5.certificate.pointwise import MovedRows
from bounds.lemma5.certificate.row_base import (
    RowTile,
    prepare_rows,
    prepare_spread,
    take_rows,
)
from bounds.lemma5.certificate.sections import layer_constants
from jax_models.model.transformer import apply_layer
from tests.bounds.influence import models

SHAPE = {"d_model": 4, "d_ff": 8, "num_classes": 2}


def build(case, seed=0) -> Any:
    """The model of a case; factors that it leaves out have their usual values."""
    return models.build({**SHAPE, **case}, seed)


def draw_tokens(n, vocab_size=3, seed=0):
    """Random tokens [n]."""
    return np.random.default_rng(seed).integers(0, vocab_size, n)


N, D, POSITIONS = 7, 4, (0, 2, 5, 6)
EVERY = jnp.arange(N, dtype=jnp.int32)
NO_ROUNDING = Roundoff(jnp.asarray(0.0), jnp.asarray(0.0))


def draw_layer(case, **options) -> Any:
    model = build({"num_layers": 1, "layer_norm_epsilon": 0.1, **case, **options})
    return model.layers[0]


def draw_moves(size, seed=0):
    """Rows, and for each substitution centres and radii; row i moves by far the most."""
    rng = np.random.default_rng(seed)
    p = len(POSITIONS)
    rows = rng.normal(size=(N, D))
    centre = size * rng.normal(size=(N, D, p))
    radius = size * rng.uniform(size=(N, p))
    for slot, i in enumerate(POSITIONS):
        centre[i, :, slot] = rng.normal(size=D)
        radius[i, slot] *= 3
    return rows, centre, radius


def prepared(layer, rows, known=0.0, wanted=EVERY, constants=None):
    """Base pass of some rows of a layer; `known` are the radii of the input rows."""
    constants = constants or layer_constants(layer)
    given = jnp.asarray(rows), jnp.zeros(N) + known
    held = prepare_rows(layer, constants, *given, wanted)
    return dataclasses.replace(held, roundoff=NO_ROUNDING)


def one_tile(held, inflation):
    """All rows of a base pass as one tile."""
    given = held.queries, held.summary, prepare_spread(held), rule_of(held, EVERY)
    return RowTile(EVERY, *given, inflation)


class Bounded:
    """Centres and radii of the output rows of a layer, from both kernels."""

    def __init__(self, layer, rows, centre, radius, known=0.0, without=()):
        position = jnp.asarray(POSITIONS, jnp.int32)
        moved = MovedRows(position, jnp.asarray(centre), jnp.asarray(radius))
        held = prepared(layer, rows, known)
        held = dataclasses.replace(held, radius=forget(held.radius, without))
        held = dataclasses.replace(held, spread=prepare_spread(held))
        found = move_all_rows(held, moved)
        self.many = np.asarray(found.centre), np.asarray(found.radius)
        every = (jnp.full(len(POSITIONS), j, jnp.int32) for j in range(N))
        one = [move_one_row(take_rows(held, j), moved) for j in every]
        self.one = np.stack([c.T for c, _ in one]), np.stack([r for _, r in one])
        # The kernel of all rows leaves out the substituted row itself.
        self.counted = np.arange(N)[:, None] != np.asarray(POSITIONS)

    def holds(self, change, slot, which):
        """Whether a change [n, d] of the output is within the radii."""
        centre, radius = self.many if which == "many" else self.one
        distance = np.linalg.norm(change - centre[:, :, slot], axis=1)
        within = distance <= radius[:, slot] * (1 + 1e-9) + 1e-13
        return (within | ~self.counted[:, slot]) if which == "many" else within


def forget(radius, names):
    """The radii of a base pass with some of them planted to be zero."""
    for part in (radius, radius.by_row):
        own = [x.name for x in dataclasses.fields(part)]
        gone = {x: 0 * getattr(part, x) for x in names if x in own}
        part = dataclasses.replace(part, **gone)
        radius = dataclasses.replace(radius, by_row=part) if "query" in own else part
    by_row = radius.by_row
    after = {k: 0 * x if k in names else x for k, x in by_row.rows.items()}
    return dataclasses.replace(radius, by_row=dataclasses.replace(by_row, rows=after))


def output_change(layer, rows, change):
    before, after = (
        np.asarray(apply_layer(layer, jnp.asarray(x))[0]) for x in (rows, rows + change)
    )
    return after - before


def bare(case, **parts) -> Any:
    """A layer whose attention and block are zero but for `parts`, {index: value} of each."""
    layer = draw_layer(case)

    def fill(old):
        new = {name: 0 * x for name, x in vars(old).items() if name in parts}
        for name, entries in parts.items():
            for at, value in entries.items() if name in new else ():
                new[name] = new[name].at[at].set(value)
        return dataclasses.replace(jax.tree.map(jnp.zeros_like, old), **new)

    filled = fill(layer.attention), fill(layer.feed_forward)
    return dataclasses.replace(layer, attention=filled[0], feed_forward=filled[1])


def hand_made(query=0.0, key=0.0, block=0.0, **case) -> Any:
    """A layer whose parts read apart: queries x_0, keys x_1, values x_2, ReLU x_3."""
    return bare(
        {"score": "dot_product", **case},
        query={(0, 0, 0): query},
        key={(0, 0, 1): key},
        value={(0, 0, 2): 1.0},
        output={(2, 0): 1.0},
        w1={(0, 3): 1.0},
        # Just inactive at x_3 = 0.
        b1={0: -1e-6},
        w2={(3, 0): block},
    )


def with_norms(layer, last=1.0) -> Any:
    """The layer with norms of scale 1, the last of another, without biases."""
    flat = dataclasses.replace(layer.norm1, scale=jnp.ones(D), bias=jnp.zeros(D))
    second = dataclasses.replace(flat, scale=last * jnp.ones(D))
    return dataclasses.replace(layer, norm1=flat, norm2=second)


def post(scale) -> Any:
    """Two norms and nothing else, the last one of a scale."""
    return with_norms(bare({"layer_norm": "post", "layer_norm_epsilon": 1e-9}), scale)


def output(layer, row):
    """The output row [d] where attention writes nothing."""
    heads = jnp.zeros((1, layer.attention.num_heads * layer.attention.value.shape[1]))
    return layer.writes.value({"y": jnp.asarray(row)[None], "heads": heads})["out"][0]
