"""The largest influence of one symbol over all inputs of a length.

`supremum.json` names the maximum and an input, position and symbol that attain it. It is
exact for a model without masks whose positions have few different encodings, where all
count vectors (with orders, for unique-hard attention) are at most --configurations, and
otherwise a search over inputs, marked as an estimate. Blocks of the work are kept in --out
as they are done: the same command continues where it stopped.
"""

import dataclasses
from typing import Any

import numpy as np
from absl import flags

import jax_models as jm
from bounds.all_inputs import Supremum
from bounds.all_inputs.block import Attained, Found, InputPlan
from bounds.all_inputs.supremum import BUDGET, choose_plan, conclude, run_block
from bounds.all_inputs.universe import AllInputs, list_inputs
from bounds.cli.shared import flags as shared
from bounds.cli.shared.model_source import model_sha256, weighted_model
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.cli.shared.values import define_count
from bounds.curves.measurement import tokens_sha256, weighting_label
from bounds.influence import Ties
from bounds.numbers.notation import enclosure_label
from bounds.store.forms import fields, ordered
from bounds.store.output import write_json
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, missing_cells, run_cells
from bounds.version import __version__

DEFAULT_LENGTH = 64
VOCAB_SIZE = 2  # symbols of a random model where nothing is said

TIES = fields("gap spread ambiguous row", scores=[(float, None), 2])


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    define_count(
        values,
        "length",
        DEFAULT_LENGTH,
        "Tokens n of the inputs, the query's included.",
    )
    shared.define_model(values)
    # Under a mask, or at positions that are all different, rows are not equal.
    values.set_default("mask", "none")
    values.set_default("position", "none")
    shared.define_weighting(values)
    shared.define_read(values)
    shared.define_integers(
        values,
        "query_symbols",
        "Tokens at the query; by default those that are not substitutable, if the model "
        "has such, else all.",
        "symbols as integers",
    )
    flags.DEFINE_boolean(
        "include_query",
        False,
        "Substitute the query's own token too.",
        flag_values=values,
    )
    define_count(
        values,
        "configurations",
        BUDGET,
        "Configurations (a count vector, an order, an exchange) that are evaluated at "
        "most for an exact answer; one of k classes counts (k / 4)^2. Beyond them it is "
        "a search.",
    )
    shared.define_ties(values)
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "supremum")
    shared.define_store(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Compute the blocks that the store does not hold, then report from the store."""
    output = Output.of("supremum", options)
    print(f"supremum: results go to {output.folder}", flush=True)
    prepare_jax(options)
    model = weighted_model(options, vocab_size=VOCAB_SIZE, max_length=options.length)
    inputs = list_inputs(
        model,
        options.length,
        query=options.query,
        target=options.target,
        query_symbols=shared.integers(options.query_symbols),
        include_query=options.include_query,
    )
    plan = choose_plan(inputs, options.configurations, options.seed)
    print(f"{plan.description}, in {plan.num_blocks} blocks", flush=True)
    hashes = {
        "model_sha256": model_sha256(options, model),
        "weighting": weighting_label(model),
    }
    key = {
        "command": "supremum",
        "version": __version__,
        "plan": plan.name,
        "budget": options.configurations,
        "n": inputs.length,
        "query": inputs.query,
        "target": inputs.target,
        "include_query": inputs.include_query,
        "ties": options.ties,
        "dtype": options.dtype,
        "seed": options.seed,
        **_inputs(inputs),
        **hashes,
    }
    with output.open_store() as store, quiet_ties():
        found, seconds = _gather(store, plan, key, output.fresh)
        try:
            best = conclude(plan, found, options.ties, seconds)
        except (
            RuntimeError
        ) as error:  # it is told, and no block of a stranger is trusted
            raise jm.InputError(
                f"{store.path}: a row of the store is damaged ({error}); run its command "
                "with --fresh to compute it again, or choose another --out"
            ) from error
    record = {
        **output.record(),
        "n": best.length,
        **_fields(best),
        "exact": best.exact,
        **hashes,
        "tokens_sha256": tokens_sha256(best.tokens),
        **_inputs(inputs),
        "ambiguous": best.ties is not None and best.ties.ambiguous,
    }
    with output.exports() as staged:
        write_json(staged.path("supremum.json"), record)
    print(_finding(best))
    print(f"Written to {output.path('supremum.json')}")
    warn_of_ties(int(record["ambiguous"]))


def _gather(
    store: ResultStore, plan: InputPlan, key: dict[str, Any], fresh: bool
) -> tuple[Found | None, float]:
    """Returns the largest of all blocks, and the seconds that they took."""
    cells = []
    n, symbols = key["n"], range(plan.universe.model.vocab_size)
    form = fields(
        "max max_lower max_upper evaluated",
        **{"tokens": [symbols, n], "position": (range(n), None)},
        **{"symbol": (symbols, None), "ties": (TIES, None)},
        **{"=": ordered("max_lower", "max_upper")},
    )
    for block in range(plan.num_blocks):

        def compute(block=block) -> dict[str, Any]:
            return _recorded(run_block(plan, block, key["ties"]))

        cells.append(
            Cell({**key, "block": block}, f"block {block}", compute, form=form)
        )
    todo = missing_cells(store, cells, fresh=fresh)
    if len(todo) < len(cells):
        print(f"{len(cells) - len(todo)} blocks are in the store", flush=True)
    with Progress(len(cells), "blocks", alike=True) as progress:
        progress.skip("from the store", len(cells) - len(todo))
        for cell in todo:
            for failure in run_cells(store, [cell], progress.advance):
                raise jm.InputError(failure.message)
    found, seconds = None, 0.0
    for cell in cells:
        block = store.find(cell.config, form)
        assert block is not None
        one = _read(block)
        found = one if found is None else found.merge(one)
        seconds += store.seconds(cell.config) or 0.0
    return found, seconds


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
