"""A scan in parts of positions, so that long work is kept as it is found and resumed.

Tables, maxima and means go position by position: theirs are put behind one another. A
Frobenius map is of all positions at once, and is made of the parts of their table.
"""

import base64
import dataclasses
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

import jax_models as jm
from bounds.cli.shared.precision import split_error, with_error
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import Subject, block_columns, tokens_sha256
from bounds.influence.scan import Frobenius, Scan
from bounds.influence.scan.question import Question
from bounds.influence.scan.reductions import Piece, Reduce, require_table
from bounds.influence.substitution import choose_query
from bounds.influence.ties import judge_ties
from bounds.store.forms import COUNT
from bounds.store.output import canonical_json, sha256
from bounds.store.sweep import Cell
from bounds.version import __version__

# Substitutions of a part, at least, and blocks of a method that works in such.
PART, BLOCKS = 256, 2
# Bytes of its table, if more than one position has more.
PART_BYTES = 2**26
ENDS = ("values", "lower", "upper")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the flags of `scan` ask.

    Attributes:
        subject: The model, its hash, the input, and what is asked.
        rows: Which are watched, as `bounds.scan` takes them.
        reduce: What is made of the table.
        positions: Which are changed; None is all.
        symbols: What is put in [K], or at each position of the input [n, K], filled up
            with -1; None is all that the model substitutes.
        target_symbols: The entries of the target that count; None is all.
        diagonal: Whether cells whose position is the row count.
        tokenizer: What names symbols; None where they are numbers.
    """

    subject: Subject
    rows: Any
    reduce: Reduce
    positions: Sequence[int] | None = None
    symbols: np.ndarray | None = None
    target_symbols: Sequence[int] | None = None
    diagonal: bool = True
    tokenizer: jm.Tokenizer | None = None

    @property
    def tokens(self) -> np.ndarray:
        """The input [n]."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    @property
    def hashes(self) -> dict[str, str]:
        """What names the model and the input."""
        return {**self.subject.named, "tokens_sha256": tokens_sha256(self.tokens)}

    def question(self, mesh: Mesh | None = None) -> Question:
        """Returns the scan's question, as `bounds.scan` asks it."""
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
            mesh=mesh,
            memory_limit=asked.memory_limit,
            precision=asked.precision,
        )


