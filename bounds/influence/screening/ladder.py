"""Screen, certify, refine: the largest influence without computing them all.

Every substitution is screened at the first level. The largest estimates are evaluated
exactly; the best of them is a lower bound `lo` on the maximum, and a substitution whose
upper end is below it cannot be the maximum. Those that remain go up the ladder, each level
with sharper envelopes, as long as a level promises to cost less than evaluating them all;
at last they are evaluated, the largest estimate first, until none is left, the enclosure
is as narrow as asked for, or the budget of evaluations is spent. Estimates, and not upper
ends, because these are sorted by their errors where weights are peaked. Without a budget
all that is left is enumerated, in parts of about a minute.

An estimate decides only what is evaluated next: the maximum's lower end is that of an exact
evaluation, its upper end the largest upper end of what is left.

Source: docs/screened.md, section 4.
"""

import dataclasses
import math
import time

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.checkpoint import Checkpoint, Standing
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.kernel import Kernel, Part, run_blocks
from bounds.influence.method import Progress, Screen, Stopping
from bounds.influence.problem import Problem, one_row
from bounds.influence.propose import decide, require_finite
from bounds.influence.result import Enclosures, Level
from bounds.influence.screening.defect import defect
from bounds.influence.screening.enumeration import Enumeration
from bounds.influence.screening.screen import (
    ScreenBase,
    Screened,
    prepare_envelopes,
    prepare_screen,
    screen_block,
)
from bounds.influence.target import bent_head
from bounds.readings.rules import lacks, lacks_of_dropout
from bounds.version import __version__
from jax_models import Transformer
from jax_models.run.mesh import count_devices, first_says

# (groups of rows per head, terms of the weights' factors); sharper and dearer.
LADDER = ((64, 0), (64, 8), (256, 24))
# Exact evaluations at a time, and before the first look at what is left.
TOGETHER = 4
# Forward passes that the base takes, and the first level of as many substitutions as rows:
# docs/screened.md, section 5.
BASE_PASSES, LEVEL_PASSES = 16, 64
# Substitutions that are left from which another program pays that computes many.
MANY = 64
# Blocks under way at a time.
IN_FLIGHT = 2
# Elements of the changes of all rows in a block of substitutions, on a CPU and elsewhere.
BLOCK_ELEMENTS = (2**24, 2**27)
# Elements of a tile of rows of a block.
TILE_ELEMENTS = (2**17, 2**24)
# Arrays of the size of a state that a layer has at once.
STATES = 3
# Substitutions in a block.
FEWEST, MOST = 8, 64


