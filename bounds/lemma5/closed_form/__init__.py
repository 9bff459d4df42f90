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
)
from bounds.lemma5.closed_form.masked_recursion import (
    MASKS,
    MaskedInfluence,
    causal_bound,
    masked_recursion,
    scaled_causal_average_influence,
)
from bounds.lemma5.closed_form.printed import (
    PrintedConstants,
    Reading,
    printed,
    printed_tight,
)
from bounds.lemma5.closed_form.recursion import (
    LayerInfluence,
    UniformConstants,
    head_change,
    influence_recursion,
    largest_weight,
    length_exponent,
    printed_shape_bound,
    single_exponential_bound,
    uniform_constants,
)
from bounds.lemma5.closed_form.row_maps import (
    RELU_SLOPE,
    concat_norm,
    feed_forward_lipschitz,
    gelu_slope,
    growth_constant,
    layer_norm_change_cap,
    layer_norm_lipschitz,
    layer_norm_output_norm,
    residual_norm,
)

__all__ = [
    "MASKS",
    "RELU_SLOPE",
    "Additive",
    "DotProduct",
    "HeadConstants",
    "LayerConstants",
    "LayerInfluence",
    "MaskedInfluence",
    "PrintedConstants",
    "Reading",
    "Score",
    "UniformConstants",
    "causal_bound",
    "concat_norm",
    "feed_forward_lipschitz",
    "gelu_slope",
    "growth_constant",
    "head_change",
    "influence_recursion",
    "largest_weight",
    "layer_norm_change_cap",
    "layer_norm_lipschitz",
    "layer_norm_output_norm",
    "length_exponent",
    "masked_recursion",
    "printed",
    "printed_shape_bound",
    "printed_tight",
    "residual_norm",
    "scaled_causal_average_influence",
    "single_exponential_bound",
    "uniform_constants",
]
