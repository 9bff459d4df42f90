"""Languages and sources: strings with a distribution, and what follows each prefix.

A language is symbols, a membership test, and a sampler for every length. A string of n
symbols is an integer array [n]. The end (query) token `$` follows the symbols: its id is
their number. It belongs to the input of a model, not to the string, so membership ignores
one that stands last, and a sampler appends it on request.

A source generates words symbol by symbol: it ends a word or goes on with a symbol, with
probabilities that depend on the symbols so far. Classes of the next symbol are the symbols
in the order of their ids, then END; there are C = V + 1, V the number of symbols in the
alphabet. A *prefix of length n* is the first n symbols of a word, given that the word has
at least n; lengths count symbols, without an end token. Entropies are in nats.
"""

import abc
import dataclasses
import functools
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from jax_models.arguments import expect_integer, expect_number
from jax_models.errors import InputError
from jax_models.jax_arguments import expect_key
from jax_models.run.device_memory import require_memory

END = "$"

Strings: TypeAlias = Int[Array, "inputs tokens"]
# Strings of symbols in NumPy, and whether each is a member.
Rows: TypeAlias = Int[np.ndarray, "inputs tokens"]
Members: TypeAlias = Bool[np.ndarray, "inputs"]
Prefixes: TypeAlias = Int[Array, "... tokens"]
# Distributions of the symbol after 1, 2, …, n symbols.
Following: TypeAlias = Float[Array, "... tokens classes"]


def check_sample(length: int, count: int) -> None:
    """Raises `InputError` for a length or number of strings below 1 or too large."""
    expect_integer("length n", length, 1)
    expect_integer("number of strings", count, 1)
    # Random bits, the counters they are made of, and tokens.
    require_memory(f"{count} strings of {length} tokens", 20 * count * length)


class Language(abc.ABC):
    """A set of strings, and a distribution over strings of each length.

    A new language is a frozen dataclass that sets the attributes and defines what is
    abstract here, and one row in `LANGUAGES`.

    Attributes:
        name: The name by which commands know it.
        symbols: The symbols in the order of their ids, without the end token.
        distribution: Description of the distribution that `sample` draws from.
    """

    name: str
    symbols: tuple[str, ...]
    distribution: str

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws `count` independent strings of `length` symbols."""

    @abc.abstractmethod
    def holds(self, strings: Rows) -> Members:
        """Decides for each string whether it is in the language: booleans [count]."""

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
    ) -> Strings:
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

    def contains(self, tokens: ArrayLike) -> Bool[np.ndarray, "..."] | np.bool_:
        """Decides membership of a string, or of every row of a batch.

        An end token that stands last is dropped; one that stands elsewhere makes the
        string a non-member.

        Args:
            tokens: Symbol ids [n] or [count, n]; n may be 0.

        Returns:
            Booleans, of shape [] or [count].

        Raises:
            InputError: if there are more than two axes, a token is no integer or no id of
                this language, or only some rows of a batch end with the end token.
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
        # An end token within a string makes it a non-member, whatever `holds` would say: such
        # rows are decided here, and go to `holds` as strings of symbols.
        stray = (rows == self.end).any(axis=1)
        member = ~stray & self.holds(np.where(stray[:, None], 0, rows))
        return member if strings.ndim == 2 else member[0]


