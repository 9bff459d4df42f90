"""Screen, certify, refine: the largest influence without computing all of them.

The influence of a substitution (another symbol at one position) is the norm of the
change of a watched output; a request is a model with an input, its substitutions and
the watched output. A screen is an estimate of an influence with a bound on the
error, which enclose it between a lower and an upper end; a level is a sharpness of that
bound, by its envelopes, which bound attention weights for groups of rows. To evaluate a
substitution is to compute its influence exactly. A moved run is the same computation
with all inputs moved by a few roundings; a move is the change of a result in moved
runs, from which come radii, bounds on rounding. The base pass is that of the unchanged
input; the adjoint pass carries derivatives of the output back through the layers.

Every substitution is screened at the first level. The largest estimates are evaluated;
the best of them is a lower bound `lo` on the maximum, and a substitution whose upper
end is below `lo` cannot be the maximum. The others go up the ladder, each level with
sharper envelopes, as long as a level promises to cost less than evaluating them all. At
last they are evaluated, the largest estimate first, until none is left, the enclosure
of the maximum is as narrow as requested, or the budget of evaluations is spent.

Source: docs/screened.md, section 4.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from bounds.influence.blocks.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.blocks.kernel import Kernel, Part, run_blocks
from bounds.influence.checkpoint import open_progress
from bounds.influence.decide import Decider, Undecided
from bounds.influence.method import Done, Method, Run, Screen, refusal
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.methods.partial import PARTIAL
from bounds.influence.moved import magnitude_of, moved_request, radii_of
from bounds.influence.request import InfluenceRequest, one_row
from bounds.influence.result import Enclosures, Ends, Level
from bounds.influence.rounding import FEWEST, runs_of
from bounds.influence.screening.defect import defect
from bounds.influence.screening.screen import (
    STRETCHES,
    ScreenBase,
    ScreenedBlock,
    ScreenLevel,
    prepare_envelopes,
    prepare_screen,
    screen_block,
)
from bounds.influence.targets.change import nonlinear_head, target_map
from bounds.numbers.norms import euclidean_norms
from bounds.readings import unsupported_dropout, unsupported_operation
from bounds.rounding.moved_inputs import RUNS, move_apart
from bounds.rounding.radii import farthest
from jax_models import Transformer
from jax_models.arguments import expect_integer, expect_number
from jax_models.run.mesh import count_devices, first_says

# (groups of rows per head, terms of the weights' factors); each sharper and dearer.
LADDER = ((64, 0), (64, 8), (256, 24))
# Exact evaluations at a time, and before the first look at those left.
TOGETHER = 4
# Seconds of a part of an enumeration, after which the next is chosen.
PART_SECONDS = 60.0
# Blocks under way at a time.
IN_FLIGHT = 2
# Elements of all rows' changes in a block of substitutions, on a CPU and elsewhere.
BLOCK_ELEMENTS = (2**24, 2**27)
# Elements of a tile of rows of a block.
TILE_ELEMENTS = (2**17, 2**24)
# Arrays of the size of a state that a layer has at once.
STATES = 3
# Substitutions in a block.
FEWEST_IN_BLOCK, MOST = 8, 64


def block_sizes(request: InfluenceRequest) -> BlockSizes:
    """Substitutions computed at a time and rows per tile; raises if memory is short."""
    INCREMENTAL.sizes(request)  # exact evaluations have to fit as well
    model, n = request.model, request.tokens.size
    which = jax.default_backend() != "cpu"
    suited = max(FEWEST_IN_BLOCK, min(MOST, BLOCK_ELEMENTS[which] // (n * model.width)))
    # Known changes and their estimates between all layers, while one is formed anew,
    # and the reads of the last layer.
    reads = 2 * 3 * model.layers[-1].attention.num_heads
    each = STATES * len(model.layers) * (model.width + 2) + reads
    each, held = each * n * model.dtype.itemsize, held_bytes(request)
    needed = lambda size: held + IN_FLIGHT * size * each
    most = min(suited, request.position.size)
    batch = fit_block(most, needed, request.memory_limit)
    rows = max(8, min(n, TILE_ELEMENTS[which] // (batch * model.width)))
    return BlockSizes(batch, rows)


def held_bytes(request: InfluenceRequest) -> float:
    """Upper bound on bytes of every run's base and adjoint pass, and of envelopes."""
    model, n = request.model, request.tokens.size
    target = jax.eval_shape(lambda given: target_map(given, request.target), model)
    groups, rank = (max(sharpness) for sharpness in zip(*LADDER, strict=True))
    by_run, shared = 0, 0
    for depth, layer in enumerate(model.layers[1:], start=2):
        attention, hidden = layer.attention, layer.feed_forward.hidden
        heads, value = attention.num_heads, attention.value_width
        # Cotangents of attention's input and of heads, covariances, norms of derivatives.
        by_run += target.shape[0] * (model.width + heads * value)
        by_run += heads * attention.key_width * value + 2 * (heads + 2) * hidden
        if depth < len(model.layers):
            # Maxima of groups, factors by rows and by columns of all stretches.
            shared += heads * (4 * min(groups, n) + (1 + STRETCHES) * rank)
    elements = ((1 + RUNS) * by_run + shared) * n
    return base_bytes(model, n) + elements * model.dtype.itemsize


