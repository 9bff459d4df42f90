"""Rounding radii: how far a computed influence may be from the real-number one.

Standard first-order forward-error model with unit roundoff u: a sum of m terms in
any order errs by at most m u times the sum of magnitudes (the compiler's order is not
ours to know, so no pairwise logarithm is claimed); tiles of at most 8192 keys are
summed apart and then merged. A product chain of k factors errs by k u; exp(s) by what s is
off by, plus u, relatively. One layer chains: two projections (depth d), a score (d_k), a
softmax over n keys, the output projection (H d_v) and the feed-forward block (d, d_ff).
Counting each once with its depth gives

    steps(layer) = depth(n) + S + 2 d + d_k + H d_v + d_ff + 16,

16 for the constant number of scalar operations (norms, divisions, activations) between
(where a block multiplies two of its rows, or squares one, d + 16 for the second), and
S the roundoffs of the scores: (d_k/2 + 2) times what a score's products come to before they
cancel, the most of any layer and row (`influence.sizes.score_rounding`). Where a part of
the scores is the same for all keys, softmax takes no notice of it, and change propagation
leaves it out (`influence.centred_store.shares_offsets`); a forward pass rounds relative to
it.

* *Change form*: every stored quantity is a change, so the error is relative to the
  influence: radius = 2 u sum_layers steps * influence (2: base quantities enter too).
  Where what enters a layer, or its heads write, is much that cancels in its rows, or in
  the query's of the last, what is read of them is rounded relative to that: the influence
  counts (entered or written / row) times; and where a norm below leaves of what it reads the
  sign and what epsilon adds, the inverse of that share (`sizes.norm_condition`). What cancels
  behind the values of the last layer, in its projections, sums, block and norms, in the final
  norm, the head or the target, is counted step by step (`influence.carried_rounding`), a
  factor or a smooth neuron whose own row cancels with it, and what its keys and queries
  annihilate (`influence.head_rounding`). Above the first layer a row that has moved is the
  sum of what it was and its change: where a far smaller one comes in, the influence counts
  (row before / row after) times (`first_layer.shrinkage`).
  A neuron at its kink reads what is rounded by some u, and its change is the share that one
  of n columns has in it: with ReLU blocks 2 n is added to the steps.
  A hard weighting's change is a difference of stored means of values, whose rounding is
  relative to the values: with one hard layer the output's size |y| is added to the
  influence, (written / row) times where values cancel in their mean, so that an exact zero
  is enclosed and not missed by a last bit. Where
  softmax may meet equal columns, or all positions hardly differ, a share of |y| is added
  (`influence.equal_columns`); two nearly equal positions among others are not looked for.
  What softmax reads always moves (`substitution.may_move`): a change that is computed as 0
  may be one that the type does not hold, and its least normal number, some n times, is added.
  Only a change that nothing reads, or that no decision of a hard row notices, has radius 0,
  and one of a hard layer that is computed as 0.
* *Subtraction form* (`exhaustive`): two passes, each off by u sum_layers steps times the
  largest size |y| met in the pass (rows, and what the heads can write to one):
  radius = 2 u sum_layers steps * |y|. In `partial` the first layer's heads are what they were
  and a change, each rounded as a pass is: that layer counts twice more.
* *Sampled form*, of the same two passes: what single roundings make of the output, as the
  layers are at this input, in place of products of norms; `influence.noise` samples it,
  and `noise_radius` says how many of its deviations are stated. It supposes more: that
  roundings do not agree in sign but where rows or keys are equal. Deep models need it, and
  the lesser of the two forms is stated where the first comes to 1e-4 of the output.

This is a rounding *model*, first order in u. It leaves out the growth that an ill-conditioned
layer below the last adds: changes that cancel one another there (two heads that write
opposite changes, a block that takes away what it reads, an offset of all values that the
output matrix removes), and in the last layer values, and rows' changes, that cancel in their
mean, are larger than their sum, and the radius is relative to the sum; and what a smooth
neuron of the head reads of entries of the final row that cancel in the last layer's sums to
far less than the others; and a neuron whose change is far below 1/n of what it reads; and
means or values of hard layers that differ in real numbers and round to one float, whose
change is computed as 0 and called that; and values of softmax layers that are equal in real
numbers and differ in floats, where all beside them has a weight near the roundoff or below.
What must hold there too is `certify_influence`, which follows the terms. Nothing in the model
is fitted, and it is checked against 40 and more digits in the tests, and by
`benchmarks.radii` over families made to lose digits.

What is *certified* rests on `gamma` instead, which is a theorem, not a model.
"""

