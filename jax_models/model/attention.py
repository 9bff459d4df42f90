"""One attention sublayer: its weights and rules. Computations are in `attending`.

Shapes: h heads, g of them with keys and values of their own, d model width, e = d_k,
v = d_v. Grouped heads share keys and values: each group of h / g heads has one key and one
value matrix.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jax_models.model.mask import SIGHTS, Mask, Sight
from jax_models.model.pytree import pytree, static
from jax_models.model.relative import DistanceBias, Rotary
from jax_models.model.rows import Norm
from jax_models.model.scores import SCORES, Score
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.weighting import Weighting

Schedule = ConstantTemperature | InverseLogTemperature | PowerTemperature

# Name of the sliding window in `Attention.pieces`.
WINDOW = "a sliding window"


@pytree
class Attention:
    """Weights and rules of one attention sublayer; weights are stored (out, in)."""

    # Axes are those of tensors in files, which are read by them.
    query: Float[Array, "heads d_k width"]
    # one for each group of h / g consecutive heads
    key: Float[Array, "key_heads d_k width"]
    value: Float[Array, "key_heads d_v width"]
    # None where heads are concatenated instead
    output: Float[Array, "width concatenated"] | None
    query_bias: Float[Array, "heads d_k"] | None = None
    key_bias: Float[Array, "key_heads d_k"] | None = None
    value_bias: Float[Array, "key_heads d_v"] | None = None
    output_bias: Float[Array, "width"] | None = None
    # of scores that take one
    score_vector: Float[Array, "heads d_k"] | None = None
    weighting: Weighting = dataclasses.field(kw_only=True)
    # Here and not in the weighting: it divides the scores of hard weightings too.
    temperature: Schedule | None = None
    mask: Mask = static(default="none")
    # The name that files hold; a value here would change trees and what is compiled for them.
    score: str = static(default="scaled_dot_product")
    query_norm: Norm | None = None  # of each head's queries [e], before rotation
    key_norm: Norm | None = None  # of each head's keys [e], before rotation
    distance_bias: DistanceBias | None = None
    window: int | None = static(default=None)
    rotary: Rotary | None = static(default=None)
    # Length of an input that is padded; see `Sight.end`. No part of a file.
    end: Array | None = None

    def __post_init__(self) -> None:
        """Tells the weighting the roundings per score; makes a number a temperature."""
        if isinstance(self.window, np.integer):
            vars(self).update(window=int(self.window))
        plain: Any = self.temperature
        if isinstance(plain, int | float) or getattr(plain, "shape", None) == ():
            vars(self).update(temperature=ConstantTemperature(plain))
        # To first order, relative to the score: d products and a bias in the query and in the
        # key, `placing_steps`, d_k products, and the division by the score scale.
        _, key_width, width = self.query.shape
        steps = 2 * (width + 1) + key_width + 2 + self.placing_steps
        vars(self).update(weighting=self.weighting.for_scores(steps))

    @property
    def num_heads(self) -> int:
        """Number of heads H."""
        return self.query.shape[0]

    @property
    def key_width(self) -> int:
        """Width d_k of queries and keys."""
        return self.query.shape[1]

    @property
    def value_width(self) -> int:
        """Width d_v of values."""
        return self.value.shape[1]

    @property
    def key_heads(self) -> int:
        """Number g of key and value matrices, a divisor of H."""
        return self.key.shape[0]

    @property
    def key_by_head(self) -> Float[Array, "heads d_k width"]:
        """Key matrix of each head [h, e, d]."""
        return self._by_head(self.key)

    @property
    def value_by_head(self) -> Float[Array, "heads d_v width"]:
        """Value matrix of each head [h, v, d]."""
        return self._by_head(self.value)

    @property
    def key_bias_by_head(self) -> Float[Array, "heads d_k"] | None:
        """Key bias of each head [h, e]."""
        return None if self.key_bias is None else self._by_head(self.key_bias)

    @property
    def value_bias_by_head(self) -> Float[Array, "heads d_v"] | None:
        """Value bias of each head [h, v]."""
        return None if self.value_bias is None else self._by_head(self.value_bias)

    @property
    def ungrouped(self) -> "Attention":
        """This sublayer with keys and values of its own for each head."""
        names = ("key", "value", "key_bias", "value_bias")
        parts = {name: getattr(self, f"{name}_by_head") for name in names}
        return dataclasses.replace(self, **parts)

    def _by_head(
        self, grouped: Float[Array, "key_heads ..."]
    ) -> Float[Array, "heads ..."]:
        """Array of one entry per group of heads, repeated for each head of a group."""
        # Stored once for each group, read by head: methods need no rule for groups.
        count = self.num_heads // self.key_heads
        return grouped if count == 1 else jnp.repeat(grouped, count, axis=0)

    @property
    def scoring(self) -> Score:
        """The score named `score`, with `score_vector` if it takes one."""
        return SCORES[self.score].with_vector(self.score_vector)

    @property
    def sight(self) -> Sight:
        """Rule for the positions that a row sees: mask, window and end of the input."""
        return dataclasses.replace(SIGHTS[self.mask], window=self.window, end=self.end)

    @property
    def placing_steps(self) -> int:
        """Number of roundings in a score by rotation, distance bias, query and key norms."""
        # Rotation, in the query and in the key: a cosine or sine, a product and a sum. A bias
        # of the distance: a product, a sum and a quotient. A norm: a mean, the centred row,
        # half a sum of squares, a root, and two for each of scale and bias.
        norms = (self.query_norm is not None) + (self.key_norm is not None)
        steps = 6 * (self.rotary is not None) + 3 * (self.distance_bias is not None)
        return steps + norms * (self.key_width // 2 + 8)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Names of this sublayer's features beyond projections, scores and masks."""
        # Code that computes with the weights itself, without `attending`, must refuse the
        # features that it does not support.
        found = {
            "a norm of queries": self.query_norm,
            "a norm of keys": self.key_norm,
            "rotary positions": self.rotary,
            "a bias of the distance": self.distance_bias,
            WINDOW: self.window,
        }
        return tuple(name for name, piece in found.items() if piece is not None)

    @property
    def linear_keys(self) -> bool:
        """Whether the keys of all positions are one affine map of their input rows."""
        # A rotation is another map at each position, a norm is no affine map.
        return self.rotary is None and self.key_norm is None

    @property
    def formed_width(self) -> int:
        """Number of floats held per (query, key) pair when all rows change; 0 if none."""
        return self.hidden_width if self.linear_keys else self.key_width

    @property
    def hidden_width(self) -> int:
        """Number of terms held per (query, key) pair that are summed to its score, or 0."""
        return self.scoring.hidden_width(self.key_width)

    @property
    def pair_width(self) -> int:
        """Number of floats held per (query, key) pair during scoring, 1 or more."""
        return max(1, self.hidden_width)
