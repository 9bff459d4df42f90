"""Records and report of the routes to thresholds of PARITY and DYCK for one shape.

A route is a proof that no hard-attention transformer of the shape, L layers of H heads,
computes the language from some length on, the route's threshold. A number beyond the
range of floats is null, and stands beside as its logarithm, or as text where that is
beyond them too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bounds.restriction.closed_form.routes import Route, least
from bounds.restriction.closed_form.tower import Tower

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
