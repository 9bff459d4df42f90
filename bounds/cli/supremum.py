"""The largest influence of one symbol over all inputs of a length."""

import dataclasses
import functools
from functools import partial
from typing import Any

import numpy as np

import jax_models as jm
from bounds.all_inputs import Supremum
from bounds.all_inputs.block import Attained, Found, InputPlan
from bounds.all_inputs.supremum import choose_plan, conclude, run_block
from bounds.all_inputs.universe import AllInputs, list_inputs
from bounds.cli.options.supremum import SupremumOptions
from bounds.cli.shared.model_source import model_sha256, refuse_ties, weighted_model
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.runner import Exports, Work
from bounds.curves.measurement import tokens_sha256, weighting_label
from bounds.influence import Ties
from bounds.numbers.notation import enclosure_label
from bounds.store.forms import fields, ordered
from bounds.store.sweep import Cell, Results, found_rows
from jax_models.run.evaluate import TieRule

VOCAB_SIZE = 2  # symbols of a random model where nothing is said

TIES = fields("gap spread ambiguous row", scores=[(float, None), 2])


def plan(options: SupremumOptions) -> Work:
    """Blocks of the work on all inputs, or of the search."""
    prepare_jax(options)
    model = weighted_model(options, vocab_size=VOCAB_SIZE, max_length=options.length)
    refuse_ties(options, [model])
    inputs = list_inputs(
        model,
        options.length,
        query=options.query,
        target=options.target,
        query_symbols=options.query_symbols,
        include_query=options.include_query,
    )
    way = choose_plan(inputs, options.configurations, options.seed)
    hashes = {
        "model_sha256": model_sha256(options, model),
        "weighting": weighting_label(model),
    }
    key = {
        **options.key("include_query", "ties", "dtype", "seed"),
        "plan": way.name,
        "budget": options.configurations,
        "n": inputs.length,
        "query": inputs.query,
        "target": inputs.target,
        **_inputs(inputs),
        **hashes,
    }
    cells = _cells(way, key)

    def finish(store: Results) -> Exports:
        best = _conclude(store, way, cells, key["ties"])
        ambiguous = best.ties is not None and best.ties.ambiguous
        record = {
            "n": best.length,
            **_fields(best),
            "exact": best.exact,
            **hashes,
            "tokens_sha256": tokens_sha256(best.tokens),
            **_inputs(inputs),
            "ambiguous": ambiguous,
        }
        return Exports(record, _finding(best), ties=int(ambiguous))

    opening = f"supremum: {way.description}, in {way.num_blocks} blocks"
    return Work(finish, cells, opening, unit="blocks", is_whole=True, are_alike=True)


def _cells(way: InputPlan, key: dict[str, Any]) -> list[Cell]:
    """Blocks as cells."""
    n, symbols = key["n"], range(way.universe.model.vocab_size)
    form = fields(
        "max max_lower max_upper evaluated",
        **{"tokens": [symbols, n], "position": (range(n), None)},
        **{"symbol": (symbols, None), "ties": (TIES, None)},
        **{"=": ordered("max_lower", "max_upper")},
    )

    def compute(block: int) -> dict[str, Any]:
        return _recorded(run_block(way, block, key["ties"]))

    return [
        Cell({**key, "block": k}, f"block {k}", partial(compute, k), form=form)
        for k in range(way.num_blocks)
    ]


def _conclude(
    store: Results, way: InputPlan, cells: list[Cell], ties: TieRule
) -> Supremum:
    """The largest of all blocks."""
    blocks = list(map(_read, found_rows(store, cells)))
    found = functools.reduce(Found.merge, blocks) if blocks else None
    seconds = sum(store.seconds(cell.config) or 0.0 for cell in cells)
    try:
        return conclude(way, found, ties, seconds)
    except RuntimeError as error:  # it is told, and no block of a stranger is trusted
        raise jm.InputError(
            f"{getattr(store, 'path', 'the store')}: a row of the store is damaged "
            f"({error}); run its command with --fresh to compute it again, or choose "
            "another --out"
        ) from error


def _inputs(inputs: AllInputs) -> dict[str, Any]:
    return {"symbols": inputs.symbols, "query_symbols": inputs.query_symbols}


def _recorded(found: Found) -> dict[str, Any]:
    """Returns what is recorded of a block."""
    return {
        "max": found.max,
        "max_lower": found.max_lower,
        "max_upper": found.max_upper,
        **dataclasses.asdict(found.attained),
        "evaluated": found.evaluated,
        "ties": None if found.ties is None else dataclasses.asdict(found.ties),
    }


def _read(block: dict[str, Any]) -> Found:
    """Returns a block from what was recorded of it."""
    ties = block["ties"]
    if ties is not None:
        # An infinite gap, where nothing was compared, is null in JSON.
        gap = np.inf if ties["gap"] is None else ties["gap"]
        scores = tuple(np.nan if x is None else x for x in ties["scores"])
        ties = Ties(**{**ties, "gap": gap, "scores": scores})
    tokens = np.asarray(block["tokens"], np.int32)
    return Found(
        max=block["max"],
        max_lower=block["max_lower"],
        max_upper=block["max_upper"],
        attained=Attained(tokens, block["position"], block["symbol"]),
        evaluated=block["evaluated"],
        ties=ties,
    )


def _fields(best: Supremum) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(best)] + ["rtol_exact"]
    return {
        name: getattr(best, name) for name in names if name not in ("length", "ties")
    }


def _finding(best: Supremum) -> str:
    """Returns what was found, in one sentence."""
    if best.position is None:
        return f"n = {best.length}: no input can be changed."
    where = (
        f"attained at position {best.position}, symbol {best.symbol}; recomputed by "
        f"{best.recomputed_by}: {best.recomputed:.10g}"
    )
    if best.estimated:
        return (
            f"n = {best.length}: an estimate from below of the maximum influence over "
            f"all inputs is {best.max:.6g}, {where}."
        )
    maximum = enclosure_label(best.max, best.max_lower, best.max_upper)
    return (
        f"n = {best.length}: the maximum influence over all inputs is {maximum}, "
        f"{best.kind}, {where}."
    )
