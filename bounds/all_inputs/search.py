"""A search over inputs, where there are too many to go through: an estimate.

From an input drawn at random, a stretch of positions at a time (of one encoding, or of
any) is set to one symbol, and the best of many such changes is kept while it is an
improvement; stretches become shorter when nothing is. What is found is an influence that
an input attains: a lower bound of the supremum, and nothing more.
"""

import dataclasses

import numpy as np

from bounds.all_inputs.block import Found
from bounds.all_inputs.strings import largest_on
from bounds.all_inputs.universe import Universe

CANDIDATES = 32
STARTS = 8


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """Some inputs, each block a search from its own starting point."""

    universe: Universe
    seed: int
    num_blocks: int = STARTS
    name: str = "search"
    exact: bool = False

    @property
    def description(self) -> str:
        """What is gone through, in one line."""
        return (
            f"a search from {self.num_blocks} inputs, since there are more "
            "configurations than the budget, within which it would be exact"
        )

    def run(self, block: int) -> Found:
        """Returns the largest influence that one search met."""
        universe, rng = self.universe, np.random.default_rng([self.seed, block])
        tokens = self._draw(rng)
        best = largest_on(universe, [tokens])
        assert best is not None
        span = universe.length
        while span:
            changed = [self._change(rng, tokens, span) for _ in range(CANDIDATES)]
            found = largest_on(universe, changed)
            assert found is not None
            if found.max > best.max:
                tokens = found.attained.tokens
            else:
                span //= 2
            best = best.merge(found)
        return best

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        """An input whose symbols have random shares, of their own at each place."""
        universe = self.universe
        tokens = np.full(universe.length, rng.choice(universe.query_symbols), np.int32)
        for place in np.unique(universe.places.of[universe.others]):
            at = universe.others[universe.places.of[universe.others] == place]
            shares = rng.dirichlet(np.full(len(universe.symbols), 0.5))
            tokens[at] = rng.choice(universe.symbols, at.size, p=shares)
        return tokens

    def _change(
        self, rng: np.random.Generator, tokens: np.ndarray, span: int
    ) -> np.ndarray:
        """The input with a stretch of at most `span` positions set to one symbol."""
        universe, changed = self.universe, tokens.copy()
        others = universe.others
        if universe.places.count > 1 and rng.integers(2):
            of = universe.places.of[others]
            others = others[of == rng.choice(of)]
        start = rng.integers(len(others))
        stretch = others[start : start + int(rng.integers(1, span + 1))]
        changed[stretch] = rng.choice(universe.symbols)
        if not rng.integers(4):
            changed[universe.query] = rng.choice(universe.query_symbols)
        return changed
