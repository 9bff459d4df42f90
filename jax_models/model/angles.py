"""Sines and cosines of angles that grow with the position, as if rounded once.

An angle j f formed in float64 is off by j u, and so are its sine and cosine. Here f is known
to 60 digits, and its share of a whole turn is split into 22 bits, 22 more and the rest, so
that the products of the first two with j < 2^31 are exact, and whole turns drop out of them.
What is found is off by a few u, and by a few u of itself where j < 2^22.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

# Bits of a part of a turn, and digits of what is split.
PART_BITS = 22
DIGITS = 60


@functools.cache
def exact_context() -> Any:
    """Returns the mpmath context in which frequencies are formed."""
    import mpmath

    context: Any = mpmath.MPContext()
    context.dps = DIGITS
    return context


def falling_frequencies(base: float, width: int) -> Shaped[np.ndarray, "frequencies"]:
    """Returns base^(-2m/width), m = 0 … width/2 - 1, of mpmath's numbers."""
    exact = exact_context().mpf
    return np.array([exact(base) ** (exact(-2 * m) / width) for m in range(width // 2)])


def sine_and_cosine(
    places: Int[np.ndarray, "positions"],
    frequencies: Shaped[np.ndarray, "frequencies"] | Sequence[Any],
) -> Float[np.ndarray, "positions coordinates"]:
    """Returns sin(j f) and beside them cos(j f), j the places and f in radians."""
    context, count = exact_context(), len(frequencies)
    scale = 2.0**PART_BITS
    j = places.astype(np.float64)
    found = np.empty((j.size, 2 * count))
    for column, frequency in enumerate(frequencies):
        turns = context.mpf(frequency) / (2 * context.pi)
        turns = turns - context.floor(turns)
        first = context.floor(turns * scale) / scale
        second = context.floor((turns - first) * scale**2) / scale**2
        whole = (j * float(first)) % 1.0 + (j * float(second)) % 1.0  # exact
        rest = j * float(turns - first - second)
        found[:, column] = _sine(whole, rest)
        found[:, count + column] = _sine(whole + 0.25, rest)
    return found


def _sine(turns: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """sin of 2 pi (turns + rest), turns being exact: half turns are taken away first."""
    half = np.round(2 * turns)
    small = np.sin(2 * np.pi * (turns - half / 2 + rest))
    return np.where(half % 2 == 0, small, -small)
