"""A scan in parts of positions, so that long work is saved and resumed.

A scan is an array of changes of an output by edits at each position; its cells are the
array's entries. Tables, maxima and means are joined from parts; a Frobenius map needs all
positions at once, and is made of the parts of its table. A recipe is a published map or
score of a scan.
"""

import dataclasses
import functools
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

import jax_models as jm
from bounds import recipes
from bounds.cli.parts import (
    Asked,
    Joined,
    Parts,
    Record,
    Report,
    add_top,
    error_columns,
    key_of,
    pack,
    unpack,
)
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import block_columns
from bounds.influence.answer import settle
from bounds.influence.build import TableOptions
from bounds.influence.choice import choose_method
from bounds.influence.find import compare, compute_values, has_top, run_tables
from bounds.influence.method import Method
from bounds.influence.moved import magnitude_of
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Found, MeasuredError, judge_ties
from bounds.influence.rounding import choose_rounding, runs_of
from bounds.influence.substitution import choose_query
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.table.layout import Layout
from bounds.influence.table.reductions import Reduce, Table, require_table
from bounds.influence.table.result import Scan
from bounds.influence.targets.base import is_count
from bounds.recipes.question import Recipe
from bounds.store.output import canonical_json, sha256
from jax_models.arguments import show

# Substitutions of a part, at least, and blocks of a method that works in blocks.
PART, BLOCKS = 256, 2
# Bytes of a part's table, at most, unless one position alone has more.
PART_BYTES = 2**26
# Bytes of a cell: three float64 and one flag. A number of the store is text,
# four characters for three bytes where it cannot be compressed.
ARRAYS, STORED = 25, 11
WORDS = ("none", "max", "mean")
# Words that may follow frobenius, and the arguments they stand for.
FROBENIUS: dict[str, dict[str, Any]] = {
    "tensor": {"symmetrize": "tensor"},
    "map": {"symmetrize": "map"},
    "nocenter": {"center": False},
    "noapc": {"apc": False},
    "left_out": {"wild_type": "left_out"},
}
GRAMMAR = (
    f"{', '.join(WORDS)}, or frobenius[:tensor|:map][:nocenter][:noapc][:left_out]"
)


def parse_reduce(text: str | None) -> Reduce:
    """Returns the reduction that a value of `--reduce` names."""
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
    """Returns the `rows` of `bounds.scan` that a value of `--rows` names."""
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