class Climb:
    """State of a screen: enclosures of all influences, refined level by level."""

    def __init__(
        self,
        request: InfluenceRequest,
        run: Run,  # its checkpoint and progress
        rounding: Done,
    ) -> None:
        """Resumes the screen from the checkpoint of `run`, or starts an empty one."""
        self.request, self.sizes = request, block_sizes(request)
        self.runs = runs_of(rounding)
        self._progress = run.progress or (lambda done, total: None)
        rules = LADDER, dataclasses.astuple(self.sizes), rounding
        # Ends by closed levels; estimates and errors of the last level; exact values.
        self.known, self.save = open_progress(request, run, *rules)
        self._bases: list[tuple[InfluenceRequest, ScreenBase]] = []  # of each run
        self._evaluating: list[float] = []  # seconds of every batch of evaluations

    @property
    def best(self) -> int | None:
        """Index of the substitution of largest exact influence; None without any."""
        known = np.isfinite(self.known.value)
        return int(np.nanargmax(self.known.value)) if known.any() else None

    @property
    def least(self) -> float:
        """Lower end of the maximum influence's enclosure; 0 without evaluations."""
        return 0.0 if self.best is None else float(self.ends()[0].max())

    def left(self, rtol: float = 0.0) -> Int[np.ndarray, "left"]:
        """Indices of unevaluated substitutions of upper end > (1 + `rtol`) `least`."""
        may_exceed = self.known.upper > self.least * (1 + rtol)
        return np.flatnonzero(np.isnan(self.known.value) & may_exceed)

    def ends(self) -> Ends:
        """Lower and upper ends of all influences; mask of those including rounding."""
        state, value = self.known, self.known.value
        known = np.isfinite(value)
        asked = self.request, value, state.value_move, self.magnitude
        radius = radii_of(*asked, subtracted=state.subtracted)
        enclosed = ~np.isnan(radius) if known.any() else known
        # Ends of those that are not evaluated include rounding if levels ran with moved
        # inputs too.
        enclosed = enclosed | (~known & (self.runs > 0))
        off = np.where(np.isnan(radius), 0.0, radius)
        lower = np.where(known, np.maximum(value - off, 0), state.lower)
        return lower, np.where(known, value + off, state.upper), enclosed

    @functools.cached_property
    def magnitude(self) -> float:
        """Largest magnitude among parameters and base pass, for radii of rounding."""
        return magnitude_of(self.request, INCREMENTAL)

    def evaluate(self, chosen: Int[np.ndarray, "chosen"]) -> None:
        """Evaluates exactly the chosen substitutions that are not yet evaluated."""
        self._evaluate(chosen[np.isnan(self.known.value[chosen])], self.runs)

    def evaluate_left(self, rtol: float, budget: int) -> None:
        """Evaluates `left(rtol)`, largest estimates first, up to `budget` in all."""

        def undecided() -> Int[np.ndarray, "block"]:
            room = max(0, min(TOGETHER, budget - self.evaluated))
            return np.sort(largest(self, self.left(rtol), room))

        self._decide(undecided, self.runs)

    def move_top(self, count: int) -> None:
        """Computes missing moves of the `count` largest exact influences."""
        known = np.flatnonzero(np.isfinite(self.known.value))
        order = np.argsort(-self.known.value[known], kind="stable")[:count]
        some = known[order]
        self._evaluate(some[np.isnan(self.known.value_move[some])], RUNS)

    def _evaluate(self, chosen: Int[np.ndarray, "chosen"], runs: int) -> None:
        parts = iter(np.split(chosen, range(TOGETHER, chosen.size, TOGETHER)))
        self._decide(lambda: np.sort(next(parts, chosen[:0])), runs)

    def _decide(self, undecided: Undecided, runs: int) -> None:
        """Evaluates and times the indices that `undecided()` returns, until none."""
        began = 0.0

        def timed() -> Int[np.ndarray, "block"]:
            nonlocal began
            chosen, began = undecided(), time.perf_counter()
            return chosen

        def keep(count: int) -> None:
            self._evaluating.append(time.perf_counter() - began)
            self.keep(count)

        given = self.known, self.request, INCREMENTAL, runs, keep, TOGETHER
        Decider(*given, alone=True).decide(timed)

    def keep(self, count: int) -> None:
        """Saves the state; its argument, a number of new exact values, is ignored."""
        del count
        self.save()

    def enumerate(self, rtol: float) -> None:
        """Evaluates all of `left(rtol)`, largest first, by the cheapest method."""
        request, way = self.request, cheapest(self.request)
        block = block_of(request, way)
        size, began, done, total = 0, 0.0, 0, 0

        def undecided() -> Int[np.ndarray, "block"]:
            nonlocal size, began, total
            left = self.left(rtol)
            now = time.perf_counter()
            size = next_size(size, now - began, block) if size else block
            began, total = now, done + left.size
            return np.sort(largest(self, left, size))

        def keep(count: int) -> None:
            nonlocal done
            done = min(done + count, total)
            self._progress(done, total)
            self.keep(count)

        self.known.subtracted |= way.subtracts
        Decider(self.known, request, way, self.runs, keep).decide(undecided)

    @property
    def evaluated(self) -> int:
        """Number of substitutions evaluated."""
        return int(np.isfinite(self.known.value).sum())

    def screen(self) -> Level:
        """Screens the current level's remaining substitutions; returns its `Level`."""
        known, request, began = self.known, self.request, time.perf_counter()
        assert known.chosen is not None
        (groups, rank), before = LADDER[known.step], known.spent
        chosen = known.chosen[known.done :]
        times = []
        if chosen.size:
            kernels = self._screening(chosen.size, groups, rank)
            # Before the first block, so that preparing the level is no part of a block's
            # seconds.
            times.append(time.perf_counter())
            where = request.position[chosen], request.symbol[chosen]
            runs = [run_blocks(kernel, *where, request.mesh) for kernel in kernels]
            for found in zip(*runs, strict=True):
                part = chosen[found[0][0]]
                self._take(part, [block for _, block, _ in found])
                times.append(time.perf_counter())
                known.done += part.size
                known.spent = before + times[-1] - began
                self.save()
                self._progress(known.done, known.chosen.size)
        blocks = np.diff(times)
        # The first block compiles.
        each = float(blocks[1:].mean()) / self.batch if blocks.size > 1 else None
        return Level(groups, rank, known.chosen.size, 0, known.spent, each)

    @property
    def batch(self) -> int:
        """Number of substitutions screened at a time: a block for each device."""
        mesh = self.request.mesh
        return self.sizes.substitutions * count_devices(mesh)

    def _screening(self, count: int, groups: int, rank: int) -> list[Kernel]:
        """Computations that screen `count` substitutions: unmoved, then moved runs."""
        request, tokens = self.request, jnp.asarray(self.request.tokens)
        how = {"query": request.query, "target": request.target}
        if not self._bases:
            for run in range(1 + self.runs):
                moved = moved_request(request, run) if run else request
                base = prepare_screen(moved.model, tokens, **how)
                self._bases.append((moved, move_apart(base, run) if run else base))
        # Rows are grouped on the host, and the groups of run 0 serve the moved runs too.
        envelopes = prepare_envelopes(request.model, self._bases[0][1], groups, rank)
        jax.block_until_ready(envelopes)
        # One size for any number left, so that levels share a program.
        options = {**how, "row_tile": self.sizes.rows}
        part = Part(0, count, self.sizes.substitutions, options)
        levels = (
            ScreenLevel(moved.model, tokens, base, envelopes)
            for moved, base in self._bases
        )
        kinds = (part,), None, IN_FLIGHT
        return [Kernel(screen_block, (level,), *kinds) for level in levels]

    def close_level(self, level: Level, rtol: float) -> None:
        """Encloses the influences screened at a level, and starts the next."""
        known = self.known
        assert known.chosen is not None
        self._enclose(known.chosen)
        known.levels.append(dataclasses.replace(level, left=self.left(rtol).size))
        known.step, known.chosen = known.step + 1, None
        self.save()

    def _take(
        self, part: Int[np.ndarray, "block"], found: Sequence[ScreenedBlock]
    ) -> None:
        """Stores a block's estimates, error bounds and their largest moves."""
        # An enclosure moves with its estimate and with its error bound.
        (change, error), *again = (
            [np.asarray(x, np.float64)[: part.size] for x in (one.change, one.error)]
            for one in jax.device_get(list(found))
        )
        known = self.known
        known.estimate[part], known.error[part] = euclidean_norms(change), error
        moves = (
            euclidean_norms(other - change) + np.abs(off - error)
            for other, off in again
        )
        with np.errstate(invalid="ignore", over="ignore"):
            far = farthest(error.shape, moves)
        known.move[part] = far if again else np.nan

    def _enclose(self, part: Int[np.ndarray, "chosen"]) -> None:
        """Intersects the enclosures of influences in `part` with estimate +- error."""
        known = self.known
        estimate, error = known.estimate[part], known.error[part]
        asked = self.request, estimate, known.move[part], self.magnitude
        radius = radii_of(*asked, subtracted=False)
        with np.errstate(invalid="ignore", over="ignore"):
            error = error + (radius if self.runs else 0.0)
            upper, lower = estimate + error, estimate - error
        # A NaN bounds nothing.
        upper = np.where(np.isnan(upper), np.inf, upper)
        lower = np.where(np.isnan(lower), 0.0, lower)
        known.upper[part] = np.minimum(known.upper[part], upper)
        known.lower[part] = np.maximum(known.lower[part], lower)

    def evaluation_seconds(self) -> float:
        """Mean seconds of an exact evaluation after the first batch; 0 for none."""
        warm = self._evaluating[1:]
        return sum(warm) / max(TOGETHER * len(warm), 1)


