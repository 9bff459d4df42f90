"""Where does soft attention escape Lemma 5, and by what?

Lemma 5 of Hahn (2020) leaves one symbol an influence of at most C/n on the output of soft
attention with bounded scores and Lipschitz layers. Measures the exact maximum influence
against n of transformers that give up one of its hypotheses, beside the same ones that do
not. Rows go to results.sqlite in --out; a row that is there is not measured again. The
figure and, with --page, the table of docs/escaping-lemma5.md are drawn from the rows.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags

import jax_models as jm
from benchmarks.flags import benchmark_flags, define_lengths
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds import bound_curve
from bounds.curves.measurement import influence_value
from bounds.curves.series import Series, reduced
from bounds.figures.curves import curve_figure
from jax_models.programs.logic import compile_formula, parse_formula

FLAGS = benchmark_flags("escaping_lemma5", table=True, figure=True)
LENGTHS = define_lengths(FLAGS, "8,32,128,512,2048")
NUM_INPUTS = flags.DEFINE_integer(
    "num_inputs", 2, "random strings of each length", 1, flag_values=FLAGS
)
DEEP = flags.DEFINE_integer(
    "deep_up_to", 128, "longest length for three layers and more", flag_values=FLAGS
)

SCALED = jm.InverseLogTemperature(1.0)


def preset(name: str, **parameters: Any) -> Callable[[], jm.Transformer]:
    """Returns a function that builds a preset construction in float64."""
    return functools.partial(jm.build_preset, name, dtype="float64", **parameters)


def compiled(formula: str, mode: str) -> Callable[[], jm.Transformer]:
    """Returns a function that compiles a formula over bits in float64."""

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
# In the figure, what formulas say and where lines end.
LEGENDS = {
    "odd(#<[Q_1]), temperature 1/n": "odd number of ones before, τ = 1/n (to n = {last})",
    "P Q_1, positions up to n": "the symbol before is 1, positions to n",
}
QUANTITY = "maximum influence (‖Δ logits‖₂, nats)"


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: the maximum influence on each input, and how it was found."""
    curve = bound_curve(
        MODELS[config["model"]](),
        [config["n"]],
        inputs="parity",
        num_inputs=config["num_inputs"],
        target="logits",
    )
    (row,) = curve.table
    return {
        "influences": [influence_value(one) for one in curve.measurements],
        "exact": all(one["exact"] for one in curve.measurements),
        "method": row["method"],
    }


def series(measured: Measured) -> list[Series]:
    """Returns the figure's lines: influence against n, for each model."""
    lines = []
    for name in MODELS:
        points = [
            (config["n"], value)
            for config, row in measured
            if config["model"] == name
            for value in row["influences"]
        ]
        lengths, values = np.array(points).T
        lines.append(Series(name, lengths.astype(int), values))
    return lines


def table(measured: Measured) -> str:
    """Returns a Markdown table of the largest influence by model and length."""
    lengths = sorted({config["n"] for config, _ in measured})
    body = []
    for line in series(measured):
        keys, values = reduced(line.x, line.y)
        found = dict(zip(keys.tolist(), values.tolist(), strict=True))
        cells = (f"{found[n]:.4g}" if n in found else "" for n in lengths)
        body.append([line.label, *cells])
    return table_text(["model", *(f"n = {n}" for n in lengths)], body)


def draw(measured: Measured) -> Any:
    """Returns the figure: influence against n."""
    lines = [
        dataclasses.replace(
            one, label=LEGENDS.get(one.label, one.label).format(last=one.x.max())
        )
        for one in series(measured)
    ]
    return curve_figure(lines, QUANTITY)


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    found = ", ".join(f"{value:.12g}" for value in row["influences"])
    kind = "exact" if row["exact"] else "upper bounds"
    return f"{config['model']}, n = {config['n']}: {found} ({row['method']}, {kind})"


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: model, length and number of inputs."""
    for name, build in MODELS.items():
        deep = len(build().layers) > 2
        for n in LENGTHS.value:
            if not deep or n <= DEEP.value:
                yield {"model": name, "n": n, "num_inputs": NUM_INPUTS.value}


BENCHMARK = Benchmark("escaping_lemma5", FLAGS, cells, measure, show, table, draw)


if __name__ == "__main__":
    run_script(BENCHMARK)
