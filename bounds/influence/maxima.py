"""Influences gathered block by block: maxima per position, and the tables if wanted.

The blocks of a method come in the order of its substitutions, by position, then symbol;
each is reduced as it comes, so that only what is kept takes memory.
"""

import numpy as np

from bounds.influence.result import Block, Enclosures
from bounds.influence.substitution import Substitutions


class Maxima:
    """The largest influence of each position and of all, over the blocks so far.

    Attributes:
        lower: Lower ends [n, V], NaN where nothing was substituted; None if not kept.
        upper: Upper ends [n, V], likewise.
        position_lower: Maxima of the lower ends over symbols [n], NaN where none.
        position_upper: Maxima of the upper ends [n].
        position_symbol: Smallest symbol of the largest computed value [n], -1 where
            none.
        max: The largest computed value, 0 where nothing was substituted.
        best: Index of its first substitution, None where nothing was substituted.
        zeros: How many lower ends are 0.
        done: Substitutions so far.
    """

    def __init__(self, pairs: Substitutions, dense: bool) -> None:
        """Start with no block; `dense` keeps the tables."""
        shape = (pairs.length, pairs.vocab_size)
        self.lower = np.full(shape, np.nan) if dense else None
        self.upper = np.full(shape, np.nan) if dense else None
        self.position_lower = np.full(pairs.length, np.nan)
        self.position_upper = np.full(pairs.length, np.nan)
        self.position_symbol = np.full(pairs.length, -1)
        self.max = 0.0
        self.best: int | None = None
        self.zeros = 0
        self.done = 0
        self._pairs = pairs
        self._position_max = np.full(pairs.length, -np.inf)

    @property
    def max_lower(self) -> float:
        """The lower end of the maximum."""
        return 0.0 if self.best is None else float(np.nanmax(self.position_lower))

    @property
    def max_upper(self) -> float:
        """The upper end of the maximum."""
        return 0.0 if self.best is None else float(np.nanmax(self.position_upper))

    def by_position(self, kept: bool) -> dict[str, np.ndarray | None]:
        """Returns the arrays of each position by their names in a result.

        Args:
            kept: whether they are wanted, else None.
        """
        names = ("position_lower", "position_upper", "position_symbol")
        return {name: getattr(self, name) if kept else None for name in names}

    def add(self, block: Block) -> None:
        """Take in the next block of substitutions, of one or more of them."""
        value = block.influence
        lower, upper = np.maximum(value - block.radius, 0), value + block.radius
        first = self.done
        self._take(value, lower, upper)
        top = int(np.argmax(value))
        # Strictly larger: of equal maxima the first is named.
        if self.best is None or value[top] > self.max:
            self.max, self.best = float(value[top]), first + top

    def enclose(self, found: Enclosures) -> None:
        """Take in the enclosures of all substitutions at once.

        The largest is the largest that was evaluated, never one that was estimated. The
        symbols of positions are those of the largest upper ends.
        """
        self._take(found.upper, found.lower, found.upper)
        if np.isfinite(found.value).any():
            self.best = int(np.nanargmax(found.value))
            self.max = float(found.value[self.best])

    def _take(self, value: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Keep the ends of the next substitutions, and symbols by the values."""
        part = slice(self.done, self.done + value.size)
        position, symbol = self._pairs.position[part], self._pairs.symbol[part]
        if self.lower is not None and self.upper is not None:
            self.lower[position, symbol] = lower
            self.upper[position, symbol] = upper
        first = np.flatnonzero(np.diff(position, prepend=-1))
        at = position[first]
        for ends, kept in ((lower, self.position_lower), (upper, self.position_upper)):
            kept[at] = np.fmax(kept[at], np.maximum.reduceat(ends, first))
        self._keep_symbols(position, symbol, value, first)
        self.zeros += int((lower == 0).sum())
        self.done += value.size

    def _keep_symbols(
        self,
        position: np.ndarray,
        symbol: np.ndarray,
        value: np.ndarray,
        first: np.ndarray,
    ) -> None:
        """Name the smallest symbol of each position's largest value."""
        at, top = position[first], np.maximum.reduceat(value, first)
        rises = top > self._position_max[at]
        runs = np.diff(first, append=value.size)
        is_top = (value == np.repeat(top, runs)) & np.repeat(rises, runs)
        where = np.flatnonzero(is_top)[::-1]  # the first of equals is written last
        self.position_symbol[position[where]] = symbol[where]
        self._position_max[at] = np.maximum(self._position_max[at], top)
