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
* *Subtraction form* (`exhaustive`): two passes, each off by u sum_layers steps times the
  output's size: radius = 2 u sum_layers steps * |y|.

This is a rounding *model*, first order in u and without the growth that an
ill-conditioned layer adds; it is stated with every result and checked against 50-digit
arithmetic in the tests. Nothing in it is fitted.
"""

import math
from typing import Any

import jax.numpy as jnp

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


def change_radius(
    model: Transformer, length: int, influence: Any, score_range: float = 0.0
) -> Any:
    """Returns the radius of influences computed in change form.

    Args:
        model: the transformer.
        length: n.
        influence: the computed influences, an array or a number.
        score_range: the largest |score| met.
    """
    steps = rounding_steps(model, length, score_range)
    return 2 * unit_roundoff(model.dtype) * steps * influence


def subtraction_radius(dtype: Any, steps: float, size: Any) -> Any:
    """Returns the radius of a norm of a difference of two computed outputs.

    Args:
        dtype: the float type of the outputs.
        steps: roundoffs per evaluation; see `rounding_steps`.
        size: the norm of the outputs.
    """
    return 2 * unit_roundoff(dtype) * steps * size
