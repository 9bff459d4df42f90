"""Run of a command whose work on each input is in parts, on many devices.

Of several processes the leading one saves what is found.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jax.sharding import Mesh

from bounds.cli.part_records import Record, error_columns, join_arrays
from bounds.cli.parts import Asked, Parts
from bounds.cli.shared.devices import ALONE, Devices, explained_loss, open_devices
from bounds.cli.shared.groups import OneInput
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.runner import Exports, Rows, Work, quiet_ties
from bounds.store.file import explained
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, obtain


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


def work_in_parts(
    options: OneInput,
    *,
    ask: Callable[[], Iterable[Asked]],  # a request for each input
    export: Callable[[Sequence[Joined]], Exports],
    row: Callable[[Joined], dict[str, Any]],  # of a sweep
    plan: Callable[[Asked, Mesh | None], Parts] = Parts.plan,
    is_kept: bool = True,  # False where one pass of each input is all the work
) -> Work:
    """Work that computes the parts of each input; only the leading process exports."""
    planned: list[Parts] = []
    opened: list[Devices] = []

    @explained_loss()
    def lead() -> bool:
        opened.append(devices := open_devices(options))
        if devices.leads and not options.dry_run:
            print(f"{options.COMMAND}: results go to {options.out}", flush=True)
        planned.extend([plan(one, devices.mesh) for one in list(ask())])
        if options.dry_run and devices.leads:
            lines = [line for one in planned for line in one.describe()]
            if not is_kept:
                some = f"each of {len(planned)} inputs"
                lines = [f"one pass of {some if len(planned) > 1 else 'the input'}"]
            print("\n".join(lines))
        elif not devices.leads and not options.dry_run and is_kept:
            for parts in planned:
                _follow(parts, devices)
        return devices.leads and not options.dry_run

    @explained_loss()
    def finish(store: ResultStore) -> Exports:
        joined = []
        for parts in planned:
            with Progress(len(parts.positions), "positions", alike=True) as progress:
                counted = dataclasses.replace(parts, progress=progress)
                joined += [compute_parts(store, counted, opened[0], options.fresh)]
        return export(joined)

    def rows(store: ResultStore) -> Rows:
        return [row(compute_parts(store, plan(one, None))) for one in ask()]

    return Work(finish, lead=lead, rows=rows, is_kept=is_kept)


@quiet_ties()
def compute_parts(
    store: ResultStore, parts: Parts, devices: Devices = ALONE, fresh: bool = False
) -> Joined:
    """Result of all parts; computes missing ones and saves each in the store."""
    recipe, began = parts.asked.recipe, time.perf_counter()
    if recipe is not None and recipe.one_pass:
        result = recipe.scan(parts.asked.subject.model, parts.asked.tokens)
        return Joined(parts.asked, result, 0, time.perf_counter() - began)
    devices.agree([parts.cell(0)], [False])
    found: list[Record] = []
    start, most, seconds, resumed = 0, 0, 0.0, False
    while start < len(parts.positions):
        cell = parts.cell(start, parts.stop(start, most), found)
        one = None if fresh else store.find(cell.config)
        if one is None:
            devices.tell((start, most))
            one, took = _keep(store, parts, cell, fresh)
            most = parts.next_size(one["stop"] - start, took)
        else:
            resumed = True
            with explained(store.path):
                parts.check(one, start)
                label = f"{parts.label(start, one['stop'])}, from the store"
                note = parts.note([*found, one])
            if parts.progress is not None:
                parts.progress.note(note)
                parts.progress.skip(label, one["stop"] - start)
        found.append(one)
        seconds += store.seconds(cell.config)
        start = one["stop"]
    devices.tell((start, 0))
    # Of results that this run made, an error over them is one of the program.
    with explained(store.path) if resumed else contextlib.nullcontext():
        arrays, last = join_arrays(found), {}
    if (cell := parts.last(arrays[0])) is not None:
        missing = fresh or store.find(cell.config) is None
        if devices.agree([cell], [missing])[0]:
            _keep(store, parts, cell, fresh)
        resumed |= not missing
        seconds += store.seconds(cell.config)
        last = store.find(cell.config) or {}
    with explained(store.path) if resumed else contextlib.nullcontext():
        ambiguous = sum(one["ambiguous"] for one in found)
        result = parts.join(arrays, found, last)
    return Joined(parts.asked, result, ambiguous, seconds)


@quiet_ties()
def _follow(parts: Parts, devices: Devices) -> None:
    """Computes this process's share of the parts that the leading process computes."""
    devices.agree([parts.cell(0)], [False])
    while (start := (told := devices.tell((0, 0)))[0]) < len(parts.positions):
        parts.cell(start, parts.stop(start, told[1])).compute()
    cell = parts.last(None)
    if cell is not None and devices.agree([cell], [False])[0]:
        cell.compute()


def _keep(
    store: ResultStore, parts: Parts, cell: Cell, fresh: bool
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
