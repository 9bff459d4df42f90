"""The search for a restriction: attempts under several caps and orders, the best taken.

A partial input fixes some positions and leaves a free bit at the others; a restriction
is one that makes the output constant. A slot is a position with a table of rows, its
activations, one for each assignment of the free bits that it depends on; a row's list
holds the rows that it may attend to, its possible set, by falling score. The greedy
search goes layer by layer: rows whose output depends on more bits than the layer's cap,
the most allowed, vote for the first entries of their lists, a batch of the best-voted
bits is fixed, and the possible sets are formed again; then the rows are tabulated.
Closing fixes bits until the query's output is constant (docs/theory/hard-attention.md,
section 2, Lemma 2), and a reverse pass frees fixed bits that are not needed; each of
these is a stage. Other attempts are an alteration, a random restriction with repairs
(docs/theory/hard-attention.md, section 5, Theorem 6), and a member of a language of
which one bit is free. Soundness rests on the possible sets alone: docs/restriction.md,
section 2.
"""

import dataclasses
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from bounds.restriction.analysis import (
    FREE,
    MOST_BITS,
    PartialInput,
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
    leading_entries,
    possible_blocks,
    score_rows,
)
from bounds.restriction.tables import Tables
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integer, expect_integers
from jax_models.interrupt import raise_requested

BATCHES = 40  # rounds begin with n / BATCHES bits each

# Called with the stage and the partial input after each of its rounds.
Report = Callable[[str, PartialInput], None]
# Bits that a row may depend on while bits are freed: tables double with each.
CLOSING_BITS = 10
# Share of bits that each draw of an alteration fixes.
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
REVERSE_LENGTH, REVERSE_SECONDS = 128, 20.0


def lean(bits: Mapping[int, int]) -> int:
    """Returns the number of ones less the number of zeros among bits."""
    return sum(2 * value - 1 for value in bits.values())


@dataclasses.dataclass(frozen=True)
class Stage:
    """Partial input after a stage of the search."""

    name: str  # the stage: a layer, closing, alteration, member, or the reverse pass
    partial: PartialInput

    @property
    def free(self) -> int:
        """Number of free positions after the stage."""
        return len(self.partial.free)


@dataclasses.dataclass(frozen=True)
class ClosedInput:
    """A partial input that makes the model's output constant, with its search."""

    method: str  # "greedy", "alteration" or "member"
    stages: tuple[Stage, ...]  # partial inputs after each stage, at least one

    @property
    def partial(self) -> PartialInput:
        """Partial input after the last stage."""
        return self.stages[-1].partial


# Partial inputs of one free bit under which a completion and its neighbour differ in the
# language and may be alike to the model.
Neighbours = Callable[[PartialInput, int], Iterable[PartialInput]]
# Given the name of a part of the work, the function that does it and returns a record of
# its result, and the one that reads a record, returns the result: computed now, or kept
# from an earlier run.
Record = dict[str, Any]
Work = Callable[[], Record]
Read = Callable[[Record], ClosedInput]
Remember = Callable[[str, Work, Read], ClosedInput]


def forget(name: str, work: Work, read: Read) -> ClosedInput:
    """Returns the result of `work`, computed now: a `Remember` that stores nothing."""
    del name
    return read(work())


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """Options of a search for a restriction."""

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
        first = [FIRST_CAP + NEXT_CAP * depth + h for depth, h in enumerate(heads)]
        for more in itertools.cycle((0, 1, -1, 2, 3, -2)):
            yield tuple(min(MOST_CAP, max(1, cap + more)) for cap in first)


