"""Summary of a row's keys under softmax: the top column apart, and sums over the rest."""

import dataclasses

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from jax_models.model.pytree import register


@register
@dataclasses.dataclass(frozen=True)
class SoftmaxSummary:
    """The top column, and the sums of all others relative to their own maximum."""

    top_score: Float[Array, "heads rows"]  # -inf where the row sees nothing
    top_index: Int[Array, "heads rows"]  # -1 where the row sees nothing
    top_value: Float[Array, "heads rows d_v"]
    rest_max: Float[Array, "heads rows"]  # -inf where nothing but the top is seen
    rest_sum: Float[Array, "heads rows"]  # sum of exp(score - rest_max)
    rest_values: Float[Array, "heads rows d_v"]  # sum of exp(score - rest_max) value
    # sum of exp(score - rest_max) (value - top_value), once that is settled
    rest_apart: Float[Array, "heads rows d_v"] | None = None

    @property
    def rest_odds(self) -> Float[Array, "heads rows"]:
        """Log of all other weights over the top one's; -inf without others."""
        # Relative to the top score: beside a large score a logarithm would be rounded as
        # coarsely as the score, and alike in all runs with moved inputs.
        some = self.rest_sum > 0
        # Both branches finite, so that gradients are where there is no rest.
        rest, top = (jnp.where(some, x, 0.0) for x in (self.rest_max, self.top_score))
        odds = rest - top + jnp.log(jnp.where(some, self.rest_sum, 1.0))
        return jnp.where(some, odds, -jnp.inf)

    @property
    def lse_above_top(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of all scores less the top score; 0 for a row without keys."""
        return jnp.logaddexp(0.0, self.rest_odds)

    @property
    def rest_lse(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of the scores without the top column."""
        return jnp.where(self.rest_sum > 0, self.top_score, 0.0) + self.rest_odds

    @property
    def lse(self) -> Float[Array, "heads rows"]:
        """Log-sum-exp of all scores."""
        return self.top_score + self.lse_above_top

    @property
    def rest_mean(self) -> Float[Array, "heads rows d_v"]:
        """Mean value without the top column; zero where there is no rest."""
        return (
            self.rest_values / jnp.where(self.rest_sum > 0, self.rest_sum, 1)[..., None]
        )

    @property
    def rest_weight(self) -> Float[Array, "heads rows"]:
        """1 - (weight of the top column), accurate however small it is."""
        return _logistic(self.rest_odds)

    @property
    def top_weight(self) -> Float[Array, "heads rows"]:
        """The largest weight of the row; zero for a row that sees nothing."""
        seen = self.top_score > -jnp.inf
        return jnp.where(seen, _logistic(-self.rest_odds), 0.0)

    @property
    def mean(self) -> Float[Array, "heads rows d_v"]:
        """The attended value; zero for a row that sees nothing."""
        # Of values that are all the top one's it is that to the bit.
        if self.rest_apart is not None:
            return self.top_value + self.above_top
        # Not `top_weight`: a row that sees nothing has no value to weigh, and with its
        # `where` the CPU compiler's older code generator rounds this sum in another way on
        # one device than on two.
        top_weight = _logistic(-self.rest_odds)
        return (
            top_weight[..., None] * self.top_value
            + self.rest_weight[..., None] * self.rest_mean
        )

    @property
    def rest_above_top(self) -> Float[Array, "heads rows d_v"]:
        """The mean value without the top column less the top column's."""
        # What others add where most have the top's value: `settle` sums them apart.
        if self.rest_apart is None:
            return self.rest_mean - self.top_value
        some = self.rest_sum > 0
        return self.rest_apart / jnp.where(some, self.rest_sum, 1)[..., None]

    @property
    def above_top(self) -> Float[Array, "heads rows d_v"]:
        """The attended value less the top column's."""
        return self.rest_weight[..., None] * self.rest_above_top


def _logistic(odds: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 / (1 + exp(-odds)), relatively accurate at both ends (no positive exponent)."""
    small = jnp.exp(-jnp.abs(odds))
    return jnp.where(odds >= 0, 1.0, small) / (1 + small)
