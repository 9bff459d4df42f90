"""Random relative perturbations of arrays by 16 unit roundoffs u, to estimate rounding.

A run is one evaluation of a program, by its number; run 0 perturbs nothing. Within the
context `perturbation` of another run, `perturb` multiplies each entry of an array by 1 + 16 u
or 1 - 16 u. The sign is a hash of the run's number and the entry's bits and, unless equal
numbers must stay equal, of the count of calls of `perturb` before, the entry's coordinate
and, if given, its position.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, UInt

# Relative change of an entry, in unit roundoffs.
UNITS = 16


@dataclasses.dataclass(frozen=True)
class _Perturbation:
    """Number of the run, an argument of the program, and the calls of `perturb` so far."""

    # An argument of the traced program: one program serves all runs.
    run: UInt[Array, ""]
    equal_alike: bool
    calls: Iterator[int] = dataclasses.field(default_factory=itertools.count)


# A function that `jax.jit` wraps inside a program must not call `perturb`, which reads this:
# JAX would reuse its trace in other programs.
_CURRENT: ContextVar[_Perturbation | None] = ContextVar("perturbation", default=None)


@contextlib.contextmanager
def perturbation(
    # 0 perturbs nothing; None leaves it out of the program
    run: UInt[Array, ""] | None,
    # whether the sign depends on the run and the entry's bits alone: equal numbers stay
    # equal, as hard attention needs for equal keys to stay a tie
    equal_alike: bool,
) -> Iterator[None]:
    """Makes `perturb` change arrays within the context, while one program is traced."""
    # A context variable: `perturb` is called deep within pure functions of models, none of
    # which needs an argument for it.
    token = _CURRENT.set(None if run is None else _Perturbation(run, equal_alike))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def perturb(
    rows: Float[Array, "*shape"],
    # of the rows; None leaves them out of the hash
    positions: Int[Array, "rows"] | None = None,
) -> Float[Array, "*shape"]:
    """Returns `rows`, each entry times 1 + 16 u or 1 - 16 u in a run above 0."""
    current = _CURRENT.get()
    if current is None:
        return rows
    if current.equal_alike:
        return _move(rows, current.run, None, None)
    return _move(rows, current.run, np.uint32(next(current.calls)), positions)


# Traced once for each shape, and not where it is called: a program has dozens of calls.
@jax.jit
def _move(
    rows: Float[Array, "*shape"],
    run: UInt[Array, ""],
    call: UInt[Array, ""] | None,  # None where equal numbers are perturbed alike
    positions: Int[Array, "rows"] | None,
) -> Float[Array, "*shape"]:
    """Rows, each entry times 1 + 16 u or 1 - 16 u if the run is above 0."""

    def move(rows: Float[Array, "..."]) -> Float[Array, "..."]:
        # 2^32 over the golden ratio: runs 1, 2, 3, ... get salts far apart (Knuth).
        salt = run.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
        key = jnp.zeros(rows.shape, jnp.uint32)
        if call is not None:
            # Equal numbers in other arrays, coordinates or positions get signs of their own.
            salt = salt + call
            key = key + jnp.arange(rows.shape[-1], dtype=jnp.uint32)
            if positions is not None:
                key = _mixed(key) ^ positions.astype(jnp.uint32)[:, None]
        step = UNITS * float(jnp.finfo(rows.dtype).eps) / 2
        negative = _signs(rows, key ^ _mixed(salt))
        return rows * jnp.where(negative, 1 - step, 1 + step)

    # Run 0 of the same program computes the values: they round as the perturbed ones do.
    return jax.lax.cond(run > 0, move, lambda rows: rows, rows)


def _signs(
    rows: Float[Array, "*shape"], key: UInt[Array, "*shape"]
) -> Bool[Array, "*shape"]:
    """Hash of the bits and key of each entry, a boolean: True for factor 1 - 16 u."""
    # A float64 becomes two words, on a last axis of their own.
    words = jax.lax.bitcast_convert_type(rows, _WORDS[rows.dtype.itemsize])
    key = _mixed(key)
    if words.ndim > rows.ndim:
        key = _mixed(key ^ words[..., 1])
        words = words[..., 0]
    return _mixed(key ^ words.astype(jnp.uint32)) & 1 == 1


_WORDS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}


def _mixed(z: UInt[Array, "*shape"]) -> UInt[Array, "*shape"]:
    """Hash of each entry by the 32-bit finaliser of MurmurHash3 (Appleby)."""
    z = (z ^ (z >> 16)) * jnp.uint32(0x85EBCA6B)
    z = (z ^ (z >> 13)) * jnp.uint32(0xC2B2AE35)
    return z ^ (z >> 16)
