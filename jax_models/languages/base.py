"""Languages: symbols, a membership test, and a sampler for every length.

A string of n symbols is an integer array [n]. The end (query) token `$` follows the
symbols: its id is their number. It belongs to the input of a model, not to the string,
so membership ignores one that stands last, and a sampler appends it on request.
"""

import abc

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, PRNGKeyArray
from numpy.typing import ArrayLike

from jax_models.arguments import expect_integer
from jax_models.errors import InputError
from jax_models.random_key import expect_key
from jax_models.run.device_memory import require_memory

END = "$"


def check_sample(length: int, count: int) -> None:
    """Raises `InputError` for strings that cannot be drawn."""
    expect_integer("length n", length, 1)
    expect_integer("number of strings", count, 1)
    # Random bits, the counters they are made of, and tokens.
    require_memory(f"{count} strings of {length} tokens", 20 * count * length)


class Language(abc.ABC):
    """A set of strings, and a distribution over strings of each length.

    A new language is a frozen dataclass with what is abstract here, and one row in the
    registry.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name by which commands know it."""

    @property
    @abc.abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The symbols in the order of their ids, without the end token."""

    @property
    @abc.abstractmethod
    def distribution(self) -> str:
        """Description of the distribution that `sample` draws from."""

    @abc.abstractmethod
    def draw(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws `count` independent strings of `length` symbols."""

    @abc.abstractmethod
    def holds(self, strings: np.ndarray) -> np.ndarray:
        """Decides membership of each row of symbols: [count, n] -> booleans [count]."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The symbols and the end token, in the order of their ids."""
        return (*self.symbols, END)

    @property
    def end(self) -> int:
        """The id of the end token."""
        return len(self.symbols)

    def sample(
        self, key: PRNGKeyArray, length: int, count: int, *, end: bool = False
    ) -> Int[Array, "inputs tokens"]:
        """Draws inputs of `length` tokens from `distribution`.

        Args:
            key: A JAX random key; the same key gives the same strings.
            length: Number of tokens n >= 1, the end token included.
            count: Number of independent strings, at least 1.
            end: Whether the last token is the end token, after n - 1 symbols.

        Returns:
            Tokens [count, length], int32.

        Raises:
            InputError: if the key is none, `length` or `count` is below 1, or no string has
                that length.
        """
        expect_key(key)
        check_sample(length, count)
        if not end:
            return self.draw(key, length, count)
        strings = self.draw(key, length - 1, count)
        last = jnp.full((count, 1), self.end, jnp.int32)
        return jnp.concatenate([strings, last], axis=1)

    def contains(self, tokens: ArrayLike) -> np.ndarray:
        """Decides membership of a string, or of every row of a batch.

        An end token that stands last is dropped; one that stands elsewhere makes the
        string a non-member.

        Args:
            tokens: Symbol ids [n] or [count, n]; n may be 0.

        Returns:
            Booleans, of shape [] or [count].

        Raises:
            InputError: if a token is no integer or no id of this language, or if only
                some rows of a batch end with the end token.
        """
        strings = np.asarray(tokens)
        if strings.size == 0:
            strings = strings.astype(np.int32)
        if strings.ndim not in (1, 2) or strings.dtype.kind not in "iu":
            raise InputError(
                f"strings of {self.name} are integer arrays of one or two axes, got "
                f"{strings.dtype} of shape {strings.shape}"
            )
        wrong = (strings < 0) | (strings > self.end)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise InputError(
                f"token {strings[place]} at {place} is no symbol of {self.name}; its "
                f"ids are 0 to {self.end} ({' '.join(self.vocabulary)})"
            )
        rows = np.atleast_2d(strings)
        ended = rows[:, -1] == self.end if rows.shape[1] else np.zeros(len(rows), bool)
        if ended.any() and not ended.all():
            raise InputError(
                f"{int(ended.sum())} of {len(rows)} strings end with {END}: drop it, "
                "or let every string of the batch have it"
            )
        rows = rows[:, :-1] if ended.any() else rows
        stray = (rows == self.end).any(axis=1)
        member = ~stray & self.holds(np.where(stray[:, None], 0, rows))
        return member if strings.ndim == 2 else member[0]


def draw_uniform(
    key: PRNGKeyArray, length: int, count: int, num_symbols: int
) -> Int[Array, "inputs tokens"]:
    """Draws independent, uniformly distributed symbols, int32."""
    return jax.random.randint(key, (count, length), 0, num_symbols, jnp.int32)
