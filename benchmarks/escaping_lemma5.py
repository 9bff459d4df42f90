"""Where does soft attention escape Lemma 5, and by what?

Lemma 5 of Hahn (2020) leaves one symbol an influence of at most C/n on the output of soft
attention with bounded scores and Lipschitz layers. Measures the exact maximum influence
against n of transformers that give up one of its hypotheses, beside the same ones that do
not. Rows go to results.sqlite in --out; a row that is there is not measured again. The
figure and, with --page, the table of docs/escaping-lemma5.md are drawn from the rows.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

import jax_models as jm
from benchmarks.cells import find_or_measure
from benchmarks.page import replace_table, table_text
from bounds import bound_curve
from bounds.figures import Series, curve_figure, largest, save_figure
from bounds.measurement import influence_value
from bounds.store import ResultStore
from jax_models.logic import compile_formula, parse_formula

LENGTHS = flags.DEFINE_list(
    "lengths", ["8", "32", "128", "512", "2048"], "lengths n in tokens"
)
NUM_INPUTS = flags.DEFINE_integer("num_inputs", 2, "random strings of each length", 1)
DEEP = flags.DEFINE_integer(
    "deep_up_to", 128, "longest length for three layers and more"
)
OUT = flags.DEFINE_string("out", "results/escaping_lemma5", "folder of the store")
FIGURE = flags.DEFINE_string("figure", None, "where to write the figure, without .png")
PAGE = flags.DEFINE_string("page", None, "Markdown page whose table to write")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

BLOCK = "escaping_lemma5"
SCALED = jm.InverseLogTemperature(1.0)


def preset(name: str, **parameters: Any) -> Callable[[], jm.Transformer]:
    """Returns what builds a construction in float64."""
    return functools.partial(jm.build_preset, name, dtype="float64", **parameters)


def compiled(formula: str, mode: str) -> Callable[[], jm.Transformer]:
    """Returns what compiles a formula over bits in float64."""

    def compile_it() -> jm.Transformer:
        return compile_formula(
            parse_formula(formula, BITS), BITS, mode, dtype="float64"
        )

    return compile_it


BITS = ("0", "1")
MODELS: Mapping[str, Callable[[], jm.Transformer]] = {
    "PARITY": preset("parity"),
    "PARITY, layer norm, ε = 1e-5": preset("normalised_parity", epsilon=1e-5),
    "PARITY, layer norm, ε = 0": preset("normalised_parity"),
    "FIRST": preset("first"),
    "FIRST, scores times ln n": preset("first", temperature=SCALED),
    "odd(#<[Q_1]), temperature 1/n": compiled("odd(#<[Q_1])", "T"),
    "P Q_1, positions up to n": compiled("P Q_1", "FU"),
}
QUANTITY = "maximum influence (‖Δ logit‖)"


def measure(name: str, n: int) -> dict[str, Any]:
    """Returns one row: the maximum influence on each input, and how it was found."""
    model = MODELS[name]()
    curve = bound_curve(
        model, [n], inputs="parity", num_inputs=NUM_INPUTS.value, target="logits"
    )
    (row,) = curve.table
    return {
        "influences": [influence_value(one) for one in curve.measurements],
        "exact": all(one["exact"] for one in curve.measurements),
        "method": row["method"],
    }


def series(rows: Sequence[Mapping[str, Any]]) -> list[Series]:
    """Returns the lines of the figure."""
    lines = []
    for name in MODELS:
        points = [
            (row["n"], value)
            for row in rows
            if row["model"] == name
            for value in row["influences"]
        ]
        lengths, values = np.array(points).T
        lines.append(Series(name, lengths.astype(int), values))
    return lines


def page_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of the documentation page."""
    lengths = sorted({row["n"] for row in rows})
    body = []
    for line in series(rows):
        keys, values = largest(line.x, line.y)
        found = dict(zip(keys.tolist(), values.tolist(), strict=True))
        cells = (f"{found[n]:.4g}" if n in found else "" for n in lengths)
        body.append([line.label, *cells])
    return table_text(["model", *(f"n = {n}" for n in lengths)], body)


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, prints and draws all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    rows = []
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for name in MODELS:
            deep = len(MODELS[name]().layers) > 2
            for n in map(int, LENGTHS.value):
                if deep and n > DEEP.value:
                    continue
                config = {
                    "command": BLOCK,
                    "dtype": "float64",
                    "model": name,
                    "n": n,
                    "num_inputs": NUM_INPUTS.value,
                }
                row = find_or_measure(
                    store,
                    config,
                    functools.partial(measure, name, n),
                    fresh=FRESH.value,
                )
                rows.append({**row, "model": name, "n": n})
                found = ", ".join(f"{value:.12g}" for value in row["influences"])
                kind = "exact" if row["exact"] else "upper bounds"
                print(f"{name}, n = {n}: {found} ({row['method']}, {kind})", flush=True)
    figure = curve_figure(series(rows), QUANTITY)
    save_figure(figure, FIGURE.value or Path(OUT.value) / BLOCK, ["png"])
    if PAGE.value:
        replace_table(Path(PAGE.value), BLOCK, page_table(rows))


if __name__ == "__main__":
    app.run(main)
