"""How close are the estimates of `batch --dry_run` to what cells then take?

Runs a sweep of each of five commands, as `batch` does, in a process of its own that has
compiled nothing; then, from the stores alone, calibrates the cost model by --calibrate
cells of a sweep and compares its estimates of all others with what they took. Beside the
cells that `batch --calibrate` chooses stand --draws random choices that meet every swept
value. Each is done for wall time and for the CPU time of the process: other programs on
the machine show in the first far more than in the second. The stores of the sweeps are
kept in --stores and used again: with --fresh the same command evaluates another model on
them. Rows go to results.sqlite in --out.
"""

import dataclasses
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.flags import benchmark_flags
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds.batch.cells import BatchCell
from bounds.batch.plan import CostModel, choose_calibration, fit_cost
from bounds.batch.specification import Specification, read_sweep
from bounds.cli.batch_cells import make_cells
from bounds.cli.shared.validators import validate_choices
from bounds.store.results import read_cells
from jax_models.errors import InputError

SMALL = {"d_model": "8", "d_ff": "16"}
# Each is a few cells of every kind that its command has, of some ms to some seconds.
SWEEPS: dict[str, tuple[dict[str, str], list[str]]] = {
    "entropy": (
        {},
        [
            "language=parity,dyck2",
            "p=0.1,0.3",
            "lengths=4;8;64;256;1024;4096;16,64;4,4096",
            "seed=0..1",
        ],
    ),
    "curve": (
        {"num_inputs": "2", **SMALL},
        [
            "weighting=softmax,average_hard",
            "num_layers=1,2",
            "lengths=16;64;256;16,64",
            "seed=0..2",
        ],
    ),
    "influence": (
        {},
        [
            "weighting=softmax,leftmost_hard",
            "num_layers=1,2",
            "length=32,128,512",
            "seed=0..2",
        ],
    ),
    "lipschitz": (
        {"num_inputs": "1", "restarts": "0", **SMALL},
        ["num_heads=1,2", "lengths=8;32;128;8,32", "seed=0..3"],
    ),
    "simulate": (
        {},
        ["num_layers=1,2", "lengths=4;8;64;4,8", "num_inputs=2,16", "seed=0..2"],
    ),
}
TIMES = ("wall", "cpu")

