"""Passes of an input without one of its tokens, beside those of the whole input.

Row j of the input is compared with the row that carries its token afterwards: j before
the deleted position, j - 1 behind it. The deleted position's own row has none.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from bounds.influence.inputs.length import unsupported_padding
from bounds.influence.inputs.reading import Chosen, choose
from bounds.influence.propagation.change_block import merge_reports
from bounds.influence.targets.base import Target
from bounds.influence.targets.change import differences, read_target
from jax_models import Transformer, forward
from jax_models.model.transformer import reduce_reports
from jax_models.run.perturbation import perturbation
from jax_models.weighting import TieReport


def without_token(
    tokens: Int[Array, "tokens"], position: Int[Array, ""], count: int
) -> Int[Array, "count"]:
    """The first `count` tokens of the input without one; the last token fills them up."""
    at = jnp.arange(count, dtype=jnp.int32)
    behind = jnp.minimum(at + 1, tokens.shape[0] - 1)
    return tokens[jnp.where(at < position, at, behind)]


def rows_without(
    rows: Int[Array, "rows"], position: Int[Array, ""], length: int
) -> Int[Array, "rows"]:
    """Rows of the shorter input that carry the tokens of rows; of its own row any."""
    return jnp.minimum(jnp.where(rows > position, rows - 1, rows), length - 2)


def differences_without(
    target: Target,
    base: Float[Array, "rows width"],
    shorter: Float[Array, "deletions rows width"],
    rows: Int[Array, "rows"],
    position: Int[Array, "deletions"],
) -> Float[Array, "deletions watched classes"]:
    """Changes of the target from the whole input; 0 at the deleted position's row."""
    if target.is_joint:
        return jax.vmap(functools.partial(target.compare, base))(shorter)[:, None]
    found = differences(target, base, shorter)
    return jnp.where((rows == position[:, None])[..., None], 0, found)


@functools.partial(jax.jit, static_argnames="chosen")
def rerun_without(
    model: Transformer,
    target: Target,
    tokens: Int[Array, "tokens"],
    rows: Int[Array, "rows"],
    base: Float[Array, "rows width"],
    run: UInt[Array, ""] | None,
    position: Int[Array, "deletions"],
    symbol: Int[Array, "deletions"],  # not read
    *,
    chosen: Chosen = None,
) -> tuple[Float[Array, "deletions watched classes"], TieReport]:
    """Differences of a block of passes of n - 1 tokens from the base, and their ties."""
    n = tokens.shape[0]

    def one(at: Int[Array, ""]) -> Any:
        if target.is_joint:
            among = jnp.asarray(target.rows(n - 1).astype(np.int32))
        else:
            among = rows_without(rows, at, n)
        y, reports = forward(model, without_token(tokens, at, n - 1), among)
        return y, merge_reports(model, list(reports))

    with perturbation(run, model.is_hard):
        finals, reports = jax.vmap(one)(position)
        read = read_target(model, finals, target.reads)
        found = differences_without(target, base, read, rows, position)
    return choose(found, chosen), reduce_reports(reports)


def is_causal(model: Transformer) -> bool:
    """True where no row depends on what follows, nor on how much."""
    sights = [layer.attention.sight for layer in model.layers]
    return unsupported_padding(model) is None and not any(x.after for x in sights)


def reached_by_deletion(
    model: Transformer,
    rows: Int[np.ndarray, "rows"],
    position: Int[np.ndarray, "deletions"],
) -> Bool[np.ndarray, "deletions rows"]:
    """True of the rows that a deletion may move."""
    at = position[:, None]
    return rows > at if is_causal(model) else rows != at
