"""Sums over all columns of what moves a row, for every group of rows and substitution.

Source: exact influence, section 4. Shapes: n columns, g groups, i substitutions.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from bounds.influence.screening.envelopes import Envelopes, MeanField
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
    field: Array | None  # [h, g, v, i] the mean field

    def at_rows(self, group: Array) -> tuple[ColumnSums, Array, Array]:
        """Returns the sums at rows of groups [j, h]: the lemma's, plain and scored."""
        found = jax.vmap(lambda x, g: x[:, g], (1, 1), 1)(self.sums, group)
        largest = self.largest[:, :, None]
        return ColumnSums(*found[:5], *largest), found[5], found[6]

    def field_at_rows(self, group: Array) -> Array:
        """Returns the mean field at rows of groups [j, h] as [j, h v, i]."""
        assert self.field is not None
        found = jax.vmap(lambda x, g: x[g], (0, 1), 1)(self.field, group)
        return found.reshape(found.shape[0], -1, found.shape[-1])


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
    mean, field = envelopes.mean, None
    plain, scored = sums[1], sums[3]
    if mean is not None:
        plain = summed(mean.plain, known_value) + summed(mean.scored, known_key)
        plain = plain + summed(envelopes.weight, value_unknown)
        scored = summed(envelopes.value, key_unknown)
        field = _mean_field(mean, moved, values, here)
    return GroupSums(jnp.stack([*sums, plain, scored]), largest, field)


def _mean_field(
    mean: MeanField, moved: MovedColumns, values: Array, here: Array
) -> Array:
    """sum_m abar_cm [W_v x_m + (qbar_c . W_k x_m)(v_m - bbar_c)] as [h, g, v, i]."""
    key = jnp.where(here[:, None], 0, moved.key)
    value = jnp.where(here[:, None], 0, moved.value)
    plain = jnp.einsum("hgn,hnvi->hgvi", mean.weight, value, precision=HIGHEST)

    def one(group: tuple[Array, Array, Array]) -> Array:
        weight, query, centre = group
        scores = jnp.einsum("he,hnei->hni", query, key, precision=HIGHEST)
        away = (values - centre[:, None]) * weight[..., None]
        return jnp.einsum("hnv,hni->hvi", away, scores, precision=HIGHEST)

    groups = (mean.weight, mean.query, mean.value)
    scored = jax.lax.map(one, jax.tree.map(lambda x: x.swapaxes(0, 1), groups))
    return plain + scored.swapaxes(0, 1)
