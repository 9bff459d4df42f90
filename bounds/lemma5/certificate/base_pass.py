"""The base pass of the layers, shared by all substitutions of a certification.

The base pass is the evaluation on the unchanged input. Changes are known by a centre and
a radius around it; row i is the substituted row.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.request import InfluenceRequest
from bounds.lemma5.certificate.all_rows import move_all_rows, replace_column
from bounds.lemma5.certificate.base_radius import embedding_radius
from bounds.lemma5.certificate.mean_deviation import Roundoff
from bounds.lemma5.certificate.moved_rows import MovedRows, OwnMove, put_row
from bounds.lemma5.certificate.one_row import move_one_row
from bounds.lemma5.certificate.order import greatest, settle, times
from bounds.lemma5.certificate.output import certified_norms
from bounds.lemma5.certificate.own_column import LARGEST_EXPONENT
from bounds.lemma5.certificate.row_base import (
    LayerBase,
    RowSpread,
    prepare_rows,
    prepare_spread,
    row_scale,
    take_rows,
)
from bounds.lemma5.certificate.scores.base import rule_at
from bounds.lemma5.certificate.sections import layer_constants
from bounds.numbers.rounding import (
    certificate_roundoff,
    layer_roundoff,
    summation_depth,
    tiled_summation,
)
from jax_models.model.layer import Layer
from jax_models.model.transformer import Transformer, embed

# Numbers of the widest array [n, width, substitutions] of a block.
BLOCK_ELEMENTS = 2**22
MOST_SUBSTITUTIONS = 128

_finish = jax.jit(certified_norms, static_argnames="target")


@dataclasses.dataclass(frozen=True)
class BasePass:
    """The base passes of all layers, with the relative rounding on each layer."""

    model: Transformer
    query: int
    held: tuple[LayerBase, ...]  # all rows; of the last layer the query row
    spreads: tuple[RowSpread | None, ...]  # None for a last layer that is not the first
    replaced_roundoff: Roundoff  # of the first layer's replaced columns
    roundoffs: tuple[Roundoff, ...]
    radius_roundoff: float  # of a computed radius, over the radius
    batch: int  # substitutions at once

    def certify(
        self, target: str, own: OwnMove, at_query: bool
    ) -> Float[Array, "substitutions"]:
        """Upper bounds on the norms of the target's changes, from those of row i, `own`."""
        # With one layer either all substitutions are of the query's own token
        # (`at_query`) or none.
        centre, radius = self._move(own, at_query)
        output, base = self.held[-1].output[0], self.held[-1].radius.output[0]
        # Once for the radius, once for what the output multiplies it with.
        radius = times(1 + 2 * self.radius_roundoff, radius)
        return _finish(self.model, target, output, base, centre, radius)

    def _move(
        self, own: OwnMove, at_query: bool
    ) -> tuple[Float[Array, "substitutions width"], Float[Array, "substitutions"]]:
        """Centre and radius of the query row's final change."""
        layers, last = self.model.layers, len(self.model.layers) - 1
        query = jnp.full_like(own.position, self.query)
        own = OwnMove(own.position, *settle(own.centre, own.radius))
        spread, n = self.spreads[0], self.held[0].rows.shape[0]
        assert spread is not None
        # The query row of a single layer sees one replaced column, and does not move
        # itself.
        if last == 0 and not at_query:
            given = layers[0], self.held[0], spread, own, self.replaced_roundoff
            centre, radius = replace_column(*given)
            return centre[0].T, radius[0]
        moved = lone_row(own, n)
        for depth in range(last):
            layer, held, spread = layers[depth], self.held[depth], self.spreads[depth]
            roundoff, below = self.roundoffs[depth], moved
            assert spread is not None
            if depth == 0:
                # Only row i of the first layer's input moves, so all other rows are
                # exact.
                found = replace_column(layer, held, spread, own, self.replaced_roundoff)
                moved, apart = MovedRows(own.position, *found), (own.position,)
            else:
                moved = move_all_rows(layer, held, spread, below, roundoff)
                apart = (query, own.position)
            moved = MovedRows(own.position, *settle(moved.centre, moved.radius, 1))
            # The query row and row i, each with all columns at their centres.
            for at in apart:
                wanted = take_rows(held, at)
                found = move_one_row(layer, wanted, below, roundoff)
                moved = put_row(moved, at, *settle(*found))
        wanted = take_rows(self.held[last], jnp.zeros_like(query))
        return move_one_row(layers[last], wanted, moved, self.roundoffs[last])


