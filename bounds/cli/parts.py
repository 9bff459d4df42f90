"""Work on one input in parts of positions, for `influence` and `scan`.

A part is computed and saved at once, so that a run that is stopped loses one. Parts of
scans have a fixed size; those of influences take some seconds each, by the seconds of
the part before, and no value or key depends on their size. A screen encloses influences
between bounds and evaluates some exactly; a proposal computes all in a cheap float type
first. Both have one part.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

import jax_models as jm
from bounds.cli.part_records import (
    Record,
    error_columns,
    join_arrays,
    read_error,
    read_found,
    record_arrays,
    record_found,
)
from bounds.cli.shared.groups import OneInput
from bounds.cli.shared.input_source import open_tokenizer
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.subject import read_one
from bounds.cli.shared.target import read_substitutes, special_symbols, target_key
from bounds.curves.measurement import Subject, block_columns, tokens_sha256
from bounds.influence import InfluenceRequest, Proposed, Run, Screened
from bounds.influence.answer import proposal_reason, settle
from bounds.influence.build import TableOptions
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
from bounds.influence.method import Done, Method, Rounding, Screen
from bounds.influence.methods.exhaustive import Exhaustive
from bounds.influence.methods.incremental import is_sparse
from bounds.influence.methods.lumped import Lumped
from bounds.influence.moved import magnitude_of
from bounds.influence.result import judge_ties
from bounds.influence.rounding import choose_rounding, runs_of
from bounds.influence.table.layout import Layout
from bounds.influence.table.lines import SYMBOL_NAMES
from bounds.influence.table.reductions import Table, require_table
from bounds.influence.targets.base import Target
from bounds.influence.targets.table import as_value
from bounds.recipes.question import Recipe
from bounds.rounding.ranked import measure_error
from bounds.store.output import sha256
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.run.device_memory import bytes_label
from jax_models.run.mesh import count_devices, first_says

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
# Bytes of a cell: three float64 and one flag. A number of the store is text,
# four characters for three bytes where it cannot be compressed.
ARRAYS, STORED = 25, 11


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Model, input and options of `influence` or, with a table, of `scan`."""

    subject: Subject
    folder: Path  # of the checkpoint of a screen or a proposal
    tokenizer: jm.Tokenizer | None  # its special symbols are not replaced
    # Padded with -1; None is all.
    symbols: Int[np.ndarray, "*tokens symbols"] | None
    positions: Sequence[int] | None  # those changed; None is all
    rounding: Rounding  # results with radii
    include_query: bool = False  # the query's own token is changed too
    table: TableOptions | None = None  # as in `bounds.scan`
    recipe: Recipe | None = None
    record: str | None = None  # name of the input among several

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """Tokens of the one input."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    @property
    def hashes(self) -> dict[str, str]:
        """Columns that identify the model and the input."""
        return {**self.subject.named, "tokens_sha256": tokens_sha256(self.tokens)}

    @property
    def target(self) -> Target:
        """Watched quantity of the output."""
        return as_value(self.subject.question.target)

    @property
    def watched(self) -> str:
        """Label of a recipe's values with their unit; else the target's name."""
        return self.target.name if self.recipe is None else self.recipe.label

    def request(self, mesh: Mesh | None = None) -> InfluenceRequest:
        """Checked request about all positions."""
        symbols, positions = self.symbols, self.positions
        if symbols is not None and symbols.ndim == 2 and positions is not None:
            symbols = symbols[np.asarray(positions, np.int64)]
        return self.subject.question.request(
            self.subject.model,
            self.tokens,
            mesh,
            symbols=symbols,
            positions=positions,
            include_query=self.include_query,
            table=self.table,
        )

    def names(self, position: int | None, symbol: int | None) -> dict[str, Any]:
        """Columns of names of the token at a position and of the new symbol, if any."""
        if self.tokenizer is None:
            return {}
        old = None if position is None else int(self.tokens[position])
        name = self.tokenizer.name
        both = (None if x is None else name(x) for x in (old, symbol))
        return dict(zip(SYMBOL_NAMES, both, strict=True))

    def place(self, position: int, symbol: int | None = None) -> str:
        """Words on a position and the symbol that is put in there, if any."""
        names = self.names(position, symbol) or dict.fromkeys(SYMBOL_NAMES)
        old, new = ("" if x is None else f" ({x})" for x in names.values())
        words = f"at position {position}{old}"
        return words if symbol is None else f"{words}, symbol {symbol}{new}"


def read_asked(options: OneInput, first: Subject | None = None) -> Asked:
    """Request that the flags describe; `first` is the subject of a file's first record."""
    prepare_jax(options)
    subject = read_one(options, first)
    tokenizer = open_tokenizer(options)
    (tokens,) = subject.inputs.values()
    special = special_symbols(subject.model, tokenizer)
    plain = np.flatnonzero(~np.isin(tokens, special)).tolist()
    return Asked(
        subject=subject,
        folder=Path(options.out),
        tokenizer=tokenizer,
        symbols=read_substitutes(options, subject.model, tokenizer, tokens.size),
        positions=plain if special else None,
        rounding=options.rounding,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """A request on one input, divided into parts of consecutive positions."""

    asked: Asked
    whole: InfluenceRequest  # of all positions
    choice: Choice
    rounding: Done  # results with radii
    size: int  # positions of a part, at most
    least: int  # and at least, if others are left
    progress: Progress | None = None  # counts positions as they are done

    @classmethod
    def plan(cls, asked: Asked, mesh: Mesh | None = None) -> Self:
        """Chooses method, rounding and size of parts; refuses a map beyond the memory."""
        whole = asked.request(mesh)
        choice = choose_method(asked.subject.question.method, whole)
        size, least = part_sizes(whole, choice)
        return cls(
            asked=asked,
            whole=whole,
            choice=choice,
            rounding=choose_rounding(whole, choice.way, asked.rounding),
            size=size,
            least=least,
        )

    @functools.cached_property
    def positions(self) -> Int[np.ndarray, "positions"]:
        """Positions that are divided, in the order of the table."""
        layout = self.whole.layout
        return np.arange(len(self.asked.tokens)) if layout is None else layout.positions

    @property
    def encloses(self) -> bool:
        """True for a screen or a proposal, which also counts what it leaves open."""
        return isinstance(self.choice.way, Screen)

    @property
    def is_map(self) -> bool:
        """True if the result is made of the whole table at once."""
        return self.whole.layout is not None and self.whole.layout.reduction.square

    @property
    def keeps_runs(self) -> bool:
        """True if records hold the signed table of each run in place of values and moves."""
        # A map is made of the table that --reduce=none writes, and shares its parts.
        layout = self.whole.layout
        return layout is not None and layout.reduction.by_target

    @functools.cached_property
    def key(self) -> Record:
        """Everything that all parts depend on."""
        asked, whole, way = self.asked, self.whole, self.choice.way
        question, layout, table = asked.subject.question, whole.layout, asked.table
        changed = whole.pairs.position, whole.pairs.symbol
        more: dict[str, Any] = {}
        if layout is not None and table is not None:
            changed = layout.positions, layout.symbols
            more = {
                "target_symbols": table.target_symbols,
                "reduce": "none" if self.is_map else table.reduce,
                "diagonal": self.is_map or layout.keeps_diagonal,
                **({} if layout.alone else {"rows": layout.rows.tolist()}),
            }
        if isinstance(way, Proposed):
            more["propose"] = way.precision
        if isinstance(way, Screened):
            more |= {"rtol": way.rtol, "budget": way.budget}
        positions, symbols = (np.ascontiguousarray(x, "<i8") for x in changed)
        return {
            "command": "influence" if table is None else "scan",
            "version": __version__,
            "format": FORMAT,
            "dtype": asked.subject.model.dtype.name,
            "seed": asked.subject.seed,
            "method": way.name,
            "precision": question.precision,
            "rounding": self.rounding,
            "ties": question.ties,
            **asked.hashes,
            "target": target_key(question.target),
            "rows": "own" if whole.own else whole.query,
            "positions_sha256": sha256(positions.tobytes()),
            "symbols_sha256": sha256(symbols.tobytes()),
            # Sizes change the last bits: results of other sizes are not continued. A
            # limit that leaves the sizes as they are changes nothing.
            **block_columns(self.choice.sizes),
            **more,
        }

    def request(self, start: int, stop: int) -> InfluenceRequest:
        """Request of the positions [start, stop); of a map, of its table."""
        whole = self.whole
        if whole.layout is None:
            ends = self.positions[[start, stop - 1]] + (0, 1)
            return whole.only(slice(*np.searchsorted(whole.position, ends)))
        part = whole.only(slice(start, stop))
        if self.is_map and part.layout is not None:
            return dataclasses.replace(part, layout=as_table(part.layout))
        return part

    def stop(self, start: int, most: int) -> int:
        """End of a part of about `most` positions."""
        last = min(start + self.size, len(self.positions))
        end = start + max(1, most // self.least) * self.least
        return end if end + self.least <= last else last

    def next_size(self, done: int, seconds: float) -> int:
        """Number of positions of the next part, if `done` took so many seconds."""
        return max(1, int(done * SECONDS / seconds))

    def cell(self, start: int, stop: int = 0, earlier: Sequence[Record] = ()) -> Cell:
        """Cell of the part [start, stop); its key is the same for every end."""

        def compute() -> Record:
            label, count, reported = self.label(start, stop), stop - start, 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                now = count * done // total
                if self.progress is None or (now == count and not self.encloses):
                    return  # the last step is reported with a note
                if reported == count:  # a screen counts anew what it leaves open
                    self.progress.recount(done, total)
                else:
                    self.progress.advance(label, now - reported)
                    reported = now

            run = Run(checkpoint=self.checkpoint(config), progress=report)
            found = {**self.find(self.request(start, stop), run, label), "stop": stop}
            if self.progress is not None:
                self.progress.note(self.note([*earlier, found]))
                self.progress.advance(label, count - reported)
            return found

        config = {**self.key, "start": start}
        return Cell(config, f"positions from {start}", compute)

    def find(self, request: InfluenceRequest, run: Run, label: str) -> dict[str, Any]:
        """Record of a part; ambiguous ties raise or warn by the option `ties`."""
        choice, way, largest = self.choice, self.choice.way, None
        if self.keeps_runs and isinstance(way, Method):
            runs = runs_of(self.rounding)
            tables, last = run_tables(request, way, runs, run.progress)
            ties, again = last.ties, last.again
            record = record_arrays(tables, magnitude_of(request, way))
        else:
            found = find(request, choice, self.rounding, run)
            values, ties, again = found.values, found.ties, found.again
            reason = choice.reason
            if isinstance(way, Proposed) and values.size:
                reason = proposal_reason(choice, found)
            record = record_found(found, reason)
            if request.layout is None and np.isfinite(values).any():
                at = int(np.nanargmax(values))
                largest = [float(values[at]), int(request.position[at])]
        judge_ties(request.model, ties, label, self.asked.subject.question.ties)
        ambiguous = ties is not None and ties.ambiguous
        more = {"again": again, "ambiguous": ambiguous, "largest": largest}
        return {**record, **more}

    def check(self, record: Record, start: int) -> None:
        """Raises a `ValueError` unless a record is that of a part from `start`."""
        stop, shape = record["stop"], record["shape"]
        if start < stop <= len(self.positions):
            is_table = self.whole.layout is not None
            count = stop - start if is_table else len(self.request(start, stop).pairs)
            if shape[0] == count:
                return
        raise ValueError(f"a part from {start} to {stop} has results of shape {shape}")

    def label(self, start: int, stop: int) -> str:
        """Words that name the positions from `start` to `stop` - 1."""
        return f"positions {self.positions[start]} to {self.positions[stop - 1]}"

    def note(self, found: Sequence[Record]) -> str:
        """Words on the largest influence in the records; "" without one."""
        known = [one["largest"] for one in found if one["largest"] is not None]
        if not known:
            return ""
        value, position = max(known, key=lambda one: one[0])
        return f"largest so far {value:.6g} at position {position}"

    def checkpoint(self, config: Record) -> Path | None:
        """Checkpoint file of a screen or a proposal, named by its key; else None."""
        if not self.encloses:
            return None
        # A screen that is to go further continues from the same file.
        question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
        what = "proposal" if "propose" in config else "screen"
        return self.asked.folder / checkpoint_name(question, what)

    def is_closed(self, found: Record) -> bool:
        """True unless `Screened` left substitutions open, and may be continued."""
        return not (isinstance(self.choice.way, Screened) and found["left"])

    def last(self, values: Float[np.ndarray, "rows *axes"] | None) -> Cell | None:
        """Cell of moved runs of the largest `values`, or of half precision's error."""

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
        self, arrays: list[np.ndarray], found: Sequence[Record], last: Record
    ) -> Any:
        """`Influence` or `Scan` of the joined arrays and records of all parts."""
        whole, choice, layout = self.whole, self.choice, self.whole.layout
        if self.is_map and layout is not None:
            arrays = [make_map(layout, table) for table in arrays]
        if self.keeps_runs:
            arrays = list(compare(whole, arrays))
        joined = read_found(arrays, found)
        if "rows" in last:
            (moves,) = join_arrays([last])
            joined = joined.with_moves(np.asarray(last["rows"], np.int64), moves)
        if self.encloses:
            choice = dataclasses.replace(choice, reason=found[0]["reason"])
        table = len(self.positions) * whole.model.vocab_size
        few = len(whole.pairs) <= MAX_PAIRS and table <= MAX_TABLE
        keep = "pairs" if few else "position_max"
        result = settle(whole, choice, joined, self.rounding, "ignore", keep)
        error = read_error(last) or result.measured_error
        result = dataclasses.replace(result, measured_error=error)
        recipe = self.asked.recipe
        return result if recipe is None else recipe.finish(result)

    def axes(self) -> dict[str, int]:
        """Length of each axis of a scan's values that are written, by name."""
        layout, recipe = self.whole.layout, self.asked.recipe
        assert layout is not None
        count, symbols = layout.cells.shape
        if recipe is not None and recipe.num_scored is not None:
            return {"position": count, "symbol": recipe.num_scored}
        sizes = {"position": count, "symbol": symbols, "row": layout.rows.size}
        return {axis: sizes.get(axis, layout.width) for axis in layout.axes}

    def describe(self) -> list[str]:
        """Lines of a dry run: setting, shape, method, parts, cost, blocks and sizes."""
        asked, whole, layout = self.asked, self.whole, self.whole.layout
        model, mesh, query = asked.subject.model, whole.mesh, f"query {whole.query}, "
        lines = [
            f"version {__version__}, jax {jax.__version__}, {count_devices(mesh)} of "
            f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
            f"model: {len(model.layers)} layers, d = {model.width}, V = {model.vocab_size}, "
            f"{np.dtype(model.dtype).name}; n = {len(asked.tokens)}, "
            f"{query if layout is None else ''}{asked.watched}",
        ]
        if layout is None:
            nothing = ["nothing can be substituted"]
            return lines + (self._describe_work() if len(whole.pairs) else nothing)
        table = self.axes()
        shape = " x ".join(f"{size} {axis}s" for axis, size in table.items())
        cells = math.prod(table.values())
        kept = 2 * cells  # with how far they moved
        if self.keeps_runs:  # the whole tables of all runs
            kept = layout.cells.size * math.prod(as_table(layout).shape)
            kept *= 1 + runs_of(self.rounding)
        store = f"store: {kept} numbers, at most {STORED * kept / 1e6:.3g} MB"
        lines = [*lines, f"scan: {shape}", *self._describe_work(), store]
        if asked.record is not None:  # several share scan.csv, and have no scan.npz
            return [f"record {asked.record}:", *lines]
        return [*lines, f"scan.npz: {cells} cells, {ARRAYS * cells / 1e6:.3g} MB"]

    def _describe_work(self) -> list[str]:
        """Lines of a dry run on method, radii, parts, cost, blocks and memory."""
        way, sizes, count = self.choice.way, self.choice.sizes, len(self.positions)
        starts = range(0, count, self.size)
        requests = [self.request(x, min(x + self.size, count)) for x in starts]
        counts = [len(x.pairs) for x in requests]
        kept = f"kept every {SECONDS:.0f} s or so, {self.least} positions at least"
        if 2 * self.least > min(self.size, count):
            kept = "each is kept when it is done"
        most = f"{self.size} positions" if self.whole.layout else f"{max(counts)}"
        passes = "some tens of forward passes, more where bounds are loose"
        if not isinstance(way, Screened):
            passes = f"{sum(map(way.cost, requests)):.3g} forward passes"
        lines = [
            f"method: {way.name} ({self.choice.reason})",
            f"radii of rounding: {self.rounding}",
            f"substitutions: {sum(counts)}, in {len(counts)} parts of at most {most}; "
            f"{kept}",
            f"estimated cost: {passes}",
        ]
        if sizes is None or isinstance(way, Screened):
            return [*lines, f"blocks: {way.name} has none that can be told ahead"]
        tiles = "" if sizes.rows is None else f", rows in tiles of {sizes.rows}"
        together = sizes.substitutions * count_devices(self.whole.mesh)
        return [
            *lines,
            f"blocks: {sum(-(-one // together) for one in counts)}, of at most "
            f"{sizes.substitutions} substitutions on each device{tiles}",
            f"memory: at most {bytes_label(sizes.held)} on each device",
        ]


def part_sizes(request: InfluenceRequest, choice: Choice) -> tuple[int, int]:
    """Most and fewest positions of a part; refuses a map whose table is too large."""
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
    """Layout of the table, with its diagonal, from which a Frobenius map is made."""
    table = Table(by_target=True)
    return dataclasses.replace(layout, reduction=table, keeps_diagonal=True)


def make_map(
    layout: Layout, table: Float[np.ndarray, "positions symbols rows classes"]
) -> Float[np.ndarray, "positions rows"]:
    """Map of a whole table."""
    return layout.reduction.make(layout, lambda: layout.pieces(layout.in_order(table)))
