"""The largest influence of one symbol over all inputs of a length.

`supremum.json` names the maximum and an input, position and symbol that attain it. It is
exact for a model without masks whose positions have few different encodings, where all
count vectors (with orders, for unique-hard attention) are few enough to be evaluated, and
otherwise a search over inputs, marked as an estimate. Blocks of the work are kept in --out
as they are done: the same command continues where it stopped.

    --length=100000 --num_layers=2 --out=results/lumped
    --model=model.safetensors --length=1000 --out=results/mine
"""

import functools
from functools import partial
from typing import Any

from bounds.all_inputs.supremum import (
    BUDGET,
    choose_plan,
    conclude,
    describe_supremum,
    read_found,
    record_found,
    run_block,
)
from bounds.all_inputs.universe import Found, list_inputs
from bounds.cli.shared.groups import Model, Read, Shape, Stored, Ties, Weighted
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.subject import name_model, refuse_sampling, weighted_model
from bounds.curves.measurement import tokens_sha256
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, found_rows


class SupremumOptions(Weighted, Model, Read, Ties, Stored):
    """Options of the command."""

    length: int = option(64, "Tokens n of the inputs, the query's included.", least=1)
    include_query: bool = option(False, "Substitute the query's own token too.")
    # Under a mask, or at positions that are all different, rows are not equal.
    mask: str = again(Shape, "mask", "none")
    position: str = again(Shape, "position", "none")


# Attributes of the result that stand in the record under other names.
RENAMED = ("length", "ties")


def plan(options: SupremumOptions) -> Work:
    """Work that computes the blocks of all inputs, or of a search over inputs."""
    model = weighted_model(options, max_length=options.length)
    inputs = list_inputs(
        model,
        options.length,
        query=options.query,
        target=options.target,
        include_query=options.include_query,
    )
    way = choose_plan(inputs, BUDGET, options.seed)
    if way.exact:
        refuse_sampling(options, "seed")
    named = name_model(options, model)
    symbols = {"symbols": inputs.symbols, "query_symbols": inputs.query_symbols}
    key = {
        **options.key("include_query", "ties", "dtype", "seed"),
        "plan": way.name,
        "budget": BUDGET,
        "n": inputs.length,
        "query": inputs.query,
        "target": inputs.target,
        **symbols,
        **named,
    }

    def compute(block: int) -> dict[str, Any]:
        return record_found(run_block(way, block, key["ties"]))

    cells = [
        Cell({**key, "block": k}, f"block {k}", partial(compute, k))
        for k in range(way.num_blocks)
    ]

    def finish(store: ResultStore) -> Exports:
        blocks = list(map(read_found, found_rows(store, cells)))
        merged = functools.reduce(Found.merge, blocks) if blocks else None
        seconds = sum(store.seconds(cell.config) for cell in cells)
        try:
            best = conclude(way, merged, key["ties"], seconds)
        except RuntimeError as error:  # over rows of an earlier run they are damaged
            raise ValueError(str(error)) from error
        ambiguous = best.ties is not None and best.ties.ambiguous
        record = {
            "n": best.length,
            **{x: y for x, y in vars(best).items() if x not in RENAMED},
            "rtol_exact": best.rtol_exact,
            "exact": best.exact,
            **named,
            "tokens_sha256": tokens_sha256(best.tokens),
            **symbols,
            "ambiguous": ambiguous,
        }
        return Exports(record, describe_supremum(best), ties=int(ambiguous))

    opening = f"supremum: {way.description}, in {way.num_blocks} blocks"
    return Work(finish, cells, opening, unit="blocks", is_whole=True, are_alike=True)
