"""DYCK-k as a source: the grammar S -> (S)S, p/k for each type, or nothing, 1 - p.

Expanding the leftmost S says what follows a prefix: an opening bracket of each type with
probability p/k, else the bracket that closes the innermost open one, or END if none is.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_models.languages import dyck_heights
from jax_models.languages.bracket_source import BracketSource
from jax_models.languages.dyck import brackets_of
from jax_models.languages.source import check_probability


@dataclasses.dataclass(frozen=True)
class DyckSource(BracketSource):
    """Prefixes of words over k bracket types.

    Attributes:
        up_probability: p, of an opening bracket. From p = 1/2 on words have an infinite
            mean length, beyond it some are infinite; prefixes are as well defined.
        num_types: k.

    Raises:
        InputError: if p is not inside (0, 1), or k is not 1 to 4.
    """

    up_probability: float = 0.25
    num_types: int = 2

    def __post_init__(self) -> None:
        """Checks p and k."""
        check_probability("bracket probability p", self.up_probability)
        brackets_of(self.num_types)

    @property
    def name(self) -> str:
        """The name with the number of types: "dyck2" for two."""
        return f"dyck{self.num_types}"

    @property
    def max_height(self) -> None:
        """There is none."""
        return

    def up_probabilities(self, heights: np.ndarray) -> np.ndarray:
        """Returns p at every height."""
        return np.full(np.shape(heights), self.up_probability)

    def step_law(self, length: int) -> np.ndarray:
        """Returns P(step n goes up or down, H_n = h) [2, n + 1], in closed form."""
        return dyck_heights.step_law(length, self.up_probability)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), from the numbers of paths."""
        return dyck_heights.log_survival(length, self.up_probability)

    def draw_steps(self, key: Array, length: int, count: int) -> Array:
        """Draws H_n from its law, then the steps from the last to the first.

        P(step m goes down | H_m = h) = (h+2)(m-h) / (2m(h+1)).
        """
        last_key, step_key = jax.random.split(key)
        law = dyck_heights.height_law(length, self.up_probability)[length % 2 :: 2]
        ladder = np.cumsum(law)
        u = jax.random.uniform(last_key, (count,))
        rank = jnp.searchsorted(jnp.asarray(ladder / ladder[-1]), u, side="right")
        last = 2 * rank.astype(jnp.int32) + length % 2
        chance = jax.random.uniform(step_key, (length, count))
        times = jnp.arange(1, length + 1, dtype=chance.dtype)

        def back(height: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            m, u = now
            h = height.astype(m.dtype)
            falls = (h + 2) / (h + 1) * ((m - h) / (2 * m))
            step = jnp.where(u < falls, -1, 1).astype(jnp.int32)
            return height - step, step

        _, steps = jax.lax.scan(back, last, (times, chance), reverse=True)
        return steps.T
