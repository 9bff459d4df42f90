"""Deterministic finite automata, as regular languages and as sources of words.

As a source, in state s a word ends with probability e_s, or goes on with symbol a with
probability P_{sa}, into state δ(s, a). The law of prefixes of length n follows from two
vectors: forward weights α_t(s) = P(t symbols, then state s), and backward weights β_m(s) =
P(at least m more symbols | s).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from jax_models.arguments import (
    expect_array,
    expect_integer,
    expect_integers,
    expect_sequence,
)
from jax_models.errors import InputError
from jax_models.languages.base import Following, Prefixes, Source, Strings, entropy
from jax_models.run.device_memory import PYTHON_STEP, require_memory, require_operations

Weights: TypeAlias = Float[Array, "states"]
PerString: TypeAlias = Int[Array, "inputs"]


@dataclasses.dataclass(frozen=True)
class Automaton:
    """A deterministic automaton over the symbols 0, 1, ….

    Example:
        >>> even = Automaton(((0, 1), (1, 0)), accepting=frozenset({0}))
        >>> bool(even.contains([1, 0, 1])), bool(even.contains([1, 0, 0]))
        (True, False)

    Raises:
        InputError: if a transition, the start or an accepting state is no state, the rows
            of transitions differ in length or are empty, or the end token is a symbol.
    """

    transitions: tuple[tuple[int, ...], ...]  # [state][symbol]
    accepting: frozenset[int]
    start: int = 0
    end: int | None = None  # the end token, ignored where it stands last

    def __post_init__(self) -> None:
        """Checks the states, the rows of transitions and the end token."""
        rows = expect_sequence("transitions", self.transitions, "a row for each state")
        table = tuple(
            tuple(expect_integers(f"transitions[{at}]", row))
            for at, row in enumerate(rows)
        )
        accepting = frozenset(expect_integers("accepting", self.accepting))
        vars(self).update(transitions=table, accepting=accepting)
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

    def symbols_of(self, tokens: ArrayLike) -> Int[np.ndarray, "... tokens"]:
        """Returns tokens without a last end token; `InputError` for non-symbols."""
        strings = np.asarray(tokens)
        if strings.size == 0:
            # An empty list is an array of floats.
            return strings.astype(np.int64)
        # In a batch the end token stands last in all strings or in none: rows stay equally
        # long.
        if self.end is not None and (strings[..., -1] == self.end).all():
            strings = strings[..., :-1]
        wrong = (strings < 0) | (strings >= self.num_symbols)
        if strings.dtype.kind not in "iu" or wrong.any():
            raise InputError(
                f"token {strings[wrong].ravel()[:1]} is no symbol of the automaton; "
                f"its symbols are 0 to {self.num_symbols - 1}"
            )
        return strings

    def contains(self, tokens: ArrayLike) -> Bool[np.ndarray, "..."] | np.bool_:
        """Decides membership of a string [n], or of every row of a batch [count, n].

        An end token is ignored where it stands last in all rows. Any other token that is
        no symbol raises `InputError`.
        """
        strings = self.symbols_of(tokens)
        table = np.array(self.transitions)
        states = np.full(strings.shape[:-1], self.start)
        # One look-up for each position serves all rows of a batch.
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
    # A language that is not regular has an automaton for each length: here a counter.
    rows = tuple((k, min(k + 1, least)) for k in range(least + 1))
    return Automaton(rows, frozenset({least}), end=2)


def word_automaton(word: Sequence[int], num_symbols: int = 2) -> Automaton:
    """Returns the language of one word.

    a^m b^m at length n = 2m is that of the word 0^m 1^m, and empty at odd lengths.

    Args:
        word: its symbols.
        num_symbols: size of the alphabet, which is also the id of an end token.

    Raises:
        InputError: if the alphabet is empty, or the word has a symbol outside it.
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
    # After the whole word, and in the dead state, every symbol leads to the dead state.
    rows += [(dead,) * num_symbols] * 2
    return Automaton(tuple(rows), frozenset({len(word)}), end=num_symbols)


