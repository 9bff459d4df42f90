"""Every route to a threshold for one shape (L layers of H heads), with its parameters.

A route is a proof that the shape cannot compute a language from some length on. It fixes
bits layer by layer: route H as the paper of Hahn (2020) does, with corrected constants,
route A by alteration, route S by decision trees that stay shallow (switching). Closing fixes
the bits that the last layer's output still depends on.

Any admissible parameters are a proof, so the least of the thresholds holds. Those of
route S and of DYCK come from a table where it has the shape; closed forms are for all.
In records a number beyond the range of floats is null, and stands beside as its logarithm,
or as text where that is beyond them too.
"""

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from bounds.numbers.statements import whole
from bounds.restriction.closed_form.dyck import (
    DyckParameters,
    closed_form_dyck,
    dyck_threshold,
    one_layer_dyck_threshold,
)
from bounds.restriction.closed_form.reductions import (
    ReductionRoute,
    Weight,
    alteration_route,
    paper_route,
)
from bounds.restriction.closed_form.route_switching import (
    DIGITS,
    SwitchingStep,
    closed_form_switching,
    deep_probability,
    switching_proof,
)
from bounds.restriction.closed_form.tower import Tower

Shape = tuple[int, int]
Steps = tuple[SwitchingStep, ...]

# Parameters that were searched at length (`benchmarks.depth_search`). Each row is a proof,
# which `switching_proof` and `dyck_threshold` recompute exactly. A line names L and H; then
# p_l and t_l of each step, for DYCK with the spread c_l, which may be none; then for DYCK
# the risk δ.
_PARITY = """
2 1: 141/400 5
2 2: 111/400 8
2 3: 13/50 11
2 4: 19/80 13
2 5: 89/400 15
2 6: 43/200 17
2 7: 21/100 19
2 8: 83/400 21
2 12: 3/16 27
2 16: 71/400 33
3 1: 11/50 3, 19/400 9
3 2: 209/1000 6, 39/2000 13
3 3: 43/200 9, 23/1800 17
3 4: 201/1000 11, 107/11000 19
3 5: 39/200 13, 41/5200 21
3 6: 19/100 15, 1/150 23
3 7: 71/400 16, 19/3200 24
3 8: 89/500 18, 19/3600 26
3 12: 67/400 24, 7/1920 31
3 16: 3/20 28, 33/11200 35
4 1: 219/1000 3, 16/375 8, 51/3200 16
4 2: 209/1000 6, 9/500 12, 227/24000 20
4 3: 43/200 9, 41/3600 15, 3/400 24
4 4: 201/1000 11, 12/1375 17, 219/34000 27
4 5: 39/200 13, 37/5200 19, 21/3800 29
4 6: 71/400 14, 37/5600 21, 41/8400 31
4 7: 71/400 16, 7/1280 22, 39/8800 32
4 8: 89/500 18, 11/2250 24, 199/48000 35
5 1: 219/1000 3, 16/375 8, 7/500 14, 17/2000 22
5 2: 209/1000 6, 9/500 12, 9/1000 19, 233/38000 28
5 4: 201/1000 11, 12/1375 17, 203/34000 25, 43/10000 34
5 8: 89/500 18, 11/2250 24, 47/12000 33, 1/330 43
"""

_DYCK = """
2 1: 173/400 11 none | 1/5
2 2: 139/400 14 none | 1/5
2 3: 3/10 16 none | 1/5
2 4: 93/400 17 3/5 | 1/5
2 5: 89/400 19 3/5 | 1/5
2 6: 43/200 21 3/5 | 1/5
2 7: 21/100 23 3/5 | 1/5
2 8: 41/200 25 3/5 | 1/5
2 12: 3/16 31 3/5 | 1/5
2 16: 71/400 37 3/5 | 1/5
3 1: 13/40 7 none, 73/2800 25 3/25 | 1/12
3 2: 11/40 10 none, 11/800 25 1/20 | 1/12
3 3: 13/50 13 none, 3/325 25 2/25 | 1/12
3 4: 6/25 15 none, 11/1500 27 1/20 | 1/12
3 5: 91/400 17 none, 43/6800 29 1/20 | 1/12
3 6: 87/400 19 none, 39/7600 29 1/20 | 1/12
3 7: 81/400 20 none, 1/200 32 1/20 | 1/12
3 8: 1/5 22 none, 1/220 34 1/20 | 1/12
4 1: 27/80 7 none, 1/56 12 8/5, 19/1600 28 1/20 | 1/24
4 2: 7/25 10 none, 9/800 16 6/5, 47/6400 28 1/20 | 1/24
4 4: 97/400 15 none, 41/6000 21 6/5, 3/560 35 1/20 | 1/24
4 8: 81/400 22 none, 37/8800 28 6/5, 3/800 45 3/100 | 1/24
"""


