"""Puts tables, figures and numbers made from stored rows into the documentation pages.

`python -m benchmarks.pages` measures nothing: it makes anew what stands between the marks
`<!-- results: NAME -->` and `<!-- end of results -->`, for the rows of the script NAME in
every file of benchmarks/results/, or, with `NAME on FILE`, in that file alone (one of
`long/` holds rows of the scripts with more than `make bench` asks of them), and the single
numbers that `fill_values` puts in. Figures go to docs/benchmarks/. --check writes
nothing and says what is stale (exit code 1); --show prints the tables of a script.
"""

import importlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.docs_check.agreement import image_difference, same_made
from benchmarks.docs_check.pages import marked_text, without_marks
from benchmarks.page import digits
from benchmarks.script import (
    FOLDER,
    Benchmark,
    Line,
    Measured,
    read_lines,
    results_files,
    rows_of,
    run_program,
)
from bounds.figures.primitives import save_figure
from bounds.store.output import write_bytes
from jax_models import InputError

VALUE = re.compile(
    r"(<!--\s+value:\s+(\w+)\s+on\s+([\w/-]+),\s+(\w+),\s+([^>]*?)\s*-->)(.*?)"
    r"(<!-- end of value -->)",
    re.DOTALL,
)


def fill_values(text: str) -> str:
    """Returns a page's text with its marked numbers made anew from stored rows."""

    def number(match: re.Match[str]) -> str:
        mark, script, device, column, conditions, _, end = match.groups()
        if text[: match.start()].endswith("\n") or not match.start():
            raise InputError(f"{mark} begins a line; put a word in front of it")
        wanted = _conditions(conditions)
        count = wanted.pop("digits", 2)
        return f"{mark}{digits(row_value(script, device, column, wanted), count)}{end}"

    return VALUE.sub(number, text)


def row_value(script: str, device: str, column: str, wanted: dict[str, Any]) -> float:
    """Returns an entry of a script's one row on a device whose config is as `wanted`."""
    found = [
        row
        for config, row in rows_of(read_lines(FOLDER / f"{device}.jsonl"), script)
        if all(config.get(name) == value for name, value in wanted.items())
    ]
    what = f"{script} on {device}, {wanted}"
    if len(found) != 1:
        raise InputError(f"{what}: {len(found)} rows are stored, expected one")
    value = found[0].get(column)
    if not isinstance(value, int | float):
        raise InputError(f"{what}: the row has no number {column!r}")
    return value


def _conditions(text: str) -> dict[str, Any]:
    """Returns the entries `name=value` of a mark; values are JSON, or else words."""
    entries = (entry.partition("=") for entry in text.split())
    return {name: _parsed(value) for name, _, value in entries}


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(
    r"(<!-- results: (\w+)(?: on ([\w/-]+))? -->\n)(.*?)(<!-- end of results -->)",
    re.DOTALL,
)


def benchmark_of(name: str) -> Benchmark:
    """Returns the benchmark that a script defines, which must make a table."""
    try:
        found = importlib.import_module(f"benchmarks.{name}").BENCHMARK
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(f"{name} is no benchmark of rows and tables") from error
    if found.table is None:
        raise InputError(f"the benchmark {name} makes no table")
    return found


