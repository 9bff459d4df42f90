"""Rounding in certificates: a bound that is proved, and counts of layers' roundings.

A certificate is a proved bound on the change of a model's output when one token is replaced;
radii bound how far changes on the way are from computed ones. γ_k (`gamma`) bounds the
relative error of k roundings, to any order. Where a certificate adds up layers it counts
roundings, to first order in the unit roundoff u: a sum of m terms in any order errs by at
most m u times the sum of magnitudes (the compiler chooses the order, so no pairwise
logarithm is claimed); tiles of at most 8192 keys are summed apart and then merged. One layer
chains two projections (depth d), a score (d_k), a softmax over n keys, the output projection
(H d_v) and the feed-forward block (d, d_ff):

    steps(layer) = depth(n) + 2 d + d_k + H d_v + d_ff + 16,

16 for the constant number of scalar operations (norms, divisions, activations) between
(where a block multiplies two of its rows, or squares one, d + 16 for the second). Radii
of computed influences rest on a model of rounding instead (`bounds.rounding`).
"""

import functools
import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.numbers.interval import Interval, interval, upper
from jax_models import Transformer
from jax_models.model.layer import Layer
from jax_models.model.rows import Affine
from jax_models.run.blocks import MAX_KEY_TILE

SCALAR_STEPS = 16


def rounding_steps(model: Transformer, length: int) -> float:
    """Number of roundings of one evaluation at `length` tokens, from shapes alone."""
    steps = sum((layer_steps(model, x, length) for x in model.layers), start=0.0)
    # A read-out is one map: the last of a head counts as little.
    for step in () if model.readout is None else model.head.steps[:-1]:
        steps += SCALAR_STEPS
        if isinstance(step.operation, Affine):
            steps += step.operation.weight.shape[1]
    if model.entry is not None:
        each = model.embedding_width + SCALAR_STEPS
        steps += each * len(model.entry.operations)
    return steps + SCALAR_STEPS


def layer_steps(model: Transformer, layer: Layer, length: int) -> float:
    """Number of roundings of one layer at `length` keys, steps(layer) of the module."""
    attention = layer.attention
    heads, width = attention.num_heads, attention.value_width
    steps = summation_depth(length) + SCALAR_STEPS
    steps += 2 * model.width + attention.key_width + heads * width
    steps += attention.placing_steps
    steps += layer.feed_forward.w1.shape[0]
    # A row that multiplies two rows, or squares one, rounds by another d + 16.
    degree = max(x.degree for x in layer.operations)
    return steps + (degree - 1) * (model.width + SCALAR_STEPS)


def summation_depth(length: int) -> int:
    """Most additions that one term of a sum over `length` keys goes through."""
    return min(length, MAX_KEY_TILE) + math.ceil(length / MAX_KEY_TILE)


def unit_roundoff(dtype: Any) -> float:
    """Unit roundoff u: 2^-53 in float64, 2^-24 in float32."""
    return float(jnp.finfo(dtype).eps) / 2


@functools.cache
def gamma(count: int) -> Interval:
    """γ_k = k u/(1 - k u), a bound on the relative error of k float64 roundings; k u < 1."""
    # A product of k factors (1 + δ), |δ| <= u, and inverses of such, is 1 + θ with
    # |θ| <= γ_k. So a float64 inner product of k terms, in any order, with fused
    # operations or not, is off by at most γ_k times the sum of the magnitudes, a matrix
    # product entry by entry by γ_k |A||B|; and a sum of k terms >= 0 lies between 1/(1
    # + γ_k) and 1/(1 - γ_k) times its computed value.
    # Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 3.1
    # (Lemma 3.1) and 3.5.
    steps = count * interval(2.0**-53)
    return steps / (1 - steps)


@functools.cache
def gamma_upper(count: int) -> float:
    """Least float that is at least γ_k, the relative error of k = `count` roundings."""
    return upper(gamma(count))


def term_roundoff(count: int) -> float:
    """Bound on a float64 change's error, over the sum of magnitudes of its `count` terms."""
    # γ_k, k = 2 (count + 8): inner products with `count` terms in all and a few scalar
    # operations, on operands that round as much themselves.
    return gamma_upper(2 * count + SCALAR_STEPS)


def layer_roundoff(
    layer: Layer,
    depth: float,  # additions that one term of a sum over keys goes through
    score_range: float | Float[Array, ""],  # largest |score|
) -> Float[Array, ""]:
    """Bound on the error of a change through a layer, relative to its terms' magnitudes."""
    heads, width = layer.attention.num_heads, layer.attention.value_width
    d, key_width = layer.attention.query.shape[2], layer.attention.key_width
    steps = depth + score_range + SCALAR_STEPS + 2 * d + key_width + heads * width
    steps += layer.feed_forward.w1.shape[0]
    # A certificate adds it to its radii layer by layer. A product of k factors 1 + δ,
    # |δ| <= u, and inverses of such, is within this distance of 1 for k u up to twice
    # the exponent, whatever k is.
    return jnp.expm1(2 * unit_roundoff(jnp.float64) * steps)


def tiled_summation(length: int) -> tuple[int, int]:
    """Tile size, and additions per term, of a sum over n = `length` keys by tiles."""
    # A tile of t keys is t additions deep; joining n / t tile sums, one after another,
    # adds about 6 operations each, so t = sqrt(6 n) is best.
    tile = min(length, math.ceil(math.sqrt(6 * length)))
    return tile, tile + 6 * math.ceil(length / tile)


def certificate_roundoff(
    model: Transformer,
    length: int,
    score_range: float,  # largest |score|
    largest_exponent: float,  # of an exponential of radii
) -> float:
    """Bound on the relative rounding error of a certificate's radii, to first order in u."""
    # A radius is built from sums and products of numbers that are not negative, so that
    # each of its operations adds at most u relatively, and nothing cancels. The
    # operations of a layer are: weights (score_range + n) and their sums with sizes
    # (n), twice, since a mean is formed before distances from the mean; exponentials of
    # radii (largest_exponent); a norm by squaring ((8 + 2 d) d) and products with
    # weights (rounding_steps); 4 * 16 scalar operations.
    d = model.width
    each = score_range + largest_exponent + 3 * summation_depth(length)
    each += (8 + 2 * d) * d + 4 * SCALAR_STEPS
    steps = each * (len(model.layers) + 1) + rounding_steps(model, length)
    return 2 * unit_roundoff(jnp.float64) * steps
