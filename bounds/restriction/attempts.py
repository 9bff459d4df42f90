"""Attempts: searches under several caps and orders, of which the best is taken.

An attempt is a greedy search, an alteration (a random restriction, then repairs: the
fallback of the greedy search), or, for languages with few members, a member of which one
bit is free.

Source: docs/theory/hard-attention.md, section 5, Theorem 6; docs/restriction.md, section 2.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np

import jax_models as jm
from bounds.restriction.analysis import MOST_BITS
from bounds.restriction.partial_input import PartialInput
from bounds.restriction.search import Report, Search, close, free_needless, is_constant
from jax_models import Transformer
from jax_models.arguments import choose_name, expect_integer, expect_integers

# Share of bits that each draw fixes, one draw after another.
SHARES = (0.3, 0.5, 0.4, 0.6, 0.2, 0.7)
Method = Literal["auto", "greedy", "alteration"]

# Default caps: beyond the number of heads, the increase per layer, and the most. A low cap
# fixes many bits early, a high one leaves more to the layers above; the best depends on the
# model, so several are tried where that is cheap.
FIRST_CAP, NEXT_CAP, MOST_CAP = 2, 2, 6
# Attempts at short lengths, and the seconds after which none starts; as many again where
# none is useful.
SHORT, ATTEMPTS, ATTEMPT_SECONDS = 128, 6, 20.0
PERSISTENCE = 3
DRAWS = 6
REVERSE_LENGTH, REVERSE_SECONDS = 128, 20.0


def draw(
    partial: PartialInput, share: float, generator: np.random.Generator
) -> PartialInput:
    """Fixes each free bit to a fair coin with probability `share`."""
    fixed = {
        position: int(generator.integers(2))
        for position in partial.free
        if generator.random() < share
    }
    return partial.fix(fixed)


def alter(
    model: Transformer,
    query: int,
    partial: PartialInput,
    caps: Sequence[int],
    seed: int,
    draws: int = DRAWS,
) -> PartialInput:
    """Repairs several random restrictions; returns the one with most free bits."""
    # After a draw most lists meet a row that happens to be at its maximum, and depend on
    # little. The theorem bounds the expected number of free bits, so that some outcome has
    # as many.
    generator = np.random.default_rng(seed)
    end = time.monotonic() + ATTEMPT_SECONDS
    found: list[PartialInput] = []
    for number in range(draws):
        if found and time.monotonic() > end:
            break
        share = SHARES[number % len(SHARES)]
        # Repairs are the rounds of the search, one first entry at a time.
        search = Search(model, query, draw(partial, share, generator), repair=True)
        close(search, *search.reduce(caps))
        found.append(search.partial)
    return max(found, key=lambda one: len(one.free))


@dataclasses.dataclass(frozen=True)
class Stage:
    """Partial input after a stage of the search.

    Attributes:
        name: The stage: a layer, closing, alteration, member, or the reverse pass.
        partial: The partial input after the stage.
        seconds: Seconds since the search began.
    """

    name: str
    partial: PartialInput
    seconds: float

    @property
    def free(self) -> int:
        """Free positions after the stage."""
        return len(self.partial.free)


@dataclasses.dataclass(frozen=True)
class ClosedInput:
    """A partial input that closes the model's output.

    Attributes:
        partial: The partial input.
        method: "greedy", "alteration" or "member".
        stages: Partial inputs after each stage.
    """

    partial: PartialInput
    method: str
    stages: tuple[Stage, ...]


# Partial inputs of one free bit under which a completion and its neighbour differ in the
# language and may be alike to the model.
Neighbours = Callable[[Transformer, PartialInput, int], Iterable[PartialInput]]
# Given the name of a part of the work and the function that does it, returns its result:
# computed now, or kept from an earlier run.
Remember = Callable[[str, Callable[[], ClosedInput]], ClosedInput]


def forget(name: str, work: Callable[[], ClosedInput]) -> ClosedInput:
    """Does a part of the work now and keeps nothing."""
    del name
    return work()


def has_free_bit(partial: PartialInput) -> bool:
    """Whether a restriction leaves any bit free."""
    return bool(partial.free)


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """Options of a search.

    Attributes:
        caps: For each layer but the last, the free bits that a row may depend on; None
            for a few per head and layer, varied between attempts.
        method: "greedy", "alteration", or "auto": the second where the first fails, and
            `neighbours` before both.
        attempts: Searches to make; None for several at short lengths.
        reverse_pass: Whether to free bits in the end; None for short lengths.
        balance: Whether to fix as many ones as zeros, where that can be chosen.
        seed: Seed of the attempts and draws.
        remember: Keeps the results of parts of the search.
        neighbours: Partial inputs that are tried before any search by "auto".
        useful: Whether a restriction serves its purpose; of those that do, and else of
            all, the one with most free positions is best.
        report: Called with each stage's name and partial input, round by round.
    """

    caps: Sequence[int] | None = None
    method: Method = "auto"
    attempts: int | None = None
    reverse_pass: bool | None = None
    balance: bool = False
    seed: int = 0
    remember: Remember = forget
    neighbours: Neighbours | None = None
    useful: Callable[[PartialInput], bool] = has_free_bit
    report: Report | None = None

    def check(self, model: jm.Transformer) -> None:
        """Raises `InputError` where the plan does not fit a model."""
        choose_name("method", self.method, get_args(Method))
        if self.attempts is not None:
            expect_integer("attempts", self.attempts, 1)
        expect_integer("seed", self.seed, 0)
        if self.caps is None:
            return
        # A row has a table of 2^cap rows.
        caps = expect_integers("caps", self.caps, 1, MOST_BITS)
        layers = len(model.layers)
        if len(caps) != layers - 1:
            raise jm.InputError(
                f"caps = {caps}; expected one for each layer but the last, {layers - 1} "
                f"from 1 to {MOST_BITS}"
            )

    def all_caps(self, model: jm.Transformer) -> Iterator[tuple[int, ...]]:
        """Yields the caps of one attempt after another, without end."""
        if self.caps is not None:
            yield from itertools.repeat(tuple(self.caps))
        heads = [layer.attention.num_heads for layer in model.layers[:-1]]
        for more in itertools.cycle((0, 1, -1, 2, 3, -2)):
            caps = [
                FIRST_CAP + num_heads + NEXT_CAP * depth + more
                for depth, num_heads in enumerate(heads)
            ]
            yield tuple(min(MOST_CAP, max(1, cap)) for cap in caps)


def attempt(
    model: jm.Transformer,
    given: PartialInput,
    query: int,
    plan: SearchPlan,
) -> ClosedInput:
    """Returns the best restriction of several attempts."""
    clock, useful = _Clock(plan.report), plan.useful
    found: list[ClosedInput] = []
    caps = plan.all_caps(model)
    searched = plan.caps is not None or plan.attempts is not None  # by request
    if plan.method == "auto" and plan.neighbours is not None and not searched:
        found += _first_constant(
            model, query, plan.neighbours(model, given, query), clock
        )
    if plan.method != "alteration" and not found:
        greedy = _greedy(model, given, query, plan, clock, caps)
        count = plan.attempts or (ATTEMPTS if given.length <= SHORT else 1)
        began = clock.seconds
        for one in itertools.islice(greedy, PERSISTENCE * count):
            found.append(one)
            late = clock.seconds - began > ATTEMPT_SECONDS
            if late or (len(found) >= count and any(useful(f.partial) for f in found)):
                break
    fails = not any(useful(one.partial) for one in found)
    if plan.method == "alteration" or (plan.method == "auto" and fails and given.free):
        chosen = next(caps)

        def altered() -> ClosedInput:
            clock.start_over()
            partial = alter(model, query, given, chosen, plan.seed)
            clock("alteration", partial)
            return ClosedInput(partial, "alteration", tuple(clock.stages))

        found.append(plan.remember("alteration", altered))
    best = max(found, key=lambda one: (useful(one.partial), len(one.partial.free)))
    backwards = plan.reverse_pass
    if backwards is None:
        backwards = given.length <= REVERSE_LENGTH
    if not backwards:
        return best

    def freed() -> ClosedInput:
        clock.stages = list(best.stages)
        partial = free_needless(
            model, best.partial, given, query, REVERSE_SECONDS, clock
        )
        return ClosedInput(partial, best.method, tuple(clock.stages))

    return plan.remember("reverse pass", freed)


def _first_constant(
    model: jm.Transformer,
    query: int,
    tried: Iterable[PartialInput],
    clock: "_Clock",
) -> list[ClosedInput]:
    """First partial input under which the output is constant, if there is one in time."""
    for partial in tried:
        if clock.seconds > ATTEMPT_SECONDS:
            break
        if is_constant(model, partial, query):
            clock("member", partial)
            return [ClosedInput(partial, "member", tuple(clock.stages))]
    return []


def _greedy(
    model: jm.Transformer,
    given: PartialInput,
    query: int,
    plan: SearchPlan,
    clock: "_Clock",
    caps: Iterator[tuple[int, ...]],
) -> Iterator[ClosedInput]:
    """One search after another; the first is deterministic, later ones shuffle votes."""
    for number, chosen in enumerate(caps):
        noise = np.random.default_rng((plan.seed, number)) if number else None

        def searched(chosen=chosen, noise=noise) -> ClosedInput:
            clock.start_over()
            search = Search(model, query, given, noise, plan.balance, clock)
            close(search, *search.reduce(chosen))
            return ClosedInput(search.partial, "greedy", tuple(clock.stages))

        yield plan.remember(f"attempt {number}", searched)


class _Clock:
    """Report that also keeps the partial input after every stage, with the time."""

    def __init__(self, report: Report | None):
        self.begin = time.monotonic()
        self.report = report
        self.stages: list[Stage] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def start_over(self) -> None:
        self.stages = []

    def __call__(self, name: str, partial: PartialInput) -> None:
        if self.stages and self.stages[-1].name == name:
            self.stages.pop()
        self.stages.append(Stage(name, partial, self.seconds))
        if self.report is not None:
            self.report(name, partial)
