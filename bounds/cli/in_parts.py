"""Run of a command whose work on each input is in parts, on many devices.

Of several processes the leading one saves what is found.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.devices import ALONE, Devices, explained_loss, open_devices
from bounds.cli.shared.groups import OneInput
from bounds.cli.shared.input_source import open_tokenizer
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.runner import Exports, Rows, Work, quiet_ties
from bounds.cli.shared.subject import read_one
from bounds.cli.shared.target import read_substitutes, special_symbols, target_key
from bounds.curves.measurement import Subject, tokens_sha256
from bounds.influence import parts
from bounds.influence.build import TableOptions
from bounds.influence.method import Rounding
from bounds.influence.parts import Parts, Record, error_columns, join_arrays
from bounds.influence.report import InputWords
from bounds.influence.rounding import runs_of
from bounds.influence.targets.base import Target
from bounds.influence.targets.table import as_value
from bounds.recipes.question import Recipe
from bounds.store.file import explained
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, obtain
from bounds.version import __version__
from jax_models.run.mesh import count_devices

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
    def words(self) -> InputWords:
        """Words on positions and symbols of the input."""
        name = self.tokenizer and self.tokenizer.name
        special = special_symbols(self.subject.model, self.tokenizer)
        return InputWords(self.tokens, name, special)

    @property
    def hashes(self) -> dict[str, str]:
        """Columns that identify the model and the input."""
        return {**self.subject.named, "tokens_sha256": tokens_sha256(self.tokens)}

    @property
    def target(self) -> Target:
        """Watched quantity of the output."""
        return as_value(self.subject.question.target)

    def plan(self, mesh: Mesh | None = None) -> Parts:
        """Parts of the request, of all positions."""
        symbols, positions = self.symbols, self.positions
        if symbols is not None and symbols.ndim == 2 and positions is not None:
            symbols = symbols[np.asarray(positions, np.int64)]
        question = self.subject.question
        whole = question.request(
            self.subject.model,
            self.tokens,
            mesh,
            symbols=symbols,
            positions=positions,
            include_query=self.include_query,
            table=self.table,
        )
        named = {
            "command": "influence" if self.table is None else "scan",
            "seed": self.subject.seed,
            "target": target_key(question.target),
            **self.hashes,
        }
        if self.table is not None:
            named |= {"target_symbols": self.table.target_symbols}
            named |= {"reduce": self.table.reduce}
        asked = question.method, self.rounding, question.ties
        return Parts.plan(whole, *asked, named, self.folder)


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


def axes_of(asked: Asked, found: Parts) -> dict[str, int]:
    """Length of each axis of a scan's values that are written, by name."""
    layout, recipe = found.whole.layout, asked.recipe
    assert layout is not None
    count, symbols = layout.cells.shape
    if recipe is not None and recipe.num_scored is not None:
        return {"position": count, "symbol": recipe.num_scored}
    sizes = {"position": count, "symbol": symbols, "row": layout.rows.size}
    return {axis: sizes.get(axis, layout.width) for axis in layout.axes}


def describe_plan(asked: Asked, found: Parts) -> list[str]:
    """Lines of a dry run: setting, shape, method, parts, cost, blocks and sizes."""
    whole, layout, model = found.whole, found.whole.layout, asked.subject.model
    query = f"query {whole.query}, " if layout is None else ""
    watched = asked.target.name if asked.recipe is None else asked.recipe.label
    lines = [
        f"version {__version__}, jax {jax.__version__}, {count_devices(whole.mesh)} of "
        f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
        f"model: {len(model.layers)} layers, d = {model.width}, V = {model.vocab_size}, "
        f"{np.dtype(model.dtype).name}; n = {len(asked.tokens)}, {query}{watched}",
    ]
    if layout is None:
        nothing = ["nothing can be substituted"]
        return lines + (found.describe() if len(whole.pairs) else nothing)
    axes = axes_of(asked, found)
    shape = " x ".join(f"{size} {axis}s" for axis, size in axes.items())
    cells = math.prod(axes.values())
    kept = 2 * cells  # with how far they moved
    if found.keeps_runs:  # the whole tables of all runs
        kept = layout.cells.size * math.prod(parts.as_table(layout).shape)
        kept *= 1 + runs_of(found.rounding)
    store = f"store: {kept} numbers, at most {STORED * kept / 1e6:.3g} MB"
    lines = [*lines, f"scan: {shape}", *found.describe(), store]
    if asked.record is not None:  # several share scan.csv, and have no scan.npz
        return [f"record {asked.record}:", *lines]
    return [*lines, f"scan.npz: {cells} cells, {ARRAYS * cells / 1e6:.3g} MB"]