FLAGS = benchmark_flags("estimate_accuracy", table=True)
COMMANDS = flags.DEFINE_list(
    "commands", list(SWEEPS), "commands to sweep", flag_values=FLAGS
)
CALIBRATE = flags.DEFINE_integer(
    "calibrate", 16, "calibration cells", lower_bound=1, flag_values=FLAGS
)
DRAWS = flags.DEFINE_integer(
    "draws", 20, "random calibrations", lower_bound=1, flag_values=FLAGS
)
MAX_SECONDS = flags.DEFINE_float(
    "max_seconds",
    600.0,
    "begin no cell of a sweep after these",
    lower_bound=0.0,
    flag_values=FLAGS,
)
STORES = flags.DEFINE_string(
    "stores",
    "results/estimate_accuracy/sweeps",
    "folder of the sweeps' stores",
    flag_values=FLAGS,
)
validate_choices(FLAGS, "commands", tuple(SWEEPS))


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Cells that were run, in that order, and what each took."""

    cells: list[BatchCell]
    rows: dict[str, dict[str, Any]]

    def timed(self, time: str) -> "Sweep":
        """Returns the sweep with one of the two times as its seconds."""
        if time == "wall":
            return self
        rows = {}
        for key, row in self.rows.items():
            share = row["cpu_seconds"] / row["seconds"]
            rows[key] = row | {
                "seconds": row["cpu_seconds"],
                "compile_seconds": row["compile_seconds"] * share,
            }
        return Sweep(self.cells, rows)

    def ratios(self, chosen: Sequence[BatchCell]) -> list[float]:
        """Returns estimate over truth of all cells but those that calibrate."""
        keys = {cell.key for cell in chosen}
        sample = {key: row for key, row in self.rows.items() if key in keys}
        estimates = fit_cost(self.cells, sample).estimates(self.cells)
        return [
            estimate / self.rows[cell.key]["seconds"]
            for cell, estimate in zip(self.cells, estimates, strict=True)
            if cell.key not in keys
        ]

    def guess(self) -> CostModel:
        """Returns the model that is not calibrated."""
        return fit_cost(self.cells, {})


def specification(command: str) -> Specification:
    """Returns the sweep of a command."""
    fixed, sweep = SWEEPS[command]
    return Specification(command, fixed, read_sweep(sweep))


def run_sweep(command: str, folder: Path) -> None:
    """Runs what the store in a folder lacks of a sweep, in a process of its own."""
    fixed, sweep = SWEEPS[command]
    arguments = [f"--{name}={value}" for name, value in fixed.items()]
    arguments += [f"--sweep={text}" for text in sweep]
    # What was compiled before would make later cells cheaper than estimated.
    arguments += ["--compilation_cache=off", f"--out={folder}"]
    arguments.append(f"--max_seconds={MAX_SECONDS.value}")
    subprocess.run(
        [sys.executable, "-m", "bounds", "batch", f"--command={command}", *arguments],
        check=True,
    )


def read_sweep_store(command: str, folder: Path, calibrate: int) -> Sweep:
    """Returns a sweep from its store, in the order in which it was run."""
    cells = {cell.key: cell for cell in make_cells(specification(command))}
    rows = {
        row["key"]: dict(row)
        for row in read_cells(folder / "results.sqlite")
        if row["key"] in cells and row["status"] == "done"
    }
    if len(rows) <= calibrate:
        raise InputError(
            f"{folder} holds {len(rows)} cells; estimates are compared with more than "
            f"--calibrate={calibrate}, run again with more --max_seconds"
        )
    return Sweep([cells[key] for key in rows], rows)


def within_two(ratios: Sequence[float]) -> float:
    """Returns the percentage of estimates within a factor of 2."""
    return 100 * statistics.mean(0.5 <= ratio <= 2 for ratio in ratios)


def evaluate(sweep: Sweep, calibrate: int, draws: int) -> dict[str, Any]:
    """Returns how estimates fare, for both times."""
    row: dict[str, Any] = {
        "cells": len(sweep.cells),
        "judged": len(sweep.cells) - calibrate,
    }
    ordered = sweep.guess().order(sweep.cells)
    for time in TIMES:
        timed = sweep.timed(time)
        ratios = timed.ratios(choose_calibration(ordered, calibrate))
        drawn = []
        for seed in range(draws):
            # Of a shape the first cell compiled: it stays the first.
            shapes = list(dict.fromkeys(cell.shape for cell in ordered))
            random.Random(seed).shuffle(shapes)
            shuffled = sorted(ordered, key=lambda cell: shapes.index(cell.shape))
            drawn += timed.ratios(choose_calibration(shuffled, calibrate))
        row |= {
            f"{time}_within_2": within_two(ratios),
            f"{time}_median": statistics.median(ratios),
            f"{time}_random_within_2": within_two(drawn),
        }
    return row


def cells() -> Iterator[dict[str, Any]]:
    """Yields a cell for each sweep."""
    for command in COMMANDS.value:
        yield {
            "swept": command,
            "calibrate": CALIBRATE.value,
            "draws": DRAWS.value,
        }


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: how the estimates of a sweep fare."""
    command = config["swept"]
    folder = Path(STORES.value) / command
    run_sweep(command, folder)
    sweep = read_sweep_store(command, folder, config["calibrate"])
    return evaluate(sweep, config["calibrate"], config["draws"])


def show(config: Config, row: Row) -> str:
    """Returns a row as a line."""
    told = "; ".join(
        f"{time} {row[f'{time}_within_2']:.0f} % within 2 (random choices "
        f"{row[f'{time}_random_within_2']:.0f} %), median {row[f'{time}_median']:.2f}"
        for time in TIMES
    )
    return f"{config['swept']}, {row['cells']} cells: {told}"


def table(measured: Measured) -> str:
    """Returns the rows as a table, with the mean over all judged cells below."""
    columns = [f"{time}_{kind}within_2" for time in TIMES for kind in ("", "random_")]
    lines = [
        [f"`{config['swept']}`", str(row["judged"]), *(_told(row[c]) for c in columns)]
        for config, row in measured
    ]
    judged = [row["judged"] for _, row in measured]
    means = [
        sum(row["judged"] * row[column] for _, row in measured) / sum(judged)
        for column in columns
    ]
    lines.append(["all", str(sum(judged)), *map(_told, means)])
    head = [
        "sweep of",
        "cells judged",
        "wall within 2",
        "random",
        "CPU within 2",
        "random",
    ]
    return table_text(head, lines)


def _told(percentage: float) -> str:
    return f"{percentage:.0f} %"


BENCHMARK = Benchmark("estimate_accuracy", FLAGS, cells, measure, show, table)

if __name__ == "__main__":
    run_script(BENCHMARK)
