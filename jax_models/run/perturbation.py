"""Rows moved by some roundings as they are formed, so that a program rounds anew.

A program that calls `perturbation` has every row, query, key and value that is formed inside
times 1 +- 16 u, with signs that are a hash of the number of the run, the place in the
program, the entry's bits, its coordinate and, of queries and keys, its position. In run 0
nothing moves. The number is an argument: one program does all runs.

What is traced apart, as a function that `jax.jit` wraps inside such a program is, must not
call `perturb`: its trace is kept for others.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, UInt

# How far an entry is moved, in unit roundoffs.
UNITS = 16


@dataclasses.dataclass(frozen=True)
class _Perturbation:
    """The run that a program is traced for, and a count of its calls of `perturb`."""

    run: UInt[Array, ""]
    equal_alike: bool
    calls: Iterator[int] = dataclasses.field(default_factory=itertools.count)


_CURRENT: ContextVar[_Perturbation | None] = ContextVar("perturbation", default=None)


@contextlib.contextmanager
def perturbation(
    # 0 moves nothing; None leaves it out of the program
    run: UInt[Array, ""] | None,
    # whether equal numbers move alike wherever they stand, as hard attention needs for
    # equal keys to stay a tie
    equal_alike: bool,
) -> Iterator[None]:
    """Makes `perturb` move its arrays within the block, in the trace of one program."""
    token = _CURRENT.set(None if run is None else _Perturbation(run, equal_alike))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def perturb(
    rows: Float[Array, "*shape"],
    # of the rows, where equal rows are to move apart
    positions: Int[Array, "rows"] | None = None,
) -> Float[Array, "*shape"]:
    """Returns an array, its entries moved in a run above 0."""
    current = _CURRENT.get()
    if current is None:
        return rows
    salt = current.run.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    key = jnp.zeros(rows.shape, jnp.uint32)
    if not current.equal_alike:
        salt = salt + jnp.uint32(next(current.calls))
        key = key + jnp.arange(rows.shape[-1], dtype=jnp.uint32)
        if positions is not None:
            key = _mixed(key) ^ positions.astype(jnp.uint32)[:, None]

    def move(rows: Array) -> Array:
        step = UNITS * float(jnp.finfo(rows.dtype).eps) / 2
        negative = _signs(rows, key ^ _mixed(salt))
        return rows * jnp.where(negative, 1 - step, 1 + step)

    return jax.lax.cond(current.run > 0, move, lambda rows: rows, rows)


def _signs(
    rows: Float[Array, "*shape"], key: UInt[Array, "*shape"]
) -> Bool[Array, "*shape"]:
    """A bit for each entry, of its own bits and its key."""
    words = jax.lax.bitcast_convert_type(rows, _WORDS[rows.dtype.itemsize])
    key = _mixed(key)
    if words.ndim > rows.ndim:
        key = _mixed(key ^ words[..., 1])
        words = words[..., 0]
    return _mixed(key ^ words.astype(jnp.uint32)) & 1 == 1


_WORDS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}


def _mixed(z: UInt[Array, "*shape"]) -> UInt[Array, "*shape"]:
    """The finaliser of MurmurHash3 (Appleby), of 32 bits."""
    z = (z ^ (z >> 16)) * jnp.uint32(0x85EBCA6B)
    z = (z ^ (z >> 13)) * jnp.uint32(0xC2B2AE35)
    return z ^ (z >> 16)