def prepare_pass(request: InfluenceRequest) -> BasePass:
    """The base passes of all layers of a model that has at least one."""
    model, n = request.model, request.tokens.size
    rows = embed(model, jnp.asarray(request.tokens))
    # What overflows is put to 0 within +inf before anything is formed of it.
    rows, known = settle(rows, embedding_radius(model, rows))
    every = jnp.arange(n, dtype=jnp.int32)
    query = jnp.asarray([request.query], jnp.int32)
    held, spreads, score_range = [], [], 0.0
    for depth, layer in enumerate(model.layers):
        last = depth == len(model.layers) - 1
        wanted = query if last else every
        base = prepare_rows(layer, layer_constants(layer), rows, known, wanted)
        held.append(base)
        # Spreads bound rows around a base; the last layer follows its row with all
        # columns moved.
        needed = depth == 0 or not last
        spreads.append(prepare_spread(layer, base) if needed else None)
        score_range = float(greatest(score_range, score_bound(layer, base)))
        rows, known = settle(base.output, base.radius.output)
    tile = tiled_summation(n)[1]

    def roundoff(layer: Layer, depth: int) -> Roundoff:
        numbers = [(depth, score_range), (0, 0.0)]
        return Roundoff(*(jnp.asarray(layer_roundoff(layer, *x)) for x in numbers))

    return BasePass(
        model,
        request.query,
        tuple(held),
        tuple(spreads),
        roundoff(model.layers[0], tile),
        # Sums of the first layer's replaced columns go by tiles of keys, others over
        # all keys.
        tuple(roundoff(x, tile + summation_depth(n)) for x in model.layers),
        certificate_roundoff(model, n, score_range, LARGEST_EXPONENT),
        _batch(request),
    )


def _batch(request: InfluenceRequest) -> int:
    """Number of substitutions of a batch; a power of two, so that requests share programs."""
    layers, n = request.model.layers, request.tokens.size
    widest = max(
        [4 * request.model.width * max(x.attention.num_heads for x in layers)]
        + [x.feed_forward.w1.shape[0] for x in layers]
    )
    # Only the first layer of a one-layer model holds no number per row.
    fits = max(1, BLOCK_ELEMENTS // (widest * (n if len(layers) > 1 else 16)))
    most = MOST_SUBSTITUTIONS if len(layers) > 1 else 64 * MOST_SUBSTITUTIONS
    pairs = 2 ** max(0, request.position.size - 1).bit_length()
    return min(2 ** (fits.bit_length() - 1), most, pairs)


@jax.jit
def score_bound(layer: Layer, held: LayerBase) -> Float[Array, ""]:
    """Upper bound on the absolute scores of the held rows of a layer."""
    scale = row_scale(layer.attention, held.rows.shape[0], held.position)
    rule = rule_at(layer.attention, held.constants, scale)
    return rule.largest_score(held.queries, held.store.keys)


@functools.partial(jax.jit, static_argnames="length")
def lone_row(own: OwnMove, length: int) -> MovedRows:
    """Centres and radii of all rows' changes where only row i moves, by `own`."""
    p, d = own.centre.shape
    still = MovedRows(
        own.position,
        jnp.zeros((length, d, p), own.centre.dtype),
        jnp.zeros((length, p), own.centre.dtype),
    )
    return put_row(still, own.position, own.centre, own.radius)


def runs(
    request: InfluenceRequest, positions: Int[np.ndarray, "positions"], batch: int
) -> Iterator[tuple[slice, int, bool]]:
    """Yields slices of `positions`, sizes to pad to, and, for one layer, if at the query."""
    at_query = positions == request.query
    one_layer = len(request.model.layers) == 1
    # With one layer the query vector moves under substitutions of the query's own token
    # alone, so these have slices of their own.
    turns = np.flatnonzero(np.diff(at_query)) + 1 if one_layer else ()
    for first, end in itertools.pairwise([0, *turns, positions.size]):
        own = bool(one_layer and at_query[first])
        size = min(batch, 16) if own else batch
        for start in range(first, end, size):
            yield slice(start, min(start + size, end)), size, own
