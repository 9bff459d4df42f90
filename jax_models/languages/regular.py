"""Regular languages from a JSON file: a deterministic automaton whose states have names.

A file holds an object with `alphabet` (the symbols in the order of their ids), `start`,
`accepting` (a list of states) and `transitions` (of each state, the next state for each
symbol).
"""

import dataclasses
import json
import os
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from jax_models.arguments import (
    check_alphabet,
    expect_keys,
    expect_kind,
    once_each,
    read_json_file,
    show,
)
from jax_models.errors import InputError
from jax_models.languages.automaton import Automaton, AutomatonSource, draw_strings
from jax_models.languages.base import (
    END,
    Language,
    Members,
    Rows,
    Strings,
    check_probability,
)
from jax_models.run.device_memory import require_memory

KEYS = ("alphabet", "start", "accepting", "transitions")
KINDS = {"alphabet": list, "accepting": list, "transitions": dict}


@dataclasses.dataclass(frozen=True)
class RegularLanguage(Language):
    """Words that a deterministic automaton accepts; samples of a length are uniform.

    Attributes:
        text: The automaton as JSON, keys sorted: equal for files of equal content.
        symbols: Symbols in the order of their ids.
        automaton: The automaton over numbers of symbols and states.
    """

    text: str
    symbols: tuple[str, ...]
    automaton: Automaton

    name = "the automaton's language"
    distribution = "uniform over the words of the length"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Returns the language of a JSON file.

        Args:
            path: The file.

        Raises:
            InputError: There is no such file, it is not JSON, or it holds no automaton
                with one transition for each state and symbol.
        """
        entry = read_json_file("language file", path, once_each)
        try:
            return cls.decode(entry)
        except InputError as error:
            raise InputError(f"{os.fspath(path)!r}: {error}") from error

    @classmethod
    def decode(cls, entry: Any) -> Self:
        """Returns the language of the object that a file holds.

        Args:
            entry: The object.

        Raises:
            InputError: It is no automaton with one transition for each state and symbol.
        """
        expect_keys("the automaton", entry, KEYS)
        if missing := [key for key in KEYS if key not in entry]:
            raise InputError(f"{missing[0]} is missing; expected {', '.join(KEYS)}")
        for name, kind in KINDS.items():
            word = "list" if kind is list else "object"
            expect_kind(name, entry[name], kind, f"a JSON {word}")
        alphabet, table = check_alphabet(entry["alphabet"]), entry["transitions"]
        if END in alphabet:
            raise InputError(
                f"the alphabet has {END!r}, the end token; rename that symbol"
            )
        # By name: the order of the file has no part in the automaton.
        states = {name: number for number, name in enumerate(sorted(table))}

        def number(where: str, name: Any) -> int:
            if not isinstance(name, str) or name not in states:
                raise InputError(
                    f"{where} is {show(name)}; expected one of the states that have "
                    f"transitions, {show(list(states))}"
                )
            return states[name]

        rows = []
        for name in states:
            row = expect_keys(f"transitions of {name!r}", table[name], alphabet)
            if missing := [symbol for symbol in alphabet if symbol not in row]:
                raise InputError(
                    f"transitions of {name!r} lack {missing[0]!r}; expected one for every "
                    "symbol, if need be into a state that accepts nothing"
                )
            to = (number(f"transition of {name!r} by {x!r}", row[x]) for x in alphabet)
            rows.append(tuple(to))
        start = number("start", entry["start"])
        accepting = frozenset(number("accepting", name) for name in entry["accepting"])
        automaton = Automaton(tuple(rows), accepting, start, end=len(alphabet))
        text = json.dumps(
            {**entry, "accepting": sorted(set(entry["accepting"]))}, sort_keys=True
        )
        return cls(text, alphabet, automaton)

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws uniform words; refuses a length without any."""
        # Each symbol weighs the number of words that go on with it.
        table = jnp.asarray(np.asarray(self.automaton.transitions, np.int32))
        require_memory(f"words of {length} symbols", 16 * length * len(table))
        accepts = np.isin(np.arange(len(table)), list(self.automaton.accepting))
        start, odds = self.automaton.start, jnp.ones(table.shape)
        ends = jnp.asarray(accepts, odds.dtype)
        words, weight = draw_strings(key, odds, table, ends, start, length, count)
        if not weight:
            raise InputError(
                f"{self.name} has no word of {length} symbols; use another length"
            )
        return words

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether the automaton accepts it."""
        return np.asarray(self.automaton.contains(strings))

    def source(self, end_probability: float) -> AutomatonSource:
        """Returns a source of the words, symbol by symbol.

        In an accepting state a word ends with probability p (1 where no longer word begins
        so); the symbols after which some word goes on share the rest equally.

        Args:
            end_probability: p.

        Raises:
            InputError: p is not inside (0, 1), or the language has no word.
        """
        check_probability("end probability p", end_probability)
        table = np.asarray(self.automaton.transitions)
        accepts = np.isin(np.arange(len(table)), list(self.automaton.accepting))
        live = accepts
        # The shortest way to an accepting state meets no state twice.
        for _ in table:
            live = live | live[table].any(axis=1)
        if not live[self.automaton.start]:
            raise InputError(
                "the language is empty: no accepting state can be reached from the start"
            )
        onward = live[table]
        goes_on = onward.any(axis=1)
        ends = np.where(goes_on, np.where(accepts, end_probability, 0.0), 1.0)
        # At least 1: where no symbol goes on the word ends, and the share is 0.
        shares = (1 - ends) / np.maximum(onward.sum(axis=1), 1)
        odds = np.where(onward, shares[:, None], 0.0)
        return AutomatonSource(
            self.automaton.transitions,
            tuple(map(tuple, odds.tolist())),
            tuple(ends.tolist()),
            self.automaton.start,
            self.name,
            self.symbols,
        )