class BitStrings(Language):
    """A set of bit strings; samples are uniform over all bit strings, members or not."""

    symbols = ("0", "1")
    distribution = "uniform over all bit strings of the length, members or not"

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws fair, independent bits."""
        return jax.random.randint(key, (count, length), 0, 2, jnp.int32)


# Numbers drawn at a time: what a sampler holds beside its output.
CHUNK = 2**24


@dataclasses.dataclass(frozen=True)
class Levels:
    """Cross-entropies of the next symbol after a prefix of one length, in nats.

    Attributes:
        optimal: Of the true distribution, given the whole prefix.
        last_symbol: Of the best prediction from the last symbol alone.
        unigram: Of the best constant prediction at this length.
    """

    optimal: float
    last_symbol: float
    unigram: float


class Source(abc.ABC):
    """A distribution over words, given by what follows each prefix.

    A new source is a frozen dataclass (hashable, so that it can be compiled in) that sets
    the attributes and defines what is abstract here, and one row in `SOURCES`.

    Attributes:
        name: The name by which commands know it.
        symbols: The symbols in the order of their ids, without the end token.
    """

    name: str
    symbols: tuple[str, ...]

    @property
    @abc.abstractmethod
    def first_symbol(self) -> tuple[float, ...]:
        """The distribution of the first symbol, END last [C]."""

    @abc.abstractmethod
    def next_symbol(self, tokens: Prefixes) -> Following:
        """Returns the distribution of the symbol after each prefix.

        Args:
            tokens: prefixes.

        Returns:
            Probabilities after 1, 2, …, n symbols; zero after a string that
            is no prefix.
        """

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws `count` independent prefixes, int32, traceably."""

    @abc.abstractmethod
    def log_survival(self, length: int) -> float:
        """Returns ln of the probability that a word has at least `length` symbols."""

    @abc.abstractmethod
    def joint(self, length: int) -> Float[np.ndarray, "symbols classes"]:
        """Returns the joint law of a prefix's last symbol and the next symbol.

        Args:
            length: n >= 1.

        Returns:
            P(x_n = a, next = c | at least n symbols) [V, C], float64.
        """

    @abc.abstractmethod
    def optimal_entropy(self, length: int) -> float:
        """Returns the entropy of the next symbol given the prefix, nats, n >= 1."""

    @abc.abstractmethod
    def prefixes(self, length: int) -> Int[np.ndarray, "prefixes tokens"]:
        """Returns every prefix of a length, each once [m, length], int32."""

    @property
    def num_classes(self) -> int:
        """C, the number of symbols and END."""
        return len(self.symbols) + 1

    @property
    def end(self) -> int:
        """The class of END, which is also the id of the end token."""
        return len(self.symbols)

    def sample(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws independent prefixes of n symbols.

        Large batches are drawn in chunks, so that beside the output only a chunk is held.

        Args:
            key: a JAX random key; the same key gives the same prefixes.
            length: n >= 1.
            count: number of prefixes, at least 1.

        Returns:
            Tokens, int32.

        Raises:
            InputError: if the key is none, `length` or `count` is below 1, or no word is
                that long.
        """
        expect_key(key)
        check_sample(length, count)
        if self.log_survival(length) == -math.inf:
            raise InputError(
                f"no word of {self.name} has n = {length} symbols; ask for shorter ones"
            )
        return _sample(key, self, length, count)

    def log_probability(self, tokens: Prefixes) -> Float[Array, "..."]:
        """Returns ln P(a word begins with this string), -inf where none does.

        Args:
            tokens: strings, n >= 1.

        Returns:
            Logarithms; subtract `log_survival(n)` for the law of prefixes of
            length n.
        """
        # Symbol t is drawn by what follows t - 1 symbols; what follows the last is not read.
        later = self.next_symbol(tokens)[..., :-1, :]
        first = jnp.asarray(self.first_symbol, later.dtype)
        first = jnp.broadcast_to(first, (*later.shape[:-2], 1, first.size))
        before = jnp.concatenate([first, later], axis=-2)
        chosen = jnp.take_along_axis(before, tokens[..., None], axis=-1)[..., 0]
        return jnp.log(chosen).sum(axis=-1)

    def levels(self, length: int) -> Levels:
        """Returns the least cross-entropies of predictions from parts of a prefix.

        Args:
            length: n >= 1.

        Returns:
            From the whole prefix, from its last symbol, H(next | x_n), and from its length
            alone, H(next).

        Raises:
            InputError: if n is below 1, or no word is that long.
        """
        if length < 1 or self.log_survival(length) == -math.inf:
            raise InputError(f"{self.name} has no prefix of length n = {length}")
        joint = self.joint(length)
        optimal = self.optimal_entropy(length)
        # Knowing less never helps, and a last bit is not to say that it did.
        # H(next | x_n) = H(x_n, next) - H(x_n).
        last = max(optimal, entropy(joint) - entropy(joint.sum(axis=1)))
        return Levels(optimal, last, max(last, entropy(joint.sum(axis=0))))


@functools.partial(jax.jit, static_argnames=("source", "length", "count"))
def _sample(key: PRNGKeyArray, source: Source, length: int, count: int) -> Strings:
    # Beside the output a large batch holds only a chunk.
    most = max(1, CHUNK // length)
    if count <= most:
        return source.draw(key, length, count)
    # Chunks that divide the batch, if there are any of a good size: a copy is saved.
    even = math.ceil(count / math.ceil(count / most))
    divisors = (d for d in range(max(1, most // 2), most + 1) if count % d == 0)
    rows = max(divisors, default=even)
    keys = jax.random.split(key, math.ceil(count / rows))
    drawn = jax.lax.map(lambda one: source.draw(one, length, rows), keys)
    return drawn.reshape(-1, length)[:count]


def entropy(probabilities: Float[np.ndarray, "..."]) -> float:
    """Returns -Σ p ln p, in nats, with 0 ln 0 = 0."""
    some = probabilities[probabilities > 0]
    return float(-(some * np.log(some)).sum())


def binary_entropy(probability: float) -> float:
    """Returns h(p) = -p ln p - (1 - p) ln(1 - p), in nats, for p in [0, 1]."""
    if probability in (0, 1):
        return 0.0
    # 1 - p has lost the digits of a small p; log1p has not.
    rest = (1 - probability) * math.log1p(-probability)
    return -probability * math.log(probability) - rest


def check_probability(name: str, value: float) -> None:
    """Raises `InputError` unless a probability lies strictly between 0 and 1."""
    expect_number(name, value)
    if not 0 < value < 1:
        raise InputError(f"{name} = {value}; expected one inside (0, 1)")
