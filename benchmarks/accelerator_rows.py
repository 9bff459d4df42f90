"""Rows of an accelerator, all by one command, in order of worth and within minutes.

    python -m benchmarks.accelerator_rows --minutes=9

Every cell is one of another benchmark, measured as that script does and kept in the store of
--out as soon as it is there: a second call does what is left, and a run that is killed loses
the cell under way, which later calls try last. None is begun after --minutes. With --jsonl
the rows replace those of the same scripts in that file, which `python -m benchmarks.pages`
makes pages from. --divide=64 is a trial of all on a CPU.
"""

import dataclasses
import functools
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

from benchmarks.flags import benchmark_flags
from benchmarks.pages import benchmark_of
from benchmarks.quick import merge
from benchmarks.script import (
    Benchmark,
    Config,
    Line,
    Row,
    find_or_measure,
    json_lines,
    read_lines,
    run_program,
    shared_config,
    write_lines,
)
from bounds.cli.shared.platforms import request_platform
from bounds.store.results import ResultStore, cell_key
from jax_models import InputError

# What a length may be divided down to.
SHORTEST = 16

FLAGS = benchmark_flags("accelerator_rows")
MINUTES = flags.DEFINE_float(
    "minutes", 9.0, "minutes for all cells", lower_bound=0, flag_values=FLAGS
)
DIVIDE = flags.DEFINE_integer(
    "divide", 1, "what all lengths are divided by", lower_bound=1, flag_values=FLAGS
)


LENGTHS = (
    "--lengths=1024,4096,16384,100000 --repeats=5 --budget=10 --exhaustive_to=4096"
)
# Scripts and their flags, in order; goals on one H200 stand beside what they are of.
ORDER = (
    # At n = 10^5 2 s in float64, 0.8 s in float32; a forward pass 0.1 s in float32.
    ("influence_speed", f"--layers=2 {LENGTHS}"),
    ("forward_pass", "--lengths=100000 --dtypes=float64,float32"),
    # At n = 10^5 in 5 minutes.
    ("screening", "--models=3@0.7 --lengths=8192,32768,100000"),
    ("roofline", "--times=8 --matmul=8192 --copy_mib=1024"),
    ("screening", "--models=3@0.5 --lengths=8192,32768,100000"),
    (
        "changed_rows",
        "--lengths=8192,32768,100000 --weightings=leftmost_hard,average_hard "
        "--masks=none",
    ),
    ("influence_speed", f"--layers=1 {LENGTHS}"),
    ("screening", "--models=3@1.0 --masks=none,future --budget=0 --lengths=8192,32768"),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row to measure: a benchmark and a config."""

    benchmark: Benchmark
    config: Config

    @property
    def key(self) -> str:
        """Key of the row in the store."""
        return cell_key(self.config)

    def __str__(self) -> str:
        """Benchmark's name, length, and the entries that tell its cells apart."""
        differs = ("layers", "scale", "weighting", "mask", "model", "kernel", "dtype")
        said = [f"n = {self.config['n']}"]
        said += [f"{k} {self.config[k]}" for k in differs if k in self.config]
        return f"{self.benchmark.name}: {', '.join(said)}"


def all_cells(order: Sequence[tuple[str, str]], divide: int) -> list[Cell]:
    """Returns the distinct cells of a table's scripts, with lengths divided by `divide`."""
    found: dict[str, Cell] = {}
    for script, typed in order:
        benchmark = benchmark_of(script)
        for name in benchmark.values:  # the flags of another entry
            benchmark.values[name].unparse()
        benchmark.values([script, *shlex.split(typed)])
        for cell in benchmark.cells():
            n = max(min(SHORTEST, cell["n"]), cell["n"] // divide)
            config = {**shared_config(benchmark), **cell, "n": n}
            one = Cell(benchmark, config)
            found.setdefault(one.key, one)
    return list(found.values())


def measure_all(
    cells: Sequence[Cell],
    store: ResultStore,
    minutes: float,
    *,
    fresh: bool = False,
    jsonl: str | None = None,
) -> list[str]:
    """Measures missing cells until `minutes` are over; returns lines on unmeasured ones."""
    end, missing = time.monotonic() + 60 * minutes, []
    known: dict[str, Row] = {}

    def keep(cell: Cell, row: Row) -> None:
        known[cell.key] = row
        print(cell.benchmark.show(cell.config, row), flush=True)

    def write() -> None:
        if jsonl is not None and known:
            there = [cell for cell in cells if cell.key in known]
            measured = [(cell.config, known[cell.key]) for cell in there]
            replace_rows(Path(jsonl), json_lines(measured, store))

    def miss(line: str) -> None:
        missing.append(line)
        print(line, flush=True)

    tried = {one["key"] for one in store.table() if one["status"] == "failed"}
    for cell in cells:
        if not fresh and (row := store.find(cell.config)) is not None:
            keep(cell, row)
    write()
    absent = [cell for cell in cells if cell.key not in known]
    # What a run died in, or lacked the memory for, comes last.
    for cell in sorted(absent, key=lambda cell: cell.key in tried):
        if time.monotonic() >= end:
            miss(f"left: {cell}")
            continue
        store.record(
            cell.config, None, 0.0, message="it was under way when its run ended"
        )
        measure, start = cell.benchmark.measure, time.monotonic()
        call = functools.partial(measure, cell.config)
        try:
            row = find_or_measure(store, cell.config, call, fresh=fresh)
        except (MemoryError, jax.errors.JaxRuntimeError, InputError) as error:
            message = " ".join(str(error).split())
            store.record(cell.config, None, time.monotonic() - start, message=message)
            miss(f"failed: {cell}: {message}")
            continue
        finally:
            jax.clear_caches()  # the programs of one cell serve no other
        keep(cell, row)
        write()
    return missing


def replace_rows(path: Path, text: str) -> None:
    """Writes rows into a file, in place of the rows that it has of the same scripts."""
    new: dict[str, list[Line]] = {}
    for line in map(json.loads, text.splitlines()):
        new.setdefault(line["config"]["command"], []).append(line)
    old: Sequence[Mapping[str, Any]] = read_lines(path)
    write_lines(path, merge(old, new, ()))


def main() -> None:
    """Measures the missing rows, and exits with a message if some are left."""
    values: Any = FLAGS
    jax.config.update("jax_enable_x64", True)
    request_platform(values)
    cells = all_cells(ORDER, DIVIDE.value)
    with ResultStore(Path(values.out) / "results.sqlite") as store:
        how = {"fresh": values.fresh, "jsonl": values.jsonl}
        missing = measure_all(cells, store, MINUTES.value, **how)
    print(f"{len(cells) - len(missing)} of {len(cells)} rows are there")
    if missing:
        raise SystemExit("the same command goes on with the others")


if __name__ == "__main__":
    run_program(FLAGS, main)
