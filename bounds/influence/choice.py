"""The table of methods and screens, and the choice of one for a request.

A substitution replaces one token, its influence is the norm of the output's change, and
a request is a checked question about these. A method computes all influences; a screen
bounds all, and computes the few that may be largest; a proposal estimates all first. A
block is the substitutions that are computed together.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import jax

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.method import Method, Screen, Way, refusal
from bounds.influence.methods.bucket import padded_request
from bounds.influence.methods.exhaustive import EXHAUSTIVE
from bounds.influence.methods.incremental import INCREMENTAL, Incremental
from bounds.influence.methods.lumped import LUMPED
from bounds.influence.methods.partial import PARTIAL
from bounds.influence.methods.proposed import Proposed
from bounds.influence.request import InfluenceRequest
from bounds.influence.rounding import operations
from bounds.influence.screening.ladder import SCREENED, Screened
from bounds.rounding.precision import Precision
from jax_models import InputError
from jax_models.arguments import choose_name, show

_ALL: tuple[Method | Screened, ...] = (
    LUMPED,
    INCREMENTAL,
    SCREENED,
    EXHAUSTIVE,
    PARTIAL,
)
METHODS = {way.name: way for way in _ALL if isinstance(way, Method)}
SCREENS = {way.name: way for way in _ALL if isinstance(way, Screened)}
# A screen pays where computing all costs this many times its first level: three levels,
# the sharper ones dearer, may leave all that they began with.
SCREEN_PAYS = 8
METHOD_NAMES = ("auto", *(way.name for way in _ALL))
# Those of tables, in the order in which equal costs are taken.
_OF_TABLES = (INCREMENTAL, EXHAUSTIVE, PARTIAL)
TABLE_METHOD_NAMES = tuple(way.name for way in _OF_TABLES)
Keep = Literal["pairs", "position_max", "max"]
# Operations that compiling a screen is worth, on a CPU and elsewhere.
WORTH = (2.0**38, 2.0**47)


@dataclasses.dataclass(frozen=True)
class Choice:
    """Method or screen chosen for a request, the reason in words, and its block sizes."""

    way: Method | Screen
    reason: str
    sizes: BlockSizes | None  # None where they are found on the way


def choose_method(
    method: Way | str, request: InfluenceRequest, keep: Keep = "pairs"
) -> Choice:
    """`Choice` for a request, with block sizes of the padded input if it is padded."""
    among = _ALL if request.layout is None else _OF_TABLES
    choice = _choose(method, request, among, keep)
    asked = padded_request(request) if choice.way.by_length else request
    if asked is request:
        return choice
    return dataclasses.replace(choice, sizes=_sizes(choice.way, asked))


def _choose(
    method: Way | str,
    request: InfluenceRequest,
    among: Sequence[Method | Screened],  # in the order in which equal costs are taken
    keep: Keep = "pairs",
) -> Choice:
    """`Choice` of `method`; for "auto", of the cheapest method or of a screen."""
    if isinstance(method, Proposed) and SCREENED in among:
        return _choose_proposed(method, request)
    named = {way.name: way for way in among}
    if isinstance(method, str):
        choose_name("method", method, ("auto", *named))
    # By type, so that a value with options of its own is one of the table.
    elif type(method) not in map(type, among):
        known = [*map(type, among), *([Proposed] if SCREENED in among else [])]
        classes = ", ".join(sorted(one.__name__ for one in known))
        raise InputError(
            f"method = {show(method)}; expected a name, or a value of one of {classes}"
        )
    if method != "auto":
        way = named[method] if isinstance(method, str) else method
        lack = refusal(way, request)
        if lack is not None:
            raise InputError(
                f'method {way.name!r} cannot do this model: {lack}; use method="auto"'
            )
        assert isinstance(way, Method | Screen)
        return Choice(way, "asked for", _sizes(way, request))
    # `min` takes the first of equal costs, so the order of `among` breaks ties.
    refusals = {way.name: refusal(way, request) for way in among}
    able = [x for x in among if isinstance(x, Method) and refusals[x.name] is None]
    best = min(able, key=lambda method: method.cost(request))
    cost = f"about {best.cost(request):.3g} forward passes"
    others = [f"{m} cannot: {refusal}" for m, refusal in refusals.items() if refusal]
    reason = "; ".join([f"the cheapest that can do it, {cost}", *others])
    # The maximum alone may be screened; what the screen leaves is enumerated.
    if keep == "max" and SCREENED in among and refusals[SCREENED.name] is None:
        passes = best.cost(request)
        level = SCREENED.cost(request)
        worth = operations(request, passes) >= WORTH[jax.default_backend() != "cpu"]
        if SCREEN_PAYS * level <= passes and worth:
            reason = (
                f"the maximum alone is asked: a screen costs about {level:.3g} forward "
                f"passes, {best.name} {passes:.3g}; what the screen leaves is enumerated"
            )
            # No budget: a maximum that the caller did not ask to be screened has to close.
            return Choice(Screened(budget=None), reason, _sizes(SCREENED, request))
    return Choice(best, reason, _sizes(best, request))


def _choose_proposed(proposed: Proposed, request: InfluenceRequest) -> Choice:
    """`Choice` of `proposed`, with the method chosen by which it computes influences."""
    # Methods alone: a proposal needs a value of every substitution, and a screen gives ends.
    inner = _choose(proposed.method, request, tuple(METHODS.values()))
    assert isinstance(inner.way, Method)
    way = dataclasses.replace(proposed, method=inner.way)
    lack = way.refuse(request)
    if lack is not None:
        raise InputError(
            f"method = Proposed({proposed.precision!r}) cannot do this model: {lack}; use "
            'method="auto"'
        )
    return dataclasses.replace(inner, way=way)


def precision_of(method: Way | str) -> Precision | None:
    """Half precision to which `method` rounds products; None for the model's float type."""
    return method.precision if isinstance(method, Incremental) else None


def _sizes(way: Way, request: InfluenceRequest) -> BlockSizes | None:
    return way.sizes(request) if len(request.pairs) else None
