"""Rounding radii: how far a computed influence may be from the real-number one.

Standard first-order forward-error model with unit roundoff u: a sum of m terms in
any order errs by at most m u times the sum of magnitudes (the compiler's order is not
ours to know, so no pairwise logarithm is claimed); tiles of at most 8192 keys are
summed apart and then merged. A product chain of k factors errs by k u; exp(s) by
(|s| + 1) u relative, because its argument carries |s| u. One layer chains: two
projections (depth d), a score (d_k), a softmax over
n keys, the output projection (H d_v) and the feed-forward block (d, d_ff). Counting each
once with its depth gives

    steps(layer) = depth(n) + s_max + 2 d + d_k + H d_v + d_ff + 16,

16 for the constant number of scalar operations (norms, divisions, activations) between.

* *Change form*: every stored quantity is a change, so the error is relative to the
  influence: radius = 2 u sum_layers steps * influence (2: base quantities enter too).
  A hard weighting's change is a difference of stored means of values, whose rounding is
  relative to the values: with one hard layer the output's size |y| is added to the
  influence, so that an exact zero is enclosed and not missed by a last bit.
* *Subtraction form* (`exhaustive`): two passes, each off by u sum_layers steps times the
  output's size: radius = 2 u sum_layers steps * |y|.

This is a rounding *model*, first order in u. It leaves out the growth that an
ill-conditioned layer adds: terms that cancel one another within the model (two heads
that write opposite changes, an offset of all values that the output matrix removes) are
larger than their sum, and the radius is relative to the sum. What must hold there too is
`certify_influence`, which follows the terms. Nothing in the model is fitted, and it is
checked against 50-digit arithmetic in the tests.

What is *certified* rests on `gamma` instead, which is a theorem, not a model.
"""

import functools
import math
from typing import Any

import jax.numpy as jnp

from bounds.interval import Interval, interval
from jax_models import Transformer
from jax_models.blocks import MAX_KEY_TILE

SCALAR_STEPS = 16


def rounding_steps(model: Transformer, length: int, score_range: float = 0.0) -> float:
    """Returns the number of unit roundoffs that one evaluation accumulates.

    Args:
        model: the transformer; only its shapes are read.
        length: n.
        score_range: the largest |score| met, since exp amplifies its argument's error.
    """
    steps = 0.0
    for layer in model.layers:
        attention = layer.attention
        heads, width = attention.value.shape[:2]
        steps += summation_depth(length) + score_range + SCALAR_STEPS
        steps += 2 * model.width + attention.key_width + heads * width
        steps += layer.feed_forward.w1.shape[0]
    return steps + SCALAR_STEPS


def summation_depth(length: int) -> int:
    """Returns the most additions that one term of a sum over n keys goes through.

    Args:
        length: n.
    """
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
        Higham, Accuracy and Stability of Numerical Algorithms, 2002, Lemma 3.1 and
        sections 3.1 and 3.5.
    """
    steps = count * interval(2.0**-53)
    return steps / (1 - steps)


def change_radius(
    model: Transformer,
    length: int,
    influence: Any,
    score_range: float = 0.0,
    size: float = 0.0,
) -> Any:
    """Returns the radius of influences computed in change form.

    Args:
        model: the transformer.
        length: n.
        influence: the computed influences, an array or a number.
        score_range: the largest |score| met.
        size: of the output, where a hard weighting makes the error relative to it.
    """
    steps = rounding_steps(model, length, score_range)
    return 2 * unit_roundoff(model.dtype) * steps * (influence + size)


def subtraction_radius(dtype: Any, steps: float, size: Any) -> Any:
    """Returns the radius of a norm of a difference of two computed outputs.

    Args:
        dtype: the float type of the outputs.
        steps: roundoffs per evaluation; see `rounding_steps`.
        size: the norm of the outputs.
    """
    return 2 * unit_roundoff(dtype) * steps * size


def change_roundoff(model: Transformer, length: int, score_range: float = 0.0) -> float:
    """Returns the rounding of a computed change over the change itself.

    What `change_radius` multiplies an influence with.

    Args:
        model: the transformer.
        length: n.
        score_range: the largest |score| met.
    """
    steps = rounding_steps(model, length, score_range)
    return 2 * unit_roundoff(model.dtype) * steps


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
    return 2 * unit_roundoff(model.dtype) * steps
