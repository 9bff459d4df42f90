"""Theorem F as pairs of bit strings: flip the last bit that is not read."""

import dataclasses

import numpy as np

from bounds.closed_form.cross_entropy import parity_floor, parity_pair_floor
from bounds.entropy.theorem import OUTSIDE, FloorTheorem, Pairs, floor_theorem
from bounds.result import Bound
from jax_models.languages import ParitySource

ZERO, ONE, END = range(3)


@dataclasses.dataclass(frozen=True)
class ParityTheorem(FloorTheorem):
    """Theorem F for PARITY with end probability p."""

    end_probability: float

    @property
    def class_pairs(self) -> tuple[tuple[int, int], ...]:
        """END against either bit."""
        return (END, ZERO), (END, ONE)

    def pairs(self, strings: np.ndarray, reading: str) -> Pairs:
        """Flips x_n under R2, x_{n-1} under R1; the kind is x_n under R1."""
        count, n = strings.shape
        at = n - 1 if reading == "query" else n - 2
        partners = strings.copy()
        if at < 0:
            none = np.full(count, OUTSIDE)
            return Pairs(partners, np.zeros(count, int), none)
        partners[:, at] ^= 1
        kinds = np.zeros(count, int) if reading == "query" else strings[:, -1]
        return Pairs(partners, np.full(count, at), kinds.astype(int))

    def kind_shares(self, length: int, reading: str) -> dict[int, float]:
        """Returns 1/2 for either value of x_n under R1."""
        if reading == "query":
            return {0: 1.0}
        return {OUTSIDE: 1.0} if length == 1 else {0: 0.5, 1: 0.5}

    def bound(self, length: int, reading: str, closeness: float) -> Bound:
        """Returns Theorem F for all pairs at once."""
        return parity_floor(self.end_probability, length, reading, closeness)

    def pair_bound(
        self, length: int, reading: str, kind: int, closeness: float
    ) -> Bound:
        """Returns φ(λ, ε) with λ after x_n = kind."""
        if kind == OUTSIDE:  # n = 1 under R1: the optimum
            return parity_floor(self.end_probability, 1, "last", closeness)
        return parity_pair_floor(self.end_probability, length, reading, kind, closeness)

    def closing_above_ground(self, length: int) -> None:
        """There are no brackets."""
        del length


@floor_theorem.register
def _(source: ParitySource) -> FloorTheorem:
    return ParityTheorem(source.end_probability)
