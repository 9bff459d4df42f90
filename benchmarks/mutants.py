"""Which one-line mutations of the numerics do the nearest tests notice?

A mutant is one module with one node of its syntax tree changed: a term or factor dropped,
a comparison turned or made strict, a number lowered, the smaller bound for the larger,
rounding down for up, an update left out. It stands in a copy of the tree in a temporary
folder, never in the checkout, where the tests that mirror its module run until one fails,
those first that name the module or the function. --count are drawn, in turn from each part.
Rows of survivors have a `reason`, written by hand: why the answer is the same.
"""

import ast
import functools
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.flags import benchmark_flags
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script

FLAGS = benchmark_flags("mutants", table=True)
_define = functools.partial(flags.DEFINE_integer, lower_bound=1, flag_values=FLAGS)
COUNT = _define("count", 240, "mutants")
LIMIT = _define("limit", 60, "seconds for each")

ROOT = Path(__file__).parent.parent
# A part, and the tests that mirror it.
PARTS = {
    "bounds/influence": "tests/bounds/influence",
    "bounds/rounding": "tests/bounds/rounding",
    "bounds/lemma5/certificate": "tests/bounds/lemma5/certificate",
    "bounds/numbers/rounding.py": "tests/bounds/numbers/test_rounding.py",
    "bounds/lemma5/closed_form": "tests/bounds/lemma5/closed_form",
    "bounds/restriction/closed_form": "tests/bounds/restriction/closed_form",
    "bounds/entropy/closed_form": "tests/bounds/entropy/closed_form",
    "bounds/simulation/closed_form": "tests/bounds/simulation",
    "jax_models/weighting": "tests/jax_models/weighting",
    "bounds/restriction/checker.py": "tests/bounds/restriction",
    "bounds/restriction/checking": "tests/bounds/restriction",
}
COMPARISONS: dict[Any, str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
COMPARISONS |= {ast.Eq: "!=", ast.NotEq: "=="}
SWAPPED = {"least": "greatest", "minimum": "maximum", "min": "max", "fmin": "fmax"}
SWAPPED |= {b: a for a, b in SWAPPED.items()} | {"upper": "lower", "lower": "upper"}
# What is said, asserted or declared is no arithmetic; axes and indices only crash.
SILENT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Subscript, ast.arguments)


def changes(node: ast.AST, source: str) -> Iterator[str]:
    """Yields texts that may replace a node of a module's syntax tree."""
    text = functools.partial(ast.get_source_segment, source)
    match node:
        case ast.AugAssign():
            yield "pass"
        case ast.BinOp(left, ast.Add() | ast.Mult(), right):
            yield from (f"({text(left)})", f"({text(right)})")
        case ast.BinOp(left, ast.Sub() | ast.Div(), right):
            yield f"({text(left)})"
        case ast.Compare(left, [op], [right]) if type(op) in COMPARISONS:
            yield f"(({text(left)}) {COMPARISONS[type(op)]} ({text(right)}))"
        case ast.BoolOp(_, [first, *_]):
            yield f"({text(first)})"
        case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub(), operand):
            yield f"({text(operand)})"
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            yield repr(value / 2 or 1.0 if isinstance(value, float) else value - 1 or 2)
        case ast.Call(ast.Name(name)) if name in SWAPPED:
            yield SWAPPED[name] + (text(node) or "")[len(name) :]
        case ast.Call(ast.Attribute(ast.Name(module), name)) if name in SWAPPED:
            rest = (text(node) or "")[len(f"{module}.{name}") :]
            yield f"{module}.{SWAPPED[name]}{rest}"


