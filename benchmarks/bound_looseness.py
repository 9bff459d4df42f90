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
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from absl import flags

import jax_models as jm
from benchmarks.flags import benchmark_flags, define_lengths
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds import certify_influence, closed_form_bounds, compute_influence
from bounds.curves.inputs import sampled_inputs
from bounds.store.output import sha256

FLAGS = benchmark_flags("bound_looseness", table=True)
LENGTHS = define_lengths(FLAGS, "10,64,256,1024")
MODELS = flags.DEFINE_list(
    "models",
    ["trained:2:1500", "trained:2:60", "random:2:0.5", "random:2:1", "random:3:0.5"],
    "trained:LAYERS:STEPS or random:LAYERS:SCALE",
    flag_values=FLAGS,
)
INPUTS = flags.DEFINE_integer(
    "num_inputs", 4, "bit strings per length", lower_bound=1, flag_values=FLAGS
)

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


@functools.cache
def build(name: str) -> jm.Transformer:
    """Returns the model that an entry of `--models` names."""
    kind, layers, number = [*name.split(":"), "", ""][:3]
    if kind not in ("trained", "random") or not layers.isdecimal() or not number:
        raise jm.InputError(
            f"--models: {name!r} is neither trained:LAYERS:STEPS nor random:LAYERS:SCALE"
        )
    key, training_key = jax.random.split(jax.random.key(SEED))
    shape: dict[str, Any] = {"num_layers": int(layers), "vocab_size": 2}
    if kind == "random":
        return jm.random_transformer(
            key, **shape, **RANDOM, scale=float(number), dtype="float64"
        )
    model = jm.init_transformer(
        key,
        **shape,
        **TRAINED,
        dtype="float64",
        architecture=jm.Architecture(num_classes=3),
    )
    training = jm.Training(TRAINING_LENGTH, int(number), learning_rate=1e-2)
    return jm.train(model, jm.ParitySource(0.5), training, training_key)[0]


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: the exact influence, and log10 of every bound on it."""
    model, length = build(config["model"]), config["n"]
    source = sampled_inputs(model, "random", config["num_inputs"], SEED)
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
        row[f"log10_{method}"] = math.log10(np.nanmax(certificate.input_upper))
    forms = closed_form_bounds(model, length)
    for name in list(COLUMNS)[2:]:
        form = getattr(forms, name)
        row[f"log10_{name}"] = None if form is None else form.others.log10_value
    row["half_oscillation"] = forms.constants.half_oscillation(len(model.layers))
    return row


def describe(name: str) -> str:
    """Returns the name of a model for the table, from its entry of `--models`."""
    kind, layers, number = name.split(":")
    what = f"{number} steps" if kind == "trained" else f"scale {number}"
    return f"{kind}, L = {layers}, {what}"


def table(measured: Measured) -> str:
    """Returns the rows as a Markdown table, bounds in decades above the exact value."""
    head = ["model", "n", "A", "exact", *COLUMNS.values()]
    lines = []
    for config, row in measured:
        decades = [row[f"log10_{name}"] for name in COLUMNS]
        cells = [
            "" if one is None else _decades(one - math.log10(row["exact"]))
            for one in decades
        ]
        facts = [f"{row['half_oscillation']:.3g}", f"{row['exact']:.3e}"]
        lines.append([describe(config["model"]), str(config["n"]), *facts, *cells])
    return table_text(head, lines)


def _decades(value: float) -> str:
    if abs(value) < 0.005:
        return "0.00"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def show(config: Config, row: Row) -> str:
    """Returns one measured row as a line of the table."""
    return table([(config, row)]).splitlines()[-1]


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: model, length and inputs."""
    for name in MODELS.value:
        digest = sha256(jm.model_bytes(build(name)))
        for n in LENGTHS.value:
            yield {
                "model": name,
                "model_sha256": digest,
                "n": n,
                "num_inputs": INPUTS.value,
                "seed": SEED,
            }


BENCHMARK = Benchmark("bound_looseness", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
