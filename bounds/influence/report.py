"""Reports on one input: a plan, the largest influence, or a scan's largest cell.

A substitution replaces one token, its influence is the norm of the output's change; a
scan is a table of such changes, a cell an entry. A request is computed in parts of
positions, which a store keeps; the plan describes them before they are computed. A
recipe is a scan under a name of its field, a radius a bound on a value's rounding.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.influence.parts import SECONDS, Parts, as_table
from bounds.influence.result import Influence, said_of
from bounds.influence.rounding import runs_of
from bounds.influence.screening.ladder import Screened
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.table.layout import Layout
from bounds.influence.table.lines import SYMBOL_NAMES, Residues
from bounds.influence.table.reductions import Reduce
from bounds.influence.table.result import Scan
from bounds.influence.targets.table import as_value
from bounds.numbers.kind import kind_of_ends
from bounds.numbers.notation import enclosure_label
from bounds.recipes.question import Recipe
from bounds.rounding.ranked import MARGIN
from jax_models.run.device_memory import bytes_label
from jax_models.run.mesh import count_devices

# Columns of a table of influences.
COLUMNS = ("position", "symbol", "lower", "upper", "kind")
# Names of masks in vocabularies.
MASKS = ("<mask>", "[MASK]")
# Bytes of a cell: three float64 and one flag. A number of the store is text,
# four characters for three bytes where it cannot be compressed.
ARRAYS, STORED = 25, 11


@dataclasses.dataclass(frozen=True)
class InputWords:
    """Tokens of one input, with texts that name its positions and symbols."""

    tokens: Int[np.ndarray, "tokens"]
    name: Callable[[int], str] | None  # of a symbol; None where symbols have no names
    special: Sequence[int] = ()  # symbols that are no residues

    def names(self, position: int | None, symbol: int | None) -> dict[str, Any]:
        """Names of the token at a position and of the new symbol, by column name."""
        if self.name is None:
            return {}
        old = None if position is None else int(self.tokens[position])
        both = (None if x is None else self.name(x) for x in (old, symbol))
        return dict(zip(SYMBOL_NAMES, both, strict=True))

    def place(self, position: int, symbol: int | None = None) -> str:
        """Text that names a position and the symbol that is put in there, if any."""
        names = self.names(position, symbol) or dict.fromkeys(SYMBOL_NAMES)
        old, new = ("" if x is None else f" ({x})" for x in names.values())
        words = f"at position {position}{old}"
        return words if symbol is None else f"{words}, symbol {symbol}{new}"

    def residues(self, first: int) -> Residues | None:
        """Symbols named as residues of a protein; None if some symbol is no letter."""
        if self.name is None:
            return None
        own = [self.name(x) for x in set(self.tokens.tolist()) - set(self.special)]
        if any(len(x) != 1 for x in own):
            return None
        # A mask stands for a residue.
        uncounted = tuple(x for x in self.special if self.name(x) not in MASKS)
        return Residues(self.name, self.tokens, uncounted, first)


def written_axes(layout: Layout, recipe: Recipe | None) -> dict[str, int]:
    """Lengths of the axes of a scan's table as written to files, by axis name."""
    count, symbols = layout.cells.shape
    if recipe is not None and recipe.num_scored is not None:
        return {"position": count, "symbol": recipe.num_scored}
    sizes = {"position": count, "symbol": symbols, "row": layout.rows.size}
    return {axis: sizes.get(axis, layout.width) for axis in layout.axes}


