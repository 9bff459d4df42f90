"""Words of `scan`: the values of its flags, and sentences on its result."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import jax_models as jm
from bounds.cli.scan_parts import Asked
from bounds.cli.shared.target import target_key
from bounds.influence.result import said_of
from bounds.influence.scan import Frobenius, Scan
from bounds.influence.table.reductions import Reduce
from bounds.influence.targets.base import is_count
from bounds.numbers.notation import enclosure_label
from jax_models.arguments import show

WORDS = ("none", "max", "mean")
# Words that may follow frobenius, and the arguments they stand for.
FROBENIUS: dict[str, dict[str, Any]] = {
    "tensor": {"symmetrize": "tensor"},
    "map": {"symmetrize": "map"},
    "nocenter": {"center": False},
    "noapc": {"apc": False},
}
GRAMMAR = f"{', '.join(WORDS)}, or frobenius[:tensor|:map][:nocenter][:noapc]"


def parse_reduce(text: str | None) -> Reduce:
    """Reads a value of `--reduce`."""
    if text is None:
        return None
    for word in WORDS:
        if word == text:
            return word
    first, *more = text.split(":")
    given: dict[str, Any] = {}
    known = first == "frobenius"
    for word in more:
        entry = FROBENIUS.get(word, {})
        known = known and bool(entry) and not given.keys() & entry.keys()
        given |= entry
    if not known:
        raise jm.InputError(f"{show(text)} is no reduction; expected {GRAMMAR}")
    return Frobenius(**given)


def parse_rows(text: str | None) -> Any:
    """Reads a value of `--rows` into the `rows` of `bounds.scan`."""
    if text in (None, "all", "own"):
        return text
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not is_count(part.removeprefix("-")):
            raise jm.InputError(
                f"{show(text)} names no rows; expected a position, negative ones counting "
                "from the end, several separated by commas, all, or own"
            )
    rows = [int(part) for part in parts]
    return rows[0] if len(rows) == 1 else rows


def quantity_of(unit: str, asked: Asked, scan: Scan) -> str:
    """Label of the values, from a norm and its unit as in `‖Δ logits‖₂, nats`."""
    if asked.recipe is not None:
        unit = asked.recipe.label
    whole, comma, measured = unit.partition(",")
    change, rest = whole.strip("‖₂|"), f"{comma}{measured}"
    match asked.reduce:
        case "none":
            return (f"largest |{change}|" if "target" in scan.axes else change) + rest
        case "max":
            return f"largest |{change}|{rest}"
        case Frobenius(apc=apc):
            return (
                f"Frobenius norm of {change}{', less its average product' * apc}{rest}"
            )
    signed = change + rest if np.nanmin(scan.values) < 0 else unit
    return f"mean {signed}" if asked.reduce == "mean" else signed


def top_line(line: Mapping[str, Any]) -> str:
    """One of the largest cells in a line."""
    where = line.get("mutation") or f"position {line['position']}"
    if line.get("mutation") is None and line["symbol"] is not None:
        where += f", symbol {line.get('symbol_name', line['symbol'])}"
    if line["record"] is not None:
        where = f"{line['record']}: {where}"
    if line["row"] not in (None, line["position"]):
        where += f", row {line['row']}"
    if line["target"] is not None:
        where += f", entry {line.get('target_name', line['target'])}"
    return f"{line['value']:+.6g} {where}"


def finding(asked: Asked, scan: Scan, record: Mapping[str, Any]) -> str:
    """Result in one sentence."""
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
    edits = "deletions" if asked.edit == "delete" else "substitutions"
    shape = " x ".join(f"{size} {axis}s" for axis, size in record["shape"].items())
    largest = enclosure_label(record["max"], *ends)
    if scan.kind == "estimated":
        largest = f"{record['max']:.6g}"
    return (
        f"n = {record['n']}: {scan.substitutions} {edits} of "
        f"{target_key(asked.subject.question.target)}, {shape}; the largest is "
        f"{largest}, {scan.kind} by {scan.method}, {where}{said_of(scan.measured_error)}."
    )
