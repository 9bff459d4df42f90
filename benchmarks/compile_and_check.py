"""How long does it take to compile a formula or a program, and to check the model?

Formulas and programs that grow with a number k: k symbols in a row as a formula, and k hops
of an induction head as a formula and as a program. From text to weights; then the check, of
the truth or the result at every position against the evaluator: for a formula as the
command `compile` tests itself, on all short strings and random longer ones, in NumPy; for
a program on the random strings of the largest of these lengths, in the engine. Both
stand beside a forward pass of the compiled model at that length, in the same run.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.flags import (
    benchmark_flags,
    define_choices,
    define_dtypes,
    define_integers,
)
from benchmarks.line_figure import Panel, line_figure, lines_by
from benchmarks.page import digits, table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.timing import spread, time_call
from jax_models import InputError, Transformer, forward
from jax_models.programs import rasp
from jax_models.programs.grammar import walk
from jax_models.programs.logic import format_formula, parse_formula
from jax_models.programs.logic.applications import ending_ngram, hops
from jax_models.programs.logic.compile import compile_formula, exact_length
from jax_models.programs.logic.self_test import check_strings_of_model, strings_to_test

ALPHABET = "abc"
MODE = "T"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A formula or program to compile, with functions that build and check its model.

    Attributes:
        text: The formula or the program.
        parts: Distinct sub-formulas, or lines of the program.
        build: Function from a float type to the model.
        longest: The length up to which the model is exact.
        check: Checks a model on groups of strings [c, n] and returns of how many
            positions; an error where it errs.
    """

    text: str
    parts: int
    build: Callable[[str], Transformer]
    longest: Callable[[Transformer], int]
    check: Callable[[Transformer, list[np.ndarray]], int]


def formula_subject(formula: Any) -> Subject:
    """Returns the subject of a formula."""
    text = format_formula(formula)

    def build(dtype: str) -> Transformer:
        parsed = parse_formula(text, ALPHABET)
        return compile_formula(parsed, ALPHABET, MODE, dtype=dtype)

    def check(model: Transformer, groups: list[np.ndarray]) -> int:
        for strings in groups:
            check_strings_of_model(model, formula, tuple(ALPHABET), strings)
        return sum(strings.size for strings in groups)

    parts = sum(1 for _ in walk(formula))
    return Subject(text, parts, build, exact_length, check)


def program_subject(text: str) -> Subject:
    """Returns the subject of an S-RASP program."""
    checked = rasp.check_program(text, ALPHABET)
    plan = rasp.plan_program(checked)

    def build(dtype: str) -> Transformer:
        parsed = rasp.check_program(text, ALPHABET)
        return rasp.build_model(rasp.plan_program(parsed), dtype)

    def longest(model: Transformer) -> int:
        return rasp.longest_exact_length(plan, model.dtype)

    def check(model: Transformer, groups: list[np.ndarray]) -> int:
        compiled = rasp.CompiledProgram(plan, model)
        for string in groups[-1]:
            expected = rasp.evaluate_program(checked, string)
            if not np.array_equal(compiled.run(string), expected):
                raise InputError(f"the compiled program errs on {string.tolist()}")
        return groups[-1].size

    return Subject(text, text.count("\n"), build, longest, check)


FAMILIES: dict[str, Callable[[int], Subject]] = {
    "word": lambda k: formula_subject(ending_ngram((ALPHABET * k)[:k])),
    "hops": lambda k: formula_subject(hops(ALPHABET, "a", k)),
    "hop program": lambda k: program_subject(rasp.k_hop_program(k)),
}

FLAGS = benchmark_flags(
    "compile_and_check", repeats=3, budget=2.0, table=True, figure=True
)
DTYPES = define_dtypes(FLAGS, "float64")
CHOSEN = define_choices(FLAGS, "families", list(FAMILIES), list(FAMILIES), "families")
SIZES = define_integers(FLAGS, "sizes", [1, 2, 4], "sizes k")
SELF_TEST = flags.DEFINE_integer(
    "self_test",
    5,
    "all strings up to this length are tested",
    lower_bound=1,
    flag_values=FLAGS,
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: float type, family, size k and self-test."""
    for cell in grid(dtype=DTYPES.value, family=CHOSEN.value, k=SIZES.value):
        yield {**cell, "self_test": SELF_TEST.value}


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds to compile, to check, and of a pass, and the ratios."""
    subject = FAMILIES[config["family"]](config["k"])
    how = {"repeats": config["repeats"], "budget": config["budget"]}
    model = subject.build(config["dtype"])
    most, seed = subject.longest(model), config["seed"]
    tested = strings_to_test(len(ALPHABET), config["self_test"], seed, most)
    groups = [strings for strings, _ in tested]
    positions, longest = subject.check(model, groups), groups[-1].shape[1]
    run, tokens = jax.jit(lambda m, x: forward(m, x)[0]), jnp.asarray(groups[-1][0])
    compiling = time_call(lambda: subject.build(config["dtype"]), **how)
    checking = time_call(lambda: subject.check(model, groups), **how)
    passing = time_call(lambda: run(model, tokens), **how)
    return {
        **compiling.columns("compile"),
        **checking.columns("check"),
        **passing.columns("forward"),
        "parts": subject.parts,
        "layers": len(model.layers),
        "heads": sum(layer.attention.num_heads for layer in model.layers),
        "width": model.width,
        "longest": longest,
        "positions": positions,
        "compile_passes": compiling.median / passing.median,
        "check_passes": checking.median / passing.median,
    }


HEAD = (
    *("what", "type", "k", "parts", "L", "heads", "d", "compile s", "in passes"),
    *("check s", "in passes", "positions", "pass s", "n"),
)


def line(config: Config, row: Row) -> list[str]:
    """Returns one row as the cells of a line of the table."""
    shape = (row[name] for name in ("parts", "layers", "heads", "width"))
    return [
        config["family"],
        config["dtype"],
        str(config["k"]),
        *map(str, shape),
        spread(row, "compile"),
        digits(row["compile_passes"]),
        spread(row, "check"),
        digits(row["check_passes"]),
        str(row["positions"]),
        spread(row, "forward"),
        str(row["longest"]),
    ]


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"{config['family']}, k = {config['k']}, {config['dtype']}: {row['layers']} "
        f"layers, d = {row['width']}; compiled in {row['compile_seconds']:.3g} s = "
        f"{row['compile_passes']:.3g} passes, {row['positions']} positions checked in "
        f"{row['check_seconds']:.3g} s = {row['check_passes']:.3g} passes"
    )


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    return table_text(HEAD, [line(config, row) for config, row in measured])


def draw(measured: Measured) -> Any:
    """Returns the figure: seconds to compile and to check against k."""

    def label(config: Config) -> str:
        return f"{config['family']}, {config['dtype']}"

    def seconds(what: str, y_label: str) -> Panel:
        lines = lines_by(measured, label, lambda _, row: row[f"{what}_seconds"], "k")
        return Panel(y_label, lines, x_label="size k")

    compiling = seconds("compile", "seconds to compile")
    return line_figure([compiling, seconds("check", "seconds to check")])


BENCHMARK = Benchmark("compile_and_check", FLAGS, cells, measure, show, table, draw)

if __name__ == "__main__":
    run_script(BENCHMARK)
