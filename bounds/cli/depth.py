"""Lengths that hard attention of a given depth can and cannot handle.

For PARITY and for DYCK (one or two bracket types, even lengths): a length up to which L
layers of H heads compute it, and one from which on none of that shape does, whatever its
weights, embeddings and activation functions. Ties go leftmost or rightmost; average-hard
attention computes PARITY with one head. `depth.json` has every route with its parameters.
A number beyond the range of floats is null, and stands beside as log10_impossible_from,
or as text where its logarithm is beyond them too.
What a language's routes came to is kept in --out, and found there by the same command.

    --num_layers=3 --num_heads=2 --out=results/three
    --num_layers=2 --num_heads=1 --free=1/4 --out=results/free
"""

from functools import partial
from typing import Any

from bounds.cli.shared.groups import Stored
from bounds.cli.shared.options import option
from bounds.cli.shared.runner import Exports, Work
from bounds.numbers.notation import parse_share
from bounds.restriction.closed_form import Tower, computable_length
from bounds.restriction.closed_form.routes import (
    MOST_LAYERS,
    describe_routes,
    dyck_routes,
    parity_routes,
    record_routes,
)
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, found_rows
from jax_models.run.progress import tell


class DepthOptions(Stored):
    """Options of the command."""

    DRAWS = lambda _: False

    num_layers: int = option(2, "Layers L.", least=1, most=MOST_LAYERS)
    num_heads: int = option(2, "Heads H in each layer.", least=1)
    free: str = option(
        "1/2",
        "Share C of the bits that the paper's proof and the alteration keep free, "
        "between 0 and 1: a decimal or a fraction.",
        check=parse_share,
    )


def plan(options: DepthOptions) -> Work:
    """Work that bounds each language's possible lengths by its routes (proofs)."""
    shape = {"num_layers": options.num_layers, "num_heads": options.num_heads}
    free = parse_share(options.free)
    # Routes, and what each depends on.
    asked: dict[str, tuple[Any, dict[str, Any]]] = {
        "parity": (
            partial(parity_routes, **shape, free=free),
            {"free": str(free)},
        ),
        "dyck": (partial(dyck_routes, **shape), {}),
    }

    def compute(name: str) -> dict[str, Any]:
        find, _ = asked[name]
        routes = []
        for route in find():
            routes.append(route)
            # Thousands of layers take minutes: say where the work is.
            tell(f"{name}, {route.name}")
        return record_routes(routes)

    cells = [
        Cell({**options.key(*shape), "language": x, **own}, x, partial(compute, x))
        for x, (_, own) in asked.items()
    ]

    def finish(store: ResultStore) -> Exports:
        found = dict(zip(asked, found_rows(store, cells), strict=True))
        possible = computable_length(**shape)
        record, lines = describe_routes(Tower.of(possible), found)
        layers, heads = shape.values()
        first = f"L = {layers}, H = {heads}, unique-hard attention."
        return Exports(shape | record, "\n".join([first, *lines, ""]))

    return Work(finish, cells, unit="languages", is_whole=True)