import functools
import math
from typing import Any

import jax.numpy as jnp

from bounds.numbers.interval import Interval, interval, upper
from jax_models import Transformer
from jax_models.model.layer import Layer
from jax_models.model.rows import Affine
from jax_models.run.blocks import MAX_KEY_TILE

SCALAR_STEPS = 16
# Of what a neuron at its kink reads, seen from the share that one of n columns has in it.
KINK_STEPS = 2
# Standard deviations of a sum of roundings that a radius holds.
DEVIATIONS = 8


def rounding_steps(model: Transformer, length: int, score_steps: Any = 0.0) -> Any:
    """Returns the number of unit roundoffs that one evaluation accumulates.

    Args:
        model: the transformer; only its shapes are read.
        length: n.
        score_steps: the unit roundoffs of the scores of any layer, since exp makes of its
            argument's error a relative one (`influence.sizes.score_rounding`).
    """
    steps = 0.0
    for layer in model.layers:
        steps += layer_steps(model, layer, length, score_steps)
    # A read-out is one map: the last of a head counts as little.
    for step in () if model.readout is None else model.head.steps[:-1]:
        steps += SCALAR_STEPS
        if isinstance(step.operation, Affine):
            steps += step.operation.weight.shape[1]
    if model.entry is not None:
        steps += sum(
            model.embedding_width + SCALAR_STEPS for _ in model.entry.operations
        )
    return steps + SCALAR_STEPS


def layer_steps(
    model: Transformer, layer: Layer, length: int, score_steps: Any = 0.0
) -> Any:
    """Returns the part of a layer in `rounding_steps`."""
    attention = layer.attention
    heads, width = attention.num_heads, attention.value_width
    steps = summation_depth(length) + score_steps + SCALAR_STEPS
    steps += 2 * model.width + attention.key_width + heads * width
    steps += attention.placing_steps
    steps += layer.feed_forward.w1.shape[0]
    degree = max(x.degree for x in layer.operations)
    return steps + (degree - 1) * (model.width + SCALAR_STEPS)


def summation_depth(length: int) -> int:
    """Returns the most additions that one term of a sum over n keys goes through."""
    return min(length, MAX_KEY_TILE) + math.ceil(length / MAX_KEY_TILE)


def unit_roundoff(dtype: Any) -> float:
    """Returns u: 2^-53 in float64, 2^-24 in float32."""
    return float(jnp.finfo(dtype).eps) / 2


@functools.cache
def gamma(count: int) -> Interval:
    """Returns γ_k = k u/(1 - k u) in float64, the relative error of k roundings.

    A product of k factors (1 + δ), |δ| <= u, and inverses of such, is 1 + θ with
    |θ| <= γ_k. So a float64 inner product of k terms, in any order, with fused
    operations or not, is off by at most γ_k times the sum of the magnitudes, a matrix
    product entry by entry by γ_k |A||B|; and a sum of k terms >= 0 lies between 1/(1 +
    γ_k) and 1/(1 - γ_k) times its computed value.

    Args:
        count: k, with k u < 1.

    Source:
        Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 3.1
        (Lemma 3.1) and 3.5.
    """
    steps = count * interval(2.0**-53)
    return steps / (1 - steps)


@functools.cache
def gamma_upper(count: int) -> float:
    """Returns the least float that is at least γ_k; see `gamma`.

    Args:
        count: k, with k u < 1.
    """
    return upper(gamma(count))


