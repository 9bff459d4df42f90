"""What Theorems F and G have in common: pairs of prefixes, and a floor under each.

A theorem names the pairs, the classes whose log-odds tell the members of a pair apart,
and the least mean loss over a pair whose log-odds move by at most ε. A prefix outside all
pairs has only the optimum beneath it. A source with a theorem registers it here.
"""

import abc
import dataclasses
import functools

import numpy as np

from bounds.result import Bound
from jax_models.arguments import show
from jax_models.errors import InputError
from jax_models.languages import Source

OUTSIDE = -1  # the kind of a prefix that belongs to no pair


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The other member of each prefix's pair.

    Attributes:
        partners: Prefixes [m, n]; equal to the prefix itself where it has none.
        positions: Where the members differ [m].
        kinds: Which pairs are alike in all but ε [m]; `OUTSIDE` where there is none.
    """

    partners: np.ndarray
    positions: np.ndarray
    kinds: np.ndarray


class FloorTheorem(abc.ABC):
    """A floor under the cross-entropy on one source."""

    @property
    @abc.abstractmethod
    def class_pairs(self) -> tuple[tuple[int, int], ...]:
        """The classes (s, t) whose log-odds q_s : q_t the floor rests on."""

    @abc.abstractmethod
    def pairs(self, strings: np.ndarray, reading: str) -> Pairs:
        """Returns the pairs of prefixes [m, n], under a reading."""

    @abc.abstractmethod
    def kind_shares(self, length: int, reading: str) -> dict[int, float]:
        """Returns how probable a prefix of each kind is, `OUTSIDE` among them."""

    @abc.abstractmethod
    def bound(self, length: int, reading: str, closeness: float) -> Bound:
        """Returns the floor where the log-odds of all pairs move by at most ε."""

    @abc.abstractmethod
    def pair_bound(
        self, length: int, reading: str, kind: int, closeness: float
    ) -> Bound:
        """Returns the floor under one pair's mean loss; the optimum for `OUTSIDE`."""

    @abc.abstractmethod
    def closing_above_ground(self, length: int) -> float | None:
        """Returns P_0(n) where the theorem rests on it, rounded down; else None."""


@functools.singledispatch
def floor_theorem(source: Source) -> FloorTheorem:
    """Returns the theorem about a source.

    Args:
        source: The source.

    Raises:
        InputError: There is none.
    """
    raise InputError(
        "no theorem bounds the cross-entropy on "
        f"{getattr(source, 'name', show(source))} from below; there is one "
        "on parity and one on dyck2"
    )
