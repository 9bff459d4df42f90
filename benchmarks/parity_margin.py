"""How does the margin of soft attention on PARITY fall with the length, and what stops it?

The transformer of Chiang and Cholak as it is, with scores multiplied by ln n, and with
layer norm for several additive constants: the smallest |logit| at the query over a few
strings of each length, and how many of them are decided rightly. Rows go to
results.sqlite in --out; a row that is there is not measured again. The figure and, with
--page, the table of docs/escaping-lemma5.md are drawn from the rows.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import jax_models as jm
from benchmarks.flags import benchmark_flags, define_lengths
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from bounds.figures.primitives import LOOKS
from jax_models.model.transformer import read_logits

FLAGS = benchmark_flags("parity_margin", table=True, figure=True)
# The query token is one of the n.
LENGTHS = define_lengths(FLAGS, "2,4,8,16,32,64,128,256,512,1024,2048,4096")
STRINGS = flags.DEFINE_integer(
    "num_strings", 4, "strings of each length", 1, flag_values=FLAGS
)

SHARPNESS = 1.0
# Preset, scale of a temperature scale/ln n (None is 1), epsilon of the layer norms.
VARIANTS: dict[str, tuple[str, float | None, float | None]] = {
    "no layer norm": ("parity", None, None),
    "no layer norm, scores times ln n": ("parity", 1.0, None),
    "layer norm, ε = 0": ("normalised_parity", None, 0.0),
    "layer norm, ε = 1e-5": ("normalised_parity", None, 1e-5),
    "layer norm, ε = 1e-5, scores times ln n": ("normalised_parity", 1.0, 1e-5),
    "layer norm, ε = 1e-3": ("normalised_parity", None, 1e-3),
}
# Powers of n that the margins fall with, and how far from the lowest margin their guides
# stand.
GUIDES = {2: 0.3, 4: 10.0}


def build(config: Config) -> jm.Transformer:
    """Returns the model of a config, in float64."""
    parameters: dict[str, Any] = {"c": config["c"], "dtype": "float64"}
    if config["scale"] is not None:
        parameters["temperature"] = jm.InverseLogTemperature(config["scale"])
    if config["epsilon"] is not None:
        parameters["epsilon"] = config["epsilon"]
    return jm.build_preset(config["preset"], **parameters)


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: the smallest |logit|, and the number of strings decided wrongly."""
    model = build(config)
    rng = np.random.default_rng(config["n"])
    bits = rng.integers(0, 2, (config["strings"], config["n"] - 1))
    bits[1::2, 0] ^= (bits[0::2].sum(1) + bits[1::2].sum(1) + 1) % 2  # both answers
    query = jnp.array([config["n"] - 1], jnp.int32)
    run = jax.jit(lambda tokens: jm.forward(model, tokens, query)[0])
    logits = [
        float(read_logits(model, run(jnp.append(row, 2).astype(jnp.int32)))[0, 0])
        for row in bits
    ]
    wrong = [
        (logit >= 0) != (row.sum() % 2 == 0)
        for logit, row in zip(logits, bits, strict=True)
    ]
    return {"margin": min(map(abs, logits)), "wrong": int(sum(wrong))}


def by_variant(measured: Measured) -> dict[str, dict[int, float]]:
    """Returns the margin by variant and length."""
    groups: dict[str, dict[int, float]] = {}
    for config, row in measured:
        groups.setdefault(config["variant"], {})[config["n"]] = row["margin"]
    return groups


def draw(measured: Measured) -> Any:
    """Returns the figure: margins against n, with guides."""
    from matplotlib.figure import Figure

    groups = by_variant(measured)
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for look, (name, margins) in zip(LOOKS, groups.items(), strict=False):
        style = {**look, "label": name, "markersize": 4, "linewidth": 1.2}
        axes.plot(list(margins), list(margins.values()), **style)
    lengths = sorted({n for margins in groups.values() for n in margins})
    ends = np.array([lengths[-len(lengths) // 3], lengths[-1]], float)
    low = min(margin for margins in groups.values() for margin in margins.values())
    for power, distance in GUIDES.items():
        guide = low * distance * (ends[-1] / ends) ** power
        axes.plot(ends, guide, color="0.6", linewidth=0.8, zorder=0)
        axes.annotate(f"n$^{{-{power}}}$", (ends[0], guide[0]), color="0.4", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("length n (tokens)")
    axes.set_ylabel("margin: smallest |logit| (nats)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def table(measured: Measured) -> str:
    """Returns a Markdown table of margins by variant, at every other length."""
    groups = by_variant(measured)
    lengths = sorted({n for margins in groups.values() for n in margins})[::-2][::-1]
    head = ["model", *(f"n = {n}" for n in lengths)]
    body = [
        [name, *(f"{margins[n]:.3g}" if n in margins else "" for n in lengths)]
        for name, margins in groups.items()
    ]
    return table_text(head, body)


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"{config['variant']}, n = {config['n']}: margin {row['margin']:.6g}, "
        f"{row['wrong']} of {config['strings']} wrong"
    )


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: variant with its model, length and strings."""
    for cell in grid(variant=VARIANTS, n=LENGTHS.value):
        preset, scale, epsilon = VARIANTS[cell["variant"]]
        model = {"preset": preset, "scale": scale, "epsilon": epsilon, "c": SHARPNESS}
        yield {**cell, **model, "strings": STRINGS.value}


BENCHMARK = Benchmark("parity_margin", FLAGS, cells, measure, show, table, draw)


if __name__ == "__main__":
    run_script(BENCHMARK)
