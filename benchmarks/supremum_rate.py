"""How far below the constants of Lemma 5 is the exact supremum, as n grows?

For unmasked random models without positions, binary inputs: n times the exact supremum
over all 2^n inputs at each n, beside n times the bounds of Lemma 5 (the saturating
recursion, the linear one, C1 and C2 corrected, and the constant as printed), and the
seconds that all count vectors took. Rows go to results.sqlite in --out; a row that is
there is not measured again. --docs writes the table into a documentation page.
"""

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from absl import app, flags

from benchmarks.cells import find_or_measure
from benchmarks.page import replace_table, table_text
from bounds import closed_form_bounds, supremum
from bounds.store import ResultStore
from jax_models import InputError, random_transformer

LENGTHS = flags.DEFINE_list(
    "lengths", ["16", "128", "1024", "10000", "100000"], "lengths n"
)
LAYERS = flags.DEFINE_list("layers", ["1", "2"], "numbers of layers L")
WEIGHTINGS = flags.DEFINE_list(
    "weightings",
    ["softmax", "average_hard", "leftmost_hard", "rightmost_hard"],
    "weighting functions",
)
OUT = flags.DEFINE_string("out", "results/supremum_rate", "folder of the store")
DOCS = flags.DEFINE_string("docs", None, "page whose table is replaced")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 64, "vocab_size": 2}
FORMS = ("corrected", "linear", "c1", "c2", "printed_tight", "printed")
HEADINGS = (
    "L",
    "weighting",
    "n",
    "n · supremum",
    "seconds",
    *("recursion", "linear", "C1", "C2", "printed, tight F", "printed"),
)


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: the supremum, and decimal logarithms of the bounds."""
    model = random_transformer(
        jax.random.key(config["seed"]),
        num_layers=config["layers"],
        weighting=config["weighting"],
        position=None,
        dtype=config["dtype"],
        **SIZES,
    )
    n = config["n"]
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


def table(rows: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Returns the rows as a Markdown table, bounds as n times themselves."""
    lines = []
    for config, row in rows:
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
    """n times a bound, as a number or a power of ten."""
    if log10 is None:
        return "–"
    scaled = log10 + math.log10(n)
    return f"{10**scaled:.4g}" if scaled < 6 else f"10^{scaled:.5g}"


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, and prints all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    rows = []
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for layers in map(int, LAYERS.value):
            for weighting in WEIGHTINGS.value:
                for n in map(int, LENGTHS.value):
                    config = {
                        "command": "supremum_rate",
                        "device": str(jax.devices()[0].device_kind),
                        "dtype": "float64",
                        "layers": layers,
                        "n": n,
                        "seed": 0,
                        "weighting": weighting,
                        **SIZES,
                    }
                    row = find_or_measure(
                        store,
                        config,
                        functools.partial(measure, config),
                        fresh=FRESH.value,
                    )
                    rows.append((config, row))
                    print(table(rows).splitlines()[-1], flush=True)
    if DOCS.value is not None:
        replace_table(Path(DOCS.value), "supremum_rate", table(rows))


if __name__ == "__main__":
    app.run(main)
