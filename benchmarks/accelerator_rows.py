"""Rows of an accelerator, all by one command, in order of worth and within minutes.

    python -m benchmarks.accelerator_rows --minutes=9

Every cell is one of another benchmark, measured as that script does and kept in the store of
--out as soon as it is there: a second call does what is left, and a run that is killed loses
the cell under way, which later calls try last. A cell that would take longer than what is
left of --minutes, told from one that is shorter or from some blocks, is left, and said. With
--jsonl the rows replace those of the same scripts in that file, which `python -m
benchmarks.pages` makes pages from. --divide=64 is a trial of all on a CPU.
"""

import dataclasses
import functools
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

from benchmarks.cells import find_or_measure
from benchmarks.flags import benchmark_flags
from benchmarks.pages import benchmark_of
from benchmarks.quick import merge
from benchmarks.results_file import Line, read_lines, write_lines
from benchmarks.script import (
    Benchmark,
    Config,
    Row,
    json_lines,
    run_program,
    shared_config,
)
from bounds.cli.shared.platforms import request_platform
from bounds.store.results import ResultStore, cell_key
from jax_models import InputError

# What a length may be divided down to.
SHORTEST = 16
# What a config may differ in from that of a shorter input which tells its time.
FREE = ("n", "exhaustive")

FLAGS = benchmark_flags("accelerator_rows")
MINUTES = flags.DEFINE_float(
    "minutes", 9.0, "minutes for all cells", lower_bound=0, flag_values=FLAGS
)
DIVIDE = flags.DEFINE_integer(
    "divide", 1, "what all lengths are divided by", lower_bound=1, flag_values=FLAGS
)


@dataclasses.dataclass(frozen=True)
class Known:
    """A row that is there, and the seconds of measuring it."""

    config: Config
    row: Row
    seconds: float


# From a config and the rows there are, the seconds of a cell; None where nothing tells.
Told = Callable[[Config, Sequence[Known]], float | None]


def grown(warm: Callable[[Row], float], power: float = 2.0) -> Told:
    """Returns the rule that tells from the longest of the shorter inputs.

    Its seconds, with compiling, and what is warm in it grown by a power of the length.

    Args:
        warm: of a row the seconds that grow.
        power: of the length.
    """

    def told(config: Config, known: Sequence[Known]) -> float | None:
        shorter = [one for one in known if is_shorter(one.config, config)]
        if not shorter:
            return None
        nearest = max(shorter, key=lambda one: one.config["n"])
        factor = (config["n"] / nearest.config["n"]) ** power
        return nearest.seconds + factor * warm(nearest.row)

    return told


def is_shorter(one: Config, other: Config) -> bool:
    """Returns whether a config is another's, of a shorter input."""

    def rest(config: Config) -> dict[str, Any]:
        return {k: x for k, x in config.items() if k not in FREE}

    return "n" in one and one["n"] < other["n"] and rest(one) == rest(other)


def timed_twice(*names: str) -> Callable[[Row], float]:
    """Returns the seconds of calls that are made twice at least, warm and timed.

    Args:
        names: of the timings in a row.
    """
    return lambda row: 2 * sum(row[f"{name}_seconds"] for name in names)


def screened(row: Row) -> float:
    """Returns what grows in a row of `screening`: base pass and levels."""
    passes, k = row["base_passes"], 0
    while f"level_{k}_screened" in row:
        share = row[f"level_{k}_screened"] / row["level_0_screened"]
        passes += 2 * row[f"level_{k}_envelope_passes"]
        passes += share * row.get(f"level_{k}_passes", 0.0)
        k += 1
    return passes * row["forward_seconds"]