@dataclasses.dataclass(frozen=True)
class AutomatonSource(Source):
    """A probabilistic deterministic automaton, with S states and V symbols.

    Example:
        >>> # PARITY with end probability 1/2: state 1 is an odd number of ones.
        >>> parity = AutomatonSource(
        ...     ((0, 1), (1, 0)), ((0.25, 0.25), (0.5, 0.5)), (0.5, 0.0)
        ... )
        >>> round(parity.levels(3).unigram, 6)
        1.082196

    Attributes:
        transitions: δ [S][V].
        probabilities: P, of the symbols in each state [S][V].
        end_probabilities: e, of ending in each state [S].
        start: the first state.
        label: name of the source.
        alphabet: names of the symbols; their ids as numerals where it is None.

    Raises:
        InputError: if the shapes disagree, a state does not exist, or a state's
            probabilities are negative or do not add to 1.
    """

    transitions: tuple[tuple[int, ...], ...]
    probabilities: tuple[tuple[float, ...], ...]
    end_probabilities: tuple[float, ...]
    start: int = 0
    label: str = "automaton"
    alphabet: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Checks shapes, states and probabilities."""
        moves = Automaton(self.transitions, frozenset(), self.start)
        states, size = len(moves.transitions), moves.num_symbols
        odds = expect_array("probabilities", self.probabilities).shape
        ends = expect_array("end_probabilities", self.end_probabilities).shape
        if odds != (states, size) or ends != (states,):
            raise InputError(
                f"probabilities of shape {odds} and end probabilities of shape {ends}; "
                f"expected a row for each of {states} states with a number for each of "
                f"{size} symbols, as transitions have, and a number for each state"
            )
        rows = self._following
        # Rounded to floats, the terms may miss 1 by a roundoff each, and by adding them.
        slack = 2 * rows.shape[1] * np.finfo(float).eps
        for state, row in enumerate(rows):
            if not (row >= 0).all() or not abs(row.sum() - 1) <= slack:
                raise InputError(
                    f"state {state} has the probabilities {row.tolist()}, the last of "
                    "ending; expected numbers >= 0 that add to 1"
                )
        symbols = self.alphabet or tuple(map(str, range(size)))
        vars(self).update(name=self.label, symbols=symbols)

    @property
    def first_symbol(self) -> tuple[float, ...]:
        """Distribution of the first symbol of a word, END last."""
        return (*self.probabilities[self.start], self.end_probabilities[self.start])

    @property
    def _following(self) -> Float[np.ndarray, "states classes"]:
        """Distribution of the next symbol, END last, in each state."""
        return np.column_stack([self.probabilities, self.end_probabilities])

    def states(self, tokens: Prefixes) -> Prefixes:
        """Returns the states after 1, …, n symbols; S, a dead one, after a non-prefix."""
        num_states, num_symbols = np.shape(self.transitions)
        # State S is dead, and symbol V stands for all that is no symbol: both lead to S.
        moves = np.full((num_states + 1, num_symbols + 1), num_states, np.int32)
        possible = np.asarray(self.probabilities) > 0
        moves[:-1, :-1] = np.where(possible, self.transitions, num_states)
        table = jnp.asarray(moves)
        known = (tokens >= 0) & (tokens < num_symbols)
        symbols = jnp.where(known, tokens, num_symbols)

        def step(
            state: Int[Array, "..."], symbol: Int[Array, "..."]
        ) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
            state = table[state, symbol]
            return state, state

        first = jnp.full(tokens.shape[:-1], self.start, jnp.int32)
        _, met = jax.lax.scan(step, first, jnp.moveaxis(symbols, -1, 0))
        return jnp.moveaxis(met, 0, -1)

    def next_symbol(self, tokens: Prefixes) -> Following:
        """Returns the distribution of the symbol after each prefix."""
        # Nothing follows what is no prefix.
        dead = np.zeros((1, self.num_classes))
        return jnp.asarray(np.concatenate([self._following, dead]))[self.states(tokens)]

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws prefixes symbol by symbol, each given that `length` symbols are reached."""
        odds = jnp.asarray(np.asarray(self.probabilities))
        table = jnp.asarray(np.asarray(self.transitions, np.int32))
        # Given that a word has n symbols, symbol t follows state s with probability P_{sa}
        # β_{n-t}(δ(s, a)) / β_{n-t+1}(s): sampling is exact, without rejection, in O(n S V)
        # for all prefixes together and O(n) for each.
        alive = jnp.ones(odds.shape[0], odds.dtype)
        return draw_strings(key, odds, table, alive, self.start, length, count)[0]

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), by dynamic programming in O(n S^2)."""
        return self._forward(length)[1]

    def joint_states(self, length: int) -> Float[np.ndarray, "symbols states"]:
        """Returns P(x_n = a, state s | at least n symbols), float64."""
        before, total = self._forward(length - 1)
        moves = before[:, None] * np.asarray(self.probabilities)
        if total == -math.inf or not moves.any():
            raise InputError(f"no word of {self.name} has n = {length} symbols")
        law = np.zeros(np.shape(self.transitions)[::-1])
        symbol = np.broadcast_to(np.arange(len(law)), moves.shape)
        # Not `law[...] += moves`, which would keep one of several states that lead to the
        # same.
        np.add.at(law, (symbol, np.asarray(self.transitions)), moves)
        return law / law.sum()

    def joint(self, length: int) -> Float[np.ndarray, "symbols classes"]:
        """Returns the joint law of a prefix's last symbol and the next symbol."""
        return self.joint_states(length) @ self._following

    def optimal_entropy(self, length: int) -> float:
        """Returns Σ_s α_n(s) H(next symbol | state s), α_n normalised, nats, n >= 1."""
        entropies = np.array([entropy(row) for row in self._following])
        return float(self.joint_states(length).sum(axis=0) @ entropies)

    def prefixes(self, length: int) -> Int[np.ndarray, "prefixes tokens"]:
        """Returns every prefix of a length, in the order of their symbols."""
        possible = np.asarray(self.probabilities) > 0
        strings, states = np.zeros((1, 0), np.int32), np.array([self.start])
        for _ in range(length):
            at, symbols = np.nonzero(possible[states])
            strings = np.column_stack([strings[at], symbols.astype(np.int32)])
            states = np.asarray(self.transitions)[states[at], symbols]
        return strings

    def _forward(self, length: int) -> tuple[Float[np.ndarray, "states"], float]:
        """Distribution of the state after n symbols [S], and ln P(at least n symbols)."""
        require_operations(f"{length} symbols", PYTHON_STEP * length)
        size = len(self.transitions)
        kernel = np.zeros((size, size))
        rows = np.broadcast_to(np.arange(size)[:, None], np.shape(self.transitions))
        # Several symbols may lead to one state: their probabilities add up.
        np.add.at(kernel, (rows, np.asarray(self.transitions)), self.probabilities)
        law, total = np.eye(size)[self.start], 0.0
        for _ in range(length):
            law = law @ kernel
            alive = law.sum()
            if alive == 0:
                return law, -math.inf
            # Weights of long words would underflow: the law is normalised, their size is
            # summed.
            law, total = law / alive, total + math.log(alive)
        return law, total


