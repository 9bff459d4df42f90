"""Bounded DYCK-k as a source: at most D brackets are open at a time.

Below the largest depth as DYCK-k; at depth D the innermost bracket is closed. Its heights
are a finite automaton of D + 1 states, which gives all laws and the sampler.
"""

import dataclasses

import numpy as np
from jax import Array

from jax_models.arguments import expect_integer
from jax_models.languages.automaton_source import AutomatonSource
from jax_models.languages.bracket_source import BracketSource
from jax_models.languages.dyck import brackets_of
from jax_models.languages.source import check_probability


@dataclasses.dataclass(frozen=True)
class BoundedDyckSource(BracketSource):
    """Prefixes of words over k bracket types and of bounded depth.

    Attributes:
        up_probability: p, of an opening bracket below the largest depth.
        num_types: k.
        depth: D, at least 1.

    Raises:
        InputError: if p is not inside (0, 1), k is not 1 to 4, or D is below 1.
    """

    up_probability: float = 0.25
    num_types: int = 2
    depth: int = 4

    def __post_init__(self) -> None:
        """Checks p, k and D."""
        check_probability("bracket probability p", self.up_probability)
        brackets_of(self.num_types)
        expect_integer("depth", self.depth, 1)

    @property
    def name(self) -> str:
        """The name with types and depth, as in "dyck2_depth4"."""
        return f"dyck{self.num_types}_depth{self.depth}"

    @property
    def max_height(self) -> int:
        """D."""
        return self.depth

    @property
    def heights(self) -> AutomatonSource:
        """The height as a source of its own: 0 is a step up, 1 a step down."""
        deepest = self.depth
        ups = [float(u) for u in self.up_probabilities(np.arange(deepest + 1))]
        return AutomatonSource(
            tuple((min(h + 1, deepest), max(h - 1, 0)) for h in range(deepest + 1)),
            tuple((up, 1 - up if h else 0.0) for h, up in enumerate(ups)),
            (1 - ups[0], *[0.0] * deepest),
            label=f"heights of {self.name}",
        )

    def up_probabilities(self, heights: np.ndarray) -> np.ndarray:
        """Returns p below depth D, and 0 there."""
        return np.where(np.asarray(heights) < self.depth, self.up_probability, 0.0)

    def step_law(self, length: int) -> np.ndarray:
        """Returns P(step n goes up or down, H_n = h) [2, D + 1], O(n D^2)."""
        return self.heights.joint_states(length)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), O(n D^2)."""
        return self.heights.log_survival(length)

    def draw_steps(self, key: Array, length: int, count: int) -> Array:
        """Draws walks forwards, each step given that the walk survives."""
        return 1 - 2 * self.heights.draw(key, length, count)
