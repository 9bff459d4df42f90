"""A scan in parts of positions, so that long work is saved as it is found and resumed.

Tables, maxima and means go position by position: their parts are concatenated. A
Frobenius map needs all positions at once, and is made of the parts of their table.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

import jax_models as jm
from bounds.cli.parts import add_top, top_cell
from bounds.cli.scan_recipe import Recipe
from bounds.cli.shared.packed import pack, unpack
from bounds.cli.shared.precision import split_error, with_error
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import Subject, block_columns, tokens_sha256
from bounds.influence.answer import settle
from bounds.influence.build import Edit, TableOptions
from bounds.influence.choice import Choice, choose_method
from bounds.influence.find import (
    compare,
    compute_values,
    has_top,
    run_tables,
)
from bounds.influence.method import Done, Method, Rounding
from bounds.influence.moved import magnitude_of
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Found
from bounds.influence.rounding import choose_rounding, runs_of
from bounds.influence.substitution import choose_query
from bounds.influence.table.layout import Layout
from bounds.influence.table.reductions import Reduce, Table, require_table
from bounds.influence.table.result import Scan
from bounds.influence.ties import judge_ties
from bounds.store.forms import COUNT, SIZE
from bounds.store.output import canonical_json, sha256
from bounds.store.sweep import Cell
from bounds.version import __version__

# Substitutions of a part, at least, and blocks of a method that works in blocks.
PART, BLOCKS = 256, 2
# Bytes of a part's table, at most, unless one position alone has more.
PART_BYTES = 2**26


@dataclasses.dataclass(frozen=True)
class Asked:
    """Request of the command `scan`."""

    subject: Subject
    rows: Any  # as in `bounds.scan`
    reduce: Reduce
    positions: Sequence[int] | None = None  # those changed; None is all
    # Padded with -1; None is all.
    symbols: Int[np.ndarray, "*tokens symbols"] | None = None
    target_symbols: Sequence[int] | None = None  # entries that count; None is all
    diagonal: bool = True  # cells whose position is the row count
    tokenizer: jm.Tokenizer | None = None
    rounding: Rounding = "auto"  # cells with radii
    edit: Edit = "replace"
    recipe: Recipe | None = None
    record: str | None = None  # name of the input among several

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """The input."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    @property
    def alone(self) -> Callable[[], Scan] | None:
        """Function that computes the recipe by one pass, without parts."""
        return self.recipe and self.recipe.alone

    @property
    def hashes(self) -> dict[str, str]:
        """Columns that identify the model and the input."""
        return {**self.subject.named, "tokens_sha256": tokens_sha256(self.tokens)}

    def request(self, mesh: Mesh | None = None) -> InfluenceRequest:
        """The request as `bounds.scan` makes it."""
        symbols, positions = self.symbols, self.positions
        if symbols is not None and symbols.ndim == 2 and positions is not None:
            symbols = symbols[np.asarray(positions)]
        table = self.rows, self.target_symbols, self.reduce, self.diagonal, self.edit
        return self.subject.question.request(
            self.subject.model,
            self.tokens,
            mesh=mesh,
            symbols=symbols,
            positions=positions,
            table=TableOptions(*table),
        )


