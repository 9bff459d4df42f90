"""DYCK-k: correctly bracketed words over k bracket types, and their prefixes.

Opening bracket t has id 2t, closing bracket t id 2t + 1. A word is a lattice path, up for an
opening and down for a closing bracket, that stays >= 0 and ends at 0; a prefix is one that
stays >= 0. The paths are drawn exactly uniformly from a random arrangement of ups and downs,
in O(n) memory and one sort: no rejection, no table of path counts.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, PRNGKeyArray

from jax_models.arguments import expect_integer
from jax_models.errors import InputError
from jax_models.languages.base import Language, Members, Rows, Strings

BRACKETS = ("()", "[]", "{}", "<>")


def word_path(key: PRNGKeyArray, length: int) -> Int[Array, "tokens"]:
    """Draws a path of `length` = 2m steps +1, -1 uniformly among those of Dyck words."""
    half = length // 2
    # Cycle lemma (Dvoretzky & Motzkin 1947): of the 2m + 1 rotations of m ups and m + 1 downs
    # exactly one stays >= 0 up to its last step, the one that starts after the first minimum.
    # Every word comes from 2m + 1 arrangements, so a uniform arrangement gives a uniform
    # word.
    steps = jnp.where(jnp.arange(length + 1) < half, 1, -1).astype(jnp.int32)
    steps = jax.random.permutation(key, steps)
    start = jnp.argmin(jnp.cumsum(steps)).astype(jnp.int32) + 1
    return jnp.roll(steps, -start)[:length]


def prefix_path(key: PRNGKeyArray, length: int) -> Int[Array, "tokens"]:
    """Draws a path of `length` = n steps +1, -1 uniformly among those that stay >= 0."""
    # A uniform arrangement of floor(n/2) ups and ceil(n/2) downs, in which every down that
    # reaches a new minimum is turned up. With k such downs the result stays >= 0 and ends at
    # height 2k, or 2k - 1 for odd n; the turned steps are then the first k of the ups after
    # which the path never returns, so the map is a bijection.
    steps = jnp.where(jnp.arange(length) < length // 2, 1, -1).astype(jnp.int32)
    steps = jax.random.permutation(key, steps)
    heights = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(steps)])
    lowest = jax.lax.cummin(heights)
    return jnp.where(lowest[1:] < lowest[:-1], 1, steps)


def type_brackets(
    key: PRNGKeyArray,
    # a path that stays >= 0, +1 and -1
    steps: Int[Array, "tokens"],
    num_types: int,
) -> Int[Array, "tokens"]:
    """Returns the brackets of a path: openings of random types, closings that match."""
    if num_types == 1:
        return (1 - steps) // 2
    types = jax.random.randint(key, steps.shape, 0, num_types, jnp.int32)
    # The two steps of a mated pair cross the same unit of height, and the steps that cross
    # one unit alternate up, down, up, ...: a stable sort by it puts mates side by side.
    order = jnp.argsort(jnp.cumsum(steps) - (steps + 1) // 2, stable=True)
    sorted_types = types[order]
    # An up keeps its type, a down takes that of its mate, which is just before it.
    mated = jnp.where(steps[order] > 0, sorted_types, jnp.roll(sorted_types, 1))
    types = jnp.zeros_like(types).at[order].set(mated)
    return 2 * types + (1 - steps) // 2


@functools.partial(jax.jit, static_argnames=("path", "length", "count", "num_types"))
def _draw(
    key: PRNGKeyArray,
    path: Callable[[Array, int], Array],
    length: int,
    count: int,
    num_types: int,
) -> Strings:
    def one(key: PRNGKeyArray) -> Int[Array, "tokens"]:
        path_key, type_key = jax.random.split(key)
        return type_brackets(type_key, path(path_key, length), num_types)

    return jax.vmap(one)(jax.random.split(key, count)).astype(jnp.int32)


def _final_heights(strings: Rows) -> Int[np.ndarray, "inputs"]:
    """Final height of each row that is a prefix of a word, -1 for any other row."""
    if not strings.shape[1]:
        return np.zeros(len(strings), np.int64)
    steps = 1 - 2 * (strings % 2)
    heights = np.cumsum(steps, axis=1)
    crossed = heights - (steps + 1) // 2
    # As in `type_brackets`: a down comes right after its mate.
    order = np.argsort(crossed, axis=1, kind="stable")
    types = np.take_along_axis(strings // 2, order, axis=1)
    closing = np.take_along_axis(steps, order, axis=1) < 0
    mismatched = (closing & (types != np.roll(types, 1, axis=1))).any(axis=1)
    return np.where((heights.min(axis=1) < 0) | mismatched, -1, heights[:, -1])


def brackets_of(num_types: int) -> tuple[str, ...]:
    """Returns the symbols of DYCK-k, each opening bracket before its closing one."""
    expect_integer("num_types", num_types)
    if not 1 <= num_types <= len(BRACKETS):
        raise InputError(
            f"DYCK-k is defined here for k = 1 to {len(BRACKETS)} bracket types, got "
            f"{num_types}"
        )
    return tuple("".join(BRACKETS[:num_types]))


@dataclasses.dataclass(frozen=True)
class _Brackets(Language):
    num_types: int

    ending: ClassVar[str] = ""  # of the name

    def __post_init__(self) -> None:
        """Checks the number of types."""
        symbols = brackets_of(self.num_types)
        vars(self).update(name=f"dyck{self.num_types}{self.ending}", symbols=symbols)


@dataclasses.dataclass(frozen=True)
class DyckWords(_Brackets):
    """Correctly bracketed words over 1 to 4 bracket types.

    Example:
        >>> DyckWords(2).contains([0, 2, 3, 1]), DyckWords(2).contains([0, 2, 1, 3])
        (np.True_, np.False_)

    Raises:
        InputError: if the number of types is not 1 to 4.
    """

    distribution = "uniform over the words of the length"

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws uniform words; raises `InputError` for an odd length."""
        if length % 2:
            raise InputError(
                f"{self.name} has no word of odd length, got {length} symbols; use an "
                f"even number of symbols or {self.name}_prefix"
            )
        return _draw(key, word_path, length, count, self.num_types)

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it is a word."""
        return _final_heights(strings) == 0


@dataclasses.dataclass(frozen=True)
class DyckPrefixes(_Brackets):
    """Prefixes of words over 1 to 4 bracket types.

    The nesting is drawn uniformly among the DYCK-1 prefixes of the length, and every
    opening bracket gets an independent fair type. For one type that is the uniform
    distribution over prefixes; for k types it is not, as the k^u typings of a nesting
    with u opening brackets share the probability of that nesting.

    Raises:
        InputError: if the number of types is not 1 to 4.
    """

    ending = "_prefix"
    distribution = "nesting uniform over the DYCK-1 prefixes of the length, types fair"

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws prefixes of uniform nesting, with fair types."""
        return _draw(key, prefix_path, length, count, self.num_types)

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it is a prefix of a word."""
        return _final_heights(strings) >= 0
