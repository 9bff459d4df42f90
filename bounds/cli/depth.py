"""How long an input hard attention of a given depth can handle, as explicit numbers.

For PARITY and for DYCK (one or two bracket types, even lengths): a length up to which L
layers of H heads compute it, and one from which on none of that shape does, whatever its
weights, embeddings and activation functions. Ties go leftmost or rightmost; average-hard
attention computes PARITY with one head. `depth.json` has every route with its parameters.
A number beyond the range of floats is null, and stands beside as log10_impossible_from,
or as text where its logarithm is beyond them too. Beyond 2000 layers DYCK has no route.
"""

from fractions import Fraction
from typing import Any

from absl import flags

from bounds.cli import flags as shared
from bounds.cli.progress import Progress
from bounds.cli.record import output_folder, run_record
from bounds.closed_form.depth import Tower, computable_length
from bounds.closed_form.depth.routes import (
    Route,
    dyck_routes,
    least,
    parity_routes,
    switching_routes,
)
from bounds.output import write_json

# The arithmetic of routes H and A has 60 digits.
_CLOSEST = Fraction(1, 10**30)


def define_flags() -> flags.FlagValues:
    """Return the flags of the command."""
    values = flags.FlagValues()
    for name, text in (
        ("num_layers", "Layers L."),
        ("num_heads", "Heads H in each layer."),
    ):
        flags.DEFINE_integer(name, 2, text, lower_bound=1, flag_values=values)
    flags.DEFINE_string(
        "free",
        "1/2",
        "Share C of the bits that the paper's proof and the alteration keep free, "
        "between 0 and 1: a decimal or a fraction.",
        flag_values=values,
    )
    flags.register_validator("free", _is_share, flag_values=values)
    flags.DEFINE_integer(
        "free_bits",
        None,
        "Also give the threshold of a language that is hit wherever this many bits are "
        "free.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "read_out",
        False,
        "Read the output at a further position without a symbol of its own.",
        flag_values=values,
    )
    shared.define_output(values, "depth")
    return values


def run(options: flags.FlagValues) -> None:
    """Evaluate the routes, and write and show the least thresholds."""
    layers, heads = options.num_layers, options.num_heads
    path = output_folder(options) / "depth.json"
    record = run_record("depth", options)
    record |= {"num_layers": layers, "num_heads": heads}
    possible = Tower.of(computable_length(layers, heads, read_out=options.read_out))
    found = {
        "parity": parity_routes(
            layers, heads, Fraction(options.free), read_out=options.read_out
        ),
        # These hold with a read-out position and without.
        "dyck": dyck_routes(layers, heads),
    }
    if options.free_bits is not None:
        found["language"] = switching_routes(
            layers, heads, needed=options.free_bits, read_out=options.read_out
        )
    routes: dict[str, list[Route]] = {name: [] for name in found}
    with Progress(len(found), "languages") as progress:
        for name, one in found.items():
            for route in one:
                routes[name].append(route)
                # Thousands of layers take minutes: say where the work is.
                progress.tell(f"{name}, {route.name}")
            progress.advance(name)
    for name, listed in routes.items():
        record[name] = _summary(None if name == "language" else possible, listed)
    record["routes"] = {
        name: {route.name: _route(route) for route in listed}
        for name, listed in routes.items()
    }
    write_json(path, record)
    print(_report(options, possible, routes))
    print(f"\nWritten to {path}")


def _is_share(text: str) -> bool:
    try:
        share = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise flags.ValidationError(f"{text!r} is not a number") from None
    if not 0 < share < 1:
        raise flags.ValidationError(f"{text} is not between 0 and 1")
    if min(share, 1 - share) < _CLOSEST:
        raise flags.ValidationError(f"{text} is within 1e-30 of 0 or of 1")
    return True


def _summary(possible: Tower | None, routes: list[Route]) -> dict[str, Any]:
    """Return what the record says of one language."""
    summary = {} if possible is None else _number("possible_up_to", possible)
    if not routes:
        return {**summary, "impossible_from": None, "route": None, "parameters": None}
    best = least(routes)
    return {
        **summary,
        **_number("impossible_from", best.length),
        "route": best.name,
        "parameters": best.parameters,
    }


def _route(route: Route) -> dict[str, Any]:
    return {
        **_number("impossible_from", route.length),
        "parameters": route.parameters,
        "source": route.source,
    }


def _number(name: str, number: Tower) -> dict[str, Any]:
    """Return a number, or its logarithm or text where it is beyond floats."""
    if number.integer is not None:
        return {name: number.integer}
    if number.log10 is not None:
        return {name: None, f"log10_{name}": number.log10}
    return {name: None, f"{name}_text": str(number)}


def _report(
    options: flags.FlagValues, possible: Tower, routes: dict[str, list[Route]]
) -> str:
    """Return what is shown: the least thresholds, and every route's."""
    layers, heads = options.num_layers, options.num_heads
    lines = [f"L = {layers}, H = {heads}, unique-hard attention."]
    for name, title in (("parity", "PARITY"), ("dyck", "DYCK, n even")):
        lines.append(f"{title}: possible up to n = {possible}")
        if routes[name]:
            best = least(routes[name])
            lines.append(f"  impossible from n = {best.length} on ({best.name})")
        else:
            lines.append("  impossible from: no route evaluated at this depth")
    if options.free_bits is not None:
        lines.append(f"A language hit by any {options.free_bits} free bits")
        for route in routes["language"]:
            lines.append(f"  impossible from n = {route.length} on ({route.name})")
    lines += ["", "Routes:"]
    for name, listed in routes.items():
        lines += [f"  {name:<9}{route.name:<42}{route.length}" for route in listed]
    return "\n".join(lines)
