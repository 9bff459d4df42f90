"""A scan in parts of positions, so that long work is saved as it is found and resumed.

Tables, maxima and means go position by position: their parts are concatenated. A
Frobenius map needs all positions at once, and is made of the parts of their table.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.packed import pack, unpack
from bounds.cli.shared.precision import split_error, with_error
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import Subject, block_columns, tokens_sha256
from bounds.influence.choice import Choice
from bounds.influence.method import Done, Method, Rounding
from bounds.influence.moved import magnitude_of
from bounds.influence.rounding import choose_rounding, runs_of
from bounds.influence.run import Run
from bounds.influence.scan import Scan, making
from bounds.influence.scan.making import Made
from bounds.influence.scan.question import Question
from bounds.influence.scan.reductions import Piece, Reduce, require_table
from bounds.influence.substitution import choose_query
from bounds.influence.ties import Ties, judge_ties
from bounds.store.forms import COUNT, SIZE
from bounds.store.output import canonical_json, sha256
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.run.mesh import first_says

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

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """The input."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    @property
    def hashes(self) -> dict[str, str]:
        """Columns that identify the model and the input."""
        return {**self.subject.named, "tokens_sha256": tokens_sha256(self.tokens)}

    def question(self, mesh: Mesh | None = None) -> Question:
        """The scan as `bounds.scan` makes it."""
        asked, symbols = self.subject.question, self.symbols
        if symbols is not None and symbols.ndim == 2 and self.positions is not None:
            symbols = symbols[np.asarray(self.positions)]
        return Question.ask(
            self.subject.model,
            self.tokens,
            symbols=symbols,
            positions=self.positions,
            rows=self.rows,
            target=asked.target,
            target_symbols=self.target_symbols,
            reduce=self.reduce,
            diagonal=self.diagonal,
            run=Run(mesh=mesh, memory_limit=asked.memory_limit),
            precision=asked.precision,
        )


