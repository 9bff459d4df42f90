"""The base pass of the layers, shared by all substitutions of a certification.

A certificate bounds the change of the query row's output when the symbol at position i is
substituted; the norm of that change is its influence. The base pass is the evaluation on the
unchanged input; `held` is that of one layer. A row's change from it is known by a centre, a
computed vector, and a radius, an upper bound on the distance of the true change from the
centre. A column is a row as the attention of others reads it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.change import target_map
from bounds.lemma5.certificate.base_radius import (
    LayerBase,
    centred,
    embedding_radius,
    rule_of,
)
from bounds.lemma5.certificate.mean_deviation import Roundoff
from bounds.lemma5.certificate.norm_gain import (
    norm_gains,
    norm_jacobian,
    norm_rounding,
    vector_norms,
)
from bounds.lemma5.certificate.one_row import move_one_row
from bounds.lemma5.certificate.order import (
    bounded,
    greatest,
    least,
    resting_on,
    settle,
    times,
)
from bounds.lemma5.certificate.own_column import (
    LARGEST_EXPONENT,
    move_all_rows,
    replace_column,
)
from bounds.lemma5.certificate.pointwise import MovedRows, OwnMove, put_row
from bounds.lemma5.certificate.row_base import prepare_rows, prepare_spread, take_rows
from bounds.lemma5.certificate.sections import layer_constants
from bounds.numbers.norms import contract, spectral_norms
from bounds.numbers.rounding import (
    certificate_roundoff,
    layer_roundoff,
    summation_depth,
    term_roundoff,
    tiled_summation,
)
from jax_models.model.rows import linear
from jax_models.model.transformer import Transformer, embed


def certified_norms(
    model: Transformer,
    target: str,
    output: Float[Array, "width"],
    base: Float[Array, ""],
    centre: Float[Array, "substitutions width"],
    radius: Float[Array, "substitutions"],
) -> Float[Array, "substitutions"]:
    """Upper bounds on norms of changes of the target, the "activation" or the "logits"."""
    # `output` is the base row that enters the final norm, within `base` of the true
    # one; the model's head is one linear map.
    norm, roundoff = model.final_norm, term_roundoff(output.shape[0])
    if norm is None and target == "activation":
        return bounded(vector_norms(centre) * (1 + roundoff) + radius)
    weight = target_map(model, target)
    gain, entries = spectral_norms(weight), vector_norms(weight.reshape(-1))
    if norm is None:
        rounding = 2 * roundoff * entries * vector_norms(centre)
        moved = vector_norms(linear(centre, weight))
        return bounded(moved + times(gain, radius) + rounding)
    base = centred(output, base)
    local, bend = norm_gains(norm, output, centre, radius, base)
    jacobian = contract("ij,jk->ik", weight, norm_jacobian(norm, output))
    # The product of local constants, or the whole Jacobian at the base and its
    # variation.
    carried = least(local * gain, spectral_norms(jacobian) + gain * bend)
    carried = times(carried, radius)
    change = norm.change(output, centre)
    carried += gain * norm_rounding(norm, output, centre, base)
    carried += 2 * roundoff * entries * vector_norms(change)
    # Two outputs of the norm are no further apart, whatever enters it.
    apart = 2 * norm.largest * output.shape[0] ** 0.5 * gain
    return least(vector_norms(linear(change, weight)) + carried, apart)


def exact_without_layers(
    request: InfluenceRequest,
) -> Float[np.ndarray, "substitutions"]:
    """Upper bounds on the influences in a model without layers, exact up to rounding."""
    model, tokens = request.model, request.tokens
    embedding, at = model.embedding, request.position
    # A substitution changes only its own row.
    change = embedding[request.symbol] - embedding[tokens[at]]
    change = jnp.where((at == request.query)[:, None], change, 0.0)
    output = embed(model, jnp.asarray(tokens))[request.query]
    moves = embedding_radius(model, output), change, jnp.zeros(at.size, change.dtype)
    return np.asarray(certified_norms(model, request.target, output, *moves))


# Numbers of the widest array [n, width, substitutions] of a block.
BLOCK_ELEMENTS = 2**22
MOST_SUBSTITUTIONS = 128

_finish = jax.jit(certified_norms, static_argnames="target")


@dataclasses.dataclass(frozen=True)
class BasePass:
    """Base passes of all layers of a model, with the rounding of radii and batch size."""

    model: Transformer
    query: int
    held: tuple[LayerBase, ...]  # all rows; of the last layer the query row
    replaced: LayerBase  # the first layer, with the rounding of its replaced columns
    radius_roundoff: float  # of a computed radius, over the radius
    batch: int  # substitutions at once

    def certify(
        self, target: str, own: OwnMove, at_query: bool
    ) -> Float[Array, "substitutions"]:
        """Upper bounds on norms of the target's changes, from embedding changes `own`."""
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
        """Centre and radius of the change of the query row after the last layer."""
        query, last = jnp.full_like(own.position, self.query), len(self.held) - 1
        own = OwnMove(own.position, *settle(own.centre, own.radius))
        # The query row of a single layer sees one replaced column, and does not move
        # itself.
        if last == 0 and not at_query:
            centre, radius = replace_column(self.replaced, own)
            return centre[0].T, radius[0]
        moved = lone_row(own, self.held[0].rows.shape[0])
        for depth, held in enumerate(self.held[:last]):
            below = moved
            if depth == 0:
                # Only row i of the first layer's input moves, so all other rows are
                # exact.
                found = replace_column(self.replaced, own)
                moved, apart = MovedRows(own.position, *found), (own.position,)
            else:
                moved = move_all_rows(held, below)
                apart = (query, own.position)
            moved = MovedRows(own.position, *settle(moved.centre, moved.radius, 1))
            # The query row and row i, each with all columns at their centres.
            for at in apart:
                found = move_one_row(take_rows(held, at), below)
                moved = put_row(moved, at, *settle(*found))
        wanted = take_rows(self.held[last], jnp.zeros_like(query))
        return move_one_row(wanted, moved)