@dataclasses.dataclass(frozen=True)
class Parts:
    """A scan in parts of positions; made by `plan`."""

    asked: Asked
    whole: InfluenceRequest  # of all positions
    choice: Choice
    rounding: Done  # cells with radii
    size: int  # positions of a part
    mesh: Mesh | None  # devices that substitutions are shared out over; None is one

    @classmethod
    def plan(cls, asked: Asked, mesh: Mesh | None = None) -> "Parts":
        """Parts of a request; refuses a table that does not fit the memory."""
        whole = asked.request(mesh)
        choice = choose_method(asked.subject.question.method, whole)
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
        return cls(asked, whole, choice, rounding, max(1, size), mesh)

    @property
    def layout(self) -> Layout:
        """Layout of the table of all positions."""
        assert self.whole.layout is not None
        return self.whole.layout

    def part(self, start: int, stop: int) -> InfluenceRequest:
        """The request of positions [start, stop); of a map, of their table."""
        part = self.whole.only(slice(start, stop))
        if part.layout is None or not part.layout.reduction.square:
            return part
        return dataclasses.replace(part, layout=as_table(part.layout))

    def cells(self, progress: Progress | None = None) -> list[Cell]:
        """Parts as cells of a sweep."""
        asked, layout, part = self.asked, self.layout, self.part(0, self.size)
        square = layout.reduction.square  # its parts are those of a table
        key = {
            "command": "scan",
            "version": __version__,
            "dtype": asked.subject.model.dtype.name,
            "target": target_key(asked.subject.question.target),
            "target_symbols": asked.target_symbols,
            "rows": self._rows,
            "reduce": "none" if square else asked.reduce,
            "diagonal": square or layout.keeps_diagonal,
            "method": self.choice.way.name,
            "rounding": self.rounding,
            "ties": asked.subject.question.ties,
            "symbols_sha256": _sha256(layout.symbols),
            "positions_sha256": _sha256(layout.positions),
            # Sizes change the last bits: results of other sizes are not continued.
            **block_columns(choose_method(self.choice.way.name, part).sizes),
            **asked.hashes,
        }
        precision = asked.subject.question.precision
        if precision is not None:
            key["precision"] = precision
        cells = [self._cell(key, start, progress) for start, _ in self.bounds]
        return with_error(cells, precision, lambda: self.whole)

    @property
    def moves_top(self) -> bool:
        """True if the largest cells are moved when all are known."""
        return has_top(self.whole, self.choice, self.rounding)

    def top(self, cells: Sequence[Cell], values: np.ndarray | None) -> Cell:
        """Cell that makes runs with moved inputs of the largest scan cells.

        `values` are those of all cells; None in a process that follows.
        """
        key, count = cells[0].config, len(self.layout.positions)
        return top_cell(key, lambda: self.whole, self.choice, count, values)

    def values(self, found: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Values of all parts."""
        return np.concatenate([_arrays(one)[0] for one in found])

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Start and stop of the positions of each part."""
        count = len(self.layout.positions)
        starts = range(0, count, self.size)
        return [(start, min(start + self.size, count)) for start in starts]

    @property
    def _rows(self) -> Any:
        """Rows that every part watches; None is the last row alone."""
        if self.layout.alone:
            row = choose_query(self.asked.rows, self.asked.subject.model)
            return None if row == -1 else row
        return self.layout.rows.tolist()

    def _cell(
        self, key: Mapping[str, Any], start: int, progress: Progress | None
    ) -> Cell:
        """Part that begins with a position."""
        positions = self.layout.positions
        stop = min(start + self.size, len(positions))
        label = f"positions {positions[start]} to {positions[stop - 1]}"
        question = self.asked.subject.question

        def compute() -> dict[str, Any]:
            reported = 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                if progress is not None:
                    now = (stop - start) * done // total
                    progress.advance(label, now - reported)
                    reported = now

            part = self.part(start, stop)
            way = choose_method(self.choice.way.name, part).way
            assert isinstance(way, Method)
            runs = runs_of(self.rounding)
            if (
                self.layout.reduction.by_target
            ):  # the tables of all runs, also for a map
                arrays, ties = run_tables(part, way, runs, report)
                magnitude = magnitude_of(part, way)
            else:
                found = compute_values(part, way, runs, report)
                arrays, ties = [found.values, found.moves], found.ties
                magnitude = found.magnitude
            judge_ties(self.asked.subject.model, ties, label, question.ties)
            report(1, 1)
            return {
                "shape": arrays[0].shape,
                "ambiguous": ties is not None and ties.ambiguous,
                "magnitude": magnitude,
                "arrays": [pack(array) for array in arrays],
            }

        form = {
            **{"ambiguous": bool, "shape": [COUNT], "magnitude": SIZE},
            "arrays": [str],
            "=": lambda found: self._is_part(start, stop, found),
        }
        return Cell({**key, "start": start, "stop": stop}, label, compute, form=form)

    def _is_part(self, start: int, stop: int, found: Mapping[str, Any]) -> bool:
        """True if the record has a part's shape, and numbers at all substitutions."""
        layout = self.part(start, stop).layout
        assert layout is not None
        there, rows = layout.cells >= 0, layout.shape
        own = layout.diagonal if layout.deletes and layout.of_row else None
        if not layout.reduction.by_cell:
            there, rows = there.any(axis=1), rows[:1]
        shape = (*there.shape, *rows)
        there = np.broadcast_to(there.reshape(there.shape + (1,) * len(rows)), shape)
        if own is not None:
            own = own[:, None].reshape(own.shape[0], 1, -1, *(1,) * (len(rows) - 1))
            there = there & ~own
        signed, runs = self.layout.reduction.by_target, runs_of(self.rounding)
        count = 1 + runs if signed else 2
        if tuple(found["shape"]) != shape or len(found["arrays"]) != count:
            return False
        try:
            arrays = _arrays(found)
        except ValueError:
            return False
        whole = arrays if signed else arrays[:1]  # moves may be of no run
        return all((np.isfinite(array) == there).all() for array in whole)

    def join(
        self, found: Sequence[Mapping[str, Any]], top: Mapping[str, Any] | None = None
    ) -> Scan:
        """Joins the parts, given in order, and the moves of the largest cells."""
        found, error = split_error(found)
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


def as_table(layout: Layout) -> Layout:
    """Layout of the whole table that a map is made of, its diagonal included."""
    table = Table(by_target=True)
    return dataclasses.replace(layout, reduction=table, keeps_diagonal=True)


def _arrays(found: Mapping[str, Any]) -> list[np.ndarray]:
    return [unpack(text, *found["shape"]) for text in found["arrays"]]


def _sha256(array: np.ndarray) -> str:
    return sha256(canonical_json(array.tolist()).encode())
