"""What every benchmark script does: measure the cells its store lacks, then report.

A script is one file with `cells()` (what is measured), `measure(config)` (one row, from the
config alone) and `show(config, row)` (a line of print), gathered in a `Benchmark` and run by
`run_script`. The config of a row says all that decides it: what `cells` yields, and the
facts that all rows share.
"""

import dataclasses
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
from absl import app, flags

from benchmarks.device import device_name
from benchmarks.page import replace_table
from bounds.cli.main import one_line
from bounds.cli.shared.platforms import request_platform
from bounds.figures.primitives import save_figure
from bounds.store.output import canonical_json, plain, write_bytes
from bounds.store.provenance import provenance
from bounds.store.results import ResultStore, cell_key
from bounds.version import __version__
from jax_models import InputError
from jax_models.run.platform import require_platform

Config: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]
Measured: TypeAlias = Sequence[tuple[Config, Row]]
Line: TypeAlias = Mapping[str, Any]

FOLDER = Path(__file__).parent / "results"
FIELDS = {"config", "row", "versions", "seconds", "git_commit", "finished"}


def results_files(folder: Path = FOLDER) -> dict[str, Path]:
    """Returns the files of rows in a folder, by their stems, in order."""
    return {path.stem: path for path in sorted(folder.glob("*.jsonl"))}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a JSON-lines file; [] if there is no file."""
    if not path.is_file():
        return []
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{number}: this is no JSON: {error}") from error
        if not isinstance(line, dict) or FIELDS - line.keys():
            missing = sorted(FIELDS - set(line))
            raise InputError(f"{path}:{number}: a row has no {', '.join(missing)}")
        lines.append(line)
    return lines


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Writes rows to a JSON-lines file."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_bytes(path, text.encode())


def rows_of(lines: Iterable[Line], command: str) -> Measured:
    """Returns the configs and rows of one script among lines."""
    return [
        (line["config"], line["row"])
        for line in lines
        if line["config"]["command"] == command
    ]


def find_or_measure(
    store: ResultStore,
    config: Mapping[str, Any],
    measure: Callable[[], Mapping[str, Any]],
    *,
    fresh: bool,
) -> Mapping[str, Any]:
    """Returns the row that the store holds for a config, measured now if there is none."""
    config = {**config, "version": __version__}
    row = None if fresh else store.find(config)
    if row is None:
        start = time.perf_counter()
        row = measure()
        store.record(config, row, time.perf_counter() - start)
    return row


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One question: its cells, and functions that measure, print and draw them.

    Attributes:
        name: The script's; rows and the marks in pages carry it.
        values: Its flags, from `benchmark_flags`.
        cells: Yields what the rows' configs differ in; reads the flags. An entry takes the
            place of a shared fact of the same name.
        measure: Measures one row; all it needs is in the config.
        show: Returns a row as a line.
        table: Returns rows as the Markdown table of a page (flag --docs).
        draw: Returns the figure of rows (flag --figure).
    """

    name: str
    values: flags.FlagValues
    cells: Callable[[], Iterable[Config]]
    measure: Callable[[Config], Row]
    show: Callable[[Config, Row], str]
    table: Callable[[Measured], str] | None = None
    draw: Callable[[Measured], Any] | None = None


def grid(**axes: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields the cells of a cross product, the last name changing fastest."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def shared_config(benchmark: Benchmark) -> dict[str, Any]:
    """Returns the entries that all configs of a run share: device, versions, seed, ..."""
    values: Any = benchmark.values
    require_platform(values.platform)
    try:
        device = jax.devices()[0]
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"JAX_PLATFORMS: {one_line(error)}") from error
    versions = provenance()["versions"]
    config = {
        "command": benchmark.name,
        "device": device_name(),
        "platform": device.platform,
        "version": __version__,
        "versions": {k: v for k, v in versions.items() if k != "attention-bounds"},
        "dtype": "float64",
        # Every product of the project asks for it; a script that times others says so.
        "matmul_precision": "highest",
        "seed": 0,
    }
    timing = {"repeats", "budget"} & set(benchmark.values)
    return config | {name: benchmark.values[name].value for name in timing}