def prepare_pass(request: InfluenceRequest) -> BasePass:
    """Base passes of all layers on the requested input, for a model with layers."""
    model, n = request.model, request.tokens.size
    rows = embed(model, jnp.asarray(request.tokens))
    # What overflows is put to 0 within +inf before anything is formed of it.
    rows, known = settle(rows, embedding_radius(model, rows))
    every = jnp.arange(n, dtype=jnp.int32)
    query = jnp.asarray([request.query], jnp.int32)
    held, score_range = [], 0.0
    for depth, layer in enumerate(model.layers):
        last = depth == len(model.layers) - 1
        wanted = query if last else every
        base = prepare_rows(layer, layer_constants(layer), rows, known, wanted)
        # Spreads bound rows around a base; the last layer follows its row with all
        # columns moved.
        if depth == 0 or not last:
            base = dataclasses.replace(base, spread=prepare_spread(base))
        held.append(base)
        score_range = float(greatest(score_range, score_bound(base)))
        rows, known = settle(base.output, base.radius.output)

    def rounded(base: LayerBase, depth: int) -> LayerBase:
        numbers = [(depth, score_range), (0, 0.0)]
        found = (jnp.asarray(layer_roundoff(base.layer, *x)) for x in numbers)
        return dataclasses.replace(base, roundoff=Roundoff(*found))

    # Sums of the first layer's replaced columns go by tiles of keys, others over all keys.
    tile = tiled_summation(n)[1]
    passes = tuple(rounded(x, tile + summation_depth(n)) for x in held)
    roundoff = certificate_roundoff(model, n, score_range, LARGEST_EXPONENT)
    of_all = passes, rounded(held[0], tile), roundoff
    return BasePass(model, request.query, *of_all, _batch(request))


def _batch(request: InfluenceRequest) -> int:
    """Number of substitutions of a batch; a power of two, so that requests share kernels."""
    layers, n = request.model.layers, request.tokens.size
    heads = max(x.attention.num_heads for x in layers)
    neurons = max(x.feed_forward.w1.shape[0] for x in layers)
    widest = max(4 * request.model.width * heads, neurons)
    # Only the first layer of a one-layer model holds no number per row.
    fits = max(1, BLOCK_ELEMENTS // (widest * (n if len(layers) > 1 else 16)))
    most = MOST_SUBSTITUTIONS if len(layers) > 1 else 64 * MOST_SUBSTITUTIONS
    pairs = 2 ** max(0, request.position.size - 1).bit_length()
    return min(2 ** (fits.bit_length() - 1), most, pairs)


@jax.jit
def score_bound(held: LayerBase) -> Float[Array, ""]:
    """Upper bound on the absolute scores of a layer, over the rows that `held` holds."""
    rule, given = rule_of(held, held.position), (held.queries, held.store.keys)
    # tanh of an infinite argument is finite, so an overflow would not show in the bound.
    sizes = (vector_norms(x).max() for x in given)
    return resting_on(rule.score_size(*given).max(), *sizes)


@functools.partial(jax.jit, static_argnames="length")
def lone_row(own: OwnMove, length: int) -> MovedRows:
    """Centres and radii of all embedding rows' changes: `own` in row i, 0 in others."""
    p, d = own.centre.shape
    still = (jnp.zeros((length, *x), own.centre.dtype) for x in ((d, p), (p,)))
    rows = MovedRows(own.position, *still)
    return put_row(rows, own.position, own.centre, own.radius)