def describe_parts(
    parts: Parts, recipe: Recipe | None, *, has_arrays: bool
) -> list[str]:
    """Lines of a plan: table shape, method, radii, parts, cost, blocks, file sizes."""
    whole, layout = parts.whole, parts.whole.layout
    if layout is None:
        if not len(whole.pairs):
            return ["nothing can be substituted"]
        return _describe_computation(parts)
    axes = written_axes(layout, recipe)
    shape = " x ".join(f"{size} {axis}s" for axis, size in axes.items())
    cells = math.prod(axes.values())
    kept = 2 * cells  # with how far they moved
    if parts.keeps_runs:  # the whole tables of all runs
        kept = layout.cells.size * math.prod(as_table(layout).shape)
        kept *= 1 + runs_of(parts.rounding)
    arrays = f"scan.npz: {cells} cells, {ARRAYS * cells / 1e6:.3g} MB"
    return [
        f"scan: {shape}",
        *_describe_computation(parts),
        f"store: {kept} numbers, at most {STORED * kept / 1e6:.3g} MB",
        *([arrays] if has_arrays else []),
    ]


def _describe_computation(parts: Parts) -> list[str]:
    """Lines of a plan: method, radii of rounding, parts, cost, blocks and memory."""
    way, sizes = parts.choice.way, parts.choice.sizes
    count, size = len(parts.positions), parts.size
    requests = [parts.request(x, min(x + size, count)) for x in range(0, count, size)]
    counts = [len(x.pairs) for x in requests]
    kept = f"kept every {SECONDS:.0f} s or so, {parts.least} positions at least"
    if 2 * parts.least > min(size, count):
        kept = "each is kept when it is done"
    most = f"{size} positions" if parts.whole.layout else f"{max(counts)}"
    passes = "some tens of forward passes, more where bounds are loose"
    if not isinstance(way, Screened):
        passes = f"{sum(map(way.cost, requests)):.3g} forward passes"
    lines = [
        f"method: {way.name} ({parts.choice.reason})",
        f"radii of rounding: {parts.rounding}",
        f"substitutions: {sum(counts)}, in {len(counts)} parts of at most {most}; {kept}",
        f"estimated cost: {passes}",
    ]
    if sizes is None or isinstance(way, Screened):
        return [*lines, f"blocks: {way.name} has none that can be told ahead"]
    tiles = "" if sizes.rows is None else f", rows in tiles of {sizes.rows}"
    together = sizes.substitutions * count_devices(parts.whole.mesh)
    return [
        *lines,
        f"blocks: {sum(-(-one // together) for one in counts)}, of at most "
        f"{sizes.substitutions} substitutions on each device{tiles}",
        f"memory: at most {bytes_label(sizes.held)} on each device",
    ]


def influence_rows(result: Influence, words: InputWords) -> list[dict[str, Any]]:
    """Table rows (columns `COLUMNS`) of all influences, by position, then symbol."""
    if result.lower is not None:
        of: Any = (result.enclosed, result.lower, result.upper)
        position, symbol = at = np.nonzero(~np.isnan(result.lower))
    else:
        of = (result.position_enclosed, result.position_lower, result.position_upper)
        symbols: Any = result.position_symbol
        position = at = np.flatnonzero(symbols >= 0)
        symbol = symbols[position]
    columns = (x.tolist() for x in (position, symbol, *(x[at] for x in of)))
    return [
        dict(zip(COLUMNS, (p, s, a, b, kind_of_ends(a, b, known)), strict=True))
        | words.names(p, s)
        for p, s, known, a, b in zip(*columns, strict=True)
    ]