# Names of masks in vocabularies.
MASKS = ("<mask>", "[MASK]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedScan(Asked):
    """Model, input and options of the command `scan`."""

    table: TableOptions  # as in `bounds.scan`
    positions: Sequence[int] | None = None  # those changed; None is all
    recipe: Recipe | None = None
    record: str | None = None  # name of the input among several

    @property
    def watched(self) -> str:
        """Label of a recipe's values with their unit; of another scan the target's name."""
        if self.recipe is not None:
            return self.recipe.label
        target = self.subject.question.target
        return target if isinstance(target, str) else target.name

    def axes(self, layout: Layout) -> dict[str, int]:
        """Length of each axis of the values that are written, by name."""
        count, symbols = layout.cells.shape
        if self.recipe is not None and self.recipe.num_scored is not None:
            return {"position": count, "symbol": self.recipe.num_scored}
        sizes = {"position": count, "symbol": symbols, "row": layout.rows.size}
        return {axis: sizes.get(axis, layout.width) for axis in layout.axes}

    def watching(self, target: Any) -> Self:
        """The scan with another target."""
        question = dataclasses.replace(self.subject.question, target=target)
        subject = dataclasses.replace(self.subject, question=question)
        return dataclasses.replace(self, subject=subject)


def by_recipe(asked: AskedScan, named: str, **given: Any) -> AskedScan:
    """The scan `asked` by a recipe, with the recipe's own arguments `given`."""
    model, tokens, words = asked.subject.model, asked.tokens, asked.tokenizer
    if named == "masked_marginals":
        masks = []
        if words is not None:
            masks = [words.symbol(name) for name in MASKS if name in words.names]
        if not masks and model.token_dropout is None:
            raise jm.InputError(
                f"--recipe={named}: no mask is known; name with --tokenizer a vocabulary "
                f"that has {' or '.join(MASKS)}"
            )
        given["mask"] = masks[-1] if masks else None
    if asked.symbols is not None:
        given["symbols"] = asked.symbols.ravel().tolist()
    plan = inspect.unwrap(getattr(recipes, named))
    recipe: Recipe = plan(model, tokens, positions=asked.positions, **given)
    return dataclasses.replace(
        asked.watching(recipe.target),
        table=recipe.table,
        positions=recipe.positions,
        symbols=None if recipe.symbols is None else np.asarray(recipe.symbols),
        recipe=recipe,
    )


FoundScan = Joined[AskedScan, Scan]


def describe(found: FoundScan) -> dict[str, Any]:
    """Entries of `scan.json` on a scan, and on its cell of largest absolute value."""
    asked, scan = found.asked, found.result
    size = np.where(np.isnan(scan.values), -1.0, np.abs(scan.values))
    at = np.unravel_index(int(size.argmax()), size.shape)
    cell = tuple(map(int, at))
    where = scan.place(cell)
    entry = where.pop("target")
    record = {
        "n": len(scan.tokens),
        "rows": scan.rows.tolist(),
        "shape": dict(zip(scan.axes, scan.values.shape, strict=True)),
        "substitutions": scan.substitutions,
        "max": float(size[cell]),
        "value": float(scan.values[cell]),
        "lower": float(scan.lower[cell]),
        "upper": float(scan.upper[cell]),
        **where,
        "target_symbol": entry,
        "target": target_key(asked.subject.question.target),
        "kind": scan.kind,
        "rounding": scan.rounding,
        "method": scan.method,
        "reason": scan.reason,
        **error_columns(scan.measured_error),
        **asked.hashes,
        **asked.names(where["position"], where["symbol"]),
    }
    if asked.record is not None:
        record["record"] = asked.record
    return record


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanParts(Parts[AskedScan, Scan]):
    """A scan in parts of positions; made by `plan`."""

    layout: Layout  # of the table of all positions

    @classmethod
    def plan(cls, asked: AskedScan, mesh: Mesh | None = None) -> "ScanParts":
        """Chooses method, rounding, size and key of parts; refuses a map beyond memory."""
        question = asked.subject.question
        whole = asked.request_at(asked.positions, mesh=mesh, table=asked.table)
        choice = choose_method(question.method, whole)
        layout, way = whole.layout, choice.way
        assert isinstance(way, Method)
        assert layout is not None
        rounding = choose_rounding(whole, way, asked.rounding)
        cells, shape, square = layout.cells, layout.shape, layout.reduction.square
        if square:
            require_table("the table of the map", as_table(layout))
        each = cells.shape[1] if square or layout.reduction.by_cell else 1
        blocks = BLOCKS * (choice.sizes.substitutions if choice.sizes else 0)
        size = min(
            -(-max(blocks, PART) // cells.shape[1]),
            int(PART_BYTES / (24.0 * each * np.prod(shape))),
            len(cells),
        )
        parts = cls(
            asked=asked,
            whole=whole,
            choice=choice,
            rounding=rounding,
            positions=layout.positions,
            size=max(1, size),
            key={},
            mesh=mesh,
            layout=layout,
        )
        # Sizes change the last bits: results of other sizes are not continued.
        sizes = choose_method(way.name, parts.request(0, parts.size)).sizes
        key = {
            **key_of("scan", asked, choice, rounding),
            "target": target_key(question.target),
            "target_symbols": asked.table.target_symbols,
            "rows": _rows(asked, layout),
            # The parts of a map are those of a table.
            "reduce": "none" if square else asked.table.reduce,
            "diagonal": square or layout.keeps_diagonal,
            "symbols_sha256": _sha256(layout.symbols),
            "positions_sha256": _sha256(layout.positions),
            **block_columns(sizes),
        }
        return dataclasses.replace(parts, key=key)

    def describe(self) -> list[str]:
        """Lines of a dry run of `scan`: setting, shape, method, parts, cost and sizes."""
        asked, layout = self.asked, self.layout
        table = asked.axes(layout)
        cells = math.prod(table.values())
        kept = 2 * cells  # with how far they moved
        if layout.reduction.by_target:  # the whole tables of all runs
            kept = layout.cells.size * math.prod(as_table(layout).shape)
            kept *= 1 + runs_of(self.rounding)
        named = " x ".join(f"{size} {axis}s" for axis, size in table.items())
        title, written = [], [f"scan.npz: {cells} cells, {ARRAYS * cells / 1e6:.3g} MB"]
        if asked.record is not None:  # several share scan.csv, and have no scan.npz
            title, written = [f"record {asked.record}:"], []
        return [
            *title,
            *self.describe_setting(asked.watched),
            f"scan: {named}",
            *self.describe_work(
                self.requests(),
                f"in {len(self.starts)} parts of at most {self.size} positions; each is "
                "kept when it is done",
            ),
            f"store: {kept} numbers, at most {STORED * kept / 1e6:.3g} MB",
            *written,
        ]

    def request(self, start: int, stop: int) -> InfluenceRequest:
        """Request of the positions [start, stop); of a Frobenius map, of its table."""
        part = self.whole.only(slice(start, stop))
        if part.layout is None or not part.layout.reduction.square:
            return part
        return dataclasses.replace(part, layout=as_table(part.layout))

    def find(self, cell: Record, request: InfluenceRequest, report: Report) -> Record:
        """Record of a part: values and moves, or each run's table if all entries are kept."""
        way = choose_method(self.choice.way.name, request).way
        assert isinstance(way, Method)
        runs = runs_of(self.rounding)
        if self.layout.reduction.by_target:  # also of a map
            arrays, last = run_tables(request, way, runs, report)
            ties = last and last.ties
            magnitude = magnitude_of(request, way)
        else:
            found = compute_values(request, way, runs, report)
            arrays, ties = [found.values, found.moves], found.ties
            magnitude = found.magnitude
        where = self.label(cell["start"], cell["stop"])
        judge_ties(request.model, ties, where, self.asked.subject.question.ties)
        report(1, 1)
        return {
            "shape": arrays[0].shape,
            "ambiguous": ties is not None and ties.ambiguous,
            "magnitude": magnitude,
            "arrays": [pack(array) for array in arrays],
        }

    @property
    def moves_top(self) -> bool:
        """True if the largest cells are recomputed with moved inputs at the end."""
        return has_top(self.whole, self.choice, self.rounding)

    def values(self, found: Sequence[Record]) -> Float[np.ndarray, "rows *axes"]:
        """Values of all cells, from all parts' records in order."""
        return np.concatenate([_arrays(one)[0] for one in found])

    def result(
        self, found: Sequence[Record], top: Record | None, error: MeasuredError | None
    ) -> Scan:
        """Joins the parts, in order, with the moved runs `top` of the largest cells."""
        parts = [_arrays(one) for one in found]
        magnitude = max(one["magnitude"] for one in found)
        arrays = [np.concatenate(x) for x in zip(*parts, strict=True)]
        layout = self.layout

        def make(table: np.ndarray) -> np.ndarray:
            ordered = functools.partial(layout.in_order, table)
            return layout.reduction.make(layout, lambda: layout.pieces(ordered()))

        if layout.reduction.square:
            arrays = list(map(make, arrays))
        if layout.reduction.by_target:
            arrays = compare(self.whole, arrays)
        joined = add_top(Found(arrays[0], arrays[1], magnitude, None), top)
        scan = settle(self.whole, self.choice, joined, self.rounding)
        scan = dataclasses.replace(scan, measured_error=error)
        recipe = self.asked.recipe
        return scan if recipe is None else recipe.finish(scan)


def _rows(asked: AskedScan, layout: Layout) -> Any:
    """Rows that a scan watches, for its key; None if it watches the last row alone."""
    if layout.alone:
        row = choose_query(asked.table.rows, asked.subject.model)
        return None if row == -1 else row
    return layout.rows.tolist()


def as_table(layout: Layout) -> Layout:
    """Layout of the table, with its diagonal, from which a Frobenius map is made."""
    table = Table(by_target=True)
    return dataclasses.replace(layout, reduction=table, keeps_diagonal=True)


def _arrays(found: Mapping[str, Any]) -> list[np.ndarray]:
    return [unpack(text, *found["shape"]) for text in found["arrays"]]


def _sha256(array: np.ndarray) -> str:
    return sha256(canonical_json(array.tolist()).encode())
