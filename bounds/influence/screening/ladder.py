"""Screen, certify, refine: the largest influence without computing all of them.

Every substitution is screened at the first level. The largest estimates are evaluated
exactly; the best of them is a lower bound `lo` on the maximum, and a substitution whose
upper end is below `lo` cannot be the maximum. The others go up the ladder, each level
with sharper envelopes, as long as a level promises to cost less than evaluating them all.
At last they are evaluated, the largest estimate first, until none is left, the enclosure
is as narrow as requested, or the budget of evaluations is spent. The order is by
estimates and not by upper ends, because errors dominate these where weights are peaked.
Without a budget all that are left are enumerated, in parts of about a minute.

An estimate decides only which substitution is evaluated next: the maximum's lower end is
that of an exact evaluation, its upper end the largest upper end of those left.

Source: docs/screened.md, section 4.
"""

import dataclasses
import math

import numpy as np

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.method import Done, Screen
from bounds.influence.request import InfluenceRequest, one_row
from bounds.influence.result import Enclosures
from bounds.influence.rounding import FEWEST
from bounds.influence.run import Run
from bounds.influence.screening.climb import (
    TOGETHER,
    Climb,
    block_sizes,
    largest,
)
from bounds.influence.screening.defect import defect
from bounds.influence.targets.change import nonlinear_head
from bounds.readings.rules import unsupported_dropout, unsupported_operation
from jax_models import Transformer
from jax_models.arguments import expect_integer, expect_number
from jax_models.run.mesh import first_says

# Forward passes of the base, and of the first level with as many substitutions as rows:
# docs/screened.md, section 5.
BASE_PASSES, LEVEL_PASSES = 16, 64
# Substitutions left from which a program that computes many at once pays.
MANY = 64


def _pays(climb: Climb, count: int, budget: int) -> bool:
    """True if a level promises to cost less than evaluating all that are left."""
    first = climb.levels[0]
    # By counts of products a term of the factors costs a substitution some twelfth of
    # the first level. The preparation of a level is left out.
    factor = 1 + (climb.rank or 0) / 12
    batch, each = climb.batch, first.seconds_each
    if each is None:
        each = first.seconds / first.screened
    screened = factor * each * batch * math.ceil(count / batch)
    room = budget - climb.evaluated
    pays = count > room or screened < count * climb.evaluation_seconds()
    return first_says(bytes([pays])) == bytes([True])


@dataclasses.dataclass(frozen=True)
class Screened(Screen):
    """Enclosures of all influences; exactly the largest where they close.

    Args:
        rtol: stop when the maximum's upper end / lower end - 1 is at most this.
        budget: the most exact evaluations; None for as many as it takes, in parts of
            about a minute.
    """

    rtol: float = 0.0
    budget: int | None = 32
    name = "screened"

    def __post_init__(self) -> None:
        """Checks both limits."""
        expect_number("rtol", self.rtol, 0)
        if self.budget is not None:
            expect_integer("budget, in exact evaluations,", self.budget, 1)

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Refuses all but softmax models of two and more layers."""
        model = request.model
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
                return (
                    f"it needs dot-product scores, and layer {depth} has "
                    f"{scoring.word} ones"
                )
        lack = unsupported_dropout(model) or unsupported_operation(model.layers, defect)
        return lack or one_row(request) or nonlinear_head(model, request.target)

    def cost(self, request: InfluenceRequest) -> float:
        """Forward passes of the base and of the first level, as measured on a CPU."""
        return BASE_PASSES + LEVEL_PASSES * request.position.size / request.tokens.size

    def sizes(self, request: InfluenceRequest) -> BlockSizes:
        """Substitutions of a block of a level."""
        return block_sizes(request)

    def enclose(
        self, request: InfluenceRequest, run: Run, rounding: Done
    ) -> Enclosures:
        """Climbs the ladder of levels, then evaluates the substitutions they leave."""
        climb = Climb(request, run, rounding)
        rtol = self.rtol
        budget = request.position.size if self.budget is None else self.budget
        at_query = np.flatnonzero(request.position == request.query)
        others = np.flatnonzero(request.position != request.query)
        climb.evaluate(at_query[:budget])
        while climb.rank is not None:
            step = climb.step
            if climb.chosen is None:
                left = climb.left(rtol)
                here = (
                    np.intersect1d(left, others, assume_unique=True) if step else others
                )
                if not here.size or (step and not _pays(climb, here.size, budget)):
                    break
                climb.begin(here)
            assert climb.chosen is not None
            climb.screen()
            room = budget - climb.evaluated
            if step == 0 and room > 0:
                climb.evaluate(largest(climb, climb.chosen, min(2 * TOGETHER, room)))
            climb.close_level(rtol)
        if self.budget is None and climb.left(rtol).size >= MANY:
            climb.enumerate(rtol)
        climb.evaluate_left(rtol, budget)
        if climb.best is None:
            # No substitution moves the query: the first is as large as any.
            climb.evaluate(np.zeros(1, np.int64))
        if rounding == "top":
            climb.move_top(FEWEST)
        climb.save(at_once=True)
        left, levels = climb.left(), tuple(climb.levels)
        values = climb.value, climb.value_move, climb.magnitude, None
        return Enclosures(*values, *climb.ends(), left, levels)


SCREENED = Screened()
