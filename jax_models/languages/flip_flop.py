"""The flip-flop language: a memory of one bit that is written, ignored and read."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, PRNGKeyArray

from jax_models.errors import InputError
from jax_models.languages.base import Language, Members, Rows, Strings

WRITE, READ = 0, 1  # ids of the instructions w and r; i is 2, the bits 3 and 4
NUM_INSTRUCTIONS = 3


@functools.partial(jax.jit, static_argnames=("pairs", "count"))
def _draw(key: PRNGKeyArray, pairs: int, count: int) -> Int[Array, "inputs tokens"]:
    which, what = jax.random.split(key)
    told = jax.random.randint(which, (count, pairs), 0, NUM_INSTRUCTIONS, jnp.int32)
    told = told.at[:, 0].set(WRITE).at[:, -1].set(READ)
    free = jax.random.bernoulli(what, 0.5, (count, pairs)).astype(jnp.int32)
    # The place of the latest write; that of an earlier one is smaller.
    places = jnp.where(told == WRITE, jnp.arange(pairs, dtype=jnp.int32), 0)
    written = jnp.take_along_axis(free, jax.lax.cummax(places, axis=1), axis=1)
    bits = NUM_INSTRUCTIONS + jnp.where(told == READ, written, free)
    return jnp.stack([told, bits], axis=-1).reshape(count, 2 * pairs)


@dataclasses.dataclass(frozen=True)
class FlipFlop(Language):
    """Pairs of an instruction w, r or i and a bit, in which reads are right.

    The first instruction is w, the last is r, and the bit after every r is the bit after
    the latest w before it; the bits after i are free. The shortest members have four
    symbols.

    Example:
        >>> FlipFlop().contains([[0, 4, 2, 3, 1, 4], [0, 4, 2, 3, 1, 3]])
        array([ True, False])

    Source: docs/logic.md, section 3.
    """

    name = "flip_flop"
    symbols = ("w", "r", "i", "0", "1")
    distribution = (
        "instructions but the first and last fair, free bits fair, reads right"
    )

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws members; their instructions and bits are as in `distribution`."""
        if length % 2 or length < 4:
            raise InputError(
                f"flip_flop has no member of {length} symbols; use an even number from "
                "4 on"
            )
        return _draw(key, length // 2, count)

    def holds(self, strings: Rows) -> Members:
        """Decides for each row whether it is a member."""
        if strings.shape[1] % 2 or strings.shape[1] < 4:
            return np.zeros(len(strings), bool)
        told, bits = strings[:, 0::2], strings[:, 1::2]
        member = (told < NUM_INSTRUCTIONS).all(axis=1)
        member &= (bits >= NUM_INSTRUCTIONS).all(axis=1)
        member &= (told[:, 0] == WRITE) & (told[:, -1] == READ)
        # The first instruction is a write, or the row is no member already.
        memory = bits[:, 0]
        for instruction, bit in zip(told.T, bits.T, strict=True):
            memory = np.where(instruction == WRITE, bit, memory)
            member &= (instruction != READ) | (bit == memory)
        return member
