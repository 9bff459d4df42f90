"""Sentences of `influence` and `scan` on their results, and the lines of a dry run.

A part is some consecutive positions, whose results are computed and saved by themselves.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bounds.cli.influence_parts import AskedInfluence
from bounds.cli.parts import SECONDS, Parts
from bounds.cli.scan_parts import AskedScan, FoundScan, as_table
from bounds.influence import Influence, InfluenceRequest, Screened
from bounds.influence.result import MeasuredError, said_of
from bounds.influence.rounding import runs_of
from bounds.influence.scan import Frobenius, Scan
from bounds.influence.table.lines import MUTATION, RESIDUE, ROW_RESIDUE
from bounds.influence.targets.table import as_value
from bounds.numbers.notation import enclosure_label
from bounds.rounding.ranked import MARGIN
from bounds.version import __version__
from jax_models.arguments import show
from jax_models.run.device_memory import bytes_label
from jax_models.run.mesh import count_devices

# Bytes of a cell: three float64 and one flag. A number of the store is text,
# four characters for three bytes where it cannot be compressed.
ARRAYS, STORED = 25, 11


def describe_influence(parts: Parts[AskedInfluence, Influence]) -> list[str]:
    """Lines of a dry run of `influence`: setting, method, parts, cost and blocks."""
    question, target = parts.asked.subject.question, parts.asked.subject.question.target
    watched = target if isinstance(target, str) else show(target)
    requests = _requests(parts)
    setting = _describe_setting(parts, f"query {question.query}, {watched}")
    if not requests:
        return [*setting, "nothing can be substituted"]
    least, longest = parts.least(), min(parts.size, len(parts.positions))
    kept = f"kept every {SECONDS:.0f} s or so, {least} positions at least"
    if 2 * least > longest:
        kept = "each is kept when it is done"
    most = max(len(x.pairs) for x in requests)
    division = f"in {len(requests)} parts of at most {most}; {kept}"
    return [*setting, *_describe_work(parts, requests, division)]


def describe_scan(parts: Parts[AskedScan, Scan]) -> list[str]:
    """Lines of a dry run of `scan`: setting, shape, method, parts, cost and sizes."""
    asked, layout = parts.asked, parts.whole.layout
    assert layout is not None
    table = asked.axes(layout)
    cells = math.prod(table.values())
    kept = 2 * cells  # with how far they moved
    if layout.reduction.by_target:  # the whole tables of all runs
        kept = layout.cells.size * math.prod(as_table(layout).shape)
        kept *= 1 + runs_of(parts.rounding)
    named = " x ".join(f"{size} {axis}s" for axis, size in table.items())
    title, written = [], [f"scan.npz: {cells} cells, {ARRAYS * cells / 1e6:.3g} MB"]
    if asked.record is not None:  # several share scan.csv, and have no scan.npz
        title, written = [f"record {asked.record}:"], []
    return [
        *title,
        *_describe_setting(parts, asked.watched),
        f"scan: {named}",
        *_describe_work(
            parts,
            _requests(parts),
            f"in {len(parts.starts)} parts of at most {parts.size} positions; each is "
            "kept when it is done",
        ),
        f"store: {kept} numbers, at most {STORED * kept / 1e6:.3g} MB",
        *written,
    ]


def _describe_setting(parts: Parts[Any, Any], watched: str) -> list[str]:
    """First lines of a dry run: version, devices, model, input and watched output."""
    model, tokens = parts.asked.subject.model, parts.asked.tokens
    return [
        f"version {__version__}, jax {jax.__version__}, {count_devices(parts.mesh)} of "
        f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
        f"model: {len(model.layers)} layers, d = {model.width}, V = {model.vocab_size}, "
        f"{np.dtype(model.dtype).name}; n = {tokens.size}, {watched}",
    ]


def _requests(parts: Parts[Any, Any]) -> list[InfluenceRequest]:
    """Requests of the parts that substitute anything."""
    count = len(parts.positions)
    each = (parts.request(x, min(x + parts.size, count)) for x in parts.starts)
    return [request for request in each if len(request.pairs)]


def _describe_work(
    parts: Parts[Any, Any], requests: Sequence[InfluenceRequest], division: str
) -> list[str]:
    """Lines of a dry run on method, radii, parts, cost, blocks and memory."""
    way, counts = parts.choice.way, [len(x.pairs) for x in requests]
    passes, sizes = "some tens of forward passes, more where bounds are loose", None
    if not isinstance(way, Screened):
        passes = f"{sum(map(way.cost, requests)):.3g} forward passes"
        sizes = parts.choice.sizes
    lines = [
        f"method: {way.name} ({parts.choice.reason})",
        f"radii of rounding: {parts.rounding}",
        f"substitutions: {sum(counts)}, {division}",
        f"estimated cost: {passes}",
    ]
    if sizes is None:
        return [*lines, f"blocks: {way.name} has none that can be told ahead"]
    tiles = "" if sizes.rows is None else f", rows in tiles of {sizes.rows}"
    together = sizes.substitutions * count_devices(parts.mesh)
    blocks = sum(-(-one // together) for one in counts)
    return [
        *lines,
        f"blocks: {blocks}, of at most {sizes.substitutions} substitutions on each "
        f"device{tiles}",
        f"memory: at most {bytes_label(sizes.held)} on each device",
    ]


def influence_finding(
    asked: AskedInfluence, record: Mapping[str, Any], error: MeasuredError | None
) -> str:
    """Sentence or two on the largest influence."""
    if record["position"] is None:
        return f"n = {record['n']}: nothing can be substituted."
    old = new = at = ""
    if asked.tokenizer is not None:
        old, new = f" ({record['wild_type']})", f" ({record['symbol_name']})"
        at = f" ({asked.tokenizer.name(int(asked.tokens[record['query']]))})"
    where = f"at position {record['position']}{old}, symbol {record['symbol']}{new}"
    output = as_value(asked.subject.question.target).noun
    if not asked.watches_all:
        output += f" at position {record['query']}{at}"
    ends = [record[name] for name in ("max", "max_lower", "max_upper")]
    maximum = f"{enclosure_label(*ends)}, {record['kind']} by {record['method']}"
    decided = record["decided"]
    if decided is not None and record["kind"] == "estimated":
        left = f"{record['uncertified']} others are estimated in {asked.cheap}"
        return (
            f"n = {record['n']}: the largest influence of {decided} decided in float64 is "
            f"{enclosure_label(*ends)}, by {record['method']}, {where}, on {output}. The "
            f"{left}, and below it by {MARGIN} times the largest error of the estimates "
            f"decided{said_of(error)}."
        )
    if decided is not None:
        maximum += f" ({decided} decided in float64 after {asked.cheap or 'float32'})"
    if decided is None and record["kind"] == "estimated":
        maximum = f"{record['max']:.6g}, estimated by {record['method']}"
    if record["uncertified"]:
        return (
            f"n = {record['n']}: the maximum influence lies between "
            f"{record['max_lower']:.6g} and {record['max_upper']:.6g}; "
            f"{record['uncertified']} substitutions are not known to be below the "
            f"largest that was evaluated ({record['max']:.6g}, {where}, on {output}). "
            "A larger --budget narrows it, and --budget=0 closes it."
        )
    return (
        f"n = {record['n']}: the maximum influence is {maximum}, {where}, on "
        f"{output}{said_of(error)}."
    )


def scan_finding(found: FoundScan, record: Mapping[str, Any]) -> str:
    """Sentence on a scan and its cell (entry of its array) of largest absolute value."""
    asked, scan = found.asked, found.result
    where = f"at position {record['position']}"
    if "wild_type" in record:
        where += f" ({record['wild_type']})"
    if record["symbol"] is not None:
        where += f", symbol {record['symbol']}"
        if "symbol_name" in record:
            where += f" ({record['symbol_name']})"
    if record["row"] is not None:
        where += f", row {record['row']}"
    lower, upper = record["lower"], record["upper"]
    ends = sorted((abs(lower), abs(upper)))
    ends[0] = 0.0 if lower < 0 < upper else ends[0]
    edits = "deletions" if asked.table.edit == "delete" else "substitutions"
    made = f"{scan.substitutions} {edits}"
    if asked.recipe is None:
        made += f" of {asked.watched}"
    else:
        of = made if scan.substitutions else scan.reason
        made = f"{quantity_of(asked.recipe.label, asked, scan)}, by {of}"
    shape = " x ".join(f"{size} {axis}s" for axis, size in record["shape"].items())
    largest = enclosure_label(record["max"], *ends)
    if scan.kind == "estimated":
        largest = f"{record['max']:.6g}"
    return (
        f"n = {record['n']}: {made}, {shape}; the largest is {largest}, {scan.kind} by "
        f"{scan.method}, {where}{said_of(scan.measured_error)}."
    )


def top_line(line: Mapping[str, Any]) -> str:
    """Line on one of the largest cells: its value, then its place."""
    where = line.get(MUTATION)
    if where is None:
        where = line.get(RESIDUE) or f"position {line['position']}"
        if line["symbol"] is not None:
            where += f", symbol {line.get('symbol_name', line['symbol'])}"
    if line["record"] is not None:
        where = f"{line['record']}: {where}"
    if line["row"] not in (None, line["position"]):
        where += f", row {line.get(ROW_RESIDUE) or line['row']}"
    if line["target"] is not None:
        where += f", entry {line.get('target_name', line['target'])}"
    return f"{line['value']:+.6g} {where}"


def quantity_of(unit: str, asked: AskedScan, scan: Scan) -> str:
    """Label of a scan's values, from the target's label `unit`, e.g. `‖Δ logits‖₂, nats`."""
    if asked.recipe is not None:
        unit = asked.recipe.label
        if not isinstance(asked.table.reduce, Frobenius):
            return unit
    whole, comma, measured = unit.partition(",")
    change, rest = whole.strip("‖₂|"), f"{comma}{measured}"
    match asked.table.reduce:
        case "none":
            return (f"largest |{change}|" if "target" in scan.axes else change) + rest
        case "max":
            return f"largest |{change}|{rest}"
        case Frobenius(apc=apc):
            return (
                f"Frobenius norm of {change}{', less its average product' * apc}{rest}"
            )
    signed = change + rest if np.nanmin(scan.values) < 0 else unit
    return f"mean {signed}" if asked.table.reduce == "mean" else signed
