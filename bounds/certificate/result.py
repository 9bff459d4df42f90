"""The result of a certification, and what the two methods are given and give."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from bounds.influence.problem import Problem, Target

CertificateMethod = Literal["centred", "base"]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Certified upper bounds on single-symbol influences on one input.

    Every number is at least |y_q(x with x_i := s) - y_q(x)|_2 of the model in real
    arithmetic, rounding included. It is +inf where nothing is certified, because numbers
    on the way have overflowed or rounding has no bound; a final norm's own bound stands
    even then.
    """

    upper: np.ndarray  # [n, V], NaN where nothing is substituted
    position_upper: np.ndarray  # [n] maxima over symbols, NaN where none
    max_upper: float  # over all substitutions, 0 where there are none
    position: int | None  # the smallest (position, symbol) of the maximum
    symbol: int | None
    query: int
    target: Target
    method: CertificateMethod
    hypotheses: tuple[str, ...]
    source: str
    substitutions: int
    seconds: float

    @property
    def uncertified(self) -> int:
        """Of how many substitutions nothing is certified: their bound is +inf."""
        return int(np.isposinf(self.upper).sum())

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and how it was certified."""
        lost = self.uncertified
        return (
            f"Certificate(max_upper={self.max_upper:.6g}, position={self.position}, "
            f"symbol={self.symbol}, query={self.query}, method={self.method!r}, "
            f"substitutions={self.substitutions}"
            + (f", nothing is certified for {lost} of them)" if lost else ")")
        )


@dataclasses.dataclass(frozen=True)
class Certifier:
    """A way to certify: its name, source, and the bounds [p] of blocks of pairs."""

    name: CertificateMethod
    source: str
    blocks: Callable[[Problem], Iterator[np.ndarray]]
