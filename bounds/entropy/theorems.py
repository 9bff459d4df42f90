"""Theorems F and G: pairs of prefixes, and a floor under the mean loss of each pair.

A theorem names the pairs, the classes (predicted symbols) whose log-odds tell the
members of a pair apart, and the floor: the least mean loss, a cross-entropy in nats,
over a pair whose log-odds move by at most ε, the closeness. Pairs of one kind have one
floor at equal ε. A prefix outside all pairs has only the optimum beneath it, the
source's own conditional entropy, which no prediction can beat. A source with a theorem
registers it here.

A prediction is read at the last symbol x_n (reading "last", R1) or at an end token
after it ("query", R2). H_n is the number of open brackets after n symbols of 2DYCK, and
P_0(n) the probability that x_n closes a bracket and H_n > 0.
"""

import abc
import dataclasses
import functools
import math
from typing import ClassVar, TypeAlias

import numpy as np
from jaxtyping import Int

from bounds.entropy.closed_form import (
    PLACES,
    dyck_floor,
    dyck_pair_floor,
    height_shares,
    parity_floor,
    parity_pair_floor,
)
from bounds.numbers.bound import Bound, Sense
from bounds.numbers.interval import interval, log, lower
from bounds.numbers.rounding import gamma_upper
from jax_models.arguments import expect_kind, show
from jax_models.errors import InputError
from jax_models.languages import (
    AutomatonSource,
    DyckSource,
    ParitySource,
    Source,
)

Strings: TypeAlias = Int[np.ndarray, "inputs tokens"]
ByInput: TypeAlias = Int[np.ndarray, "inputs"]

OUTSIDE = -1  # the kind of a prefix that belongs to no pair
ZERO, ONE, END = range(3)
ROUND, SQUARE = 1, 3  # the classes ) and ]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of prefixes that a theorem compares: the partner of each, and where they differ.

    Attributes:
        partners: The partners; the prefix itself where it has none.
        positions: Position at which the members differ.
        kinds: Class of pairs with one floor at equal ε; `OUTSIDE` without a pair.
    """

    partners: Strings
    positions: ByInput
    kinds: ByInput


class FloorTheorem(abc.ABC):
    """Theorem that bounds the cross-entropy of any prediction on one source from below.

    By default no prefix has a pair, and the bound is the optimum.
    """

    # The classes (s, t) whose log-odds q_s : q_t the floor rests on.
    class_pairs: ClassVar[tuple[tuple[int, int], ...]] = ()

    @abc.abstractmethod
    def bound(self, length: int, reading: str, closeness: float) -> Bound:
        """Returns the floor (nats) where the log-odds of all pairs move by at most ε."""

    def pairs(self, strings: Strings, reading: str) -> Pairs:
        """Returns the pairs that prefixes `strings` form under a reading; default: none."""
        count = len(strings)
        return Pairs(strings.copy(), np.zeros(count, int), np.full(count, OUTSIDE))

    def kind_shares(self, length: int, reading: str) -> dict[int, float]:
        """Returns the probability that a prefix is in a pair of each kind, or `OUTSIDE`."""
        return {OUTSIDE: 1.0}

    def pair_bound(
        self, length: int, reading: str, kind: int, closeness: float
    ) -> Bound:
        """Returns the floor under one pair's mean loss; the optimum for `OUTSIDE`."""
        return self.bound(length, reading, closeness)

    def closing_above_ground(self, length: int) -> float | None:
        """Returns P_0(n) where the theorem rests on it, rounded down; else None."""
        return None


@functools.singledispatch
def floor_theorem(source: Source) -> FloorTheorem:
    """Returns the theorem that bounds cross-entropies on a source from below.

    Args:
        source: The source.

    Raises:
        InputError: No theorem is registered for it.
    """
    wanted = "one such as get_source('parity', 0.5) returns"
    expect_kind("source", source, Source, wanted)
    raise InputError(
        "no theorem bounds the cross-entropy on "
        f"{getattr(source, 'name', show(source))} from below; there is one "
        "on parity and one on dyck2"
    )


@dataclasses.dataclass(frozen=True)
class ParityTheorem(FloorTheorem):
    """Theorem F for PARITY with end probability p."""

    end_probability: float

    class_pairs = ((END, ZERO), (END, ONE))

    def pairs(self, strings: Strings, reading: str) -> Pairs:
        """Returns pairs that differ in x_n (R2) or x_{n-1} (R1, with x_n as kind)."""
        count, n = strings.shape
        at = n - 1 if reading == "query" else n - 2
        if at < 0:
            return super().pairs(strings, reading)
        partners = strings.copy()
        partners[:, at] ^= 1
        # Under R1 the floor of a pair depends on x_n, which its members share.
        kinds = np.zeros(count, int) if reading == "query" else strings[:, -1]
        return Pairs(partners, np.full(count, at), kinds.astype(int))

    def kind_shares(self, length: int, reading: str) -> dict[int, float]:
        """Returns the probability of each kind: one under R2; x_n = 0, 1 under R1, n > 1."""
        if reading == "query":
            return {0: 1.0}
        return {OUTSIDE: 1.0} if length == 1 else {0: 0.5, 1: 0.5}

    def bound(self, length: int, reading: str, closeness: float) -> Bound:
        """Returns the floor of Theorem F, with one ε for all pairs."""
        return parity_floor(self.end_probability, length, reading, closeness)

    def pair_bound(
        self, length: int, reading: str, kind: int, closeness: float
    ) -> Bound:
        """Returns the floor under a pair of kind `kind`; the optimum for `OUTSIDE`."""
        if kind == OUTSIDE:  # n = 1 under R1: the optimum
            return parity_floor(self.end_probability, 1, "last", closeness)
        return parity_pair_floor(self.end_probability, length, reading, kind, closeness)