def mutants_of(source: str) -> list[dict[str, Any]]:
    """Returns a module's one-line mutants: line, function, old text and new text."""
    found = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.keyword) and node.arg == "axis":
            return
        if isinstance(node, ast.stmt | ast.expr) and node.lineno == node.end_lineno:
            start, end = node.col_offset, node.end_col_offset
            line = source.splitlines()[node.lineno - 1].encode()
            for change in changes(node, source) if function else ():
                mutated = line[:start] + change.encode() + line[end:]
                where = {"line": node.lineno, "function": function}
                now = {"was": line.decode().strip(), "is": mutated.decode()}
                found.append({**where, **now})
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, SILENT):
                visit(child, function)

    visit(ast.parse(source), "")
    return found


def nearest_tests(module: str, function: str, tests: str) -> list[str]:
    """Returns the test files below `tests`, nearest to the function first."""
    stem, place = Path(module).stem, ROOT / tests
    names = re.compile(rf"\b({re.escape(stem)}|{re.escape(function)})\b")

    def far(path: Path) -> tuple[bool, int, int]:
        text = path.read_text()
        return path.stem != f"test_{stem}", -len(names.findall(text)), len(text)

    files = [place] if place.is_file() else place.rglob("test_*.py")
    return [str(path.relative_to(ROOT)) for path in sorted(files, key=far)]


@functools.cache
def _copied_tree() -> Any:
    """Temporary folder with the files that git lists, kept until this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="mutants-")
    copy = "git ls-files -z | tar --null -T - -cf - | tar -xf - -C "
    subprocess.run(copy + folder.name, shell=True, check=True, cwd=ROOT)
    return folder


def measure(config: Config) -> dict[str, Any]:
    """Returns the outcome of a mutant's tests within the limit, and the test that failed."""
    root = Path(_copied_tree().name)
    path = root / config["module"]
    source = path.read_text()
    lines = source.splitlines(keepends=True)
    lines[config["line"] - 1] = config["is"] + "\n"
    command = [sys.executable, "-B", "-m", "pytest", "-xq"]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(root / ".programs")}
    cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    tests = nearest_tests(config["module"], config["function"], config["tests"])
    options: Any = {"cwd": root, "env": os.environ | cache, "timeout": config["limit"]}
    path.write_text("".join(lines))
    try:
        command += ["-m", "not slow", *tests]
        ran = subprocess.run(command, capture_output=True, text=True, **options)
    except subprocess.TimeoutExpired:
        return {"outcome": "out of time", "test": None}
    finally:
        path.write_text(source)
    test = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    if ran.returncode and not test:  # an error of pytest itself
        raise RuntimeError(ran.stdout[-1000:] + ran.stderr[-1000:])
    return {"outcome": "killed" if test else "survived", "test": test and test[1]}


def cells() -> Iterator[dict[str, Any]]:
    """Yields mutants of every part in turn, each part's in an order drawn once."""
    drawn = []
    for part, tests in PARTS.items():
        place = ROOT / part
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        of_part = [
            {"module": str(path.relative_to(ROOT)), **mutant, "tests": tests}
            for path in files
            for mutant in mutants_of(path.read_text())
        ]
        random.Random(0).shuffle(of_part)
        drawn += [(turn, part, mutant) for turn, mutant in enumerate(of_part)]
    drawn.sort(key=lambda x: x[:2])
    for _, _, mutant in drawn[: COUNT.value]:
        yield {**mutant, "limit": LIMIT.value}


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    where = f"{config['module']}:{config['line']}"
    return f"{row['outcome']}: {where}: {config['is'].strip()} ({row['test']})"


def table(measured: Measured) -> str:
    """Returns the number of mutants of each part by outcome, as a Markdown table."""
    lines = []
    for part in PARTS:
        rows = [row for config, row in measured if config["module"].startswith(part)]
        counts = [
            sum(row["outcome"] == outcome for row in rows)
            for outcome in ("killed", "survived", "out of time")
        ]
        lines.append([part, *map(str, (len(rows), *counts))])
    return table_text(["part", "mutants", "killed", "survived", "out of time"], lines)


BENCHMARK = Benchmark("mutants", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
