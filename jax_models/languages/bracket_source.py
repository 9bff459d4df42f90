"""Sources of correctly bracketed words: what they share, whatever their heights do.

The next symbol after a prefix of height h is an opening bracket with probability u_h,
each of the k types alike, and with 1 - u_h the bracket that closes the innermost open one,
or END at height 0. The types of brackets that are open are independent and uniform,
whatever stands inside them, so a law of heights and last steps gives everything else.
"""

import abc
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.languages.dyck import brackets_of
from jax_models.languages.source import Source, binary_entropy


class BracketSource(Source):
    """Bracketed words over k types whose height is a walk killed below 0."""

    num_types: int

    @property
    @abc.abstractmethod
    def max_height(self) -> int | None:
        """The largest height, None where there is none."""

    @abc.abstractmethod
    def up_probabilities(self, heights: np.ndarray) -> np.ndarray:
        """Returns u_h, of an opening bracket, for heights of any shape."""

    @abc.abstractmethod
    def step_law(self, length: int) -> np.ndarray:
        """Returns P(step n goes up or down, H_n = h | at least n symbols) [2, heights]."""

    @abc.abstractmethod
    def draw_steps(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws walks given that they survive: steps +1 and -1, int32."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The brackets, each opening one before its closing one."""
        return brackets_of(self.num_types)

    @property
    def first_symbol(self) -> tuple[float, ...]:
        """An opening bracket or END."""
        up = float(self.up_probabilities(np.zeros(())))
        return (*(up / self.num_types, 0.0) * self.num_types, 1 - up)

    def draw(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws the steps, then a type for each pair."""
        step_key, type_key = jax.random.split(key)
        steps = self.draw_steps(step_key, length, count)
        reached = length if self.max_height is None else min(length, self.max_height)
        return type_walks(type_key, steps, self.num_types, reached)

    def next_symbol(
        self, tokens: Int[Array, "... tokens"]
    ) -> Float[Array, "... tokens classes"]:
        """Returns the distribution of the symbol after each prefix."""
        n, k = tokens.shape[-1], self.num_types
        heights, tops, possible = open_brackets(tokens, k, self.max_height)
        reached = n if self.max_height is None else min(n, self.max_height)
        ups = jnp.asarray(self.up_probabilities(np.arange(reached + 1)))
        up = jnp.where(possible, ups[heights], 0.0)[..., None]
        down = jnp.where(possible, 1 - ups[heights], 0.0)[..., None]
        brackets = jnp.arange(2 * k, dtype=tokens.dtype)
        closes = (heights > 0)[..., None] & (brackets == 2 * tops[..., None] + 1)
        inside = jnp.where(brackets % 2 == 0, up / k, jnp.where(closes, down, 0.0))
        end = jnp.where((heights == 0)[..., None], down, 0.0)
        return jnp.concatenate([inside, end], axis=-1)

    def joint(self, length: int) -> Float[np.ndarray, "symbols classes"]:
        """Returns the law of the last symbol and what follows it.

        After an opening bracket of type t only t can be closed; after a closing one the
        bracket that is open is of any type, whatever has just been closed.
        """
        k, law = self.num_types, self.step_law(length)
        up = self.up_probabilities(np.arange(law.shape[1]))
        table = np.zeros((2 * k, 2 * k + 1))
        opens, closes = law / k
        table[0::2, 0:-1:2], table[1::2, 0:-1:2] = opens @ up / k, closes @ up / k
        table[1::2, 1:-1:2] = closes[1:] @ (1 - up[1:]) / k
        table[1::2, -1] = closes[0] * (1 - up[0])
        kinds = np.arange(k)
        table[2 * kinds, 2 * kinds + 1] = opens @ (1 - up)
        return table

    def optimal_entropy(self, length: int) -> float:
        """Returns Σ_h P(H_n = h) [h(u_h) + u_h ln k], nats, n >= 1."""
        law = self.step_law(length).sum(axis=0)
        up = self.up_probabilities(np.arange(law.size))
        each = [binary_entropy(u) + u * math.log(self.num_types) for u in np.unique(up)]
        return float(law @ np.array(each)[np.searchsorted(np.unique(up), up)])

    def prefixes(self, length: int) -> Int[np.ndarray, "prefixes tokens"]:
        """Returns every prefix of a length, each once; at most 60 symbols."""
        k, deepest = self.num_types, self.max_height or length
        strings, heights = np.zeros((1, 0), np.int32), np.zeros(1, int)
        open_types = np.zeros(1, np.int64)  # a number in base k, the innermost last
        for _ in range(length):
            up, down = np.flatnonzero(heights < deepest), np.flatnonzero(heights)
            kind = np.tile(np.arange(k), up.size)
            at = np.concatenate([np.repeat(up, k), down])
            top = open_types[down] % k
            symbol = np.concatenate([2 * kind, 2 * top + 1]).astype(np.int32)
            open_types = np.concatenate(
                [open_types[at[: kind.size]] * k + kind, open_types[down] // k]
            )
            strings = np.column_stack([strings[at], symbol])
            heights = heights[at] + np.where(symbol % 2, -1, 1)
        return strings


def type_walks(
    key: PRNGKeyArray,
    # walks that stay in 0 … max_height, +1 and -1
    steps: Int[Array, "inputs tokens"],
    num_types: int,
    max_height: int,
) -> Int[Array, "inputs tokens"]:
    """Gives every opening bracket a uniform type and its mate the same, with a stack.

    For whole batches it is several times faster than the sort of `dyck.type_brackets`.
    """
    count, n = steps.shape
    kinds = jax.random.randint(key, (n, count), 0, num_types, jnp.int32)
    row = jnp.arange(count, dtype=jnp.int32)

    def step(
        state: tuple[Array, Array], now: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        (height, types), (move, kind) = state, now
        level = jnp.maximum(height, height + move)  # the unit of height that is crossed
        kind = jnp.where(move > 0, kind, types[row, level])
        types = types.at[row, level].set(kind, unique_indices=True)
        return (height + move, types), 2 * kind + (1 - move) // 2

    first = jnp.zeros(count, jnp.int32), jnp.zeros((count, max_height + 1), jnp.int32)
    _, tokens = jax.lax.scan(step, first, (steps.T, kinds))
    return tokens.T


def open_brackets(
    tokens: Int[Array, "... tokens"], num_types: int, max_height: int | None = None
) -> tuple[Array, Array, Array]:
    """Reads prefixes with a stack.

    After each symbol: the number of open brackets, the type of the innermost (of no meaning
    where there is none), and whether the string is a prefix so far.
    """
    n = tokens.shape[-1]
    reached = n if max_height is None else min(n, max_height)

    def step(
        state: tuple[Array, Array, Array], token: Array
    ) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        height, types, possible = state
        kind, opens = token // 2, token % 2 == 0
        fits = jnp.where(
            opens, height < reached, (height > 0) & (types[height] == kind)
        )
        possible &= fits & (token >= 0) & (token < 2 * num_types)
        height = jnp.where(opens, height + 1, height - 1).clip(0, reached)
        types = types.at[height].set(jnp.where(opens, kind, types[height]))
        return (height, types, possible), (height, types[height], possible)

    def one(string: Array) -> tuple[Array, Array, Array]:
        types = jnp.zeros(reached + 1, string.dtype)
        first = jnp.zeros((), jnp.int32), types, jnp.asarray(True)
        return jax.lax.scan(step, first, string)[1]

    found = jax.vmap(one)(tokens.reshape(-1, n))
    heights, tops, possible = (part.reshape(tokens.shape) for part in found)
    return heights, tops, possible