@floor_theorem.register
def _(source: ParitySource) -> FloorTheorem:
    return ParityTheorem(source.end_probability)


@dataclasses.dataclass(frozen=True)
class DyckTheorem(FloorTheorem):
    """Theorem G for 2DYCK with probability p of an opening bracket."""

    up_probability: float

    class_pairs = ((ROUND, SQUARE),)

    def pairs(self, strings: Strings, reading: str) -> Pairs:
        """Returns pairs that differ in the innermost open bracket; R1 needs x_n to close."""
        at = innermost_open(strings)
        paired = at >= 0
        if reading == "last":
            # Odd symbols close. The reading sees x_n, so the bracket that changes must
            # be another.
            paired &= strings[:, -1] % 2 == 1
        partners, rows = strings.copy(), np.flatnonzero(paired)
        # Bit 1 of a symbol is the type of its bracket, bit 0 whether it closes.
        partners[rows, at[rows]] ^= 2
        return Pairs(partners, np.where(paired, at, 0), np.where(paired, 0, OUTSIDE))

    def kind_shares(self, length: int, reading: str) -> dict[int, float]:
        """Returns P_0(n) under R1, P(H_n > 0) under R2, and the rest outside pairs."""
        # law[1] has the walks whose last step goes down: x_n closes.
        law = DyckSource(self.up_probability).step_law(length)
        paired = law[1, 1:].sum() if reading == "last" else law[:, 1:].sum()
        others = law[0].sum() + law[1, 0] if reading == "last" else law[:, 0].sum()
        return {0: float(paired), OUTSIDE: float(others)}

    def bound(self, length: int, reading: str, closeness: float) -> Bound:
        """Returns the floor of Theorem G, with one ε for all pairs."""
        return dyck_floor(self.up_probability, length, reading, closeness)

    def pair_bound(
        self, length: int, reading: str, kind: int, closeness: float
    ) -> Bound:
        """Returns the optimum, plus (1 - p) ln(1 + e^{-ε/2}) for a prefix with a pair."""
        epsilon = float("inf") if kind == OUTSIDE else closeness
        return dyck_pair_floor(self.up_probability, reading, epsilon)

    def closing_above_ground(self, length: int) -> float:
        """Returns P_0(n), rounded down."""
        # The lower end of an exact 0 is -0.0.
        return max(0.0, lower(height_shares(self.up_probability, length).closing))


@dataclasses.dataclass(frozen=True)
class OptimumTheorem(FloorTheorem):
    """The optimum as the floor, without pairs, for a source that no other theorem covers."""

    source: AutomatonSource

    def bound(self, length: int, reading: str, closeness: float) -> Bound:
        """Returns the optimum, rounded down."""
        states, symbols = np.shape(self.source.probabilities)
        # All terms are >= 0: each of n products with the kernel rounds by less than
        # symbols + 2 states + 3 units, the law's last symbol and the entropies less than
        # 4 states symbols + 8, and a quotient as its two parts.
        steps = length * (symbols + 2 * states + 3) + 4 * states * symbols + 8
        optimum = self.source.optimal_entropy(length) * (1 - gamma_upper(2 * steps))
        value = lower(log(interval(optimum))) if optimum > 0 else -math.inf
        quantity = f"cross-entropy on {self.source.name}, {PLACES[reading]}, nats"
        return Bound(value, Sense.LOWER, quantity, (), "Gibbs' inequality")


@floor_theorem.register
def _(source: AutomatonSource) -> FloorTheorem:
    return OptimumTheorem(source)


def innermost_open(strings: Strings) -> ByInput:
    """Returns the position of each prefix's innermost open bracket, -1 for none."""
    # The last opening bracket after which the height stays above its height before.
    steps = 1 - 2 * (strings % 2)
    heights = np.cumsum(steps, axis=1)
    final = heights[:, -1:]
    reached = (steps > 0) & (heights == final) & (final > 0)
    last = strings.shape[1] - 1 - np.argmax(reached[:, ::-1], axis=1)
    return np.where(reached.any(axis=1), last, -1)


@floor_theorem.register
def _(source: DyckSource) -> FloorTheorem:
    if source.num_types != 2:
        raise InputError(
            f"Theorem G is about two types of brackets; {source.name} has "
            f"{source.num_types}"
        )
    return DyckTheorem(source.up_probability)
