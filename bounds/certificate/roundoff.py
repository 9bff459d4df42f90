"""How much a layer's arithmetic rounds, over the terms that it sums."""

import dataclasses

from jax import Array

from jax_models.pytree import register


@register
@dataclasses.dataclass(frozen=True)
class Roundoff:
    """Relative roundings of one layer, from `rounding.layer_roundoff`."""

    sums: Array  # [] of what has gone through a sum over keys
    local: Array  # [] of all else: one row's projections, norms and block
