"""Closed forms of Hahn 2020, Lemma 5: numbers in, a `Bound` or a printed `Claim` out.

Everything is computed in interval arithmetic with unbounded exponents, so a bound is an
upper bound with rounding included and never overflows. No module here knows of models or
JAX: `LayerConstants` is what a model must be reduced to.
"""

from bounds.lemma5.closed_form.layer_constants import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    Score,
    feed_forward_lipschitz,
    growth_constant,
    layer_norm_change_cap,
    layer_norm_lipschitz,
    layer_norm_output_norm,
)
from bounds.lemma5.closed_form.masked_recursion import (
    MASKS,
    causal_bound,
    masked_recursion,
    scaled_causal_average_influence,
)
from bounds.lemma5.closed_form.printed import (
    PrintedConstants,
    printed,
    printed_tight,
)
from bounds.lemma5.closed_form.recursion import (
    LayerInfluence,
    UniformConstants,
    influence_recursion,
    largest_weight,
    printed_shape_bound,
    single_exponential_bound,
    uniform_constants,
)

__all__ = [
    "MASKS",
    "Additive",
    "DotProduct",
    "HeadConstants",
    "LayerConstants",
    "LayerInfluence",
    "PrintedConstants",
    "Score",
    "UniformConstants",
    "causal_bound",
    "feed_forward_lipschitz",
    "growth_constant",
    "influence_recursion",
    "largest_weight",
    "layer_norm_change_cap",
    "layer_norm_lipschitz",
    "layer_norm_output_norm",
    "masked_recursion",
    "printed",
    "printed_shape_bound",
    "printed_tight",
    "scaled_causal_average_influence",
    "single_exponential_bound",
    "uniform_constants",
]
