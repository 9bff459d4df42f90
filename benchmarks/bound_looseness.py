"""How loose is each bound on the influence of one symbol, on trained and random models?

For each model and length: the largest exact influence over the inputs, and in decades
above it the certificates of that same substitution (DD-centred, DD-base), and the bounds
for all inputs of the length: the corrected recursion, saturating and linear, its closed
forms C1 and C2, and the two readings of the printed constants. `trained` models predict
the next symbol of the PARITY source at n = 10, `random` ones are drawn. Rows go to
results.sqlite in --out; a row that is there is not measured again. With --docs the table
between the marks in that page is replaced.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

import jax_models as jm
from benchmarks.cells import find_or_measure
from benchmarks.page import replace_table, table_text
from bounds import certify_influence, closed_form_bounds, compute_influence
from bounds.inputs import sampled_inputs
from bounds.output import sha256
from bounds.store import ResultStore

LENGTHS = flags.DEFINE_list("lengths", ["10", "64", "256", "1024"], "lengths n")
MODELS = flags.DEFINE_list(
    "models",
    ["trained:2:1500", "trained:2:60", "random:2:0.5", "random:2:1", "random:3:0.5"],
    "trained:LAYERS:STEPS or random:LAYERS:SCALE",
)
INPUTS = flags.DEFINE_integer("num_inputs", 4, "bit strings per length", lower_bound=1)
OUT = flags.DEFINE_string("out", "results/bound_looseness", "folder of the store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")
DOCS = flags.DEFINE_string("docs", None, "page whose table is replaced")

SEED = 0
TRAINED: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 32}
RANDOM: dict[str, Any] = {"num_heads": 2, "d_model": 8, "d_ff": 16}
TRAINING_LENGTH = 10
# Column, heading; all but the first two are decades above the exact influence.
COLUMNS = {
    "centred": "centred",
    "base": "base",
    "corrected": "recursion",
    "linear": "linear",
    "c1": "C1",
    "c2": "C2",
    "printed_tight": "printed, tight F",
    "printed": "printed",
}


def build(name: str) -> jm.Transformer:
    """Returns the model of a name, as `--models` gives it."""
    kind, layers, number = name.split(":")
    key, training_key = jax.random.split(jax.random.key(SEED))
    shape: dict[str, Any] = {"num_layers": int(layers), "vocab_size": 2}
    if kind == "random":
        return jm.random_transformer(
            key, **shape, **RANDOM, scale=float(number), dtype="float64"
        )
    if kind != "trained":
        raise jm.InputError(f"{name!r}: expected trained:L:STEPS or random:L:SCALE")
    model = jm.init_transformer(key, **shape, **TRAINED, num_classes=3, dtype="float64")
    training = jm.Training(TRAINING_LENGTH, int(number), learning_rate=1e-2)
    return jm.train(model, jm.ParitySource(0.5), training, training_key)[0]


def measure(model: jm.Transformer, length: int) -> dict[str, Any]:
    """Returns one row: the exact influence, and log10 of every bound on it."""
    source = sampled_inputs(model, "random", INPUTS.value, SEED)
    inputs = [source.draw(length, index) for index in range(source.count)]
    found = [compute_influence(model, x, keep="position_max") for x in inputs]
    best = int(np.argmax([one.max for one in found]))
    exact = found[best]
    assert exact.position is not None and exact.symbol is not None
    row: dict[str, Any] = {"exact": exact.max, "exact_upper": exact.max_upper}
    for method in ("centred", "base"):
        certificate = certify_influence(
            model,
            inputs[best],
            method=method,
            positions=[exact.position],
            symbols=[exact.symbol],
        )
        row[f"log10_{method}"] = math.log10(certificate.max_upper)
    forms = closed_form_bounds(model, length)
    for name in list(COLUMNS)[2:]:
        form = getattr(forms, name)
        row[f"log10_{name}"] = None if form is None else form.others.log10_value
    row["half_oscillation"] = forms.constants.half_oscillation(len(model.layers))
    return row


def describe(name: str) -> str:
    """Returns a model's name as the table has it."""
    kind, layers, number = name.split(":")
    what = f"{number} steps" if kind == "trained" else f"scale {number}"
    return f"{kind}, L = {layers}, {what}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows as a Markdown table, bounds in decades above the exact value."""
    head = ["model", "n", "A", "exact", *COLUMNS.values()]
    lines = []
    for row in rows:
        decades = [row[f"log10_{name}"] for name in COLUMNS]
        cells = [
            "" if one is None else _decades(one - math.log10(row["exact"]))
            for one in decades
        ]
        facts = [f"{row['half_oscillation']:.3g}", f"{row['exact']:.3e}"]
        lines.append([describe(row["model"]), str(row["n"]), *facts, *cells])
    return table_text(head, lines)


def _decades(value: float) -> str:
    if abs(value) < 0.005:
        return "0.00"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def main(arguments: list[str]) -> None:
    """Measures every row that the store does not hold, and prints the table."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    rows = []
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for name in MODELS.value:
            model = build(name)
            for n in map(int, LENGTHS.value):
                config = {
                    "command": "bound_looseness",
                    "dtype": "float64",
                    "model": name,
                    "model_sha256": sha256(jm.model_bytes(model)),
                    "n": n,
                    "num_inputs": INPUTS.value,
                    "seed": SEED,
                }
                row = find_or_measure(
                    store,
                    config,
                    functools.partial(measure, model, n),
                    fresh=FRESH.value,
                )
                rows.append({"model": name, "n": n, **row})
                print(table(rows[-1:]).splitlines()[-1], flush=True)
    text = table(rows)
    print(text)
    if DOCS.value is not None:
        replace_table(Path(DOCS.value), "bound_looseness", text)


if __name__ == "__main__":
    app.run(main)