@dataclasses.dataclass
class Search:
    """Search of one model by one plan; holds the partial input after every stage."""

    model: Transformer
    given: PartialInput
    query: int  # the position that is read
    plan: SearchPlan
    stages: list[Stage] = dataclasses.field(default_factory=list)

    def _fix_from(
        self,
        partial: PartialInput,
        caps: Sequence[int],
        noise: np.random.Generator | None = None,  # that shuffles the votes
        # whether to repair: each round fixes the one best-voted entry, unreported
        repairs: bool = False,
    ) -> None:
        """Fixes bits of a partial input, until the output is constant."""
        self.partial, self.noise, self.repairs = partial, noise, repairs
        self.balances = self.plan.balance and not repairs
        self.imbalance = 0  # ones less zeros among the bits that were fixed
        self.close(self.reduce(caps))

    def fix(self, bits: dict[int, int], stage: str) -> None:
        """Fixes positions to bits in the partial input, and reports it as a stage."""
        raise_requested()
        self.partial = self.partial.fix(bits)
        self.imbalance += lean(bits)
        if not self.repairs:
            self.report(stage, self.partial)

    def report(self, name: str, partial: PartialInput) -> None:
        """Keeps the partial input as a stage, and passes it to the plan's report."""
        # A stage counts as it is after its last round.
        if self.stages and self.stages[-1].name == name:
            self.stages.pop()
        self.stages.append(Stage(name, partial))
        if self.plan.report is not None:
            self.plan.report(name, partial)

    def find_best(self) -> ClosedInput:
        """Best restriction of several attempts, after a reverse pass if wanted."""
        plan, caps = self.plan, self.plan.all_caps(self.model)
        useful = lambda closed: plan.useful(closed.partial)
        by_request = plan.caps is not None or plan.attempts is not None
        found: list[ClosedInput] = []
        if plan.method == "auto" and plan.neighbours is not None and not by_request:
            found += self.first_constant(plan.neighbours(self.given, self.query))
        if plan.method != "alteration" and not found:
            count = plan.attempts or (ATTEMPTS if self.given.length <= SHORT else 1)
            end = time.monotonic() + ATTEMPT_SECONDS
            for number in range(PERSISTENCE * count):
                # The first search is deterministic, others shuffle votes.
                noise = np.random.default_rng((plan.seed, number)) if number else None
                given = self._fix_from, self.given, next(caps), noise
                found.append(self.run(f"attempt {number}", "greedy", *given))
                late = time.monotonic() > end
                if late or (len(found) >= count and any(map(useful, found))):
                    break
        fails = plan.method == "auto" and not any(map(useful, found))
        if plan.method == "alteration" or (fails and self.given.free):
            found.append(self.run("alteration", "alteration", self.alter, next(caps)))
        best = max(found, key=lambda one: (useful(one), len(one.partial.free)))
        backwards = plan.reverse_pass
        if backwards is None:
            backwards = self.given.length <= REVERSE_LENGTH
        if not backwards:
            return best
        return self.run("reverse pass", best.method, self.free_needless, best)

    def run(
        self, part: str, method: str, work: Callable[..., None], *options: Any
    ) -> ClosedInput:
        """Result of an attempt or of the reverse pass: of calling `work`, or a stored one."""

        def find() -> Record:
            self.stages = []
            work(*options)
            rhos = ((one.name, one.partial.tokens.tolist()) for one in self.stages)
            stages = [{"name": name, "rho": rho} for name, rho in rhos]
            return {"method": method, "stages": stages}

        def read(kept: Record) -> ClosedInput:
            stages = []
            for one in kept["stages"]:
                rho = np.array(one["rho"], np.int32)
                stages.append(Stage(one["name"], PartialInput(rho, self.given.symbols)))
            return ClosedInput(kept["method"], tuple(stages))

        return self.plan.remember(part, find, read)

    def alter(self, caps: Sequence[int]) -> None:
        """Fixes random bits, then searches on; of several tries keeps the one most free."""
        # After a draw most lists meet a row that happens to be at its maximum, and depend
        # on little. The theorem bounds the expected number of free bits, so that some
        # outcome has as many.
        generator = np.random.default_rng(self.plan.seed)
        end = time.monotonic() + ATTEMPT_SECONDS
        found: list[PartialInput] = []
        for share in SHARES:
            if found and time.monotonic() > end:
                break
            drawn = {
                position: int(generator.integers(2))
                for position in self.given.free
                if generator.random() < share
            }
            # Repairs are the rounds of the search, one first entry at a time.
            self._fix_from(self.given.fix(drawn), caps, repairs=True)
            found.append(self.partial)
        self.report("alteration", max(found, key=lambda one: len(one.free)))

    def first_constant(self, tried: Iterable[PartialInput]) -> list[ClosedInput]:
        """First of the inputs `tried` with a constant output, in a list; else []."""
        end = math.inf
        for count, partial in enumerate(tried):
            # Programs are compiled before there is a first one, which is not its time.
            end = min(end, time.monotonic() + ATTEMPT_SECONDS)
            if count >= FEWEST and time.monotonic() > end:
                break
            if self.is_constant(partial):
                self.report("member", partial)
                return [ClosedInput("member", tuple(self.stages))]
        return []

    def is_constant(self, partial: PartialInput) -> bool:
        """Whether an analysis shows the query's output to be constant."""
        try:
            return analyse(self.model, partial, self.query, CLOSING_BITS).constant
        except (TooManyBits, Undecided):
            return False

    def free_needless(self, best: ClosedInput) -> None:
        """Frees bits that the search fixed, in batches, where the output stays constant."""
        self.stages, partial = list(best.stages), best.partial
        end = time.monotonic() + REVERSE_SECONDS
        fixed = [i for i in self.given.free if partial.tokens[i] != FREE]
        size = max(1, len(fixed) // 2)
        waiting = [fixed[k : k + size] for k in range(0, len(fixed), size)]
        while waiting and time.monotonic() < end:
            batch = waiting.pop()
            freed = partial.release(batch)
            if self.is_constant(freed):
                partial = freed
                self.report("reverse pass", partial)
            elif len(batch) > 1:
                half = len(batch) // 2
                waiting += [batch[:half], batch[half:]]

    def reduce(self, caps: Sequence[int]) -> ScoredRows:
        """Fixes bits until rows need at most a layer's cap; returns the last layer's rows."""
        length, layers = self.partial.length, self.model.layers
        needed = needed_positions(self.model, length, self.query)
        tables = embed(self.model, self.partial, needed[0])
        for depth, cap in enumerate(caps):
            scored, stage = score_rows(layers[depth], tables, length), f"layer {depth}"
            over = slots = tables.slots(needed[depth + 1]).tolist()
            batch = 1 if self.repairs else max(1, length // BATCHES)
            while True:
                # A row that depends on few bits depends on no more once others are fixed.
                chosen, over = self._vote(scored, over, cap, batch)
                if not over:
                    try:
                        blocks = possible_blocks(scored, slots)
                        read = (read_slots(scored, block) for block in blocks)
                        tables = tabulate(scored, [*itertools.chain(*read)])
                        break
                    except Undecided as case:
                        chosen = self.decide(scored.tables, case, stage)
                self.fix(chosen, stage)
                scored = scored.fix(chosen)
                batch = max(1, min(batch, len(over) // 4 + 1))
        return score_rows(layers[-1], tables, length)

    def _vote(
        self, scored: ScoredRows, slots: Sequence[int], cap: int, batch: int
    ) -> tuple[dict[int, int], list[int]]:
        """Bits to fix, by vote, and slots whose output depends on over `cap` bits."""
        tables = scored.tables
        dependence = tables.dependence(self.partial.length)
        widths = np.array([len(bits) for bits in tables.bits])
        count = int(max(2, cap) // max(1, widths.max())) + 1
        votes = np.zeros(tables.num_rows)
        bad: list[int] = []
        for block in possible_blocks(scored, slots):
            over = block.count_bits(dependence) > cap
            if not over.any():
                continue
            bad += block.slots[over].tolist()
            # Fixing the bits of an entry to the values that maximise its score makes it
            # win, and hides all that follow. The entry of rank r with k bits gets
            # 1 / ((1 + r) k) votes.
            rows = np.flatnonzero(over[block.slot_of_row])
            for sets in block.heads:
                entries, there = leading_entries(scored, sets, rows, count)
                size = np.maximum(widths[tables.slot_of_row[entries]], 1)
                weight = there / ((1 + np.arange(count)) * size)
                np.add.at(votes, entries[there], weight[there])
        if not bad:
            return {}, []
        # Where no vote may be followed: a bit of a slot that depends on most bits.
        most = max((tables.bits[slot] for slot in bad), key=len)
        return self._elect(tables, votes, batch) or {most[0]: 0}, bad

    def _elect(
        self, tables: Tables, votes: Float[np.ndarray, "keys"], batch: int
    ) -> dict[int, int]:
        """Bits to fix, about `batch`: of the best-voted assignments without contradiction."""
        totals: dict[tuple[tuple[int, int], ...], float] = defaultdict(float)
        for row in np.flatnonzero(votes):
            totals[tuple(tables.assignment(int(row)).items())] += float(votes[row])
        if self.noise is not None:
            for key in totals:
                totals[key] *= self.noise.uniform(0.5, 1)
        chosen: dict[int, int] = {}
        for key in sorted(totals, key=lambda key: -totals[key]):
            if any(chosen.get(bit, value) != value for bit, value in key):
                continue
            # Among the fixed bits ones and zeros have to balance.
            if self.balances and chosen:
                grown = abs(self.imbalance + lean({**chosen, **dict(key)}))
                if grown > max(abs(self.imbalance), 2):
                    continue
            chosen.update(key)
            if len(chosen) >= batch:
                break
        return chosen

    def decide(self, tables: Tables, case: Undecided, where: str) -> dict[int, int]:
        """Bit to fix where rounding leaves a winner open; `InputError` if it has no bits."""
        slot_of_row = tables.slot_of_row
        for slot in (case.slot, *slot_of_row[case.rows].tolist()):
            if tables.bits[slot]:
                return {tables.bits[slot][0]: 0}
        positions = tables.positions[slot_of_row[case.rows]].tolist()
        raise InputError(
            f"{where}, position {tables.positions[case.slot]}: rounding decides which of "
            f"the positions {positions} is attended to; widen or shrink tie_resolution"
        )

    def close(self, scored: ScoredRows) -> None:
        """Fix the fewest bits found that make the query's output constant."""
        tables = scored.tables
        slot = int(tables.slots(self.query))
        ways, open_ = [], None
        # Lemma 2 begins with one value of the query's own row: the cheapest is taken.
        for row in range(tables.starts[slot], tables.starts[slot + 1]):
            bits = tables.assignment(row)
            try:
                ways.append({**bits, **self._close_value(scored.fix(bits))})
            # Rounding may leave a winner open under one value and not under another.
            except InputError as error:
                open_ = error
        if not ways:
            assert open_ is not None
            raise open_
        best = min(ways, key=lambda way: (len(way), abs(self.imbalance + lean(way))))
        self.fix(best, "closing")

    def _close_value(self, scored: ScoredRows) -> dict[int, int]:
        """Bits that settle each head's winner once fixed, if the query's row is constant."""
        # Once the bits of a list's first entry are fixed so that it has its largest score,
        # the head attends to it whatever the other bits are.
        first, closed = np.zeros(1, np.intp), {}
        while True:
            tables = scored.tables
            (block,) = possible_blocks(scored, [int(tables.slots(self.query))])
            entries = (leading_entries(scored, sets, first, 1) for sets in block.heads)
            found = [
                tables.assignment(int(row[0, 0])) for row, there in entries if there
            ]
            bits = min(found, key=len, default={})
            if not bits:
                try:
                    read_slots(scored, block)
                    return closed
                except Undecided as case:
                    bits = self.decide(tables, case, "last layer")
            closed.update(bits)
            scored = scored.fix(bits)
