"""The two arithmetics of the reference transformer: float64, and mpmath's many digits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import scipy.special


@dataclass(frozen=True)
class Arithmetic:
    """The elementwise operations of one number type, on NumPy arrays of it."""

    numbers: Callable[[Any], np.ndarray]  # floats or integers, taken exactly
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    nearest_integer: Callable[[Any], np.ndarray]
    # None where the number type has none.
    tanh: Callable[[Any], Any] | None = None
    erf: Callable[[Any], Any] | None = None


# What formulas of positions are formed in, before they are rounded once.
EXACT: Any = mpmath.MPContext()
EXACT.dps = 40

FLOAT64 = Arithmetic(
    numbers=lambda values: np.asarray(values, dtype=np.float64),
    exp=np.exp,
    log=np.log,
    tanh=np.tanh,
    sqrt=np.sqrt,
    erf=scipy.special.erf,
    nearest_integer=np.round,
)


def multiprecision(digits: int = 50) -> Arithmetic:
    """Arithmetic on object arrays of mpmath numbers with that many digits."""
    context: Any = mpmath.MPContext()
    context.dps = digits

    def elementwise(function: Callable[[Any], Any]) -> Callable[[Any], np.ndarray]:
        return lambda values: np.asarray(
            np.frompyfunc(function, 1, 1)(values), dtype=object
        )

    def number(value: Any) -> Any:
        return context.mpf(value.item() if isinstance(value, np.generic) else value)

    return Arithmetic(
        numbers=lambda values: elementwise(number)(np.asarray(values)),
        exp=elementwise(context.exp),
        log=elementwise(context.log),
        tanh=elementwise(context.tanh),
        sqrt=elementwise(context.sqrt),
        erf=elementwise(context.erf),
        nearest_integer=elementwise(lambda value: int(context.nint(value))),
    )
