"""Run of the command `influence`."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bounds.cli.influence_blocks import COLUMNS, SUMMARY, Blocks, rows_of
from bounds.cli.influence_pieces import SECONDS, find_pieces, follow_pieces
from bounds.cli.influence_question import NAMES, Asked
from bounds.cli.influence_words import finding
from bounds.cli.options.influence import InfluenceOptions
from bounds.cli.shared.devices import (
    Devices,
    explained_loss,
    open_devices,
)
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.precision import (
    error_columns,
    split_error,
)
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.subject import read_one
from bounds.cli.shared.substitutes import read_substitutes
from bounds.cli.shared.target import unit_of
from bounds.cli.shared.texts import open_tokenizer
from bounds.cli.shared.ties import quiet_ties, warn_of_ties
from bounds.curves.measurement import block_columns, enclosed_value
from bounds.figures.inputs import influence_figure, sequence_figure
from bounds.influence import Influence, Screened
from bounds.influence.block_memory import BlockSizes
from bounds.numbers.kind import RTOL_EXACT
from bounds.store.output import write_csv, write_json
from bounds.store.sweep import Cell, Results, finish_cells, found_rows
from bounds.version import __version__
from jax_models.arguments import show
from jax_models.run.device_memory import bytes_label
from jax_models.run.mesh import count_devices


def describe_run(asked: Asked, blocks: Blocks, devices: Devices) -> list[str]:
    """Lines of a dry run; refuses a model that the method does not support."""
    model, question = asked.subject.model, asked.subject.question
    ranges = [(cell.config["start"], cell.config["stop"]) for cell in blocks.cells()]
    posed = [asked.request(start, stop) for start, stop in ranges if start < stop]
    requests = [one for one in posed if one.position.size]
    total = sum(one.position.size for one in requests)
    count = count_devices(devices.mesh)
    target = question.target
    watched = target if isinstance(target, str) else show(target)
    lines = [
        f"version {__version__}, jax {jax.__version__}, {count} of "
        f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
        f"model: {len(model.layers)} layers, d = {model.width}, V = "
        f"{model.vocab_size}, {np.dtype(model.dtype).name}; n = {asked.tokens.size}, query "
        f"{question.query}, {watched}",
    ]
    if not requests:
        return [*lines, "nothing can be substituted"]
    largest = max(requests, key=lambda one: one.position.size)
    choice, way = blocks.choice, blocks.choice.way
    lines += [
        f"method: {way.name} ({choice.reason})",
        f"radii of rounding: {blocks.rounding}",
        f"substitutions: {total}, in {len(requests)} parts of at most "
        f"{largest.position.size}; {_kept(blocks, ranges)}",
        "estimated cost: some tens of forward passes, more where bounds are loose"
        if isinstance(way, Screened)
        else f"estimated cost: {sum(map(way.cost, requests)):.3g} forward passes",
    ]
    counts = [one.position.size for one in requests]
    sizes = None if isinstance(way, Screened) else choice.sizes
    return [*lines, *describe_blocks(way.name, sizes, counts, count)]


def _kept(blocks: Blocks, ranges: Sequence[tuple[int, int]]) -> str:
    """Words on when the results of a part are saved."""
    most = max(stop - start for start, stop in ranges)
    least = blocks.least()
    if 2 * least > most:
        return "each is kept when it is done"
    return f"kept every {SECONDS:.0f} s or so, {least} positions at least"


def describe_blocks(
    method: str, sizes: BlockSizes | None, counts: Sequence[int], devices: int
) -> list[str]:
    """Lines on the blocks of parts with the given numbers of substitutions."""
    if sizes is None:
        return [f"blocks: {method} has none that can be told ahead"]
    tiles = "" if sizes.rows is None else f", rows in tiles of {sizes.rows}"
    blocks = sum(math.ceil(one / (sizes.substitutions * devices)) for one in counts)
    return [
        f"blocks: {blocks}, of at most {sizes.substitutions} substitutions on each "
        f"device{tiles}",
        f"memory: at most {bytes_label(sizes.held)} on each device",
    ]


@explained_loss()
def run(options: InfluenceOptions) -> None:
    """Computes the blocks that the store lacks, then reports from the store."""
    devices, output = open_devices(options), Output.of("influence", options)
    if devices.leads and not options.dry_run:
        print(f"influence: results go to {output.folder}", flush=True)
    asked = _ask(options)
    if options.dry_run:
        blocks = Blocks.plan(asked, None, devices.mesh)
        if devices.leads:
            print("\n".join(describe_run(asked, blocks, devices)))
        return
    if not devices.leads:
        with quiet_ties():
            follow_pieces(Blocks.plan(asked, None, devices.mesh), devices)
        return
    n = len(asked.tokens)
    with (
        output.open_store() as store,
        Progress(n, "positions", alike=True) as progress,
        quiet_ties(),
    ):
        planned = Blocks.plan(asked, progress, devices.mesh)
        found, top, seconds = find_pieces(
            store, planned, devices, progress, fresh=output.fresh
        )
        pieces, error = split_error(found)
        result = planned.join(pieces, top)
    record = {
        **output.record(),
        "n": n,
        "query": asked.subject.question.query,
        **(largest := _largest(result, pieces)),
        **asked.named(largest["position"], largest["symbol"]),
        **asked.hashes,
        **error_columns(error or result.measured_error),
        "rtol_exact": RTOL_EXACT,
        "seconds": seconds,
    }
    rows = [
        {**row, **asked.named(row["position"], row["symbol"])}
        for row in rows_of(result)
    ]
    with output.exports() as staged:
        names = _write(staged, asked, record, rows)
    print(finding(asked, record, error or result.measured_error))
    print(f"Written to {output.folder}: {', '.join(names)}")
    warn_of_ties(int(record["ambiguous"]))


def measure_rows(options: InfluenceOptions, store: Results) -> list[dict[str, Any]]:
    """One row, the largest influence as in `influence.json`; writes nothing."""
    asked = _ask(options)
    blocks = Blocks.plan(asked)
    with quiet_ties():
        pieces, error = split_error(list(_finished(store, blocks.cells())))
        top = None
        if blocks.moves_top:
            (top,) = _finished(store, [blocks.top(blocks.values(pieces))])
        result = blocks.join(pieces, top)
    largest = _largest(result, pieces)
    del largest["levels"], largest["hypotheses"]
    query = asked.subject.question.query
    named = {**asked.hashes, **error_columns(error or result.measured_error)}
    return [{"n": len(asked.tokens), "query": query, **largest, **named}]


def _finished(store: Results, cells: list[Cell]) -> Iterator[Mapping[str, Any]]:
    """Results of cells; those not in the store are computed."""
    finish_cells(store, cells)
    return iter(found_rows(store, cells))


def _largest(result: Influence, pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Entries of the record on the largest influence of all."""
    return {
        **{name: getattr(result, name) for name in SUMMARY},
        **block_columns(result.block),
        "exact": result.exact,
        "kind": result.kind,
        "rounding": result.rounding,
        "hypotheses": list(result.hypotheses),
        "levels": [dataclasses.asdict(level) for level in result.levels],
        "ambiguous": any(piece["ambiguous"] for piece in pieces),
    }