def influence_finding(
    result: Influence,
    words: InputWords,
    cheap: str | None,  # float type of a proposal or of half precision
) -> str:
    """Sentence or two for the reader on the largest influence of a result."""
    begun = f"n = {len(words.tokens)}"
    if result.position is None:
        return f"{begun}: nothing can be substituted."
    where, target = words.place(result.position, result.symbol), as_value(result.target)
    output = target.noun
    if not target.is_joint:
        output += f" {words.place(result.query)}"
    maximum = enclosure_label(result.max, result.max_lower, result.max_upper)
    method, decided, error = result.method, result.decided, result.measured_error
    if result.estimated and decided is not None:
        return (
            f"{begun}: the largest influence of {decided} decided in float64 is "
            f"{maximum}, by {method}, {where}, on {output}. The {result.uncertified} "
            f"others are estimated in {cheap}, and below it by {MARGIN} times the "
            f"largest error of the estimates decided{said_of(error)}."
        )
    maximum += f", {result.kind} by {method}"
    if decided is not None:
        maximum += f" ({decided} decided in float64 after {cheap})"
    elif result.estimated:
        maximum = f"{result.max:.6g}, estimated by {method}"
    if result.uncertified:
        return (
            f"{begun}: the maximum influence lies between {result.max_lower:.6g} and "
            f"{result.max_upper:.6g}; {result.uncertified} substitutions are not known to "
            f"be below the largest that was evaluated ({result.max:.6g}, {where}, on "
            f"{output}). A larger --budget narrows it, and --budget=0 closes it."
        )
    return (
        f"{begun}: the maximum influence is {maximum}, {where}, on "
        f"{output}{said_of(error)}."
    )


def scan_record(scan: Scan, words: InputWords) -> dict[str, Any]:
    """Record of a scan's shape, and of its table entry of largest absolute value."""
    size = np.where(np.isnan(scan.values), -1.0, np.abs(scan.values))
    cell = tuple(map(int, np.unravel_index(int(size.argmax()), size.shape)))
    where = scan.place(cell)
    return {
        "rows": scan.rows.tolist(),
        "shape": dict(zip(scan.axes, scan.values.shape, strict=True)),
        "substitutions": scan.substitutions,
        "max": float(size[cell]),
        "value": float(scan.values[cell]),
        "lower": float(scan.lower[cell]),
        "upper": float(scan.upper[cell]),
        "target_symbol": where.pop("target"),
        **where,
        **words.names(where["position"], where["symbol"]),
    }


def scan_finding(
    scan: Scan,
    record: Mapping[str, Any],  # on its cell of largest absolute value
    words: InputWords,
    quantity: str | None,  # of a recipe; None is the target
) -> str:
    """Sentence on a scan and its cell (entry of its array) of largest absolute value."""
    where = words.place(record["position"], record["symbol"])
    if record["row"] is not None:
        where += f", row {record['row']}"
    lower, upper = record["lower"], record["upper"]
    ends = sorted((abs(lower), abs(upper)))
    ends[0] = 0.0 if lower < 0 < upper else ends[0]
    edits = "deletions" if scan.edit == "deleted" else "substitutions"
    made = f"{scan.substitutions} {edits}"
    if quantity is None:
        made += f" of {as_value(scan.target).name}"
    else:
        made = f"{quantity}, by {made if scan.substitutions else scan.reason}"
    shape = " x ".join(f"{size} {axis}s" for axis, size in record["shape"].items())
    largest = enclosure_label(record["max"], *ends)
    if scan.kind == "estimated":
        largest = f"{record['max']:.6g}"
    return (
        f"n = {record['n']}: {made}, {shape}; the largest is {largest}, {scan.kind} by "
        f"{scan.method}, {where}{said_of(scan.measured_error)}."
    )


def quantity_of(scan: Scan, reduce: Reduce, label: str | None) -> str:
    """Label of a scan's values, from the label of its target, or `label` of a recipe."""
    if label is not None and not isinstance(reduce, Frobenius):
        return label
    unit = as_value(scan.target).label if label is None else label
    whole, comma, measured = unit.partition(",")
    change, rest = whole.strip("‖₂|"), f"{comma}{measured}"
    match reduce:
        case "none":
            return (f"largest |{change}|" if "target" in scan.axes else change) + rest
        case "max":
            return f"largest |{change}|{rest}"
        case Frobenius(apc=apc):
            return (
                f"Frobenius norm of {change}{', less its average product' * apc}{rest}"
            )
    signed = change + rest if np.nanmin(scan.values) < 0 else unit
    return f"mean {signed}" if reduce == "mean" else signed
