"""The search for a restriction: attempts under several caps and orders, the best taken.

An attempt is a greedy search, an alteration (a random restriction, then repairs: the
fallback of the greedy search), or, for languages with few members, a member of which one
bit is free. The greedy search goes layer by layer: rows whose output depends on more bits
than the layer's cap vote, a batch of the best-voted bits is fixed, and the possible sets are
formed again; then the rows are tabulated. The result is sound whatever was voted for, as
soundness rests on the possible sets alone. Closing then fixes bits until the query's output
is constant, and a reverse pass frees the bits without which it is constant too, in batches
that are halved where they fail: docs/restriction.md, section 2;
docs/theory/hard-attention.md, section 2, Lemma 2; docs/theory/hard-attention.md, section 5,
Theorem 6.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int

from bounds.restriction.analysis import (
    FREE,
    MOST_BITS,
    PartialInput,
    Readings,
    TooManyBits,
    Undecided,
    analyse,
    embed,
    needed_positions,
    read_slots,
    tabulate,
)
from bounds.restriction.possible import (
    ScoredRows,
    cast_votes,
    elect,
    leading_entries,
    lean,
    possible_blocks,
    score_rows,
    tie_order,
)
from bounds.restriction.tables import Tables
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integer, expect_integers
from jax_models.interrupt import raise_requested
from jax_models.model.layer import Layer

BATCHES = 40  # rounds begin with n / BATCHES bits each

# Called with the stage and the partial input after each of its rounds.
Report = Callable[[str, PartialInput], None]
# Bits that a row may depend on while bits are freed: tables double with each.
CLOSING_BITS = 10
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
# Partial inputs beside a member that are tried however long it takes.
FEWEST = 8
DRAWS = 6
REVERSE_LENGTH, REVERSE_SECONDS = 128, 20.0


@dataclasses.dataclass
class Search:
    """State of a search: the model, the partial input and the search's options."""

    model: Transformer
    query: int  # the position that is read
    partial: PartialInput
    noise: np.random.Generator | None = None  # randomness of the votes; None for none
    balance: bool = False  # whether as many ones as zeros should be fixed
    report: Report | None = None  # called after every round
    # Whether a round fixes the one best-voted entry, as alteration does, instead of a
    # batch.
    repair: bool = False
    imbalance: int = 0  # ones less zeros among the bits that the search fixed

    def fix(self, bits: dict[int, int], stage: str) -> None:
        """Fix bits in the partial input and report it under the stage's name."""
        raise_requested()
        self.partial = self.partial.fix(bits)
        self.imbalance += lean(bits)
        if self.report is not None:
            self.report(stage, self.partial)

    def reduce(self, caps: Sequence[int]) -> tuple[Tables, ScoredRows]:
        """Fix bits until each row after layer l depends on at most caps[l] bits."""
        needed = needed_positions(self.model, self.partial.length, self.query)
        tables = embed(self.model, self.partial, needed[0])
        for depth, cap in enumerate(caps):
            layer = self.model.layers[depth]
            tables = self._reduce_layer(layer, tables, needed[depth + 1], cap, depth)
        return tables, score_rows(self.model.layers[-1], tables, self.partial.length)

    def _reduce_layer(
        self,
        layer: Layer,
        tables: Tables,
        wanted: Int[np.ndarray, "chosen"],
        cap: int,
        depth: int,
    ) -> Tables:
        scored = score_rows(layer, tables, self.partial.length)
        slots = np.searchsorted(tables.positions, wanted)
        batch = 1 if self.repair else max(1, self.partial.length // BATCHES)
        stage = f"layer {depth}"
        over = slots.tolist()
        while True:
            # A row that depends on few bits depends on no more once others are fixed.
            chosen, over = self._vote(tables, scored, over, cap, batch)
            if not over:
                try:
                    read: list[Readings] = []
                    for block in possible_blocks(tables, scored, slots):
                        read += read_slots(tables, scored, block)
                    return tabulate(layer, scored, tables, read)
                except Undecided as case:
                    chosen = self.decide(tables, case, stage)
            self.fix(chosen, stage)
            tables, scored = _fixed(tables, scored, chosen)
            batch = max(1, min(batch, len(over) // 4 + 1))

    def _vote(
        self,
        tables: Tables,
        scored: ScoredRows,
        slots: Sequence[int],
        cap: int,
        batch: int,
    ) -> tuple[dict[int, int], list[int]]:
        """Bits to fix, by vote, and the slots that depend on more than `cap` bits."""
        dependence = tables.dependence(self.partial.length)
        order = tie_order(scored.attention.weighting)
        votes = np.zeros(tables.num_rows)
        bad: list[int] = []
        for block in possible_blocks(tables, scored, slots):
            over = block.count_bits(dependence) > cap
            if over.any():
                bad += block.slots[over].tolist()
                cast_votes(tables, block, over, order, cap, votes)
        if not bad:
            return {}, []
        imbalance = self.imbalance if self.balance else None
        chosen = elect(tables, votes, batch, self.noise, imbalance)
        # Where no vote may be followed: a bit of a slot that depends on most bits.
        most = max((tables.bits[slot] for slot in bad), key=len)
        return chosen or {most[0]: 0}, bad

    def decide(self, tables: Tables, case: Undecided, where: str) -> dict[int, int]:
        """A bit, fixed to 0, of rows whose winner rounding decides; `InputError` for none."""
        slot_of_row = tables.slot_of_row
        for slot in (case.slot, *slot_of_row[list(case.rows)].tolist()):
            if tables.bits[slot]:
                return {tables.bits[slot][0]: 0}
        positions = tables.positions[slot_of_row[list(case.rows)]].tolist()
        raise InputError(
            f"{where}, position {tables.positions[case.slot]}: rounding decides which of "
            f"the positions {positions} is attended to; widen or shrink tie_resolution"
        )


def is_constant(model: Transformer, partial: PartialInput, query: int) -> bool:
    """Whether an analysis shows the query's output to be constant."""
    try:
        return analyse(model, partial, query, CLOSING_BITS).constant
    except (TooManyBits, Undecided):
        return False


def free_needless(
    model: Transformer,
    partial: PartialInput,
    given: PartialInput,
    query: int,
    report: Report,
) -> PartialInput:
    """Frees bits that the search fixed, in batches, where the output stays constant."""
    end = time.monotonic() + REVERSE_SECONDS
    fixed = [i for i in given.free if partial.tokens[i] != FREE]
    size = max(1, len(fixed) // 2)
    waiting: list[Sequence[int]] = [
        fixed[k : k + size] for k in range(0, len(fixed), size)
    ]
    while waiting and time.monotonic() < end:
        batch = waiting.pop()
        freed = partial.release(batch)
        if is_constant(model, freed, query):
            partial = freed
            report("reverse pass", partial)
        elif len(batch) > 1:
            half = len(batch) // 2
            waiting += [batch[:half], batch[half:]]
    return partial


def close(search: Search, tables: Tables, scored: ScoredRows) -> None:
    """Fix the fewest bits found that make the query's output constant."""
    slot = tables.slot(search.query)
    ways, open_ = [], None
    # Lemma 2 begins with one value of the query's own row: the cheapest is taken.
    for row in range(tables.starts[slot], tables.starts[slot + 1]):
        bits = tables.assignment(row)
        try:
            way = {**bits, **_close_value(search, *_fixed(tables, scored, bits))}
        # Rounding may leave a winner open under one value and not under another.
        except InputError as error:
            open_ = error
            continue
        ways.append(way)
    if not ways:
        assert open_ is not None
        raise open_
    best = min(ways, key=lambda way: (len(way), abs(search.imbalance + lean(way))))
    search.fix(best, "closing")


def _fixed(
    tables: Tables, scored: ScoredRows, bits: dict[int, int]
) -> tuple[Tables, ScoredRows]:
    tables, kept = tables.fix(bits)
    return tables, scored.keep(kept)


def _close_value(search: Search, tables: Tables, scored: ScoredRows) -> dict[int, int]:
    """Bits that settle each head's attention, for a query whose own row is constant."""
    # Once the bits of a list's first entry are fixed so that it has its largest score,
    # the head attends to it whatever the other bits are.
    slot, first = tables.slot(search.query), np.zeros(1, np.intp)
    order = tie_order(scored.attention.weighting)
    closed: dict[int, int] = {}
    while True:
        (block,) = possible_blocks(tables, scored, [slot])
        entries = (
            leading_entries(tables, sets, first, order, 1) for sets in block.heads
        )
        found = [tables.assignment(int(row[0, 0])) for row, there in entries if there]
        bits = min(found, key=len, default={})
        if not bits:
            try:
                read_slots(tables, scored, block)
                return closed
            except Undecided as case:
                bits = search.decide(tables, case, "last layer")
        closed.update(bits)
        tables, scored = _fixed(tables, scored, bits)


def draw(
    partial: PartialInput, share: float, generator: np.random.Generator
) -> PartialInput:
    """Fixes each free bit, with probability `share`, to a fair coin's outcome."""
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
) -> PartialInput:
    """Repairs several random restrictions; returns the one with most free bits."""
    # After a draw most lists meet a row that happens to be at its maximum, and depend on
    # little. The theorem bounds the expected number of free bits, so that some outcome has
    # as many.
    generator = np.random.default_rng(seed)
    end = time.monotonic() + ATTEMPT_SECONDS
    found: list[PartialInput] = []
    for number in range(DRAWS):
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
    """Partial input after a stage of the search."""

    name: str  # the stage: a layer, closing, alteration, member, or the reverse pass
    partial: PartialInput
    seconds: float  # seconds since the search began

    @property
    def free(self) -> int:
        """Number of free positions after the stage."""
        return len(self.partial.free)


@dataclasses.dataclass(frozen=True)
class ClosedInput:
    """A partial input that makes the model's output constant, with its search."""

    partial: PartialInput
    method: str  # "greedy", "alteration" or "member"
    stages: tuple[Stage, ...]  # partial inputs after each stage


# Partial inputs of one free bit under which a completion and its neighbour differ in the
# language and may be alike to the model.
Neighbours = Callable[[Transformer, PartialInput, int], Iterable[PartialInput]]
# Given the name of a part of the work and the function that does it, returns its result:
# computed now, or kept from an earlier run.
Remember = Callable[[str, Callable[[], ClosedInput]], ClosedInput]


def forget(name: str, work: Callable[[], ClosedInput]) -> ClosedInput:
    """Returns work(): a `Remember` that keeps no results."""
    del name
    return work()


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """Options of a search."""

    # For each layer but the last, the free bits that a row may depend on; None for a
    # few per head and layer, varied between attempts.
    caps: Sequence[int] | None = None
    # "greedy", "alteration", or "auto": the second where the first fails, and
    # `neighbours` before both.
    method: Method = "auto"
    attempts: int | None = None  # searches to make; None for several at short lengths
    # Whether to free bits in the end; None for short lengths.
    reverse_pass: bool | None = None
    # Whether to fix as many ones as zeros, where that can be chosen.
    balance: bool = False
    seed: int = 0
    remember: Remember = forget  # keeps the results of parts of the search
    # Partial inputs that are tried before any search by "auto".
    neighbours: Neighbours | None = None
    # Whether a restriction serves its purpose; of those that do, and else of all, the
    # one with most free positions is best.
    useful: Callable[[PartialInput], bool] = lambda partial: bool(partial.free)
    # Called with each stage's name and partial input, round by round.
    report: Report | None = None

    def check(self, model: Transformer) -> None:
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
            raise InputError(
                f"caps = {caps}; expected one for each layer but the last, {layers - 1} "
                f"from 1 to {MOST_BITS}"
            )

    def all_caps(self, model: Transformer) -> Iterator[tuple[int, ...]]:
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
    model: Transformer, given: PartialInput, query: int, plan: SearchPlan
) -> ClosedInput:
    """Returns the best restriction of several attempts, after any reverse pass."""
    clock, useful = _Clock(plan.report), plan.useful
    found: list[ClosedInput] = []
    caps = plan.all_caps(model)
    searched = plan.caps is not None or plan.attempts is not None  # by request
    if plan.method == "auto" and plan.neighbours is not None and not searched:
        tried = plan.neighbours(model, given, query)
        found += _first_constant(model, query, tried, clock)
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
            clock.stages = []
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
        partial = free_needless(model, best.partial, given, query, clock)
        return ClosedInput(partial, best.method, tuple(clock.stages))

    return plan.remember("reverse pass", freed)


def _first_constant(
    model: Transformer,
    query: int,
    tried: Iterable[PartialInput],
    clock: "_Clock",
) -> list[ClosedInput]:
    """First of `tried` that makes the output constant, in a list; [] if none is in time."""
    began = math.inf
    for count, partial in enumerate(tried):
        # Programs are compiled before there is a first one, which is not its time.
        began = min(began, clock.seconds)
        if count >= FEWEST and clock.seconds - began > ATTEMPT_SECONDS:
            break
        if is_constant(model, partial, query):
            clock("member", partial)
            return [ClosedInput(partial, "member", tuple(clock.stages))]
    return []


def _greedy(
    model: Transformer,
    given: PartialInput,
    query: int,
    plan: SearchPlan,
    clock: "_Clock",
    caps: Iterator[tuple[int, ...]],
) -> Iterator[ClosedInput]:
    """Yields greedy searches: the first is deterministic, later ones shuffle votes."""
    for number, chosen in enumerate(caps):
        noise = np.random.default_rng((plan.seed, number)) if number else None

        def searched(chosen=chosen, noise=noise) -> ClosedInput:
            clock.stages = []
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

    def __call__(self, name: str, partial: PartialInput) -> None:
        # A stage counts as it is after its last round.
        if self.stages and self.stages[-1].name == name:
            self.stages.pop()
        self.stages.append(Stage(name, partial, self.seconds))
        if self.report is not None:
            self.report(name, partial)