def _ask(options: InfluenceOptions) -> Asked:
    """Request that the flags make."""
    prepare_jax(options)
    subject = read_one(options)
    (tokens,) = subject.inputs.values()
    length = tokens.size
    question = subject.question
    question = dataclasses.replace(question, query=question.query % length)
    tokenizer = open_tokenizer(options)
    symbols = read_substitutes(options, subject.model, tokenizer, length)
    if symbols is not None:  # a set: its order must not change the store's key
        symbols = np.sort(symbols, axis=-1)
    return Asked(
        dataclasses.replace(subject, question=question),
        options.include_query,
        Path(options.out),
        tokenizer,
        symbols,
        options.rounding,
    )


def _write(
    output: Output, asked: Asked, record: dict[str, Any], rows: list[dict[str, Any]]
) -> list[str]:
    """Writes the CSV, JSON and figure files; returns their names."""
    columns = COLUMNS if asked.tokenizer is None else (*COLUMNS, *NAMES)
    write_json(output.path("influence.json"), record)
    write_csv(output.path("influence.csv"), columns, rows)
    largest: dict[int, tuple[float, int]] = {}
    for row in rows:
        value = enclosed_value(row["lower"], row["upper"], asked.screens)
        position, symbol = row["position"], row["symbol"]
        if value > largest.get(position, (-1.0, 0))[0]:
            largest[position] = value, symbol
    influences = {position: value for position, (value, _) in largest.items()}
    what = "upper bound on the influence" if asked.screens else "largest influence"
    what += "" if record["exact"] else f", {record['kind']}"
    quantity = f"{what} ({unit_of(output.values['target'])})"
    query = None if asked.watches_all else record["query"]
    if asked.tokenizer is None:
        figure = influence_figure(influences, quantity, query)
    else:
        names = [asked.tokenizer.name(int(token)) for token in asked.tokens]
        best = [asked.tokenizer.name(symbol) for _, symbol in largest.values()]
        figure = sequence_figure(influences, names, best, quantity, query)
    return ["influence.csv", "influence.json", *output.draw(figure)]
