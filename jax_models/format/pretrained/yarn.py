"""YaRN: rotary frequencies for longer texts, and the factor of scores that goes with them.

Pairs that turn more than `beta_fast` times within the original length keep their frequency,
those that turn less than `beta_slow` times have it over the factor, between them a ramp in
the pair's number decides (Peng et al. 2024). Queries and keys are both multiplied by
the attention factor a, so that scores have a temperature of 1 / a^2.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_models.arguments import expect_number


@dataclasses.dataclass(frozen=True)
class Yarn:
    """A scaling of rotary positions, as a configuration has it."""

    factor: float
    original_length: float
    beta_fast: float
    beta_slow: float
    truncate: bool  # whether the ramp ends at whole pairs
    attention_factor: float

    @classmethod
    def read(
        cls,
        where: str,
        found: Mapping[str, Any],
        # the original length where the entry has none
        length: Any,
    ) -> "Yarn":
        """Scaling of an entry."""

        def number(name: str, default: Any = None) -> float:
            value = default if found.get(name) is None else found[name]
            return expect_number(f"{name} in {where}", value, 0, above=True)

        factor = number("factor")
        both = found.get("mscale"), found.get("mscale_all_dim")
        default = _attention_factor(factor, 1.0)
        if all(both):
            scales = (number(name) for name in ("mscale", "mscale_all_dim"))
            above, below = (_attention_factor(factor, scale) for scale in scales)
            default = above / below
        return cls(
            factor,
            number("original_max_position_embeddings", length),
            number("beta_fast", 32),
            number("beta_slow", 1),
            found.get("truncate") is not False,
            number("attention_factor", default),
        )

    @property
    def temperature(self) -> float:
        """Temperature of the scores."""
        return self.attention_factor**-2

    def frequencies(self, theta: float, dims: int) -> Float[np.ndarray, "dims/2"]:
        """Frequencies of the pairs of a head."""
        turns = np.array([self.beta_fast, self.beta_slow])
        pair = dims * np.log(self.original_length / (turns * 2 * math.pi))
        low, high = pair / (2 * math.log(theta))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        high += 0.001 * (low == high)
        ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
        plain = theta ** (-np.arange(0, dims, 2) / dims)
        return plain / self.factor * ramp + plain * (1 - ramp)


def _attention_factor(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0
