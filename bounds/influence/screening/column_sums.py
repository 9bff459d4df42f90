"""Sums over all columns of what moves a row, for every group of rows and substitution.

Source: docs/screened.md, section 2.5. Shapes: n columns, g groups, i substitutions.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.screening.envelopes import Envelopes
from bounds.influence.screening.field import Field, sum_field
from bounds.influence.screening.softmax_defect import ColumnSums
from bounds.influence.screening.state import MovedColumns
from jax_models.pytree import register

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class GroupSums:
    """Sums over all columns but i, an upper bound for every row of a group.

    The first five are those of `ColumnSums`. The last two say how much of the first
    order a row does not know: at most plain + |q| scored.
    """

    sums: Array  # [7, h, g, i]
    largest: Array  # [2, h, i] the largest key and value change
    field: Field | None  # what is known of the first order

    def at_rows(self, group: Array) -> tuple[ColumnSums, Array, Array]:
        """Returns the sums at rows of groups [j, h]: the lemma's, plain and scored."""
        found = jax.vmap(lambda x, g: x[:, g], (1, 1), 1)(self.sums, group)
        largest = self.largest[:, :, None]
        return ColumnSums(*found[:5], *largest), found[5], found[6]


def sum_columns(
    envelopes: Envelopes, moved: MovedColumns, values: Array, here: Array
) -> GroupSums:
    """Returns the sums for every group of rows.

    Args:
        envelopes: bounds on the weights.
        moved: the changes of all keys and values.
        values: the base values [h, n, v].
        here: where column n is the replaced one [n, i].
    """

    def sizes(change: Array) -> Array:
        return jnp.where(here, 0, jnp.sqrt((change**2).sum(axis=2)))

    known_key, known_value = sizes(moved.key), sizes(moved.value)
    key_unknown, value_unknown = (
        jnp.where(here, 0, x) for x in (moved.key_unknown, moved.value_unknown)
    )
    key, value = known_key + key_unknown, known_value + value_unknown

    def summed(weights: Array, terms: Array) -> Array:
        return jnp.matmul(weights, terms, precision=HIGHEST)

    sums = [
        summed(envelopes.weight, key),
        summed(envelopes.weight, value),
        summed(envelopes.weight, key * value),
        summed(envelopes.value, key),
        summed(envelopes.value, key * key),
    ]
    largest = jnp.stack([key.max(axis=1), value.max(axis=1)])
    plain, scored, field = sums[1], sums[3], None
    if envelopes.factors is not None:
        assert envelopes.missed_weight is not None
        assert envelopes.missed_value is not None
        plain = summed(envelopes.missed_weight, known_value)
        plain = plain + summed(envelopes.weight, value_unknown)
        scored = summed(envelopes.missed_value, known_key)
        scored = scored + summed(envelopes.value, key_unknown)
        field = sum_field(envelopes.factors, moved, values, here)
    return GroupSums(jnp.stack([*sums, plain, scored]), largest, field)
