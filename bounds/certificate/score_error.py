"""How far the change of a score may be from its reference."""

from jax import Array

from bounds.certificate.inflation import Inflation
from bounds.certificate.layer_constants import LayerConstants
from bounds.certificate.scores.base import score_rule
from jax_models.attention import Attention


def base_score_error(
    attention: Attention,
    constants: LayerConstants,
    scale: Array,
    query_size: Array | float,
    inflation: Inflation,
    key: Array,
    moved: Array,
) -> Array:
    """Returns how far a score's change is from that of the true base [h, j, p].

    A query that moves by dq and a key that moves by dk change a dot product by dq.k +
    q.dk + dq.dk, an additive score by at most (curvature) (|dq| + |dk|) times what the
    argument of tanh is off, as that is how far the slope is off on the way.

    Args:
        attention: the sublayer.
        constants: of its layer.
        scale: score scales [j].
        query_size: |dq|, of dot products over the scale, broadcastable to [h, j, p].
        inflation: of the rows, fields [h, j].
        key: radius of the keys [h].
        moved: |dk|, broadcastable to [h, j, p].
    """
    return score_rule(attention.scoring).base_error(
        constants, scale, query_size, inflation.query, inflation.argument, key, moved
    )


def own_score_error(
    attention: Attention,
    constants: LayerConstants,
    scale: Array,
    query_size: Array,
    steepness: Array,
    key_slope: Array,
    radius: Array,
) -> Array:
    """Returns a bound on column i's score error against the mean of the others.

    The query is off by dq, column i's key by dk. Against the others' common part dq.g,
    g their mean slope, the error is at most |dq| |slope - g| + (slope in the key) |dk|
    and a term of second order: |dq| |dk| for dot products, half the curvature times
    (|dq| + |dk|)^2 for additive scores, whose error is also at most |w| (|dq| + |dk|)
    and at most 2 |w|_1, each beside the common part |dq| |w|.

    Args:
        attention: the sublayer.
        constants: of its layer.
        scale: score scales [j].
        query_size: |dq|, of dot products over the scale [h, j, p].
        steepness: |slope in the query - g| at the reference [h, j, p].
        key_slope: slope in the key's input at the reference, over the scale [h, j, p].
        radius: of the attention's input at column i, broadcastable to [h, j, p].
    """
    keys = constants.key[:, None, None] * radius
    error = query_size * steepness + key_slope * radius
    rule = score_rule(attention.scoring)
    return rule.own_error(constants, scale, query_size, keys, error)
