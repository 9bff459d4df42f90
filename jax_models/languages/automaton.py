"""Deterministic finite automata: regular languages, and any language at one length.

A language that is not regular still has an automaton for each length (a counter, or the
one word of that length), so that it answers whatever states can decide.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from jax_models.arguments import expect_integer, expect_integers, expect_sequence
from jax_models.errors import InputError
from jax_models.run.device_memory import require_memory


@dataclasses.dataclass(frozen=True)
class Automaton:
    """A deterministic automaton over the symbols 0, 1, ….

    Example:
        >>> even = Automaton(((0, 1), (1, 0)), accepting=frozenset({0}))
        >>> bool(even.contains([1, 0, 1])), bool(even.contains([1, 0, 0]))
        (True, False)

    Raises:
        InputError: if a transition, the start or an accepting state is no state, or the
            rows of transitions differ in length.
    """

    transitions: tuple[tuple[int, ...], ...]  # [state][symbol]
    accepting: frozenset[int]
    start: int = 0
    end: int | None = None  # the end token, ignored where it stands last

    def __post_init__(self) -> None:
        """Checks that all states exist."""
        rows = expect_sequence("transitions", self.transitions, "a row for each state")
        table = tuple(
            tuple(expect_integers(f"transitions[{at}]", row))
            for at, row in enumerate(rows)
        )
        accepting = frozenset(expect_integers("accepting", self.accepting))
        object.__setattr__(self, "transitions", table)
        object.__setattr__(self, "accepting", accepting)
        expect_integer("start", self.start)
        if self.end is not None:
            expect_integer("end", self.end)
        sizes = {len(row) for row in table}
        if len(sizes) != 1 or 0 in sizes:
            raise InputError(
                f"transitions have rows of {sorted(sizes)} symbols; expected one row "
                "per state, each with a state for every symbol"
            )
        named = {self.start, *self.accepting, *(q for row in table for q in row)}
        wrong = sorted(q for q in named if not 0 <= q < len(table))
        if wrong:
            raise InputError(
                f"state {wrong[0]} does not exist; the states are 0 to {len(table) - 1}"
            )
        if self.end is not None and self.end < self.num_symbols:
            raise InputError(
                f"end = {self.end} is a symbol; the end token is at least "
                f"{self.num_symbols}"
            )

    @property
    def num_symbols(self) -> int:
        """The number of symbols."""
        return len(self.transitions[0])

    def symbols_of(
        self,
        # in a batch the end token stands last in all or none
        tokens: ArrayLike,
    ) -> Int[np.ndarray, "... tokens"]:
        """Returns tokens without an end token that stands last."""
        strings = np.asarray(tokens)
        if strings.size == 0:
            return strings.astype(np.int64)
        if self.end is not None and (strings[..., -1] == self.end).all():
            strings = strings[..., :-1]
        wrong = (strings < 0) | (strings >= self.num_symbols)
        if strings.dtype.kind not in "iu" or wrong.any():
            raise InputError(
                f"token {strings[wrong].ravel()[:1]} is no symbol of the automaton; "
                f"its symbols are 0 to {self.num_symbols - 1}"
            )
        return strings

    def contains(self, tokens: ArrayLike) -> np.ndarray:
        """Decides membership of a string [n], or of every row of a batch [count, n]."""
        strings = self.symbols_of(tokens)
        table = np.array(self.transitions)
        states = np.full(strings.shape[:-1], self.start)
        for i in range(strings.shape[-1]):
            states = table[states, strings[..., i]]
        return np.isin(states, list(self.accepting))


def parity_automaton() -> Automaton:
    """Returns PARITY: bit strings with an even number of ones; `$` (2) may end them."""
    return Automaton(((0, 1), (1, 0)), frozenset({0}), end=2)


def ones_automaton() -> Automaton:
    """Returns 1*: bit strings without a 0; `$` (2) may end them."""
    return Automaton(((1, 0), (1, 1)), frozenset({0}), end=2)


def threshold_automaton(least: int) -> Automaton:
    """Returns the bit strings with at least `least` ones; `$` (2) may end them.

    MAJORITY of n bits, more ones than zeros, is the threshold n//2 + 1.

    Args:
        least: the threshold, at least 0.

    Raises:
        InputError: if it is negative.
    """
    expect_integer("least", least, 0)
    require_memory(f"an automaton of {least} states", 100 * least)
    rows = tuple((k, min(k + 1, least)) for k in range(least + 1))
    return Automaton(rows, frozenset({least}), end=2)


def word_automaton(word: Sequence[int], num_symbols: int = 2) -> Automaton:
    """Returns the language of one word.

    a^m b^m at length n = 2m is that of the word 0^m 1^m, and empty at odd lengths.

    Args:
        word: its symbols.
        num_symbols: size of the alphabet, which is also the id of an end token.

    Raises:
        InputError: if the word has a symbol outside the alphabet.
    """
    word = expect_integers("word", word)
    expect_integer("num_symbols", num_symbols, 1)
    if any(not 0 <= symbol < num_symbols for symbol in word):
        raise InputError(f"the word {word} leaves the {num_symbols} symbols")
    require_memory(f"an automaton of {num_symbols} symbols", 8 * num_symbols)
    dead = len(word) + 1
    rows = [
        tuple(at + 1 if symbol == right else dead for symbol in range(num_symbols))
        for at, right in enumerate(word)
    ]
    rows += [(dead,) * num_symbols] * 2
    return Automaton(tuple(rows), frozenset({len(word)}), end=num_symbols)
