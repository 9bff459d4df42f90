"""A request in parts of positions, each of which is a row (cell) of a store of results.

A request asks about one input: the influence (norm of the output's change) of each
substitution of a symbol at a position, or with a layout the scan, a table of changes by
position; a map is a scan's table reduced to one number for each pair of position and
output row. A part is computed and saved at once, so that a run that is stopped loses
one. Parts of scans have a fixed size; those of influences take some seconds each, by
the seconds of the part before, and no value or key depends on their size. A screen
encloses influences between bounds and evaluates some exactly; a proposal computes all
in a cheap float type first. Both have one part. A tie of hard-attention scores is
ambiguous if rounding decides it.

A record has arrays over a part's substitutions, or over its rows of a scan's table:
values, and moves, their largest distances from reruns with floats off by roundings, of
which radii (bounds on rounding) are made. A screen or a proposal adds lower and upper
ends (bounds of the values), and where these enclose. Of signed entries of a target,
which a map mixes, it has the table of each run instead.

Of several processes the first leads: it alone has the store, chooses the parts and
keeps what is found; the others follow, and compute their share of each part.
"""

import base64
import contextlib
import dataclasses
import functools
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int, Shaped

from bounds.influence.answer import settle
from bounds.influence.checkpoint import checkpoint_name
from bounds.influence.choice import Choice, choose_method
from bounds.influence.find import (
    compare,
    find,
    has_top,
    run_tables,
    top_moves,
    top_rows,
)
from bounds.influence.method import Done, Method, Rounding, Run, Screen, Way
from bounds.influence.methods.exhaustive import Exhaustive
from bounds.influence.methods.incremental import is_sparse
from bounds.influence.methods.lumped import Lumped
from bounds.influence.methods.proposed import Proposed
from bounds.influence.moved import magnitude_of
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import (
    Enclosures,
    Found,
    Level,
    MeasuredError,
    judge_ties,
)
from bounds.influence.rounding import choose_rounding, runs_of
from bounds.influence.screening.ladder import Screened
from bounds.influence.table.layout import Layout
from bounds.influence.table.reductions import NAMED, require_table
from bounds.rounding.ranked import measure_error
from bounds.store.file import explained
from bounds.store.output import sha256
from bounds.store.results import ResultStore, cell_key
from bounds.store.sweep import Cell, obtain
from bounds.version import __version__
from jax_models.run.evaluate import TieRule
from jax_models.run.mesh import check_agreement, count_devices, first_says
from jax_models.run.progress import Progress