@dataclasses.dataclass(frozen=True)
class Parts:
    """A scan in parts of positions; made by `plan`."""

    asked: Asked
    whole: Question  # about all positions
    choice: Choice
    rounding: Done  # cells with radii
    size: int  # positions of a part
    mesh: Mesh | None  # devices that substitutions are shared out over; None is one

    @classmethod
    def plan(cls, asked: Asked, mesh: Mesh | None = None) -> "Parts":
        """Parts of a request; refuses a table that does not fit the memory."""
        whole = asked.question(mesh)
        whole.require_substitutions()
        choice, cells = whole.plan(asked.subject.question.method), whole.layout.cells
        way = choice.way
        assert isinstance(way, Method)
        rounding = choose_rounding(whole.request, way, asked.rounding)
        square = whole.reduction.square
        if square:
            require_table("the table of the map", *cells.shape, *whole.shape)
        each = cells.shape[1] if square or whole.reduction.by_symbol else 1
        blocks = BLOCKS * (choice.sizes.substitutions if choice.sizes else 0)
        size = min(
            -(-max(blocks, PART) // cells.shape[1]),
            int(PART_BYTES / (24.0 * each * np.prod(whole.shape))),
            len(cells),
        )
        return cls(asked, whole, choice, rounding, max(1, size), mesh)

    def cells(self, progress: Progress | None = None) -> list[Cell]:
        """Parts as cells of a sweep."""
        asked, whole, part = self.asked, self.whole, self.whole.part(0, self.size)
        square = whole.reduction.square  # its parts are those of a table
        key = {
            "command": "scan",
            "version": __version__,
            "dtype": asked.subject.model.dtype.name,
            "target": target_key(asked.subject.question.target),
            "target_symbols": asked.target_symbols,
            "rows": self._rows,
            "reduce": "none" if square else asked.reduce,
            "diagonal": part.diagonal,
            "method": self.choice.way.name,
            "rounding": self.rounding,
            "ties": asked.subject.question.ties,
            "symbols_sha256": _sha256(whole.layout.symbols),
            "positions_sha256": _sha256(whole.layout.positions),
            # Sizes change the last bits: results of other sizes are not continued.
            **block_columns(part.plan(self.choice.way.name).sizes),
            **asked.hashes,
        }
        precision = asked.subject.question.precision
        if precision is not None:
            key["precision"] = precision
        cells = [self._cell(key, start, progress) for start, _ in self.bounds]
        return with_error(cells, precision, lambda: whole.request)

    @property
    def moves_top(self) -> bool:
        """True if the largest cells are moved when all are known."""
        return self.rounding == "top" and not self.whole.reduction.square

    def top(self, cells: Sequence[Cell], values: np.ndarray | None) -> Cell:
        """Cell that makes runs with moved inputs of the largest scan cells.

        `values` are those of all cells; None in a process that follows.
        """
        whole, count = self.whole, len(self.whole.layout.positions)
        config = {**cells[0].config, "start": count, "stop": count, "part": "top"}

        def compute() -> dict[str, Any]:
            rows = np.zeros(0, np.int64)
            if values is not None:
                rows = making.top(whole, values, self.choice)
            rows = np.frombuffer(first_says(rows.tobytes()), np.int64)
            some = making.only(whole, rows, self.choice)
            moves = making.find(some, self.choice, "all").moves
            shape = moves.shape
            return {
                "ambiguous": False,
                "rows": rows,
                "shape": shape,
                "moves": pack(moves),
            }

        form = {
            "ambiguous": bool,
            "rows": [range(count)],
            "shape": [COUNT],
            "moves": str,
        }
        return Cell(config, "the largest again, moved", compute, form=form)

    def values(self, found: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Values of all parts."""
        return np.concatenate([_arrays(one)[0] for one in found])

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Start and stop of the positions of each part."""
        count = len(self.whole.layout.positions)
        starts = range(0, count, self.size)
        return [(start, min(start + self.size, count)) for start in starts]

    @property
    def _rows(self) -> Any:
        """Rows that every part watches; None is the last row alone."""
        if self.whole.alone:
            row = choose_query(self.asked.rows, self.asked.subject.model)
            return None if row == -1 else row
        return self.whole.layout.rows.tolist()

    def _cell(
        self, key: Mapping[str, Any], start: int, progress: Progress | None
    ) -> Cell:
        """Part that begins with a position."""
        positions = self.whole.layout.positions
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

            part = self.whole.part(start, stop)
            choice = part.plan(self.choice.way.name)
            assert isinstance(choice.way, Method)
            if self.whole.reduction.by_target:  # the tables of all runs
                met: list[Ties | None] = []
                arrays = making.made(part, choice, runs_of(self.rounding), met, report)
                magnitude = magnitude_of(part.request, choice.way)
                ties = met[0] if met else None
            else:
                made = making.find(part, choice, self.rounding, report)
                arrays, ties = [made.values, made.moves], made.ties
                magnitude = made.magnitude
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
        part = self.whole.part(start, stop)
        there, rows = part.layout.cells >= 0, part.shape
        if not part.reduction.by_symbol:
            there, rows = there.any(axis=1), rows[:1]
        shape = (*there.shape, *rows)
        there = np.broadcast_to(there.reshape(there.shape + (1,) * len(rows)), shape)
        signed, runs = self.whole.reduction.by_target, runs_of(self.rounding)
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
        whole = self.whole
        if whole.reduction.by_target:
            made = whole.reduction.make
            tables = arrays
            if whole.reduction.square:
                tables = [
                    made(whole.layout, whole.shape, lambda table=x: self._pieces(table))
                    for x in arrays
                ]
            joined = making.compared(whole, tables, magnitude, None)
        else:
            joined = Made(arrays[0], arrays[1], magnitude, None)
        if top is not None:
            moves = joined.moves.copy()
            moves[np.asarray(top["rows"])] = unpack(top["moves"], *top["shape"])
            joined = dataclasses.replace(joined, moves=moves)
        scan = making.result(whole, joined, self.choice, self.rounding)
        return dataclasses.replace(scan, measured_error=error)

    def _pieces(self, table: np.ndarray) -> Iterator[Piece]:
        """Changes of each position, from the table of all."""
        for row, cells in enumerate(self.whole.layout.cells):
            columns = np.flatnonzero(cells >= 0)
            if columns.size:
                yield row, columns, table[row, columns]


def _arrays(found: Mapping[str, Any]) -> list[np.ndarray]:
    return [unpack(text, *found["shape"]) for text in found["arrays"]]


def _sha256(array: np.ndarray) -> str:
    return sha256(canonical_json(array.tolist()).encode())
