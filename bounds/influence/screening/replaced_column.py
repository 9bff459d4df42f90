"""Changes of all rows and columns before a middle layer when one token is replaced.

A substitution replaces token i; a middle layer is one between the first and the last; a
column is a key with its value. Row j != i changes by a known vector and an unknown one
of which only a norm bound is held. The replacement of column i has an exact effect on
every row. Base values are those of the unchanged input.

Source: docs/screened.md, sections 1 and 2.4.
"""

import functools
from typing import TypeAlias

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from bounds.influence.propagation.first_layer import PreparedLayer
from bounds.influence.screening.defect import norm_defect
from bounds.influence.screening.layer_base import BaseRows, swapped
from bounds.influence.screening.row_map import carry_columns
from bounds.influence.screening.softmax_defect import ReplacedColumn
from bounds.numbers.norms import contract
from bounds.readings import norm_before
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.pytree import pytree
from jax_models.run.blocks import formed_once
from jax_models.weighting import Column
from jax_models.weighting.base import same_position
from jax_models.weighting.softmax_summary import (
    ReplacedWeights,
    replace_by,
    replaced_weights,
)

ByRow: TypeAlias = Float[Array, "rows heads substitutions"]


@pytree
class State:
    """Known changes of a layer's input rows, and norm bounds on unknown ones."""

    known: Float[Array, "rows width substitutions"]  # zero at row i
    unknown: Float[Array, "rows substitutions"]  # zero at row i
    # Row i's change is not small, so it has a reference z of its own: the row when the others
    # have their known changes. The rest of its change is unknown.
    own: Float[Array, "width substitutions"]  # z - y_i
    own_unknown: Float[Array, "substitutions"]
    position: Int[Array, "substitutions"]  # i
    # Norms of the unknown changes of the last layer's keys, values and scores
    # (`LastReads`), formed by the layer before it alone. Zero at row i.
    reads: Float[Array, "rows reads substitutions"] | None = None


@pytree
class Inputs:
    """Changes of attention's input rows (after a pre-norm), for each substitution."""

    change: Float[Array, "rows width substitutions"]  # known, row i's included
    others: Float[Array, "rows width substitutions"]  # known, zero at row i
    unknown: Float[Array, "rows substitutions"]  # of all rows, row i's included
    defect: Float[Array, "rows substitutions"]  # part beyond the norm's base derivative
    here: Bool[Array, "rows substitutions"]  # True where the row is the replaced one
    position: Int[Array, "substitutions"]


def read_inputs(layer: Layer, rows: Float[Array, "rows width"], state: State) -> Inputs:
    """Changes of a layer's attention input, from the changes of the layer's rows."""
    everywhere = jnp.arange(rows.shape[0], dtype=jnp.int32)
    here = same_position(everywhere[:, None], state.position, rows.dtype)
    change = jnp.where(here[:, None], state.own, state.known)
    unknown = jnp.where(here, state.own_unknown, state.unknown)
    defect = jnp.zeros_like(unknown)
    norm = norm_before(layer)
    if norm is not None:
        defect, unknown = norm_defect(norm, rows, change, unknown)
        change = carry_columns(norm, (rows,), change)
    others = jnp.where(here[:, None], 0, change)
    return Inputs(change, others, unknown, defect, here, state.position)


@pytree
class MovedColumns:
    """Known changes of all keys and values, and norm bounds on the unknown ones."""

    key: Float[Array, "heads columns d_k substitutions"]
    value: Float[Array, "heads columns d_v substitutions"]
    key_unknown: Float[Array, "heads columns substitutions"]
    value_unknown: Float[Array, "heads columns substitutions"]
    # Of scores by a base query, where these are known by more than that query's norm.
    score_unknown: Float[Array, "heads columns substitutions"] | None = None


def move_columns(
    attention: Attention,
    inputs: Inputs,
    norms: tuple[Float[Array, "heads"], Float[Array, "heads"]],
) -> MovedColumns:
    """Changes of all keys and values; `norms` bound spectral norms of their maps."""
    maps = (attention.key_by_head, attention.value_by_head)
    key, value = (contract("hed,ndi->hnei", w, inputs.change) for w in maps)
    unknown = [norm[:, None, None] * inputs.unknown for norm in norms]
    return MovedColumns(key, value, *unknown)


@pytree
class Columns:
    """Replaced column i of each substitution: base key and value, and their changes."""

    position: Int[Array, "substitutions"]
    keys: Float[Array, "heads substitutions d_k"]
    values: Float[Array, "heads substitutions d_v"]
    key_change: Float[Array, "heads substitutions d_k"]
    value_change: Float[Array, "heads substitutions d_v"]
    key_unknown: Float[Array, "heads substitutions"]
    value_unknown: Float[Array, "heads substitutions"]
    # The mean key and value of each head.
    centres: tuple[Float[Array, "heads d_k"], Float[Array, "heads d_v"]]

    @property
    def both_values(
        self,
    ) -> tuple[
        Float[Array, "heads d_v substitutions"], Float[Array, "heads d_v substitutions"]
    ]:
        """Base values of the replaced columns, and their known changes."""
        return self.values.swapaxes(1, 2), self.value_change.swapaxes(1, 2)


