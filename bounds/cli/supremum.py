"""The largest influence over all inputs of a length, and one that has it.

`supremum.json` names the maximum and an input, position and symbol that attain it. It is
exact for a model without masks whose positions have few different encodings, where all
count vectors (with orders, for unique-hard attention) are few enough to be evaluated, and
otherwise a search over inputs, marked as an estimate. Blocks of the work are kept in --out
as they are done: the same command continues where it stopped.

    --length=100000 --num_layers=2 --out=results/lumped
    --model=model.safetensors --length=1000 --out=results/mine
"""

from functools import partial
from typing import Any

from bounds.all_inputs.supremum import (
    BUDGET,
    choose_plan,
    conclude_records,
    describe_supremum,
    record_found,
    run_block,
)
from bounds.all_inputs.universe import list_inputs
from bounds.cli.shared.groups import Model, Read, Shape, Stored, Ties, Weighted
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.subject import name_model, refuse_sampling, weighted_model
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, found_rows


class SupremumOptions(Weighted, Model, Read, Ties, Stored):
    """Options of the command."""

    length: int = option(64, "Tokens n of the inputs, the query's included.", least=1)
    # Under a mask, or at positions that are all different, rows are not equal.
    mask: str = again(Shape, "mask", "none")
    position: str = again(Shape, "position", "none")


def plan(options: SupremumOptions) -> Work:
    """Work that finds the largest influence, block by block of inputs or of a search."""
    model = weighted_model(options, max_length=options.length)
    inputs = list_inputs(
        model,
        options.length,
        query=options.query,
        target=options.target,
    )
    ties: Any = options.ties  # one of its words
    way = choose_plan(inputs, BUDGET, options.seed)
    if way.exact:
        refuse_sampling(options, "seed")
    named = name_model(options, model)
    symbols = {"symbols": inputs.symbols, "query_symbols": inputs.query_symbols}
    key = {
        **options.key("ties", "dtype", "seed"),
        "plan": way.name,
        "budget": BUDGET,
        "n": inputs.length,
        "query": inputs.query,
        "target": inputs.target,
        **symbols,
        **named,
    }
    compute = lambda k: record_found(run_block(way, k, ties))
    cells = [
        Cell({**key, "block": k}, f"block {k}", partial(compute, k))
        for k in range(way.num_blocks)
    ]

    def finish(store: ResultStore) -> Exports:
        found = found_rows(store, cells)
        seconds = sum(store.seconds(cell.config) for cell in cells)
        best = conclude_records(way, found, ties, seconds)
        record = best.record() | named | symbols
        ambiguous = int(record["ambiguous"])
        return Exports(record, describe_supremum(best), ties=ambiguous)

    opening = f"supremum: {way.description}, in {way.num_blocks} blocks"
    return Work(finish, cells, opening, unit="blocks", is_whole=True, are_alike=True)