def block_sizes(problem: Problem) -> BlockSizes:
    """Returns the sizes of a block: its tiles stay in a CPU's cache, the rest in memory.

    Raises:
        InputError: the problem's memory limit is too small for one substitution, here or
            in an exact evaluation.
    """
    INCREMENTAL.sizes(problem)  # exact evaluations have to fit as well
    model, n = problem.model, problem.tokens.size
    which = 0 if jax.default_backend() == "cpu" else 1
    suited = max(FEWEST, min(MOST, BLOCK_ELEMENTS[which] // (n * model.width)))
    # Known changes and their estimates between all layers, while one is formed anew,
    # and what the last layer reads of the rest.
    reads = 2 * 3 * model.layers[-1].attention.num_heads
    each = STATES * len(model.layers) * (model.width + 2) + reads
    each = each * n * model.dtype.itemsize
    held = 2 * base_bytes(model, n)
    batch = fit_block(
        min(suited, problem.position.size),
        lambda size: held + IN_FLIGHT * size * each,
        problem.memory_limit,
    )
    rows = max(8, min(n, TILE_ELEMENTS[which] // (batch * model.width)))
    return BlockSizes(batch, rows)


class Climb:
    """One climb of the ladder: what is known of every substitution so far."""

    def __init__(
        self, problem: Problem, checkpoint: str | None, progress: Progress | None
    ) -> None:
        """Start where the checkpoint stands, or with nothing known."""
        self.problem, self.sizes = problem, block_sizes(problem)
        self._checkpoint = None
        if checkpoint is not None:
            rules = (LADDER, dataclasses.astuple(self.sizes), __version__)
            self._checkpoint = Checkpoint(checkpoint, problem, *rules)
        kept = self._checkpoint and self._checkpoint.read()
        standing = kept or Standing.nothing(problem.position.size)
        self.lower, self.upper = standing.lower, standing.upper
        self.estimate = standing.estimate  # the last level's
        self.value = standing.value  # of what was evaluated
        self.levels = list(standing.levels)  # those that are closed
        # The level under way, what it screens, how much of that is done, and how long
        # it has taken.
        self.step, self.chosen = standing.step, standing.chosen
        self._done, self._spent = standing.done, standing.spent
        self._progress = progress
        self._kernel: Kernel | None = None
        self._base: ScreenBase | None = None
        self._evaluating: list[float] = []  # seconds of every batch of evaluations

    @property
    def best(self) -> int | None:
        """The first of the largest exact values, None where nothing was evaluated."""
        known = np.isfinite(self.value)
        return int(np.nanargmax(self.value)) if known.any() else None

    @property
    def least(self) -> float:
        """A lower end of the maximum."""
        return 0.0 if self.best is None else float(self.lower.max())

    def left(self, rtol: float = 0.0) -> np.ndarray:
        """Returns the substitutions not evaluated that may exceed the maximum."""
        open_ = np.isnan(self.value) & (self.upper > self.least * (1 + rtol))
        return np.flatnonzero(open_)

    @property
    def kernel(self) -> Kernel:
        """What evaluates exactly, and the radii of its arithmetic."""
        if self._kernel is None:
            found = INCREMENTAL.kernel(self.problem)
            assert found is not None
            self._kernel = found
        return self._kernel

    def evaluate(self, chosen: np.ndarray) -> None:
        """Evaluates substitutions exactly, those that are not."""
        chosen = chosen[np.isnan(self.value[chosen])]
        if not chosen.size:
            return
        problem = dataclasses.replace(self.problem, mesh=None)
        part = Part(0, len(problem.pairs), TOGETHER, self.kernel.parts[0].options)
        kernel = dataclasses.replace(self.kernel, parts=(part,))
        for start in range(0, chosen.size, TOGETHER):
            part = chosen[start : start + TOGETHER]
            began = time.perf_counter()
            ((_, *found),) = decide(problem, kernel, part)
            found = np.frombuffer(first_says(np.stack(found).tobytes()))
            value, radius = found.reshape(2, -1)
            require_finite(problem, part, value)
            self._evaluating.append(time.perf_counter() - began)
            self.value[part] = value
            self.lower[part] = np.maximum(value - radius, 0)
            self.upper[part] = value + radius
            self.save()

    def enumerate(self, rtol: float) -> None:
        """Decides all that is left, the largest estimates first."""
        enumeration = Enumeration(self.problem)
        size, done = enumeration.block, 0
        while (left := self.left(rtol)).size:
            part = np.sort(_largest(self, left, size))
            began, total, before = time.perf_counter(), done + left.size, done

            def report(count: int, total: int = total) -> None:
                nonlocal done
                done = min(done + count, total)
                if self._progress is not None:
                    self._progress(done, total)

            found = enumeration.enclose(part, self.least, report)
            self.value[part] = found.value
            self.lower[part] = np.maximum(self.lower[part], found.lower)
            self.upper[part] = np.minimum(self.upper[part], found.upper)
            done = before + part.size
            self.save()
            size = enumeration.next_size(size, time.perf_counter() - began)

    @property
    def evaluated(self) -> int:
        """How many substitutions have been evaluated."""
        return int(np.isfinite(self.value).sum())

    def begin(self, chosen: np.ndarray) -> None:
        """Chooses the substitutions that the level under way screens."""
        self.chosen, self._done, self._spent = chosen, 0, 0.0

    def screen(self) -> None:
        """Screens what is left of the level under way, and adds it to the levels."""
        assert self.chosen is not None
        problem, began, before = self.problem, time.perf_counter(), self._spent
        groups, rank = LADDER[self.step]
        chosen = self.chosen[self._done :]
        times = []
        if chosen.size:
            kernel = self._screening(chosen.size, groups, rank)
            times.append(time.perf_counter())
            where = problem.position[chosen], problem.symbol[chosen]
            for these, found, _ in run_blocks(kernel, *where, problem.mesh):
                part = chosen[these]
                self._enclose(part, found)
                times.append(time.perf_counter())
                self._done += part.size
                self._spent = before + times[-1] - began
                self.save()
                if self._progress is not None:
                    self._progress(self._done, self.chosen.size)
        blocks = np.diff(times)
        # The first block compiles.
        each = float(blocks[1:].mean()) / self.batch if blocks.size > 1 else None
        level = Level(groups, rank, self.chosen.size, 0, self._spent, each)
        self.levels.append(level)

    @property
    def batch(self) -> int:
        """Substitutions of a block on all devices."""
        mesh = self.problem.mesh
        return self.sizes.substitutions * count_devices(mesh)

    def _screening(self, count: int, groups: int, rank: int) -> Kernel:
        """What screens `count` substitutions at a level."""
        problem = self.problem
        model, tokens = problem.model, jnp.asarray(problem.tokens)
        how = {"query": problem.query, "target": problem.target}
        if self._base is None:
            self._base = prepare_screen(model, tokens, **how)
        envelopes = prepare_envelopes(model, self._base, groups, rank)
        jax.block_until_ready(envelopes)
        # Of one size whatever is left, so that levels share a program.
        part = Part(
            0, count, self.sizes.substitutions, {**how, "row_tile": self.sizes.rows}
        )
        shared = (model, tokens, self._base, envelopes)
        return Kernel(
            screen_block, shared, (part,), self.kernel.radius, None, IN_FLIGHT
        )

    def close_level(self, rtol: float) -> None:
        """Notes what the level under way has left, and turns to the next."""
        left = self.left(rtol).size
        self.levels[-1] = dataclasses.replace(self.levels[-1], left=left)
        self.step, self.chosen = self.step + 1, None
        self.save()

    def save(self, *, at_once: bool = False) -> None:
        """Keeps where the climb stands, if it has a checkpoint."""
        if self._checkpoint is None:
            return
        levels = self.levels[: self.step]  # one under way is not yet closed
        arrays = (self.lower, self.upper, self.estimate, self.value)
        under_way = (self.step, self.chosen, self._done, self._spent)
        self._checkpoint.save(Standing(*arrays, *under_way, levels), at_once=at_once)

    def _radius(self, relative: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Radii by the kernel, of which an estimate would have none."""
        assert self.kernel.radius is not None
        return self.kernel.radius(relative, part)

    def _enclose(self, part: np.ndarray, found: Screened) -> None:
        """Keeps estimates, and narrows the enclosures by them and their errors."""
        told = jax.device_get((found.estimate, found.error, found.magnitude))
        estimate, error, magnitude = (
            np.asarray(field, np.float64)[: part.size] for field in told
        )
        with np.errstate(invalid="ignore", over="ignore"):
            radius = error + self._radius(magnitude + error, part)
            radius = np.where(np.isnan(magnitude), np.inf, radius)
            upper, lower = estimate + radius, estimate - radius
        # What is not a number bounds nothing.
        upper = np.where(np.isnan(upper), np.inf, upper)
        lower = np.where(np.isnan(lower), 0.0, lower)
        self.estimate[part] = estimate
        self.upper[part] = np.minimum(self.upper[part], upper)
        self.lower[part] = np.maximum(self.lower[part], lower)

    def evaluation_seconds(self) -> float:
        """Returns the time of one exact evaluation; the first batch compiles."""
        warm = self._evaluating[1:]
        return sum(warm) / max(TOGETHER * len(warm), 1)


def climb_ladder(
    problem: Problem, stopping: Stopping, progress: Progress | None = None
) -> Enclosures:
    """Returns enclosures of all influences, and the largest exactly where it closes.

    Args:
        problem: its model is one that `screened` does not refuse.
        stopping: when to stop; what else is met is kept in its checkpoint.
        progress: called with (substitutions done, all) after every block of a level.
    """
    climb = Climb(problem, stopping.checkpoint, progress)
    rtol = stopping.rtol
    budget = problem.position.size if stopping.budget is None else stopping.budget
    at_query = np.flatnonzero(problem.position == problem.query)
    others = np.flatnonzero(problem.position != problem.query)
    climb.evaluate(at_query[:budget])
    while (step := climb.step) < len(LADDER):
        if climb.chosen is None:
            left = climb.left(rtol)
            here = np.intersect1d(left, others, assume_unique=True) if step else others
            if not here.size or (step and not _pays(climb, step, here.size, budget)):
                break
            climb.begin(here)
        climb.screen()
        room = budget - climb.evaluated
        if step == 0 and room > 0:
            climb.evaluate(_largest(climb, climb.left(rtol), min(2 * TOGETHER, room)))
        climb.close_level(rtol)
    if stopping.budget is None and climb.left(rtol).size >= MANY:
        climb.enumerate(rtol)
    while (room := budget - climb.evaluated) > 0:
        left = climb.left(rtol)
        if not left.size:
            break
        climb.evaluate(_largest(climb, left, min(TOGETHER, room)))
    if climb.best is None:
        # Nothing that is asked for moves the query: the first is as large as any.
        climb.evaluate(np.zeros(1, np.int64))
    climb.save(at_once=True)
    return Enclosures(
        climb.lower, climb.upper, climb.value, climb.left(), tuple(climb.levels)
    )


def _largest(climb: Climb, chosen: np.ndarray, count: int) -> np.ndarray:
    """The substitutions with the largest estimates, those that are no numbers last."""
    estimate = climb.estimate[chosen]
    order = np.argsort(
        -np.where(np.isfinite(estimate), estimate, -np.inf), kind="stable"
    )
    return chosen[order[:count]]


def _pays(climb: Climb, step: int, count: int, budget: int) -> bool:
    """Whether a level promises to cost less than evaluating all that is left.

    Each term of the factors costs a substitution some twelfth of the first level, by
    counts of its products; what a level needs before it starts is left out.
    """
    first, (_, rank) = climb.levels[0], LADDER[step]
    factor = 1 + rank / 12
    batch, each = climb.batch, first.seconds_each
    if each is None:
        each = first.seconds / first.screened
    screened = factor * each * batch * math.ceil(count / batch)
    room = budget - climb.evaluated
    pays = count > room or screened < count * climb.evaluation_seconds()
    return first_says(bytes([pays])) == bytes([True])


def _refuse(problem: Problem) -> str | None:
    model = problem.model
    if not isinstance(model, Transformer):
        return "it needs the model's layers, and a bare function has none to see"
    if len(model.layers) < 2:
        return f"it needs two layers, and the model has {len(model.layers)}"
    for depth, layer in enumerate(model.layers, start=1):
        if layer.attention.weighting.hard:
            return (
                f"it needs softmax, and layer {depth} is "
                f"{layer.attention.weighting.name}"
            )
        scoring = layer.attention.scoring
        if not scoring.bilinear and depth > 1:
            return f"it needs dot-product scores, and layer {depth} has {scoring.word} ones"
    lack = lacks_of_dropout(model) or lacks(model.layers, defect)
    return lack or one_row(problem) or bent_head(model, problem.target)


def _cost(problem: Problem) -> float:
    """Forward passes of the base and of the first level, as measured on a CPU."""
    return BASE_PASSES + LEVEL_PASSES * problem.position.size / problem.tokens.size


SCREENED = Screen("screened", _refuse, _cost, climb_ladder, block_sizes)
