"""How long an input hard attention of a given depth can handle, as explicit numbers.

For PARITY and for DYCK (one or two bracket types, even lengths): a length up to which L
layers of H heads compute it, and one from which on none of that shape does, whatever its
weights, embeddings and activation functions. Ties go leftmost or rightmost; average-hard
attention computes PARITY with one head. `depth.json` has every route with its parameters.
A number beyond the range of floats is null, and stands beside as log10_impossible_from,
or as text where its logarithm is beyond them too.
What a language's routes came to is kept in --out, and found there by the same command.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any

from absl import flags

from bounds.cli.shared import flags as shared
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.values import define_count
from bounds.restriction.closed_form import Tower, computable_length
from bounds.restriction.closed_form.routes import (
    MOST_LAYERS,
    Route,
    dyck_routes,
    least,
    parity_routes,
    switching_routes,
)
from bounds.store.forms import COUNT, each, fields
from bounds.store.output import write_json
from bounds.store.sweep import Cell, found_rows, missing_cells, run_cells
from bounds.version import __version__
from jax_models.arguments import ascii_number
from jax_models.errors import InputError

FORM = {
    "routes": [
        {**each("name text", str), "number": dict, "about": fields("parameters source")}
    ],
    "least": (COUNT, None),
    "=": lambda one: one["least"] in (None, *range(len(one["routes"]))),
}
# The arithmetic of routes H and A has 60 digits.
_CLOSEST = Fraction(1, 10**30)


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    define_count(values, "num_layers", 2, "Layers L.", most=MOST_LAYERS)
    define_count(values, "num_heads", 2, "Heads H in each layer.")
    flags.DEFINE_string(
        "free",
        "1/2",
        "Share C of the bits that the paper's proof and the alteration keep free, "
        "between 0 and 1: a decimal or a fraction.",
        flag_values=values,
    )
    flags.register_validator("free", _is_share, flag_values=values)
    define_count(
        values,
        "free_bits",
        None,
        "Also give the threshold of a language that is hit wherever this many bits are "
        "free.",
    )
    flags.DEFINE_boolean(
        "read_out",
        False,
        "Read the output at a further position without a symbol of its own.",
        flag_values=values,
    )
    shared.define_output(values, "depth")
    shared.define_store(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Evaluate the routes that the store does not hold, and show the least thresholds."""
    layers, heads = options.num_layers, options.num_heads
    read_out, needed = options.read_out, options.free_bits
    output = Output.of("depth", options)
    possible = Tower.of(computable_length(layers, heads, read_out=read_out))
    count = 2 if needed is None else 3
    with output.open_store() as store, Progress(count, "languages") as progress:
        cells = _cells(
            layers, heads, Fraction(options.free), needed, read_out, progress.tell
        )
        todo = missing_cells(store, cells.values(), fresh=output.fresh)
        progress.advance("from the store", len(cells) - len(todo))
        for failure in run_cells(store, todo, progress.advance):
            raise InputError(failure.message)
        every = found_rows(store, cells.values())
    found = dict(zip(cells, every, strict=True))
    record = output.record()
    record |= {"num_layers": layers, "num_heads": heads}
    for name, one in found.items():
        record[name] = _summary(None if name == "language" else possible, one)
    record["routes"] = {
        name: {
            route["name"]: route["number"] | route["about"] for route in one["routes"]
        }
        for name, one in found.items()
    }
    with output.exports() as staged:
        write_json(staged.path("depth.json"), record)
    print(f"L = {layers}, H = {heads}, unique-hard attention.")
    print(_report(possible, needed, found))
    print(f"\nWritten to {output.path('depth.json')}")


def _cells(
    layers: int,
    heads: int,
    free: Fraction,
    needed: int | None,
    read_out: bool,
    tell: Callable[[str], None],
) -> dict[str, Cell]:
    """Return, by language, the cell that evaluates its routes."""
    # What each depends on; those of DYCK hold with a read-out position and without.
    asked = {"parity": {"free": str(free), "read_out": read_out}, "dyck": {}}
    makers: dict[str, Callable[[], Iterable[Route]]] = {
        "parity": lambda: parity_routes(layers, heads, free, read_out=read_out),
        "dyck": lambda: dyck_routes(layers, heads),
    }
    if needed is not None:
        asked["language"] = {"free_bits": needed, "read_out": read_out}
        makers["language"] = lambda: switching_routes(
            layers, heads, needed=needed, read_out=read_out
        )
    common = {
        "command": "depth",
        "version": __version__,
        "num_layers": layers,
        "num_heads": heads,
    }

    def compute(name: str) -> dict[str, Any]:
        routes = []
        for route in makers[name]():
            routes.append(route)
            # Thousands of layers take minutes: say where the work is.
            tell(f"{name}, {route.name}")
        return {
            "routes": [_recorded(route) for route in routes],
            "least": routes.index(least(routes)) if routes else None,
        }

    return {
        name: Cell(
            {**common, "language": name, **own}, name, partial(compute, name), form=FORM
        )
        for name, own in asked.items()
    }


def _is_share(text: str) -> bool:
    try:
        share = Fraction(ascii_number(text))
    except (ValueError, ZeroDivisionError):
        raise flags.ValidationError(f"{text!r} is not a number") from None
    if not 0 < share < 1:
        raise flags.ValidationError(f"{text} is not between 0 and 1")
    if min(share, 1 - share) < _CLOSEST:
        raise flags.ValidationError(f"{text} is within 1e-30 of 0 or of 1")
    return True


def _summary(possible: Tower | None, found: dict[str, Any]) -> dict[str, Any]:
    """Returns what the record says of one language."""
    summary = {} if possible is None else _number("possible_up_to", possible)
    if found["least"] is None:
        return {**summary, "impossible_from": None, "route": None, "parameters": None}
    best = found["routes"][found["least"]]
    return {
        **summary,
        **best["number"],
        "route": best["name"],
        "parameters": best["about"]["parameters"],
    }


def _recorded(route: Route) -> dict[str, Any]:
    """Returns what the store keeps of a route."""
    return {
        "name": route.name,
        "text": str(route.length),
        "number": _number("impossible_from", route.length),
        "about": {"parameters": route.parameters, "source": route.source},
    }


def _number(name: str, number: Tower) -> dict[str, Any]:
    """Returns a number, or its logarithm or text where it is beyond floats."""
    if number.integer is not None:
        return {name: number.integer}
    if number.log10 is not None:
        return {name: None, f"log10_{name}": number.log10}
    return {name: None, f"{name}_text": str(number)}


def _report(
    possible: Tower, needed: int | None, found: dict[str, dict[str, Any]]
) -> str:
    """Returns what is shown: the least thresholds, and every route's."""
    lines = []
    for name, title in (("parity", "PARITY"), ("dyck", "DYCK, n even")):
        lines.append(f"{title}: possible up to n = {possible}")
        one = found[name]
        if one["least"] is None:
            lines.append("  impossible from: no route evaluated at this depth")
        else:
            best = one["routes"][one["least"]]
            lines.append(f"  impossible from n = {best['text']} on ({best['name']})")
    if needed is not None:
        lines.append(f"A language hit by any {needed} free bits")
        for route in found["language"]["routes"]:
            lines.append(f"  impossible from n = {route['text']} on ({route['name']})")
    lines += ["", "Routes:"]
    for name, one in found.items():
        lines += [f"  {name:<9}{r['name']:<42}{r['text']}" for r in one["routes"]]
    return "\n".join(lines)
