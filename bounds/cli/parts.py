"""Work on one input in parts of positions, on many devices, for `influence` and `scan`.

A part is a cell of the store. One that may be cut is computed in pieces of some seconds,
each saved at once: a run that is stopped loses one piece. A piece's size follows from the
seconds of the piece before; no value or key depends on it. Of several processes the
leading one saves. A moved run repeats a computation with inputs moved by some roundings,
to find radii.
"""

import abc
import base64
import dataclasses
import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

import jax_models as jm
from bounds.cli.shared.devices import ALONE, Devices, explained_loss, open_devices
from bounds.cli.shared.groups import OneInput
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.runner import Exports, Rows, Work, quiet_ties
from bounds.curves.measurement import Subject, tokens_sha256
from bounds.influence import InfluenceRequest, Screened
from bounds.influence.choice import Choice
from bounds.influence.find import top_moves, top_rows
from bounds.influence.method import Done, Rounding
from bounds.influence.result import Found, MeasuredError
from bounds.influence.table.lines import SYMBOL_NAMES
from bounds.rounding.ranked import measure_error
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, obtain
from bounds.version import __version__
from jax_models.run.device_memory import bytes_label
from jax_models.run.mesh import count_devices, first_says

# Intended seconds of a piece.
SECONDS = 10.0
# The end of a piece within its part; a piece that reaches the part's end has none.
REACHED = "reached"

Record = Mapping[str, Any]  # of a part or a piece
Report = Callable[[int, int], None]  # of what is done, of all
Result = TypeVar("Result")
Of = TypeVar("Of", bound="Asked")
ERROR = "measured_error"
# Columns that every cell needs, for one that is no block of positions.
_NO_BLOCK = {"position": None, "ambiguous": False, "uncertified": 0}


def error_cell(last: Record, whole: InfluenceRequest) -> Cell:
    """Cell that measures the error of half precision; `last` is the last part's key."""
    config = {**last, "start": last["stop"], ERROR: True}

    def compute() -> dict[str, Any]:
        error = measure_error(whole)
        return {**_NO_BLOCK, ERROR: error and dataclasses.asdict(error)}

    return Cell(config, "measured error", compute)


def read_error(found: Record) -> MeasuredError | None:
    """Measured error in the record of `error_cell` or of a screen; None without one."""
    error = found[ERROR]
    return error and MeasuredError(**with_infinity(error))


def with_infinity(numbers: Record) -> dict[str, Any]:
    """Copy of a record in which infinity, which JSON lacks, replaces null."""
    return {name: math.inf if x is None else x for name, x in numbers.items()}


def error_columns(error: MeasuredError | None) -> dict[str, Any]:
    """Column of a measured error, by name; {} if the error is None."""
    return {} if error is None else {ERROR: dataclasses.asdict(error)}


def pack(array: np.ndarray) -> str:
    """Text of a float64 array: its bytes, compressed, in base64."""
    content = np.ascontiguousarray(array, "<f8").tobytes()
    return base64.b64encode(zlib.compress(content, 1)).decode()