def draw_strings(
    key: PRNGKeyArray,
    odds: Float[Array, "states symbols"],
    table: Int[Array, "states symbols"],  # transitions
    ends: Weights,  # weights of states after the last symbol
    start: int,
    length: int,
    count: int,
) -> tuple[Strings, Float[Array, ""]]:
    """Strings drawn in proportion to odds times end weight; a number, 0 if none exists."""
    possible = odds > 0

    def forth(met: Weights, _: None) -> tuple[Weights, Weights]:
        moved = jnp.where(possible, met[:, None], 0)
        return jnp.zeros_like(met).at[table].max(moved), met

    def back(later: Weights, met: Weights) -> tuple[Weights, Weights]:
        # States that no prefix of this length is in would set the scale, at which those
        # that it is in may underflow.
        weights = met * (odds * later[table]).sum(axis=1)
        most = weights.max()
        return weights / jnp.where(most > 0, most, 1), later

    def step(
        state: PerString, now: tuple[Weights, Float[Array, "inputs"]]
    ) -> tuple[PerString, PerString]:
        later, u = now
        ladder = jnp.cumsum(odds * later[table], axis=1)
        goal = ladder[state]
        # The first symbol whose cumulated weight is above u < 1 times their sum. With `<=` a
        # symbol of weight 0 is never drawn, not even by u = 0.
        symbol = (goal <= (u * goal[:, -1])[:, None]).sum(axis=1, dtype=jnp.int32)
        return table[state, symbol], symbol

    at_start = jnp.zeros(len(table), odds.dtype).at[start].set(1)
    last, met = jax.lax.scan(forth, at_start, None, length)
    # Of states at the start, and after each symbol; each up to a factor of all states.
    weights, laters = jax.lax.scan(back, ends * last, met, reverse=True)
    chance = jax.random.uniform(key, (length, count), odds.dtype)
    first = jnp.full(count, start, jnp.int32)
    _, tokens = jax.lax.scan(step, first, (laters, chance))
    return tokens.T, weights[start]
