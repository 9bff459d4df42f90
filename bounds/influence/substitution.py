"""Single-symbol substitutions and deletions: lists of them, and rows that they may move.

A substitution is a pair (position i, symbol s != x_i). The list is ordered by position,
then symbol, so that the first maximum is the smallest (position, symbol). A row is a
token's activation vector, a span a first and a last row, a sight the rows that a mask
lets attention see; the query row is the one whose output is watched.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Shaped

from bounds.influence.inputs.classes import equal_rows
from bounds.readings import unsupported_padding
from jax_models import InputError
from jax_models.arguments import expect_array, expect_integer, expect_integers, show
from jax_models.model.mask import Sight
from jax_models.model.transformer import Transformer, shared_symbols

# Substitutes of every position, or [P, K] of each of P positions, padded with -1.
Symbols: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | np.ndarray


# First and last row, or arrays of both; empty where the last is less.
Span: TypeAlias = tuple[Any, Any]


def grow(span: Span, sight: Sight, length: int, backward: bool) -> Span:
    """Span that rows of `span` can change through one mask, or read if `backward`."""
    reach = int(min(length, sight.reach))
    # A row that sees keys before it is moved by them: what moves lies on the other side of
    # a position than what the row of that position reads.
    down = reach * (sight.before if backward else sight.after)
    up = reach * (sight.after if backward else sight.before)
    return span[0] - down, span[1] + up


def reaching(
    sights: Sequence[Sight], length: int, rows: Int[np.ndarray, "rows"]
) -> tuple[Int[np.ndarray, "rows"], Int[np.ndarray, "rows"]]:
    """First and last input position that each output row may depend on through masks."""
    span = rows, rows
    for sight in reversed(sights):
        span = grow(span, sight, length, True)
    return np.maximum(span[0], 0), np.minimum(span[1], length - 1)


def reached(
    model: Transformer,
    tokens: Int[np.ndarray, "tokens"],
    rows: Int[np.ndarray, "rows"] | None,  # None: of each substitution its own row
    position: Int[np.ndarray, "substitutions"],
    symbol: Int[np.ndarray, "substitutions"],
) -> Bool[np.ndarray, "substitutions rows"]:
    """Mask by substitution and output row: True if the substitution may change the row."""
    if shared_symbols(model):  # rows beyond the replaced one move
        return np.ones((position.size, 1 if rows is None else rows.size), bool)
    # Softmax gives every key that a row sees some weight, so a row moves unless masks keep
    # the position from it or both symbols have one embedding. A change that is computed as 0
    # elsewhere is one that the float type cannot hold.
    of = equal_rows(np.asarray(model.embedding))
    differs = (of[symbol] != of[tokens[position]])[:, None]
    if rows is None:
        return differs
    sights = [layer.attention.sight for layer in model.layers]
    first, last = reaching(sights, tokens.size, rows)
    at = position[:, None]
    return differs & (first <= at) & (at <= last)


def is_causal(model: Transformer) -> bool:
    """True if no row depends on later tokens or on the length of the input."""
    sights = [layer.attention.sight for layer in model.layers]
    return unsupported_padding(model) is None and not any(x.after for x in sights)


def without_token(
    tokens: Int[Array, "tokens"], position: Int[Array, ""], count: int
) -> Int[Array, "count"]:
    """First `count` tokens after deleting the one at `position`; the last is repeated."""
    at = jnp.arange(count, dtype=jnp.int32)
    later = jnp.minimum(at + 1, tokens.shape[0] - 1)
    return tokens[jnp.where(at < position, at, later)]


@dataclasses.dataclass(frozen=True)
class Substitutions:
    """All substitutions of one computation, as parallel int32 arrays."""

    position: Int[np.ndarray, "substitutions"]
    symbol: Int[np.ndarray, "substitutions"]
    length: int
    vocab_size: int

    def __len__(self) -> int:
        """Number of substitutions."""
        return int(self.position.size)

    def __getitem__(self, index: int) -> tuple[int, int]:
        """Position and symbol of one substitution."""
        return int(self.position[index]), int(self.symbol[index])

    def only(self, chosen: slice | Shaped[np.ndarray, "_"]) -> "Substitutions":
        """`Substitutions` at the chosen indices."""
        some = self.position[chosen], self.symbol[chosen]
        return dataclasses.replace(self, position=some[0], symbol=some[1])

    def scatter(
        self, values: Shaped[np.ndarray, "substitutions"]
    ) -> Shaped[np.ndarray, "tokens vocab"]:
        """Table [tokens, vocab] of values, NaN or False where nothing is substituted."""
        missing = False if values.dtype == bool else np.nan
        table = np.full((self.length, self.vocab_size), missing)
        table[self.position, self.symbol] = values
        return table


def _checked(what: str, chosen: Any, size: int) -> Int[np.ndarray, "chosen"]:
    return np.unique(np.array(expect_integers(what, chosen, 0, size - 1), np.int64))


def choose_query(query: int | None, model: Any) -> int:
    """`query`, by default 0 if a classifier's head reads the first row, else -1."""
    if query is not None:
        return query
    return 0 if getattr(model, "head_row", None) == "first" else -1