@dataclasses.dataclass(frozen=True)
class Parts:
    """A scan in parts of positions. `plan` says which.

    Attributes:
        asked: What is asked.
        whole: The question about all positions.
        method: Of all parts.
        reason: Why it is that one.
        size: Positions of a part.
        mesh: Devices that substitutions are shared out over; None is one.
    """

    asked: Asked
    whole: Question
    method: str
    reason: str
    size: int
    mesh: Mesh | None

    @classmethod
    def plan(cls, asked: Asked, mesh: Mesh | None = None) -> "Parts":
        """Returns the parts of what is asked, or refuses what does not fit."""
        whole = asked.question(mesh)
        whole.require_substitutions()
        choice, cells = whole.plan(asked.subject.question.method), whole.layout.cells
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
        return cls(asked, whole, choice.way.name, choice.reason, max(1, size), mesh)

    def cells(self, progress: Progress | None = None) -> list[Cell]:
        """Returns the parts as cells of a sweep."""
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
            "method": self.method,
            "ties": asked.subject.question.ties,
            "symbols_sha256": _sha256(whole.layout.symbols),
            "positions_sha256": _sha256(whole.layout.positions),
            # Sizes change the last bits: results of others are not gone on from.
            **block_columns(part.plan(self.method).sizes),
            **asked.hashes,
        }
        precision = asked.subject.question.precision
        if precision is not None:
            key["precision"] = precision
        cells = [self._cell(key, start, progress) for start, _ in self.bounds]
        return with_error(cells, precision, lambda: whole.problem)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The first of each part's positions, and what is behind its last."""
        count = len(self.whole.layout.positions)
        starts = range(0, count, self.size)
        return [(start, min(start + self.size, count)) for start in starts]

    @property
    def _rows(self) -> Any:
        """The rows that every part watches; None is the last one alone."""
        if self.whole.alone:
            row = choose_query(self.asked.rows, self.asked.subject.model)
            return None if row == -1 else row
        return self.whole.layout.rows.tolist()

    def _cell(
        self, key: Mapping[str, Any], start: int, progress: Progress | None
    ) -> Cell:
        """The part that begins with a position."""
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
            ends, seen = part.find(part.plan(self.method), report)
            judge_ties(self.asked.subject.model, seen, label, question.ties)
            report(1, 1)
            return {
                "shape": ends[0].shape,
                "ambiguous": seen is not None and seen.ambiguous,
                **{name: _pack(end) for name, end in zip(ENDS, ends, strict=True)},
            }

        form = {
            **{"ambiguous": bool, "shape": [COUNT], **dict.fromkeys(ENDS, str)},
            "=": lambda found: self._is_part(start, stop, found),
        }
        return Cell({**key, "start": start, "stop": stop}, label, compute, form=form)

    def _is_part(self, start: int, stop: int, found: Mapping[str, Any]) -> bool:
        """Whether what was recorded has the shape of a part, and numbers where it has."""
        part = self.whole.part(start, stop)
        there, rows = part.layout.cells >= 0, part.shape
        if not part.reduction.by_symbol:
            there, rows = there.any(axis=1), rows[:1]
        shape = (*there.shape, *rows)
        there = np.broadcast_to(there.reshape(there.shape + (1,) * len(rows)), shape)
        if tuple(found["shape"]) != shape:
            return False
        try:
            ends = [_unpack(found, name) for name in ENDS]
        except (ValueError, zlib.error):
            return False
        return all((np.isfinite(end) == there).all() for end in ends)

    def join(self, found: Sequence[Mapping[str, Any]]) -> Scan:
        """Returns the scan that parts make, in order."""
        found, error = split_error(found)
        if not isinstance(self.whole.reduction, Frobenius):
            parts = [[_unpack(one, end) for end in ENDS] for one in found]
            values, lower, upper = (np.concatenate(x) for x in zip(*parts, strict=True))
            ends = values, lower, upper
        else:
            ends = self.whole.reduction.make(
                self.whole.layout, self.whole.shape, lambda: self._pieces(found)
            )
        joined = self.whole.result(ends, self.method, self.reason, None)
        return dataclasses.replace(joined, measured_error=error)

    def _pieces(self, found: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
        """The changes of each position, from the parts of the table."""
        row = 0
        for one in found:
            for values, upper in zip(
                _unpack(one, "values"), _unpack(one, "upper"), strict=True
            ):
                columns = np.flatnonzero(self.whole.layout.cells[row] >= 0)
                if columns.size:
                    changes, above = values[columns], upper[columns]
                    # No less than the radius that was added, and rounded.
                    radius = (above - changes + np.spacing(np.abs(above))).max(axis=-1)
                    moved = ((changes != 0) | (above != 0)).any(axis=-1)
                    yield row, columns, changes, np.where(moved, radius, 0.0)
                row += 1


def _sha256(array: np.ndarray) -> str:
    return sha256(canonical_json(array.tolist()).encode())


def _pack(array: np.ndarray) -> str:
    """An array's float64 as text: JSON has no NaN, and more than twice the characters."""
    content = np.ascontiguousarray(array, "<f8").tobytes()
    return base64.b64encode(zlib.compress(content, 1)).decode()


def _unpack(part: Mapping[str, Any], name: str) -> np.ndarray:
    size = 8 * math.prod(part["shape"])
    # No more than the array's, whatever it would grow to.
    content = zlib.decompressobj().decompress(base64.b64decode(part[name]), size + 1)
    return np.frombuffer(content, "<f8").reshape(part["shape"])