def take_columns(
    prepared: PreparedLayer,
    moved: MovedColumns,
    centres: tuple[Float[Array, "heads d_k"], Float[Array, "heads d_v"]],
    position: Int[Array, "substitutions"],
) -> Columns:
    """Replaced columns of substitutions; `centres` are mean key and value by head."""
    store, at = prepared.store, jnp.arange(position.shape[0])
    # Index arrays pair up: column position[i] of substitution i, for every i.
    base = store.keys[:, position], store.values[:, position]
    key, value = (
        x[:, position, :, at].swapaxes(0, 1) for x in (moved.key, moved.value)
    )
    unknown = moved.key_unknown[:, position, at], moved.value_unknown[:, position, at]
    return Columns(position, *base, key, value, *unknown, centres)


@pytree
class Replaced:
    """Exact effect of replacing column i alone, on each row's attention."""

    heads: Float[Array, "rows heads d_v substitutions"]  # change a of the heads
    weights: ReplacedWeights


def replace_column(
    attention: Attention, base: BaseRows, at: Int[Array, "rows"], columns: Columns
) -> tuple[Replaced, ReplacedColumn]:
    """Effect of replacing column i on rows `at`; its norm bounds for `head_defect`."""
    statistics, position = base.statistics, columns.position
    queries, summary = swapped((statistics.query, base.summary))

    own = same_position(at[:, None], position, queries.dtype)
    seen = visible(attention.sight, at, position) & ~own
    keys = columns.keys, columns.key_change
    score, change = (contract("hje,hie->hji", queries, x) for x in keys)
    column = Column(position, score, change, *columns.both_values, seen)
    # Always formed: a row that does not see the column keeps its weights, not zeros.
    weights = formed_once(at[0] >= 0, replaced_weights, summary, column)
    heads = replace_by(summary, column, weights)

    # Distances from a row's own means are bounded by way of the centre: those of the
    # column's key and value there, before and after, and those of the means.
    def away(
        start: Float[Array, "heads substitutions width"],
        change: Float[Array, "heads substitutions width"],
        means: Float[Array, "rows heads width"],
        centre: Float[Array, "heads width"],
    ) -> list[Float[Array, "heads rows substitutions"]]:
        size = lambda x: jnp.linalg.norm(x, axis=-1)
        means = size(means.swapaxes(0, 1) - centre[:, None])[..., None]
        start = start - centre[:, None]
        return [size(x)[:, None] + means for x in (start, start + change)]

    key, value = columns.centres
    old_key, new_key = away(*keys, statistics.mean_key, key)
    values = columns.values, columns.value_change
    old_value, new_value = away(*values, statistics.mean_value, value)
    shift = jnp.linalg.norm(heads, axis=2).swapaxes(0, 1)
    return Replaced(heads, weights), ReplacedColumn(
        old=weights.old,
        new=weights.new,
        others=weights.others,
        others_change=jnp.abs(weights.others_change),
        old_key=old_key,
        old_value=old_value,
        new_key=new_key,
        new_value=new_value + shift,
        key=columns.key_unknown[:, None],
        value=columns.value_unknown[:, None],
        shift=shift,
    )


def turn_derivative(
    replaced: Replaced,
    columns: Columns,
    base: BaseRows,
    query_change: Float[Array, "rows heads d_k substitutions"],
    first: Float[Array, "rows heads d_v substitutions"],
    common: ByRow,
) -> Float[Array, "rows heads d_v substitutions"]:
    """Difference that replacing column i makes to heads' first-order known change."""
    # With f the factor of the other columns' weights, k^ and v^ their mean key and value, t
    # and t' the weight of column i, the change is
    #     (f - 1) first - f a common
    #         + (1 - t') [ t' dq . (k'_i - k^) (v'_i - v^) - t dq . (k_i - k^) (v_i - v^) ].
    # `first` is the base derivative by the known changes, dq among them; `common` the mean
    # known change of the other columns' scores. Where f is infinite the result means nothing.
    statistics, weights = base.statistics, swapped(replaced.weights)

    by_row, by_column = (
        functools.partial(contract, terms, query_change)
        for terms in ("jhei,jhe->jhi", "jhei,hie->jhi")
    )
    at = lambda x: x[:, :, None]  # [rows, heads, 1, substitutions]
    # What column i differs from the others' mean is what it does from the mean of all, over
    # 1 - t. Beside a top column of weight near 1 the latter is known from the former.
    rest = jnp.where(weights.old_rest > 0, weights.old_rest, 1)
    centre, _ = columns.centres
    key, mean_key = columns.keys - centre[:, None], statistics.mean_key - centre
    before = by_column(key) - by_row(mean_key)
    top = -by_row(statistics.above_top)
    before = jnp.where(weights.is_top, top, before) / rest
    after = before + by_column(columns.key_change)
    value, value_change = columns.both_values
    away = (value - statistics.mean_value[..., None]) / at(rest)
    away = jnp.where(at(weights.is_top), -base.summary.rest_above_top[..., None], away)
    turned = at(weights.new * after - weights.old * before) * away
    turned = turned + at(weights.new * after) * value_change
    return (
        at(weights.others_change) * first
        - at(weights.others * common) * replaced.heads
        + at(weights.new_rest) * turned
    )