def enumerated(config: Config, known: Sequence[Known]) -> float | None:
    """Returns the seconds of a screen that enumerates, told from blocks in float32."""
    same = ("layers", "mask", "scale", "n")
    found = [
        one.seconds + one.row["all_seconds"]
        for one in known
        if one.config["command"] == "method_speed"
        and one.config["dtype"] == "float32"
        and all(one.config[name] == config[name] for name in same)
    ]
    return max(found, default=None)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Cells of a script, in order, and what tells the seconds of one.

    Attributes:
        script: A module of `benchmarks`.
        flags: As typed.
        told: Its rule; cells without one are short.
    """

    script: str
    flags: str
    told: Told = lambda config, known: None


LENGTHS = (
    "--lengths=1024,4096,16384,100000 --repeats=5 --budget=10 --exhaustive_to=4096"
)
INFLUENCE = grown(timed_twice("incremental", "forward", "last_row"))
# Goals on one H200 stand beside what they are of.
ORDER = (
    # At n = 10^5 2 s in float64, 0.8 s in float32; a forward pass 0.1 s in float32.
    Rows("influence_speed", f"--layers=2 {LENGTHS}", INFLUENCE),
    Rows("forward_pass", "--lengths=100000 --dtypes=float64,float32"),
    # At n = 10^5 2 hours, 1 under a causal mask; at n = 32768 4 minutes and 2.
    Rows(
        "method_speed", "--lengths=8192,32768", grown(timed_twice("method", "forward"))
    ),
    # At n = 10^5 in 5 minutes.
    Rows("screening", "--models=3@0.7 --lengths=8192,32768,100000", grown(screened)),
    # In 0.3 s.
    Rows("scan_shapes", "--models=antiberty"),
    Rows("roofline", "--times=8 --matmul=8192 --copy_mib=1024"),
    Rows("screening", "--models=3@0.5 --lengths=8192,32768,100000", grown(screened)),
    Rows(
        "changed_rows",
        "--lengths=8192,32768,100000 --weightings=leftmost_hard,average_hard "
        "--masks=none",
        grown(timed_twice("sweep")),
    ),
    Rows("influence_speed", f"--layers=1 {LENGTHS}", INFLUENCE),
    Rows(
        "method_speed", "--method=lumped --layers=3 --lengths=100000 --dtypes=float64"
    ),
    Rows("scan_shapes", "--models=minilm"),
    Rows(
        "screening",
        "--models=3@1.0 --masks=none,future --budget=0 --lengths=8192,32768",
        enumerated,
    ),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row that is to be there."""

    benchmark: Benchmark
    config: Config
    told: Told

    @property
    def key(self) -> str:
        """Its key in the store."""
        return cell_key(self.config)

    def __str__(self) -> str:
        """What a reader knows it by."""
        differs = ("layers", "scale", "weighting", "mask", "model", "kernel", "dtype")
        said = [f"n = {self.config['n']}"]
        said += [f"{k} {self.config[k]}" for k in differs if k in self.config]
        return f"{self.benchmark.name}: {', '.join(said)}"


def all_cells(order: Sequence[Rows], divide: int) -> list[Cell]:
    """Returns the cells of a table, in order, each once.

    Args:
        order: The table.
        divide: What their lengths are divided by.
    """
    found: dict[str, Cell] = {}
    for rows in order:
        benchmark = benchmark_of(rows.script)
        for name in benchmark.values:  # the flags of another entry
            benchmark.values[name].unparse()
        benchmark.values([rows.script, *shlex.split(rows.flags)])
        for cell in benchmark.cells():
            n = max(min(SHORTEST, cell["n"]), cell["n"] // divide)
            config = {**shared_config(benchmark), **cell, "n": n}
            one = Cell(benchmark, config, rows.told)
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
    """Measures the cells that are not there, as far as the time goes.

    Args:
        cells: In order.
        store: Where rows are kept.
        minutes: For all of them.
        fresh: Whether to measure again what the store holds.
        jsonl: A file whose rows of the same scripts are replaced after each.

    Returns:
        A line for each cell that was left or failed.
    """
    end, missing = time.monotonic() + 60 * minutes, []
    known: dict[str, Known] = {}

    def keep(cell: Cell, row: Row) -> None:
        seconds = store.seconds(cell.config) or 0.0
        known[cell.key] = Known(cell.config, row, seconds)
        print(cell.benchmark.show(cell.config, row), flush=True)

    def write() -> None:
        if jsonl is not None and known:
            there = [known[cell.key] for cell in cells if cell.key in known]
            measured = [(one.config, one.row) for one in there]
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
        told = cell.told(cell.config, list(known.values()))
        left = end - time.monotonic()
        if left <= 0 or (told is not None and told > left):
            why = "" if told is None else f", it takes some {told:.0f} s"
            miss(f"left: {cell}{why}; {max(left, 0):.0f} s of --minutes remain")
            continue
        store.record_failure(cell.config, "it was under way when its run ended", 0.0)
        measure, start = cell.benchmark.measure, time.monotonic()
        call = functools.partial(measure, cell.config)
        try:
            row = find_or_measure(store, cell.config, call, fresh=fresh)
        except (MemoryError, jax.errors.JaxRuntimeError, InputError) as error:
            message = " ".join(str(error).split())
            store.record_failure(cell.config, message, time.monotonic() - start)
            miss(f"failed: {cell}: {message}")
            continue
        finally:
            jax.clear_caches()  # the programs of one cell serve no other
        keep(cell, row)
        write()
    return missing


def replace_rows(path: Path, text: str) -> None:
    """Puts rows into a file, in place of those of the same scripts.

    Args:
        path: The file.
        text: The rows, as JSON lines.
    """
    new: dict[str, list[Line]] = {}
    for line in map(json.loads, text.splitlines()):
        new.setdefault(line["config"]["command"], []).append(line)
    old: Sequence[Mapping[str, Any]] = read_lines(path)
    write_lines(path, merge(old, new, ()))


def main() -> None:
    """Measures what is not there, and says what was left."""
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