def unpack(text: str, *shape: int) -> np.ndarray:
    """Array of a shape from the text that `pack` made; `ValueError` for other text."""
    size = 8 * math.prod(shape)
    try:  # limited to the array's size, since a damaged text may expand to any size
        content = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return np.frombuffer(content, "<f8").reshape(shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Model and input of a command, and the symbols to substitute."""

    subject: Subject
    tokenizer: jm.Tokenizer | None = None  # its special symbols are not replaced
    # Padded with -1; None is all.
    symbols: Int[np.ndarray, "*tokens symbols"] | None = None
    rounding: Rounding = "auto"  # results with radii

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """Tokens of the one input."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    @property
    def hashes(self) -> dict[str, str]:
        """Columns that identify the model and the input."""
        return {**self.subject.named, "tokens_sha256": tokens_sha256(self.tokens)}

    def request_at(
        self, positions: Sequence[int] | np.ndarray | None, **more: Any
    ) -> InfluenceRequest:
        """Request of some positions, None for all; `more` as in `build_request`."""
        symbols = self.symbols
        if symbols is not None and symbols.ndim == 2 and positions is not None:
            symbols = symbols[np.asarray(positions)]
        given = {"symbols": symbols, "positions": positions, **more}
        return self.subject.question.request(self.subject.model, self.tokens, **given)

    def names(self, position: int | None, symbol: int | None) -> dict[str, Any]:
        """Columns of names of the token at a position and of the new symbol, if any."""
        if self.tokenizer is None:
            return {}
        old = None if position is None else int(self.tokens[position])
        name = self.tokenizer.name
        both = (None if x is None else name(x) for x in (old, symbol))
        return dict(zip(SYMBOL_NAMES, both, strict=True))


@dataclasses.dataclass(frozen=True)
class Joined(Generic[Of, Result]):
    """Result of all parts of one request, or of its one pass."""

    asked: Of
    result: Result
    ambiguous: int  # parts that hang on an ambiguous tie
    seconds: float = 0.0  # of all parts, in this run and before


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts(abc.ABC, Generic[Of, Result]):
    """A request on one input, divided into parts of consecutive positions."""

    asked: Of
    whole: InfluenceRequest  # of all positions
    choice: Choice
    rounding: Done  # results with radii
    positions: Int[np.ndarray, "positions"]
    size: int  # positions of a part
    key: Record  # everything that all parts depend on
    mesh: Mesh | None = None  # devices that substitutions are shared out over
    progress: Progress | None = None  # counts positions as they are done

    encloses: bool = False  # by a screen, which also counts what it leaves open

    @abc.abstractmethod
    def request(self, start: int, stop: int) -> InfluenceRequest:
        """Request of the positions [start, stop)."""

    @abc.abstractmethod
    def find(self, cell: Record, request: InfluenceRequest, report: Report) -> Record:
        """Record of a part, or of a piece of one; `cell` is the key."""

    @property
    @abc.abstractmethod
    def moves_top(self) -> bool:
        """True if the largest results are recomputed with moved inputs at the end."""

    @abc.abstractmethod
    def values(self, found: Sequence[Record]) -> Float[np.ndarray, "rows *axes"]:
        """Values of all parts, from their records in order."""

    @abc.abstractmethod
    def result(
        self, found: Sequence[Record], top: Record | None, error: MeasuredError | None
    ) -> Result:
        """Result of the parts' records in order, with the moved runs `top` and the error."""

    @abc.abstractmethod
    def describe(self) -> list[str]:
        """Lines of a dry run."""

    def describe_setting(self, watched: str) -> list[str]:
        """First lines of a dry run: version, devices, model, input and watched output."""
        model, tokens = self.asked.subject.model, self.asked.tokens
        return [
            f"version {__version__}, jax {jax.__version__}, {count_devices(self.mesh)} of "
            f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
            f"model: {len(model.layers)} layers, d = {model.width}, V = {model.vocab_size}, "
            f"{np.dtype(model.dtype).name}; n = {tokens.size}, {watched}",
        ]

    def requests(self) -> list[InfluenceRequest]:
        """Requests of the parts that substitute anything."""
        count = len(self.positions)
        each = (self.request(x, min(x + self.size, count)) for x in self.starts)
        return [request for request in each if len(request.pairs)]

    def describe_work(
        self, requests: Sequence[InfluenceRequest], division: str
    ) -> list[str]:
        """Lines of a dry run on method, radii, parts, cost, blocks and memory."""
        way, counts = self.choice.way, [len(x.pairs) for x in requests]
        passes, sizes = "some tens of forward passes, more where bounds are loose", None
        if not isinstance(way, Screened):
            passes = f"{sum(map(way.cost, requests)):.3g} forward passes"
            sizes = self.choice.sizes
        lines = [
            f"method: {way.name} ({self.choice.reason})",
            f"radii of rounding: {self.rounding}",
            f"substitutions: {sum(counts)}, {division}",
            f"estimated cost: {passes}",
        ]
        if sizes is None:
            return [*lines, f"blocks: {way.name} has none that can be told ahead"]
        tiles = "" if sizes.rows is None else f", rows in tiles of {sizes.rows}"
        together = sizes.substitutions * count_devices(self.mesh)
        blocks = sum(-(-one // together) for one in counts)
        return [
            *lines,
            f"blocks: {blocks}, of at most {sizes.substitutions} substitutions on each "
            f"device{tiles}",
            f"memory: at most {bytes_label(sizes.held)} on each device",
        ]

    def least(self) -> int:
        """Positions of the smallest piece of a part; `size` if parts are not cut."""
        return self.size

    def checkpoint(self, config: Record) -> Path | None:
        """Checkpoint file of the part with this key; None without one."""
        del config

    def is_closed(self, found: Record) -> bool:
        """True if a part's record is final, so that its checkpoint can go."""
        return bool(found)

    def note(self, found: Sequence[Record]) -> str:
        """Words on the results in the records, for a line of progress."""
        del found
        return ""

    @property
    def starts(self) -> range:
        """First position of each part."""
        return range(0, len(self.positions), self.size)

    def cells(self) -> list[Cell]:
        """Cells of all parts, by position."""
        return [self.cell(start) for start in self.starts]

    def error_cells(self) -> list[Cell]:
        """The cell that measures the error of half precision, or [] in full precision."""
        if self.key.get("precision") is None:
            return []
        return [error_cell(self.cell(self.starts[-1]).config, self.whole)]

    def cell(
        self, start: int, most: int | None = None, earlier: Sequence[Record] = ()
    ) -> Cell:
        """Cell of the part from `start`, or of a piece of at most `most` positions."""
        # The end of a piece stands in its result (`reached`), not in its key.
        stop = min(start - start % self.size + self.size, len(self.positions))
        config = {**self.key, "start": start, "stop": stop}
        end = stop if most is None else min(start + most, stop)
        label = self.label(start, end)

        def compute() -> Record:
            reported = 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                if self.progress is None:
                    return
                if self.encloses and reported == end - start:  # it counts those left
                    self.progress.recount(done, total)
                    return
                now = (end - start) * done // total
                if now < end - start or self.encloses:  # the last has a note
                    self.progress.advance(label, now - reported)
                    reported = now

            found = self.find(config, self.request(start, end), report)
            piece = {**found, **({} if end == stop else {REACHED: end})}
            if self.progress is not None:
                self.progress.note(self.note([*earlier, piece]))
                self.progress.advance(label, end - start - reported)
            return piece

        return Cell(config, label, compute)

    def piece(self, start: int, most: int, earlier: Sequence[Record] = ()) -> Cell:
        """Cell of a piece of about `most` positions; the rest has at least `least()`."""
        least = self.least()
        stop = min(start - start % self.size + self.size, len(self.positions))
        most = max(1, most // least) * least
        cut = most if start + most + least <= stop else None
        return self.cell(start, cut, earlier)

    def label(self, start: int, stop: int) -> str:
        """Words that name the positions from `start` to `stop` - 1."""
        return f"positions {self.positions[start]} to {self.positions[stop - 1]}"

    def top(self, values: Float[np.ndarray, "rows *axes"] | None) -> Cell:
        """Cell that computes the largest of all parts' `values` again, with moved inputs."""

        # A process that does not lead has no values.
        def compute() -> Record:
            rows = np.zeros(0, np.int64)
            if values is not None:
                rows = top_rows(self.whole, self.choice, values)
            rows = np.frombuffer(first_says(rows.tobytes()), np.int64)
            moves = top_moves(self.whole, self.choice, rows)
            return {"rows": rows, "shape": moves.shape, "moves": pack(moves)}

        count = len(self.positions)
        config = {**self.key, "start": count, "stop": count, "part": "top"}
        return Cell(config, "the largest again, moved", compute)


def add_top(found: Found, top: Record | None) -> Found:
    """Values with the moved runs that the record of `Parts.top` holds, if it is not None."""
    if top is None:
        return found
    return found.with_moves(
        np.asarray(top["rows"], np.int64), unpack(top["moves"], *top["shape"])
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InParts(Generic[Of, Result]):
    """A command on one input or several, whose work on each input is in parts."""

    ask: Callable[[], Iterable[Of]]  # a request for each input
    plan: Callable[[Of, Mesh | None], Parts[Of, Result]]
    export: Callable[[Sequence[Joined[Of, Result]]], Exports]
    row: Callable[[Joined[Of, Result]], dict[str, Any]]  # of a sweep
    # One pass of the input, where that is all the work.
    one_pass: Callable[[Of], Result] | None = None

    def work(self, options: OneInput) -> Work:
        """Work that computes the parts of each input; only the leading process exports."""
        asked: list[Of] = []
        planned: list[Parts[Of, Result]] = []
        opened: list[Devices] = []

        @explained_loss()
        def lead() -> bool:
            opened.append(devices := open_devices(options))
            if devices.leads and not options.dry_run:
                print(f"{options.COMMAND}: results go to {options.out}", flush=True)
            asked.extend(self.ask())
            if self.one_pass is None:
                planned.extend(self.plan(one, devices.mesh) for one in asked)
            if options.dry_run:
                lines = [line for one in planned for line in one.describe()]
                if self.one_pass is not None:
                    some = f"each of {len(asked)} inputs"
                    lines = [f"one pass of {some if len(asked) > 1 else 'the input'}"]
                if devices.leads:
                    print("\n".join(lines))
            elif not devices.leads:
                for parts in planned:
                    _follow(parts, devices)
            return devices.leads and not options.dry_run

        @explained_loss()
        def finish(store: ResultStore) -> Exports:
            if self.one_pass is not None:
                return self.export([self._pass(one) for one in asked])
            joined: list[Joined[Of, Result]] = []
            (devices,) = opened
            for parts in planned:
                count = len(parts.positions)
                with Progress(count, "positions", alike=True) as progress:
                    counted = dataclasses.replace(parts, progress=progress)
                    joined += [compute_parts(store, counted, devices, options.fresh)]
            return self.export(joined)

        def rows(store: ResultStore) -> Rows:
            def find(one: Of) -> Joined[Of, Result]:
                if self.one_pass is not None:
                    return self._pass(one)
                return compute_parts(store, self.plan(one, None))

            return [self.row(find(one)) for one in self.ask()]

        return Work(finish, lead=lead, rows=rows, is_kept=self.one_pass is None)

    def _pass(self, asked: Of) -> Joined[Of, Result]:
        """Result of one pass on an input, with the seconds it took."""
        assert self.one_pass is not None
        began = time.perf_counter()
        return Joined(asked, self.one_pass(asked), 0, time.perf_counter() - began)


@quiet_ties()
def compute_parts(
    store: ResultStore,
    parts: Parts[Of, Result],
    devices: Devices = ALONE,
    fresh: bool = False,
) -> Joined[Of, Result]:
    """Result of all parts; computes missing pieces and saves each in the store."""
    cells, count = parts.cells(), len(parts.positions)
    devices.agree(cells, [False] * len(cells))
    found: list[Record] = []
    start, most, seconds = 0, 0, 0.0
    while start < count:
        cell = parts.cell(start)
        piece = None if fresh else store.find(cell.config)
        if piece is not None:
            end = piece.get(REACHED, cell.config["stop"])
            if parts.progress is not None:
                parts.progress.note(parts.note([*found, piece]))
                label = f"{parts.label(start, end)}, from the store"
                parts.progress.skip(label, end - start)
        else:
            cell = parts.piece(start, most, found)
            devices.tell((start, most))
            piece, took = _keep(store, parts, cell, fresh)
            end = piece.get(REACHED, cell.config["stop"])
            most = max(1, int((end - start) * SECONDS / took))
        found.append(piece)
        seconds += store.seconds(cell.config)
        start = end
    devices.tell((count, 0))

    def also(cell: Cell) -> Record:
        nonlocal seconds
        missing = fresh or store.find(cell.config) is None
        if devices.agree([cell], [missing])[0]:
            _keep(store, parts, cell, fresh)
        seconds += store.seconds(cell.config)
        return store.find(cell.config) or {}

    top = also(parts.top(parts.values(found))) if parts.moves_top else None
    error = [read_error(also(cell)) for cell in parts.error_cells()]
    result = parts.result(found, top, *(error or [None]))
    ambiguous = sum(one["ambiguous"] for one in found)
    return Joined(parts.asked, result, ambiguous, seconds)


@quiet_ties()
def _follow(parts: Parts[Any, Any], devices: Devices) -> None:
    """Computes this process's share of the pieces that the leading process computes."""
    cells, count = parts.cells(), len(parts.positions)
    devices.agree(cells, [False] * len(cells))
    while (start := (told := devices.tell((0, 0)))[0]) < count:
        parts.piece(start, told[1]).compute()
    for cell in [*([parts.top(None)] if parts.moves_top else ()), *parts.error_cells()]:
        if devices.agree([cell], [False])[0]:
            cell.compute()


def _keep(
    store: ResultStore, parts: Parts[Any, Any], cell: Cell, fresh: bool
) -> tuple[Record, float]:
    """Computes a cell and saves it; returns its record and the seconds it took."""
    kept = parts.checkpoint(cell.config)
    if kept is not None and fresh:
        kept.unlink(missing_ok=True)
    began = time.perf_counter()
    found = obtain(store, cell, fresh=True)
    took = time.perf_counter() - began
    # A screen that did not close may be continued later.
    if kept is not None and parts.is_closed(found):
        kept.unlink(missing_ok=True)
    return found, took


def key_of(
    command: str, asked: Asked, choice: Choice, rounding: Done
) -> dict[str, Any]:
    """Entries that the keys of `influence` and `scan` share."""
    question = asked.subject.question
    half = question.precision
    return {
        "command": command,
        "version": __version__,
        "dtype": asked.subject.model.dtype.name,
        "method": choice.way.name,
        "rounding": rounding,
        "ties": question.ties,
        **asked.hashes,
        **({} if half is None else {"precision": half}),
    }
