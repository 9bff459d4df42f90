"""The table of methods and screens, and the choice of one for a question."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import jax

from bounds.influence.block_memory import BlockSizes
from bounds.influence.exhaustive import EXHAUSTIVE
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.lumped import LUMPED
from bounds.influence.method import Method, Screen, refusal
from bounds.influence.partial import PARTIAL
from bounds.influence.problem import Problem
from bounds.influence.rounding import operations
from bounds.influence.screening.ladder import SCREENED
from jax_models import InputError
from jax_models.arguments import choose_name

_ALL: tuple[Method | Screen, ...] = (
    LUMPED,
    INCREMENTAL,
    SCREENED,
    EXHAUSTIVE,
    PARTIAL,
)
METHODS = {way.name: way for way in _ALL if isinstance(way, Method)}
SCREENS = {way.name: way for way in _ALL if isinstance(way, Screen)}
# A screen pays where computing all costs this many times its first level: three levels,
# the sharper ones dearer, may leave all that they began with.
SCREEN_PAYS = 8
METHOD_NAMES = ("auto", *(way.name for way in _ALL))
Keep = Literal["pairs", "position_max", "max"]
# Operations that compiling a screen is worth, on a CPU and elsewhere.
WORTH = (2.0**38, 2.0**47)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The method or screen of a problem, the reason for it, and its block sizes."""

    way: Method | Screen
    reason: str
    sizes: BlockSizes | None  # None where they are found on the way
    # True where all that a screen leaves is enumerated, whatever the budget.
    to_the_end: bool = False


def choose_method(
    name: str,
    problem: Problem,
    # In the order in which equal costs are taken; None for all.
    among: Sequence[Method | Screen] | None = None,
    keep: Keep = "pairs",
) -> Choice:
    """Method of a name, if it can do the problem; for "auto" the cheapest that can."""
    among = _ALL if among is None else among
    choose_name("method", name, ("auto", *(way.name for way in among)))
    refusals = {way.name: refusal(way, problem) for way in among}
    if name != "auto":
        if refusals[name] is not None:
            raise InputError(
                f"method {name!r} cannot do this model: {refusals[name]}; use "
                'method="auto"'
            )
        (way,) = (way for way in among if way.name == name)
        return Choice(way, "asked for", _sizes(way, problem))
    able = [x for x in among if isinstance(x, Method) and refusals[x.name] is None]
    best = min(able, key=lambda method: method.cost(problem))
    cost = f"about {best.cost(problem):.3g} forward passes"
    others = [f"{m} cannot: {refusal}" for m, refusal in refusals.items() if refusal]
    reason = "; ".join([f"the cheapest that can do it, {cost}", *others])
    # The maximum alone may be screened; what the screen leaves is enumerated.
    if keep == "max" and SCREENED in among and refusals[SCREENED.name] is None:
        passes = best.cost(problem)
        level = SCREENED.cost(problem)
        worth = operations(problem, passes) >= WORTH[jax.default_backend() != "cpu"]
        if SCREEN_PAYS * level <= passes and worth:
            reason = (
                f"the maximum alone is asked: a screen costs about {level:.3g} forward "
                f"passes, {best.name} {passes:.3g}; what the screen leaves is enumerated"
            )
            return Choice(SCREENED, reason, _sizes(SCREENED, problem), to_the_end=True)
    return Choice(best, reason, _sizes(best, problem))


def _sizes(way: Method | Screen, problem: Problem) -> BlockSizes | None:
    return way.sizes(problem) if len(problem.pairs) else None