def provenance_text(lines: Sequence[Line]) -> str:
    """Returns versions, commits, days and notes of rows, in one line."""
    facts = []
    for name, label in (("jax", "jax"), ("numpy", "NumPy"), ("python", "Python")):
        found = sorted({line["versions"].get(name) or "" for line in lines} - {""})
        facts += [f"{label} {' and '.join(found)}"] if found else []
    precisions = {line["config"].get("matmul_precision") or "" for line in lines} - {""}
    facts += [f"matrix products in {one} precision" for one in sorted(precisions)]
    commits = sorted({(line["git_commit"] or "") for line in lines} - {""})
    facts += [f"commit {_short(one)}" for one in commits]
    days = sorted({(line["finished"] or "")[:10] for line in lines} - {""})
    facts += [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    notes = sorted({line.get("note") or "" for line in lines} - {""})
    return "; ".join(facts + notes)


def _short(commit: str) -> str:
    """Returns a commit's first ten digits, and words if files were changed."""
    number, _, dirty = commit.partition("-")
    return f"`{number[:10]}`" + (" with uncommitted changes" if dirty else "")


def block_text(name: str, device: str | None = None) -> str:
    """Returns the text between two marks: for each device a table and a figure's link."""
    benchmark, parts = benchmark_of(name), []
    assert benchmark.table is not None
    for stem, lines in stored(name, device):
        title = lines[0]["config"]["device"]
        measured = rows_of(lines, name)
        table = benchmark.table(measured)
        parts += [f"**{title}**: {provenance_text(lines)}.", table]
        if has_figure(benchmark, measured):
            alt = f"{name.replace('_', ' ')} on {title}"
            parts.append(f"![{alt}](benchmarks/{name}-{stem}.png)")
    if device is not None and not parts:
        return f"No row of `{name}` is stored yet in {device}.jsonl."
    return "\n\n".join(parts) or "No row is stored yet: `make bench` measures some."


def stored(name: str, device: str | None = None) -> Iterator[tuple[str, list[Line]]]:
    """Yields the names of files of results, each with its rows of a script."""
    files = results_files(FOLDER)
    if device is not None:
        files = {device: FOLDER / f"{device}.jsonl"}
        if not files[device].is_file():
            raise InputError(f"{name} on {device}: there is no file {files[device]}")
    for stem, path in files.items():
        lines = [x for x in read_lines(path) if x["config"]["command"] == name]
        if lines:
            yield stem.replace("/", "-"), list(lines)


def page_text(page: Path) -> str:
    """Returns a page's text with its blocks and numbers made anew."""
    text = fill_values(marked_text(page, DOCS.parent))
    text = BLOCK.sub(lambda m: f"{m[1]}{block_text(m[2], m[3])}\n{m[5]}", text)
    return without_marks(text, page, DOCS.parent)


def is_current(page: Path) -> bool:
    """Returns whether a page's blocks and numbers are as the stored rows make them.

    Numbers of sentences stand in a row and are the same to the digit; those of blocks are
    computed from rows.
    """
    text = marked_text(page, DOCS.parent)
    return fill_values(text) == text and all(
        same_made(match[4], f"{block_text(match[2], match[3])}\n")
        for match in BLOCK.finditer(text)
    )


def pages_with_blocks() -> list[Path]:
    """Returns README.md and the pages of docs/ that have marked blocks or numbers."""
    pages = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
    marks = [(page, marked_text(page, DOCS.parent)) for page in pages]
    return [page for page, text in marks if BLOCK.search(text) or VALUE.search(text)]


def draw_figures(folder: Path) -> list[Path]:
    """Draws the figures of all pages' blocks into a folder; returns the files."""
    wanted = {
        (match[2], stem): lines
        for page in pages_with_blocks()
        for match in BLOCK.finditer(page.read_text())
        for stem, lines in stored(match[2], match[3])
    }
    files = []
    for (name, stem), lines in wanted.items():
        benchmark, measured = benchmark_of(name), rows_of(lines, name)
        if benchmark.draw is not None and has_figure(benchmark, measured):
            figure = benchmark.draw(measured)
            files += save_figure(figure, folder / f"{name}-{stem}", ["png"])
    return files


def has_figure(benchmark: Benchmark, measured: Measured) -> bool:
    """Returns whether a benchmark draws these rows: three at least, and it has a figure."""
    return benchmark.draw is not None and len(measured) > 2


def write_pages() -> list[Path]:
    """Makes all pages' blocks and figures anew; returns the files written."""
    written = draw_figures(DOCS / "benchmarks")
    for old in set((DOCS / "benchmarks").glob("*.png")) - set(written):
        old.unlink()
    for page in pages_with_blocks():
        write_bytes(page, page_text(page).encode())
        written.append(page)
    return written


def stale() -> list[str]:
    """Returns a line for each page and figure that is not as the stored rows make it."""
    found = [
        f"{page.name} is not what the stored rows make"
        for page in pages_with_blocks()
        if not is_current(page)
    ]
    with tempfile.TemporaryDirectory() as name:
        drawn = draw_figures(Path(name))
        for file in drawn:
            shown = DOCS / "benchmarks" / file.name
            wrong = image_difference(shown, file) if shown.is_file() else "is missing"
            found += [f"{shown.name}: {wrong}"] if wrong else []
    return found


def define_flags() -> Any:
    """Returns the flags --check and --show."""
    values = flags.FlagValues()
    flags.DEFINE_bool("check", False, "say what is stale", flag_values=values)
    flags.DEFINE_string("show", None, "script to print", flag_values=values)
    return values


FLAGS = define_flags()


def main() -> None:
    """Writes the pages, checks them, or prints the tables of one script."""
    if FLAGS.show is not None:
        print(block_text(FLAGS.show))
    elif FLAGS.check:
        found = stale()
        print("\n".join(found) or "all pages are as the stored rows make them")
        if found:
            raise SystemExit(1)
    else:
        for file in write_pages():
            print(f"wrote {file}")


if __name__ == "__main__":
    run_program(FLAGS, main)
