"""One block of substitutions whose changes are carried in half precision.

The base pass, and the rows that replace others, are as in every block; products of changes
are rounded (`round_products`), which nothing encloses.
"""

import dataclasses
import functools
from typing import Any

import jax
from jax import Array

from bounds.influence.change_block import IncrementalState, carry_block
from bounds.influence.first_layer import replace_tokens
from bounds.rounding.precision import Rounding
from bounds.rounding.rounded_products import round_products
from jax_models.model.transformer import Transformer
from jax_models.weighting import TieReport

# What of `Replaced` is a change; the rest is of rows as they stand.
CHANGES = ("row_change", "query_change", "key_change", "value_change")


@functools.partial(
    jax.jit,
    static_argnames=(
        *("query", "target", "row_tile", "own_query", "chosen"),
        "rounding",
    ),
)
def rounded_block(
    model: Transformer,
    tokens: Array,
    state: IncrementalState,
    position: Array,
    symbol: Array,
    *,
    rounding: Rounding,
    **options: Any,
) -> tuple[Array, TieReport]:
    """Returns estimates of what a block changes, and no ties.

    Args:
        model: a transformer without hard attention.
        tokens: the input [n].
        state: its base pass.
        position: the replaced positions [i].
        symbol: the substitutes [i].
        rounding: of operands.
        options: as in `change_block`.

    Returns:
        Changes [i, g, c], and an empty report.
    """
    replaced = replace_tokens(model, tokens, state.first, position, symbol)
    fixed = jax.tree.map(lambda _: False, (model, state, replaced))
    moved = dataclasses.replace(fixed[2], **dict.fromkeys(CHANGES, True))
    return round_products(
        rounding,
        functools.partial(carry_block, **options),
        (model, state, replaced),
        (*fixed[:2], moved),
    )
