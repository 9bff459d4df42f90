"""Errors of the influences of two-layer softmax models, against many digits.

Families of models that lose digits (`benchmarks.two_layer_families`): the influences of all
substitutions on the last row by `incremental`, beside passes of the multiprecision reference
(`benchmarks.reference`), which shares no line with it. A row has two errors of a model, in
units of the float type's unit roundoff: the largest |found - exact| / exact, and the largest
|found - exact| over the largest influence. Influences below the smallest normal number of
the type count for the second alone.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.exact_values import exact_values
from benchmarks.flags import (
    benchmark_flags,
    define_choices,
    define_dtypes,
    define_integers,
    define_masks,
)
from benchmarks.page import digits, table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.two_layer_families import FAMILIES
from bounds.influence.build import build_request
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.moved import found_by
from bounds.numbers.rounding import unit_roundoff

# Of the reference: the smallest normal number with 20 digits and more beside 1.
DIGITS = {"float32": 80, "float64": 340}
# Numbers of symbols of a family's models, in turn.
VOCAB_SIZES = (3, 2)
ERRORS = ("relative", "of_largest")
FLAGS = benchmark_flags("two_layer_errors", table=True)
CHOSEN = define_choices(FLAGS, "families", list(FAMILIES), list(FAMILIES), "families")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
MASKS = define_masks(FLAGS, "none", "future")
LENGTHS = define_integers(FLAGS, "lengths", [20], "lengths n", lower_bound=2)
MODELS = flags.DEFINE_integer(
    "models", 2, "models of each family", lower_bound=1, flag_values=FLAGS
)


def cells() -> Iterator[dict[str, Any]]:
    """Models of families by length, float type and mask."""
    axes = grid(
        n=LENGTHS.value,
        dtype=DTYPES.value,
        mask=MASKS.value,
        drawn=range(MODELS.value),
        family=CHOSEN.value,
    )
    for cell in axes:
        if cell["mask"] in FAMILIES[cell["family"]].masks:
            sizes = VOCAB_SIZES[cell["drawn"] % len(VOCAB_SIZES)]
            yield {**cell, "vocab_size": sizes}


def errors(found: np.ndarray, exact: np.ndarray, dtype: str) -> dict[str, float]:
    """Largest errors in units of the unit roundoff, relative and over the largest.

    Args:
        found: Influences as computed [p].
        exact: Those in many digits [p], of mpmath's numbers.
        dtype: Float type of the model.
    """
    unit, normal = unit_roundoff(dtype), exact >= float(jnp.finfo(dtype).tiny)
    with np.errstate(invalid="ignore"):  # of NaN the largest error is NaN
        off = abs(found - exact)
        relative = (off[normal] / exact[normal]).astype(np.float64)
        of_largest = (off / exact.max()).astype(np.float64)
    return {
        "relative": float(relative.max()) / unit,
        "of_largest": float(of_largest.max()) / unit,
    }


def measure(config: Config) -> dict[str, Any]:
    """Largest errors of one model."""
    request = build_request(*FAMILIES[config["family"]].draw(config))
    exact = exact_values(request, DIGITS[config["dtype"]])
    return errors(found_by(INCREMENTAL, request), exact, config["dtype"])


def show(config: Config, row: Row) -> str:
    """One row as a line."""
    names = ("family", "dtype", "mask", "n", "vocab_size")
    found = f"{row['relative']:.3g} u, {row['of_largest']:.3g} u of the largest"
    return f"{' '.join(str(config[name]) for name in names)}: {found}"


def table(measured: Measured) -> str:
    """Largest errors of families, over lengths, in units of u as a Markdown table."""
    found: dict[Any, float] = {}
    for config, row in measured:
        for name in ERRORS:
            at = *(config[x] for x in ("family", "dtype", "mask")), name
            # Of NaN the largest is NaN, which Python's own maximum may miss.
            found[at] = float(np.maximum(row[name], found.get(at, 0.0)))
    columns = list(dict.fromkeys(key[1:] for key in found))
    head = ["family"]
    head += [f"{t}, {m}: {name.replace('_', ' ')}" for t, m, name in columns]
    lines = []
    for family in dict.fromkeys(key[0] for key in found):
        shown = [digits(found.get((family, *column))) for column in columns]
        lines.append([family, *shown])
    return table_text(head, lines)


BENCHMARK = Benchmark("two_layer_errors", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
