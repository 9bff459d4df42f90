"""One block of substitutions whose changes are carried in half precision.

The base pass and the replaced rows have the model's float type, as in every block;
products of changes are rounded (`round_products`), which no radius encloses.
"""

import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array, Float, Int

from bounds.influence.propagation.change_block import IncrementalState, carry_block
from bounds.influence.propagation.first_layer import replace_tokens
from bounds.influence.targets.base import Target
from bounds.rounding.precision import Rounding
from bounds.rounding.rounded_products import round_products
from jax_models.model.transformer import Transformer
from jax_models.weighting import TieReport

# Fields of `Replaced` that are changes; the others are of whole rows.
CHANGES = ("row_change", "query_change", "key_change", "value_change")


@functools.partial(
    jax.jit,
    static_argnames=(
        *("row_tile", "own_query", "chosen", "at_position"),
        "rounding",
    ),
)
def rounded_block(
    model: Transformer,  # without hard attention
    target: Target,
    tokens: Int[Array, "tokens"],
    state: IncrementalState,
    position: Int[Array, "substitutions"],
    symbol: Int[Array, "substitutions"],
    *,
    rounding: Rounding,
    **options: Any,  # of `change_block`
) -> tuple[Float[Array, "substitutions watched classes"], TieReport]:
    """Estimates of the changes of a block, and an empty tie report."""
    replaced = replace_tokens(model, tokens, state.first, position, symbol)
    given = model, target, state, replaced
    *fixed, still = jax.tree.map(lambda _: False, given)
    moved = dataclasses.replace(still, **dict.fromkeys(CHANGES, True))
    return round_products(
        rounding, functools.partial(carry_block, **options), given, (*fixed, moved)
    )