def _row(line: str) -> tuple[Shape, Steps, tuple[Fraction | None, ...], Fraction]:
    """(L, H), steps (p, t), spreads and risk δ of `DyckParameters`, from a table's line."""
    shape, rest = line.split(": ")
    steps, _, risk = rest.partition(" | ")
    layers, heads = map(int, shape.split())
    words = [step.split() for step in steps.split(", ")]
    found = tuple(SwitchingStep(Fraction(p), int(t)) for p, t, *_ in words)
    spreads = tuple(None if c == "none" else Fraction(c) for *_, c in words)
    return (layers, heads), found, spreads, Fraction(risk or 0)


RELEASED = {x: steps for x, steps, *_ in map(_row, _PARITY.split("\n")[1:-1])}
DYCK_RELEASED = {row[0]: row[1:] for row in map(_row, _DYCK.split("\n")[1:-1])}

# Routes take time with the square of the layers: half a minute for so many.
MOST_LAYERS = 2000


def computable_length(num_layers: int, num_heads: int) -> int:
    """Returns the length up to which any function of the input is computed.

    n <= (H + 1)^L.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1 in each layer.

    Returns:
        The length, exact; for one layer and PARITY it is the largest there is.

    Raises:
        ValueError: A number is below 1.

    Source:
        docs/theory/hard-attention.md, section 3, Theorem 5.
    """
    # With positions 0 … n - 1, let head h of layer l (both from 0) at position i look
    # at position i - (h + 1) (H + 1)^l, by the score -(j - target)^2, and let every
    # activation keep all symbols it has met, with their positions. After l layers
    # position i knows the (H + 1)^l symbols that end at itself, so that the last
    # position knows (H + 1)^L: their parity, or whether they are well-bracketed.
    layers = whole("num_layers", num_layers, 1, MOST_LAYERS)
    return (whole("num_heads", num_heads, 1) + 1) ** layers


def one_layer_parity_threshold(num_heads: int) -> int:
    """Returns the least length at which one layer cannot compute PARITY, exactly.

    n = H + 2.

    Args:
        num_heads: H >= 1.

    Returns:
        The length, exact.

    Raises:
        ValueError: H is below 1.

    Source:
        docs/theory/hard-attention.md, section 3, Theorem 4.
    """
    # One layer can do no better: closing fixes at most H + 1 bits.
    return computable_length(1, num_heads) + 1


@dataclasses.dataclass(frozen=True)
class Route:
    """A threshold: from `length` on no transformer of the shape computes the language.

    Attributes:
        name: Name of the proof.
        length: The least length the route reaches, rounded up; of DYCK, even.
        parameters: Parameters of the proof.
        source: Section or theorem that has the proof.
    """

    name: str
    length: Tower
    parameters: Mapping[str, Any]
    source: str


def parity_routes(num_layers: int, num_heads: int, free: Fraction) -> Iterator[Route]:
    """Returns every route's length from which on PARITY is out of reach.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        free: C in (0, 1), the share that routes H and A keep free before closing.

    Returns:
        The routes, lazily; the least length of all is the threshold.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, sections 2 to 6.
    """
    num_layers = whole("num_layers", num_layers, 1, MOST_LAYERS)
    if num_layers == 1:
        length = one_layer_parity_threshold(num_heads)
        source = "docs/theory/hard-attention.md, section 3, Theorem 4"
        yield Route("one layer, exact", Tower.of(length), {}, source)
    else:
        yield from switching_routes(num_layers, num_heads)
    route = alteration_route(num_layers, num_heads, free)
    reductions = [_floats(one, "eta", "q", "eps") for one in route.reductions]
    parameters: dict[str, Any] = {"free": str(free), "inputs": _first_inputs(route)}
    parameters["reductions"] = reductions
    source = "docs/theory/hard-attention.md, section 5, Theorem 6"
    yield Route("alteration", route.length, parameters, source)
    for weight in Weight:
        route, name = paper_route(num_layers, num_heads, free, weight), weight.value
        parameters = {"free": str(free), "weight": name, "inputs": _first_inputs(route)}
        for reduction, k in route.reductions:
            parameters |= {"k": k, **_floats(reduction, "eta", "q", "delta")}
        proof = "Hahn 2020, Theorem 1, corrected"
        source = f"{proof}; docs/theory/hard-attention.md, section 4"
        yield Route(f"paper, A = {name}", route.length, parameters, source)


def _first_inputs(route: ReductionRoute) -> list[str]:
    return [str(c) for c in route.inputs[:4]]


def _floats(reduction: Any, *names: str) -> dict[str, float]:
    """Floats nearest to some of a reduction's parameters, by name."""
    return {name: float(getattr(reduction, name).mid) for name in names}


