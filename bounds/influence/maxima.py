"""The tables that a result keeps: of all substitutions, of the largest of each position."""

from typing import Any

import numpy as np

from bounds.influence.substitution import Substitutions


def tabulate(
    pairs: Substitutions,
    value: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    enclosed: np.ndarray,
) -> dict[str, Any]:
    """Returns tables of all entries by their names in a result.

    Args:
        pairs: the substitutions, by position, then symbol.
        value: by which symbols are the largest [P].
        lower: lower ends [P].
        upper: upper ends [P].
        enclosed: whether they enclose [P].
    """
    shape = pairs.length, pairs.vocab_size
    tables: dict[str, Any] = {}
    for name, entries in (("lower", lower), ("upper", upper), ("enclosed", enclosed)):
        empty = False if entries.dtype == bool else np.nan
        tables[name] = np.full(shape, empty, entries.dtype)
        tables[name][pairs.position, pairs.symbol] = entries
    return tables


def by_position(
    pairs: Substitutions,
    value: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    enclosed: np.ndarray,
) -> dict[str, Any]:
    """Returns what is kept of each position [n], by its name in a result.

    Ends are maxima over symbols, NaN where nothing is substituted; the symbol is the
    smallest of the largest value, -1 where there is none, and whether ends enclose is of it.

    Args:
        pairs: as in `tabulate`.
        value: likewise.
        lower: likewise.
        upper: likewise.
        enclosed: likewise.
    """
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