def measure_cells(
    benchmark: Benchmark, store: ResultStore, fresh: bool
) -> tuple[Measured, int]:
    """Returns the rows of all cells, measured where the store lacks them.

    A cell that the device has too little memory for is recorded as failed and left out:
    the others are worth having.
    """
    measured, failed = [], 0
    for cell in benchmark.cells():
        start = time.perf_counter()
        config = {**shared_config(benchmark), **cell}
        call = functools.partial(benchmark.measure, config)
        try:
            row = find_or_measure(store, config, call, fresh=fresh)
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            message = " ".join(str(error).split())
            store.record(config, None, time.perf_counter() - start, message=message)
            print(f"failed: {canonical_json(cell)}: {message}", flush=True)
            failed += 1
            continue
        measured.append((config, row))
        print(benchmark.show(config, row), flush=True)
    return measured, failed


def json_lines(measured: Measured, store: ResultStore) -> str:
    """Returns rows as JSON lines, with the versions, commit and seconds of each."""
    cells = {cell["key"]: cell for cell in store.table()}
    versions = "versions."
    lines = []
    for config, row in measured:
        cell = cells[cell_key(config)]
        line = {
            "config": in_order(config),
            "row": in_order(row),
            "versions": {
                name.removeprefix(versions): value
                for name, value in cell.items()
                if name.startswith(versions)
            },
            "seconds": cell["seconds"],
            "git_commit": cell["git_commit"],
            "finished": cell["finished"],
        }
        lines.append(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n")
    return "".join(lines)


def in_order(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Returns entries as JSON values in order of their names."""
    found = plain(entries)
    return {name: found[name] for name in sorted(found)}


def run_script(benchmark: Benchmark) -> None:
    """Parses the command line, measures missing cells, and prints and writes the results.

    Exit code 1 where a cell failed, after all others were measured.
    """
    run_program(benchmark.values, functools.partial(_measure_and_report, benchmark))


def run_program(values: flags.FlagValues, main: Callable[[], None]) -> None:
    """Parses the command line and runs `main`; an input error ends it with one line."""
    file = Path(sys.argv[0])
    program = (file.parent if file.stem == "__main__" else file).stem

    def run(arguments: list[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected arguments {arguments[1:]}")
        values.mark_as_parsed()
        try:
            for name in values:
                if values[name].value != values[name].value:  # absl accepts NaN
                    raise InputError(f"--{name} = nan is not a number; give one")
            main()
        except (InputError, OSError) as error:
            raise SystemExit(f"{program}: {error}") from error
        except KeyboardInterrupt:
            print(
                f"\n{program}: interrupted; the same command goes on", file=sys.stderr
            )
            raise SystemExit(130) from None

    for name in values:
        # Named as the program's own, so that --help shows them.
        flags.FLAGS[name] = values[name]
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
    app.run(run)


def _measure_and_report(benchmark: Benchmark) -> None:
    """Measures and reports a benchmark whose flags have been parsed."""
    values: Any = benchmark.values
    jax.config.update("jax_enable_x64", True)
    request_platform(values)  # looked for later: a script may divide the CPU first
    out = Path(values.out)
    with ResultStore(out / "results.sqlite") as store:
        measured, failed = measure_cells(benchmark, store, values.fresh)
        if values.jsonl is not None:
            write_bytes(values.jsonl, json_lines(measured, store).encode())
    report(benchmark, measured, out)
    if failed:
        raise SystemExit(1)


def report(benchmark: Benchmark, measured: Measured, out: Path) -> None:
    """Prints the table, replaces the one in the page of --docs, and draws the figure."""
    values: Any = benchmark.values
    if not measured:  # all failed, or were skipped: what was shown of others stays
        return
    if benchmark.table is not None:
        text = benchmark.table(measured)
        print(text)
        if values.docs is not None:
            replace_table(Path(values.docs), benchmark.name, text)
    if benchmark.draw is not None:
        stem = values.figure or out / benchmark.name
        save_figure(benchmark.draw(measured), stem, ["png"])
