"""How far below the constants of Lemma 5 is the exact supremum, as n grows?

For unmasked random models without positions, binary inputs: n times the exact supremum
over all 2^n inputs at each n, beside n times the bounds of Lemma 5 (the saturating
recursion, the linear one, C1 and C2 corrected, and the constant as printed), and the
seconds that all count vectors took. Rows go to results.sqlite in --out; a row that is
there is not measured again. --docs writes the table into a documentation page.
"""

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.flags import (
    benchmark_flags,
    define_integers,
    define_lengths,
    define_weightings,
)
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, random_model
from bounds import closed_form_bounds, supremum
from jax_models import WEIGHTINGS as NAMES
from jax_models import InputError

FLAGS = benchmark_flags("supremum_rate", table=True)
LENGTHS = define_lengths(FLAGS, "16,128,1024,10000,100000")
LAYERS = define_integers(FLAGS, "layers", [1, 2], "numbers of layers L")
WEIGHTINGS = define_weightings(FLAGS, *NAMES)

FORMS = ("corrected", "linear", "c1", "c2", "printed_tight", "printed")
HEADINGS = (
    "L",
    "weighting",
    "n",
    "n · supremum",
    "seconds",
    *("recursion", "linear", "C1", "C2", "printed, tight F", "printed"),
)


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: the supremum, and decimal logarithms of the bounds."""
    model, n = random_model(config), config["n"]
    supremum(model, n)  # compiles; the seconds are those of a warm call
    best = supremum(model, n)
    if not best.exact:
        raise InputError(f"n = {n}: {best.reason} is no supremum")
    row: dict[str, Any] = {
        "supremum": best.max,
        "radius": best.max_upper - best.max,
        "configurations": best.configurations,
        "ones": int(best.tokens.sum()),
        "search_seconds": best.seconds,
    }
    if not model.is_hard:
        forms = closed_form_bounds(model, n)
        for name in FORMS:
            form = getattr(forms, name)
            row[f"log10_{name}"] = None if form is None else form.others.log10_value
    return row


def table(measured: Measured) -> str:
    """Returns the rows as a Markdown table, with supremum and bounds times n."""
    lines = []
    for config, row in measured:
        n = config["n"]
        bounds = (row.get(f"log10_{name}") for name in FORMS)
        lines.append(
            (
                str(config["layers"]),
                config["weighting"],
                str(n),
                f"{n * row['supremum']:.6g}",
                f"{row['search_seconds']:.2g}",
                *(_scaled(value, n) for value in bounds),
            )
        )
    return table_text(HEADINGS, lines)


def _scaled(log10: float | None, n: int) -> str:
    """Text of n times a bound, as a number or a power of ten."""
    if log10 is None:
        return "–"
    scaled = log10 + math.log10(n)
    return f"{10**scaled:.4g}" if scaled < 6 else f"10^{scaled:.5g}"


def show(config: Config, row: Row) -> str:
    """Returns one measured row as a line of the table."""
    return table([(config, row)]).splitlines()[-1]


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: layers, weighting, length and sizes."""
    for cell in grid(layers=LAYERS.value, weighting=WEIGHTINGS.value, n=LENGTHS.value):
        yield {**cell, **SIZES, "d_ff": 64, "position": None}


BENCHMARK = Benchmark("supremum_rate", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