def change_radius(
    model: Transformer,
    length: int,
    influence: Any,
    score_steps: Any = 0.0,
    beyond: int = 0,
) -> Any:
    """Returns the radius of influences computed in change form.

    Args:
        model: the transformer.
        length: n.
        influence: what the error is relative to, an array or a number: the computed
            influences, times a condition, and a size besides, as the module says.
        score_steps: unit roundoffs of the scores, a number or one for each influence.
        beyond: of what is made of the logits.
    """
    steps = rounding_steps(model, length, score_steps) + beyond
    if not all(layer.feed_forward.bend.smooth for layer in model.layers):
        steps += KINK_STEPS * length
    return 2 * unit_roundoff(model.dtype) * steps * influence


def subtraction_radius(dtype: Any, steps: float, size: Any) -> Any:
    """Returns the radius of a norm of a difference of two computed outputs.

    Args:
        dtype: the float type of the outputs.
        steps: roundoffs per evaluation; see `rounding_steps`.
        size: the norm of the outputs.
    """
    return 2 * unit_roundoff(dtype) * steps * size


def noise_radius(dtype: Any, noise: Any) -> Any:
    """Returns the radius of a difference of two outputs whose errors were sampled.

    L u noise for either, L = 8: beyond that with probability 2 e^-32 if roundings were
    independent and the sample their deviation itself, which it may be some times above.

    Args:
        dtype: the float type of the outputs.
        noise: the largest of samples of an evaluation's errors, in units of u.
    """
    return 2 * DEVIATIONS * unit_roundoff(dtype) * noise


def term_roundoff(count: int) -> float:
    """Returns the float64 rounding, per its terms, of a change by `count` operations.

    γ_k, k = 2 (count + 8): inner products with `count` terms in all and a few scalar
    operations, on operands that round as much themselves.
    """
    return gamma_upper(2 * count + SCALAR_STEPS)


def layer_roundoff(layer: Layer, depth: float, score_range: Any) -> Any:
    """Returns the float64 rounding of what a layer adds to a change, per its terms.

    e^(2 u steps(layer)) - 1, steps as in `change_radius`, but over the magnitudes of the
    terms of a sum and not over the sum: what a certificate adds to its radii, layer by
    layer. A product of k factors 1 + δ, |δ| <= u, and inverses of such, is within it of 1
    for k u up to twice the exponent, whatever k is.

    Args:
        layer: the layer.
        depth: additions that one term of a sum over keys goes through.
        score_range: the largest |score| met, a number or an array [].
    """
    heads, width = layer.attention.num_heads, layer.attention.value_width
    d, key_width = layer.attention.query.shape[2], layer.attention.key_width
    steps = depth + score_range + SCALAR_STEPS + 2 * d + key_width + heads * width
    steps += layer.feed_forward.w1.shape[0]
    return jnp.expm1(2 * unit_roundoff(jnp.float64) * steps)


def tiled_summation(length: int) -> tuple[int, int]:
    """Returns a tile size and the additions per term of a sum over n keys by tiles.

    A tile of t keys is t additions deep; joining n / t tile sums, one after another,
    adds about 6 operations each, so t = sqrt(6 n) is best.
    """
    tile = min(length, math.ceil(math.sqrt(6 * length)))
    return tile, tile + 6 * math.ceil(length / tile)


def certificate_roundoff(
    model: Transformer, length: int, score_range: float, largest_exponent: float
) -> float:
    """Returns the relative rounding of the radii of a certificate.

    A radius is built from sums and products of numbers that are not negative, so that
    each of its operations adds at most u relatively, and nothing cancels. Per layer they
    are: weights (score_range + n) and their sums with sizes (n), twice, since a mean is
    formed before distances from it; exponentials of radii (largest_exponent); a norm by
    squaring ((8 + 2 d) d) and products with weights (rounding_steps); 4 * 16 scalar
    operations.

    Args:
        model: the transformer.
        length: n.
        score_range: the largest |score| met.
        largest_exponent: the largest exponent of an exponential of radii.
    """
    d = model.width
    each = score_range + largest_exponent + 3 * summation_depth(length)
    each += (8 + 2 * d) * d + 4 * SCALAR_STEPS
    steps = each * (len(model.layers) + 1) + rounding_steps(model, length)
    return 2 * unit_roundoff(jnp.float64) * steps