def switching_routes(num_layers: int, num_heads: int) -> Iterator[Route]:
    """Returns the lengths of route S and of its closed form, for PARITY.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.

    Returns:
        The routes that apply.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 6, Theorem 8 and Corollary 9.
    """
    num_layers = whole("num_layers", num_layers, 1, MOST_LAYERS)
    num_heads = whole("num_heads", num_heads, 1)
    steps = () if num_layers == 1 else RELEASED.get((num_layers, num_heads))
    if steps is not None:
        digits = proof_digits(num_layers)
        proof = switching_proof(num_heads, steps, digits=digits)
        if proof is not None:
            parameters = {"steps": _listed(steps), "digits": digits}
            source = "docs/theory/hard-attention.md, section 6, Theorem 8"
            yield Route("switching", Tower.of(proof.length), parameters, source)
    closed = closed_form_switching(num_layers, num_heads)
    source = "docs/theory/hard-attention.md, section 6, Corollary 9"
    yield Route("switching, closed form", closed.length, {}, source)


def dyck_routes(num_layers: int, num_heads: int) -> Iterator[Route]:
    """Returns the lengths from which on 1DYCK and 2DYCK are out of reach, n even.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.

    Returns:
        The routes that apply.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 7.
    """
    source = "docs/theory/hard-attention.md, section 7"
    num_layers = whole("num_layers", num_layers, 1, MOST_LAYERS)
    num_heads = whole("num_heads", num_heads, 1)
    if num_layers == 1:
        length = one_layer_dyck_threshold(num_heads)
        yield Route("one layer", Tower.of(length), {}, source)
        return
    parameters = _dyck_parameters(num_layers, num_heads)
    length = None if parameters is None else dyck_threshold(parameters)
    if parameters is not None and length is not None:
        shown = {
            "steps": _listed(parameters.steps),
            "spreads": [c if c is None else str(c) for c in parameters.spreads],
            "delta": str(parameters.delta),
            "digits": proof_digits(num_layers),
        }
        yield Route("switching, balanced window", Tower.of(length), shown, source)
    closed = closed_form_dyck(num_layers, num_heads)
    if closed is not None:
        yield Route("switching, balanced window, closed form", closed, {}, source)


def proof_digits(num_layers: int) -> int:
    """Returns the decimals to which probabilities are rounded up, for L layers."""
    return max(DIGITS, 6 * num_layers)


def _dyck_parameters(num_layers: int, num_heads: int) -> DyckParameters | None:
    if (num_layers, num_heads) not in DYCK_RELEASED:
        return None
    digits = proof_digits(num_layers)
    steps, spreads, delta = DYCK_RELEASED[num_layers, num_heads]
    depths = (1, *(step.depth for step in steps))
    # The depth after the last step is the start of none.
    deep = tuple(
        deep_probability(t, num_heads, step.depth, step.star_probability, digits)
        for t, step in zip(depths, steps, strict=False)
    )
    return DyckParameters(num_heads, steps, deep, spreads, delta)


def _listed(steps: Sequence[SwitchingStep]) -> list[dict[str, Any]]:
    return [{"p": str(step.star_probability), "t": step.depth} for step in steps]


def least(routes: Sequence[Route]) -> Route:
    """Returns the route of least length."""
    return min(routes, key=operator.attrgetter("length"))


TITLES = {"parity": "PARITY", "dyck": "DYCK, n even"}


def record_routes(routes: Sequence[Route]) -> dict[str, Any]:
    """JSON record of a language's routes; `least` indexes the lowest threshold."""
    return {
        "routes": [
            {
                "name": route.name,
                "text": str(route.length),
                "number": _number("impossible_from", route.length),
                "about": {"parameters": route.parameters, "source": route.source},
            }
            for route in routes
        ],
        "least": routes.index(least(routes)) if routes else None,
    }


def describe_routes(
    possible: Tower, found: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """JSON record of thresholds and routes by language, and report lines on them."""
    record: dict[str, Any] = {}
    lines, every = [], ["", "Routes:"]
    for name, one in found.items():
        lines.append(f"{TITLES[name]}: possible up to n = {possible}")
        record[name] = _number("possible_up_to", possible)
        if one["least"] is None:
            record[name] |= dict.fromkeys(["impossible_from", "route", "parameters"])
            lines.append("  impossible from: no route evaluated at this depth")
        else:
            best = one["routes"][one["least"]]
            parameters = best["about"]["parameters"]
            own = {"route": best["name"], "parameters": parameters}
            record[name] |= best["number"] | own
            lines.append(f"  impossible from n = {best['text']} on ({best['name']})")
        every += [f"  {name:<9}{x['name']:<42}{x['text']}" for x in one["routes"]]
    record["routes"] = {
        name: {x["name"]: x["number"] | x["about"] for x in one["routes"]}
        for name, one in found.items()
    }
    return record, [*lines, *every]


def _number(name: str, number: Tower) -> dict[str, Any]:
    """Record entries of a number: itself, or null with its log10 or its text."""
    if number.integer is not None:
        return {name: number.integer}
    if number.log10 is not None:
        return {name: None, f"log10_{name}": number.log10}
    return {name: None, f"{name}_text": str(number)}
