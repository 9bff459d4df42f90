"""Tables that a result keeps: of all substitutions, of the largest of each position."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from bounds.influence.substitution import Substitutions


def tabulate(
    pairs: Substitutions,
    lower: Float[np.ndarray, "substitutions"],
    upper: Float[np.ndarray, "substitutions"],
    enclosed: Bool[np.ndarray, "substitutions"],
) -> dict[str, np.ndarray]:
    """Tables [length, vocab_size] by their names in a result."""
    shape = pairs.length, pairs.vocab_size
    tables: dict[str, Any] = {}
    for name, entries in (("lower", lower), ("upper", upper), ("enclosed", enclosed)):
        empty = False if entries.dtype == bool else np.nan
        tables[name] = np.full(shape, empty, entries.dtype)
        tables[name][pairs.position, pairs.symbol] = entries
    return tables


def by_position(
    pairs: Substitutions,
    value: Float[np.ndarray, "substitutions"],
    lower: Float[np.ndarray, "substitutions"],
    upper: Float[np.ndarray, "substitutions"],
    enclosed: Bool[np.ndarray, "substitutions"],
) -> dict[str, Any]:
    """Arrays over positions by their names in a result."""
    # Substitutions are in the order of (position, symbol). Ends are maxima over symbols,
    # NaN where nothing is substituted; the symbol is the smallest of the largest value,
    # -1 where there is none, and `position_enclosed` is that of this symbol.
    first = np.flatnonzero(np.diff(pairs.position, prepend=-1))
    at, count = pairs.position[first], pairs.length
    tables = {
        "position_lower": np.full(count, np.nan),
        "position_upper": np.full(count, np.nan),
        "position_symbol": np.full(count, -1),
        "position_enclosed": np.zeros(count, bool),
    }
    if not first.size:
        return tables
    tables["position_lower"][at] = np.maximum.reduceat(lower, first)
    tables["position_upper"][at] = np.maximum.reduceat(upper, first)
    runs = np.diff(first, append=value.size)
    is_top = value == np.repeat(np.maximum.reduceat(value, first), runs)
    where = np.flatnonzero(is_top)[::-1]  # the first of equals is written last
    tables["position_symbol"][pairs.position[where]] = pairs.symbol[where]
    tables["position_enclosed"][pairs.position[where]] = enclosed[where]
    return tables