def largest(
    climb: Climb, chosen: Int[np.ndarray, "chosen"], count: int
) -> Int[np.ndarray, "count"]:
    """At most `count` of `chosen` indices, largest estimates first, non-finite last."""
    # Not by upper ends: errors dominate these where weights are peaked. An estimate decides
    # only what is evaluated next, and so is no part of the maximum's ends.
    estimate = climb.known.estimate[chosen]
    worst_last = np.where(np.isfinite(estimate), -estimate, np.inf)
    return chosen[np.argsort(worst_last, kind="stable")[:count]]


def cheapest(request: InfluenceRequest) -> Method:
    """Cheaper of the two methods that evaluate chosen substitutions of a request."""
    able = [way for way in (INCREMENTAL, PARTIAL) if refusal(way, request) is None]
    return min(able, key=lambda way: way.cost(request))


def block_of(request: InfluenceRequest, way: Method) -> int:
    """Number of substitutions that a method evaluates at a time, over all devices."""
    sizes = way.sizes(request)
    assert sizes is not None
    return sizes.substitutions * count_devices(request.mesh)


def next_size(size: int, seconds: float, block: int) -> int:
    """Number to evaluate next, in whole blocks that take about `PART_SECONDS`."""
    # Capped: the first part's seconds are mostly compiling.
    wanted = min(4.0, PART_SECONDS / max(seconds, 1e-3)) * size
    # Clocks of processes differ, and parts have to be the same: all take the first's.
    found = max(1, int(wanted / block)) * block
    return int.from_bytes(first_says(found.to_bytes(8, "big")), "big")