def check_query(query: int | None, length: int, model: Any = None) -> int:
    """Query position counted from 0; by default that of `choose_query`."""
    query = expect_integer("query", choose_query(query, model))
    if not -length <= query < length:
        raise InputError(
            f"query = {query} is out of range for n = {length}; expected {-length} to "
            f"{length - 1}"
        )
    return query % length


def list_substitutions(
    tokens: Int[np.ndarray, "tokens"],
    vocab_size: int,
    *,
    query: int,  # left out unless `include_query`
    # Of every position, or rows [P, K] of each of P positions, padded with -1.
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    substitutable: Sequence[int] | None = None,  # all symbols by default
    special: Sequence[int] = (),
    include_query: bool = False,
) -> Substitutions:
    """Substitutions of positions by symbols, in order; special ones only if listed."""
    n = tokens.shape[0]
    listed = np.arange(vocab_size) if substitutable is None else substitutable
    allowed = np.asarray(sorted(listed), np.int64)
    more = np.union1d(allowed, np.asarray(special, np.int64))
    # Special tokens and symbols ([MASK], [CLS]) are changed or put in only where the caller
    # lists them.
    changed = allowed if positions is None else more
    if symbols is not None and (rows := _as_array(symbols)).ndim == 2:
        at, to = _listed_pairs(rows, positions, n, vocab_size)
    else:
        at = np.arange(n) if positions is None else _checked("positions", positions, n)
        to = allowed if symbols is None else _checked("symbols", symbols, vocab_size)
        at = at[:, None]  # of a table [positions, symbols], in the order of its rows
    keep = np.isin(tokens[at], changed) & np.isin(to, more) & (tokens[at] != to)
    if not include_query:
        keep &= at != query
    position, symbol = (
        np.broadcast_to(x.astype(np.int32), keep.shape)[keep] for x in (at, to)
    )
    return Substitutions(position, symbol, n, vocab_size)


def _as_array(symbols: Any) -> Shaped[np.ndarray, "..."]:
    """Symbols as an array, of integers where it is empty."""
    try:
        found = expect_array("symbols", symbols)
    except InputError as error:
        raise InputError(
            f"symbols = {show(symbols)}; expected symbols, or rows [P, K] of them, of one "
            "length: fill up shorter ones with -1"
        ) from error
    # NumPy makes floats of an empty list, which would be refused as no integers.
    return found if found.size else found.astype(np.int64)


def _listed_pairs(
    symbols: Shaped[np.ndarray, "positions symbols"],
    positions: Sequence[int] | None,
    n: int,
    vocab_size: int,
) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
    """Distinct pairs (position, symbol) that `symbols` lists by position, in order."""
    at = np.arange(n)
    if positions is not None:
        at = np.array(expect_integers("positions", positions, 0, n - 1), np.int64)
    if symbols.dtype.kind not in "iu" or len(symbols) != at.size:
        raise InputError(
            f"symbols is {symbols.dtype} of shape {symbols.shape}; expected integers "
            f"[P, K], a row for each of the P = {at.size} positions, filled up with -1"
        )
    wrong = np.argwhere((symbols < -1) | (symbols >= vocab_size))
    if wrong.size:
        row, entry = map(int, wrong[0])
        raise InputError(
            f"symbols[{row}][{entry}] = {symbols[row, entry]}; expected an integer from 0 "
            f"to {vocab_size - 1}, or -1 where the row has no more"
        )
    # One integer for a pair: sorting it sorts by position, then symbol, and a pair that is
    # listed twice remains once.
    pairs = at[:, None] * vocab_size + symbols.astype(np.int64)
    return np.divmod(np.unique(pairs[symbols >= 0]), vocab_size)


def padded(
    values: Shaped[np.ndarray, "block ..."], size: int
) -> Shaped[np.ndarray, "size ..."]:
    """Values of a non-empty block, filled up to `size` by repeating the last."""
    # All blocks share one compiled program.
    fill = [(0, size - len(values)), *[(0, 0)] * (values.ndim - 1)]
    return np.pad(values, fill, mode="edge")