@dataclasses.dataclass(frozen=True)
class Joined:
    """Result of all parts of one request, or of its one pass."""

    asked: Asked
    result: Any  # an `Influence`, or a `Scan`
    ambiguous: int  # parts that hang on an ambiguous tie
    seconds: float  # of all parts, in this run and before

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of influences and scans on method, kind, model and input."""
        result = self.result
        return {
            "n": len(self.asked.tokens),
            "method": result.method,
            "reason": result.reason,
            "kind": result.kind,
            "rounding": result.rounding,
            "ambiguous": self.ambiguous > 0,
            **self.asked.hashes,
            **error_columns(result.measured_error),
        }


# A request with its parts.
Planned = tuple[Asked, Parts]


def work_in_parts(
    options: OneInput,
    *,
    ask: Callable[[Mesh | None], Iterable[Planned]],  # of each input
    export: Callable[[Sequence[Joined]], Exports],
    row: Callable[[Joined], dict[str, Any]],  # of a sweep
    is_kept: bool = True,  # False where one pass of each input is all the work
) -> Work:
    """Work that computes the parts of each input; only the leading process exports."""
    planned: list[Planned] = []
    opened: list[Devices] = []

    @explained_loss()
    def lead() -> bool:
        opened.append(devices := open_devices(options))
        planned.extend(ask(devices.mesh))
        if devices.leads and not options.dry_run:
            print(f"{options.COMMAND}: results go to {options.out}", flush=True)
        if options.dry_run and devices.leads:
            lines = [line for one in planned for line in describe_plan(*one)]
            if not is_kept:
                some = f"each of {len(planned)} inputs"
                lines = [f"one pass of {some if len(planned) > 1 else 'the input'}"]
            print("\n".join(lines))
        elif not (options.dry_run or devices.leads) and is_kept:
            for _, found in planned:
                _follow(found, devices)
        return devices.leads and not options.dry_run

    @explained_loss()
    def finish(store: ResultStore) -> Exports:
        joined = []
        for asked, found in planned:
            with Progress(len(found.positions), "positions", alike=True) as progress:
                counted = dataclasses.replace(found, progress=progress)
                joined += [
                    compute_parts(store, asked, counted, opened[0], options.fresh)
                ]
        return export(joined)

    def rows(store: ResultStore) -> Rows:
        return [row(compute_parts(store, *one)) for one in ask(None)]

    return Work(finish, lead=lead, rows=rows, is_kept=is_kept)


@quiet_ties()
def compute_parts(
    store: ResultStore,
    asked: Asked,
    planned: Parts,
    devices: Devices = ALONE,
    fresh: bool = False,
) -> Joined:
    """Result of all parts; computes missing ones and saves each in the store."""
    recipe, began = asked.recipe, time.perf_counter()
    if recipe is not None and recipe.one_pass:
        result = recipe.scan(asked.subject.model, asked.tokens)
        return Joined(asked, result, 0, time.perf_counter() - began)
    devices.agree([planned.cell(0)], [False])
    found: list[Record] = []
    start, most, seconds, resumed = 0, 0, 0.0, False
    while start < len(planned.positions):
        cell = planned.cell(start, planned.stop(start, most))
        one = None if fresh else store.find(cell.config)
        if one is None:
            devices.tell((start, most))
            one, took = _keep(store, planned, cell, fresh)
            most = int((one["stop"] - start) * parts.SECONDS / took)
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
    devices.tell((start, 0))
    # Of results that this run made, an error over them is one of the program.
    with explained(store.path) if resumed else contextlib.nullcontext():
        arrays, last = join_arrays(found), {}
    if (cell := planned.last(arrays[0])) is not None:
        missing = fresh or store.find(cell.config) is None
        devices.agree([cell], [missing])
        last = obtain(store, cell, fresh=fresh)
        resumed |= not missing
        seconds += store.seconds(cell.config)
    with explained(store.path) if resumed else contextlib.nullcontext():
        ambiguous = sum(one["ambiguous"] for one in found)
        result = planned.join(arrays, found, last)
    if recipe is not None:
        result = recipe.finish(result)
    return Joined(asked, result, ambiguous, seconds)


@quiet_ties()
def _follow(planned: Parts, devices: Devices) -> None:
    """Computes this process's share of the parts that the leading process computes."""
    devices.agree([planned.cell(0)], [False])
    while (start := (told := devices.tell((0, 0)))[0]) < len(planned.positions):
        planned.cell(start, planned.stop(start, told[1])).compute()
    cell = planned.last(None)
    if cell is not None and devices.agree([cell], [False])[0]:
        cell.compute()


def _keep(
    store: ResultStore, planned: Parts, cell: Cell, fresh: bool
) -> tuple[Record, float]:
    """Computes a cell and saves it; returns its record and the seconds it took."""
    kept = planned.checkpoint(cell.config)
    if kept is not None and fresh:
        kept.unlink(missing_ok=True)
    began = time.perf_counter()
    found = obtain(store, cell, fresh=True)
    took = time.perf_counter() - began
    # A screen that did not close may be continued later.
    if kept is not None and planned.is_closed(found):
        kept.unlink(missing_ok=True)
    return found, took