# Intended seconds of a part of influences.
SECONDS = 10.0
# Of records; parts whose records have another are computed again.
FORMAT = 2
# Substitutions beyond which only the largest influence of each position is kept.
MAX_PAIRS = 2**18
# The same for entries [n, V], since tables are formed of all symbols.
MAX_TABLE = 2**24
# The method's own blocks of a part of influences, at least: as many run at a time.
UNDER_WAY = 2
# Substitutions of such a part, at least, where a method sizes its blocks as it runs.
SPARSE_PART = 64
# Substitutions of a part of a scan, at least, and blocks of a method that works in blocks.
PART, BLOCKS = 256, 2
# Bytes of the table of such a part, at most, unless one position alone has more.
PART_BYTES = 2**26
ENDS = ("lower", "upper", "enclosed")
ERROR = "measured_error"
Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Request on one input in parts of consecutive replaced positions, with options."""

    whole: InfluenceRequest  # of all positions
    choice: Choice
    rounding: Done  # results with radii
    ties: TieRule
    named: Record  # entries of the key on model, input and table
    folder: Path  # of the checkpoint of a screen or a proposal
    size: int  # positions of a part, at most
    least: int  # and at least, if others are left
    progress: Progress | None = None  # counts positions as they are done

    @classmethod
    def plan(
        cls,
        whole: InfluenceRequest,
        method: Way | str,
        rounding: Rounding,
        ties: TieRule,
        named: Record,
        folder: Path,
    ) -> Self:
        """`Parts` with method, radii and sizes chosen; raises if a map is too large."""
        choice = choose_method(method, whole)
        size, least = part_sizes(whole, choice)
        return cls(
            whole=whole,
            choice=choice,
            rounding=choose_rounding(whole, choice.way, rounding),
            ties=ties,
            named=named,
            folder=folder,
            size=size,
            least=least,
        )

    @functools.cached_property
    def key(self) -> Record:
        """Entries of a store row's key that all parts share: all but the part's start."""
        whole, way, layout = self.whole, self.choice.way, self.whole.layout
        sizes, changed = self.choice.sizes, (whole.position, whole.symbol)
        more: dict[str, Any] = {}
        if layout is not None:
            changed = layout.positions, layout.symbols
            more["diagonal"] = self.is_map or layout.keeps_diagonal
            more |= {} if layout.alone else {"rows": layout.rows.tolist()}
        if self.is_map:
            more["reduce"] = "none"
        if isinstance(way, Proposed):
            more["propose"] = way.precision
        if isinstance(way, Screened):
            more |= {"rtol": way.rtol, "budget": way.budget}
        positions, symbols = (np.ascontiguousarray(x, "<i8") for x in changed)
        return {
            "version": __version__,
            "format": FORMAT,
            "dtype": whole.model.dtype.name,
            "method": way.name,
            "precision": whole.precision and whole.precision.name,
            "rounding": self.rounding,
            "ties": self.ties,
            "rows": "own" if whole.own else whole.query,
            "positions_sha256": sha256(positions.tobytes()),
            "symbols_sha256": sha256(symbols.tobytes()),
            # Sizes change the last bits: results of other sizes are not continued. A
            # limit that leaves the sizes as they are changes nothing.
            "block_substitutions": (sizes and sizes.substitutions) or None,
            "block_rows": sizes and sizes.rows,
            **self.named,
            **more,
        }

    @functools.cached_property
    def positions(self) -> Int[np.ndarray, "positions"]:
        """Positions that are divided into parts, in the order of the table."""
        layout = self.whole.layout
        return np.arange(self.whole.tokens.size) if layout is None else layout.positions

    @property
    def is_map(self) -> bool:
        """True if the result is a map, reduced from the joined tables of all parts."""
        return self.whole.layout is not None and self.whole.layout.reduction.square

    @property
    def keeps_runs(self) -> bool:
        """True if records hold the signed table of each run in place of values and moves."""
        # A map is made of the table that --reduce=none writes, and shares its parts.
        layout = self.whole.layout
        return layout is not None and layout.reduction.by_target

    def request(self, start: int, stop: int) -> InfluenceRequest:
        """Request of the positions [start, stop), for a map with its table as layout."""
        whole = self.whole
        if whole.layout is None:
            ends = self.positions[[start, stop - 1]] + (0, 1)
            return whole.only(slice(*np.searchsorted(whole.position, ends)))
        part = whole.only(slice(start, stop))
        if self.is_map and part.layout is not None:
            return dataclasses.replace(part, layout=as_table(part.layout))
        return part

    def stop(self, start: int, most: int) -> int:
        """End index of a part from `start`, of about `most` positions."""
        last = min(start + self.size, len(self.positions))
        end = start + max(1, most // self.least) * self.least
        return end if end + self.least <= last else last

    def label(self, start: int, stop: int) -> str:
        """Words that name the positions from `start` to `stop` - 1."""
        return f"positions {self.positions[start]} to {self.positions[stop - 1]}"

    def cell(self, start: int, stop: int = 0) -> Cell:
        """Store row and computation of positions [start, stop); its key omits `stop`."""
        config = {**self.key, "start": start}

        def compute() -> Record:
            counted, label, count = self.progress, self.label(start, stop), stop - start
            reported = 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                assert counted is not None
                if reported == count:  # a screen counts anew what it leaves open
                    counted.recount(done, total)
                else:
                    now = count * done // total
                    counted.advance(label, now - reported)
                    reported = now

            seen = None if counted is None else report
            run = Run(checkpoint=self.checkpoint(config), progress=seen)
            found = self.find(self.request(start, stop), run, label)
            if counted is not None:
                counted.advance(label, count - reported)
            return {**found, "stop": stop}

        return Cell(config, f"positions from {start}", compute)

    def find(self, request: InfluenceRequest, run: Run, label: str) -> dict[str, Any]:
        """Record of a part's results; raises or warns of ambiguous ties by `ties`."""
        way = self.choice.way
        if self.keeps_runs and isinstance(way, Method):
            runs = runs_of(self.rounding)
            tables, ties = run_tables(request, way, runs, run.progress)
            record = record_arrays(tables, magnitude_of(request, way))
        else:
            found = find(request, self.choice, self.rounding, run)
            record, ties = record_found(found), found.ties
        judge_ties(request.model, ties, label, self.ties)
        return {**record, "ambiguous": ties is not None and ties.ambiguous}

    def check(self, record: Record, start: int) -> None:
        """Raises a `ValueError` unless a record fits a part that begins at `start`."""
        stop, shape = record["stop"], record["shape"]
        if start < stop <= len(self.positions):
            is_table = self.whole.layout is not None
            count = stop - start if is_table else len(self.request(start, stop).pairs)
            if shape[0] == count:
                return
        raise ValueError(f"a part from {start} to {stop} has results of shape {shape}")

    def checkpoint(self, config: Record) -> Path | None:
        """Checkpoint file of a screen or proposal, named by its key; None for a method."""
        if not isinstance(self.choice.way, Screen):
            return None
        # A screen that is to go further continues from the same file.
        question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
        what = "proposal" if "propose" in config else "screen"
        return self.folder / checkpoint_name(question, what)

    def last(self, values: Float[np.ndarray, "rows *axes"] | None) -> Cell | None:
        """Cell that measures the largest values' moves or half precision's error; or None."""

        # A process that does not lead has no values.
        def move_top() -> Record:
            rows = np.zeros(0, np.int64)
            if values is not None:
                rows = top_rows(self.whole, self.choice, values)
            rows = np.frombuffer(first_says(rows.tobytes()), np.int64)
            moves = top_moves(self.whole, self.choice, rows)
            return {"rows": rows, **record_arrays([moves], 0.0)}

        config = {**self.key, "start": len(self.positions)}
        if has_top(self.whole, self.choice, self.rounding):
            return Cell(config, "the largest again, moved", move_top)
        if self.whole.precision is None:
            return None
        compute = lambda: error_columns(measure_error(self.whole))
        return Cell(config, "measured error", compute)

    def join(
        self,
        arrays: list[Float[np.ndarray, "..."]],
        found: Sequence[Record],
        last: Record,
    ) -> Any:
        """`Influence` or `Scan` of the joined arrays and records of all parts."""
        whole, layout = self.whole, self.whole.layout
        if self.is_map and layout is not None:
            pieces = lambda table: layout.pieces(layout.in_order(table))
            make = layout.reduction.make
            arrays = [make(layout, functools.partial(pieces, x)) for x in arrays]
        if self.keeps_runs:
            arrays = list(compare(whole, arrays))
        joined = read_found(arrays, found)
        if "rows" in last:
            (moves,) = join_arrays([last])
            joined = joined.with_moves(np.asarray(last["rows"], np.int64), moves)
        table = len(self.positions) * whole.model.vocab_size
        few = len(whole.pairs) <= MAX_PAIRS and table <= MAX_TABLE
        keep = "pairs" if few else "position_max"
        result = settle(whole, self.choice, joined, self.rounding, "ignore", keep)
        error = read_error(last) or result.measured_error
        return dataclasses.replace(result, measured_error=error)