# Forward passes of the base, and of the first level with as many substitutions as rows:
# docs/screened.md, section 5.
BASE_PASSES, LEVEL_PASSES = 16, 64
# Substitutions left from which a program that computes many at once pays.
MANY = 64


def _pays(climb: Climb, count: int, budget: int) -> bool:
    """True if a level costs less than `count` evaluations, or they exceed `budget`."""
    first = climb.known.levels[0]
    # By counts of products a term of the factors costs a substitution some twelfth of
    # the first level. The preparation of a level is left out.
    factor, batch = 1 + LADDER[climb.known.step][1] / 12, climb.batch
    # A single block has compiled, too.
    each = first.seconds_each or first.seconds / first.screened
    screened = factor * each * batch * math.ceil(count / batch)
    room = budget - climb.evaluated
    pays = count > room or screened < count * climb.evaluation_seconds()
    return first_says(bytes([pays])) == bytes([True])


@dataclasses.dataclass(frozen=True)
class Screened(Screen):
    """Method "screened": encloses all influences, the largest exactly if budget allows.

    Args:
        rtol: stop when the maximum's upper end / lower end - 1 is at most this.
        budget: the most exact evaluations; None for as many as it takes, in parts of
            about a minute.
    """

    rtol: float = 0.0
    budget: int | None = 32
    name = "screened"

    def __post_init__(self) -> None:
        """Raises unless `rtol` is a number >= 0, `budget` an integer >= 1 or None."""
        expect_number("rtol", self.rtol, 0)
        if self.budget is not None:
            expect_integer("budget, in exact evaluations,", self.budget, 1)

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Reason why a request is refused (model, target or watched rows), or None."""
        model = request.model
        if not isinstance(model, Transformer):
            return "it needs the model's layers, and a bare function has none to see"
        if len(model.layers) < 2:
            return f"it needs two layers, and the model has {len(model.layers)}"
        for depth, layer in enumerate(model.layers, start=1):
            weighting, scoring = layer.attention.weighting, layer.attention.scoring
            if weighting.hard:
                return f"it needs softmax, and layer {depth} is {weighting.name}"
            if not scoring.bilinear and depth > 1:
                needed = f"it needs dot-product scores, and layer {depth} has"
                return f"{needed} {scoring.word} ones"
        lack = unsupported_dropout(model) or unsupported_operation(model.layers, defect)
        return lack or one_row(request) or nonlinear_head(model, request.target)

    def cost(self, request: InfluenceRequest) -> float:
        """Estimated cost of base pass and first level, in forward passes on a CPU."""
        return BASE_PASSES + LEVEL_PASSES * request.position.size / request.tokens.size

    def sizes(self, request: InfluenceRequest) -> BlockSizes:
        """Substitutions screened at a time and rows per tile; see `block_sizes`."""
        return block_sizes(request)

    def enclose(
        self, request: InfluenceRequest, run: Run, rounding: Done
    ) -> Enclosures:
        """Lower and upper ends of all influences, by levels and then exact values."""
        climb = Climb(request, run, rounding)
        rtol = self.rtol
        budget = request.position.size if self.budget is None else self.budget
        # The identity of the screen leaves the query's own token out (docs/screened.md,
        # section 1): it is evaluated exactly.
        at_query = np.flatnonzero(request.position == request.query)
        others = np.flatnonzero(request.position != request.query)
        climb.evaluate(at_query[:budget])
        known = climb.known
        while known.step < len(LADDER):
            if known.chosen is None:
                here = others
                if known.step:
                    here = np.intersect1d(climb.left(rtol), others, assume_unique=True)
                some, first = here.size, not known.step
                if not some or not (first or _pays(climb, some, budget)):
                    break
                known.chosen, known.done, known.spent = here, 0, 0.0
            level = climb.screen()
            # Exact values of the largest estimates exclude most others before the next level.
            if known.step == 0:
                room = min(2 * TOGETHER, max(0, budget - climb.evaluated))
                climb.evaluate(largest(climb, known.chosen, room))
            climb.close_level(level, rtol)
        if self.budget is None and climb.left(rtol).size >= MANY:
            climb.enumerate(rtol)
        climb.evaluate_left(rtol, budget)
        if climb.best is None:
            # No substitution moves the query: the first is as large as any.
            climb.evaluate(np.zeros(1, np.int64))
        if rounding == "top":
            climb.move_top(FEWEST)
        climb.save(at_once=True)
        left, levels = climb.left(), tuple(known.levels)
        values = known.value, known.value_move, climb.magnitude, None
        return Enclosures(*values, *climb.ends(), left, levels)


SCREENED = Screened()