def part_sizes(request: InfluenceRequest, choice: Choice) -> tuple[int, int]:
    """Most and fewest positions of a part; raises if the table of a map is too large."""
    way, layout, n = choice.way, request.layout, request.tokens.size
    block = choice.sizes.substitutions if choice.sizes else 0
    if layout is not None:
        cells, square = layout.cells, layout.reduction.square
        if square:
            require_table("the table of the map", as_table(layout))
        each = cells.shape[1] if square or layout.reduction.by_cell else 1
        size = min(
            -(-max(BLOCKS * block, PART) // cells.shape[1]),
            int(PART_BYTES / (24.0 * each * np.prod(layout.shape))),
            len(cells),
        )
        return max(1, size), max(1, size)
    if isinstance(way, Screen):
        return n, n  # the search is for the largest of all
    large = max(8192, -(-n // 4))
    if isinstance(way, Lumped):
        return large, large  # it looks at each class of positions once in every part
    # `exhaustive`, in buckets of lengths too, takes a base pass for every position. The
    # parts of `incremental`, worth some ten passes together, have one for all.
    most = 256
    if way.name != Exhaustive.name and len(request.model.layers) <= 2:
        most = large
    elif way.name != Exhaustive.name and is_sparse(request):
        most = max(1024, n // 16)
    # As many as the method works on at a time: each is computed as in the whole part.
    each = max(1, -(-len(request.pairs) // n))  # of a position
    together = UNDER_WAY * count_devices(request.mesh) * block or SPARSE_PART
    return most, max(1, together // each)


def as_table(layout: Layout) -> Layout:
    """Layout of the unreduced table, with its diagonal, from which a map is made."""
    return dataclasses.replace(layout, reduction=NAMED["none"], keeps_diagonal=True)


def record_found(found: Found) -> dict[str, Any]:
    """Record of a part's values and moves, or of its enclosures."""
    record = record_arrays([found.values, found.moves], found.magnitude)
    if not isinstance(found, Enclosures):
        return record
    record["arrays"] += [pack(getattr(found, name)) for name in ENDS]
    return record | {
        "left": found.left,
        "levels": list(map(dataclasses.asdict, found.levels)),
        **error_columns(found.error),
    }


def record_arrays(
    arrays: Sequence[Shaped[np.ndarray, "..."]], magnitude: float
) -> dict[str, Any]:
    """Record of arrays of one shape, as text, with their shape and `magnitude`."""
    texts = list(map(pack, arrays))
    return {"shape": arrays[0].shape, "arrays": texts, "magnitude": magnitude}


def join_arrays(records: Sequence[Record]) -> list[Float[np.ndarray, "..."]]:
    """Arrays of all parts, from their records in order."""
    read = ([unpack(x, *one["shape"]) for x in one["arrays"]] for one in records)
    return [np.concatenate(x) for x in zip(*read, strict=True)]


def read_found(
    arrays: Sequence[Float[np.ndarray, "..."]], records: Sequence[Record]
) -> Found:
    """`Found` of the joined arrays of all parts; of a screen, its `Enclosures`."""
    values, moves, *ends = arrays
    computed = values, moves, max(one["magnitude"] for one in records), None
    if not ends:
        return Found(*computed)
    lower, upper, enclosed = ends
    (one,) = records
    left = np.asarray(one["left"], np.int64)
    levels = tuple(Level(**level) for level in one["levels"])
    ends = lower, upper, enclosed.astype(bool)
    return Enclosures(*computed, *ends, left, levels, read_error(one))


def read_error(found: Record) -> MeasuredError | None:
    """Measured error of half precision in a record, None if there is none."""
    if ERROR not in found:
        return None
    # JSON lacks infinity, which stands in the store as null.
    error: Any = {x: math.inf if y is None else y for x, y in found[ERROR].items()}
    return MeasuredError(**error)


def error_columns(error: MeasuredError | None) -> dict[str, Any]:
    """Entry of a record for a measured error, by name; {} if the error is None."""
    return {} if error is None else {ERROR: dataclasses.asdict(error)}


def pack(array: Shaped[np.ndarray, "..."]) -> str:
    """Text of a float64 array: its bytes, compressed, in base64."""
    content = np.ascontiguousarray(array, "<f8").tobytes()
    return base64.b64encode(zlib.compress(content, 1)).decode()


def unpack(text: str, *shape: int) -> Float[np.ndarray, "..."]:
    """Array of a shape from the text that `pack` made; `ValueError` for other text."""
    size = 8 * math.prod(shape)
    try:  # limited to the array's size, since a damaged text may expand to any size
        content = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return np.frombuffer(content, "<f8").reshape(shape)


def run_parts(
    store: ResultStore, planned: Parts, *, fresh: bool = False
) -> tuple[Any, int, float]:
    """Result, number of parts with ambiguous ties, and seconds, earlier runs included."""
    _agree(planned.cell(0))
    found: list[Record] = []
    start, most, seconds, resumed = 0, 0, 0.0, False
    while start < len(planned.positions):
        cell = planned.cell(start, planned.stop(start, most))
        one = None if fresh else store.find(cell.config)
        if one is None:
            _tell(start, most)
            one, took = _keep(store, planned, cell, fresh)
            most = int((one["stop"] - start) * SECONDS / took)
        else:
            resumed = True
            with explained(store.path):
                planned.check(one, start)
                label = f"{planned.label(start, one['stop'])}, from the store"
            if planned.progress is not None:
                planned.progress.skip(label, one["stop"] - start)
        found.append(one)
        seconds += store.seconds(cell.config)
        start = one["stop"]
    _tell(start, 0)
    # Of results that this run made, an error over them is one of the program.
    with explained(store.path) if resumed else contextlib.nullcontext():
        arrays, last = join_arrays(found), {}
    if (cell := planned.last(arrays[0])) is not None:
        missing = fresh or store.find(cell.config) is None
        _agree(cell, missing)
        last = obtain(store, cell, fresh=fresh)
        resumed |= not missing
        seconds += store.seconds(cell.config)
    with explained(store.path) if resumed else contextlib.nullcontext():
        ambiguous = sum(one["ambiguous"] for one in found)
        return planned.join(arrays, found, last), ambiguous, seconds


def follow_parts(planned: Parts) -> None:
    """Computes this process's share of the parts that the leading process computes."""
    _agree(planned.cell(0))
    while (told := _tell(0, 0))[0] < len(planned.positions):
        planned.cell(told[0], planned.stop(*told)).compute()
    cell = planned.last(None)
    if cell is not None and _agree(cell):
        cell.compute()


def _agree(cell: Cell, chosen: bool = False) -> bool:
    """`chosen` of the leading process; raises if processes have other keys of `cell`."""
    check_agreement(cell_key(cell.config).encode())
    return bool(_tell(chosen)[0])


def _tell(*numbers: int) -> list[int]:
    """Numbers of the leading process, in every process; all pass equally many."""
    told = first_says(np.array(numbers, np.int64).tobytes())
    return np.frombuffer(told, np.int64).tolist()


def _keep(
    store: ResultStore, planned: Parts, cell: Cell, fresh: bool
) -> tuple[Record, float]:
    """Record of a store row, computed and saved here, and the seconds it took."""
    kept = planned.checkpoint(cell.config)
    if kept is not None and fresh:
        kept.unlink(missing_ok=True)
    began = time.perf_counter()
    found = obtain(store, cell, fresh=True)
    took = time.perf_counter() - began
    # A screen that did not close may be continued later.
    is_open = isinstance(planned.choice.way, Screened) and found["left"]
    if kept is not None and not is_open:
        kept.unlink(missing_ok=True)
    return found, took
