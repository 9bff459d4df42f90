"""How many positions can a hard-attention model leave free, and how long is the search?

Searches a restriction of random models at several lengths and reports the free share and
the seconds of the search, certificate included, warm, and as a multiple of a forward pass
of the same model in the same run. Every certificate is checked by the
independent checker up to --verify_up_to. Rows go to results.sqlite in --out; a row that is
there is not measured again. The figure and, with --page, the table of docs/restriction.md
are drawn from the store.
"""

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from absl import flags

from benchmarks.flags import benchmark_flags, define_lengths, define_seeds
from benchmarks.line_figure import Lines, Panel, line_figure
from benchmarks.page import digits, table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import random_model, random_tokens
from benchmarks.timing import time_call
from bounds.restriction import check_certificate, find_restriction
from jax_models import WEIGHTINGS, InputError, forward

FLAGS = benchmark_flags(
    "restriction_size", repeats=3, budget=5.0, table=True, figure=True
)
LENGTHS = define_lengths(FLAGS, "32,64,128,256,512,1000")
SHAPES = flags.DEFINE_list(
    "shapes",
    ["1:1:", "1:4:", "2:1:3", "2:2:4", "2:4:6", "3:1:2.4", "3:2:4.6"],
    "models and caps, each LAYERS:HEADS:CAPS with the caps separated by points",
    flag_values=FLAGS,
)
SEEDS = define_seeds(FLAGS, [0, 1, 2])
WEIGHTING = flags.DEFINE_enum(
    "weighting",
    "leftmost_hard",
    [name for name in WEIGHTINGS if name != "softmax"],
    "weighting",
    flag_values=FLAGS,
)
VERIFY = flags.DEFINE_integer(
    "verify_up_to", 256, "longest certificate to check", flag_values=FLAGS
)

SIZES: dict[str, Any] = {"d_model": 8, "d_ff": 16, "vocab_size": 2}


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: free positions, seconds, passes, and the checker's acceptance."""
    model = random_model(config)

    def search() -> Any:
        return find_restriction(
            model, config["n"], caps=config["caps"], attempts=1, reverse_pass=False
        )

    found = search()
    how = {"repeats": config["repeats"], "budget": config["budget"]}
    run, tokens = jax.jit(lambda m, x: forward(m, x)[0]), random_tokens(config)
    searching = time_call(search, **how)
    passing = time_call(lambda: run(model, tokens), **how)
    row: dict[str, Any] = {
        "free": len(found.free),
        "share": len(found.free) / config["n"],
        **searching.columns("search"),
        **passing.columns("forward"),
        "search_passes": searching.median / passing.median,
        "mode": found.mode,
        "accepted": None,
    }
    if config["verified"]:
        start = time.perf_counter()
        row["accepted"] = check_certificate(model, found.certificate).accepted
        row["check_seconds"] = time.perf_counter() - start
    return row


def label(config: Config) -> str:
    """Returns the name of a config's shape: layers, heads, caps."""
    caps = ", ".join(map(str, config["caps"])) or "none"
    return f"L = {config['layers']}, H = {config['num_heads']}, caps {caps}"


def draw(measured: Measured) -> Any:
    """Returns the figure: free share and seconds against n, medians over seeds."""
    found = medians(measured)

    def lines(column: int) -> Lines:
        return {
            name: [(n, by_length[n][column]) for n in sorted(by_length)]
            for name, by_length in found.items()
        }

    return line_figure(
        [
            Panel("share of positions left free", lines(0), logarithmic=False),
            Panel("seconds of the search", lines(1)),
        ],
        "caps: free bits that a row may depend on, of each layer but the last",
    )


def medians(measured: Measured) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Returns for each shape and length the medians of share, seconds and passes."""
    groups: dict[str, dict[int, list[Row]]] = {}
    for config, row in measured:
        groups.setdefault(label(config), {}).setdefault(config["n"], []).append(row)
    return {
        name: {
            n: (
                float(np.median([row["share"] for row in some])),
                float(np.median([row["search_seconds"] for row in some])),
                float(np.median([row["search_passes"] for row in some])),
            )
            for n, some in by_length.items()
        }
        for name, by_length in groups.items()
    }


def table(measured: Measured) -> str:
    """Returns a Markdown table: free share (seconds of the search, in forward passes)."""
    found = medians(measured)
    lengths = sorted({n for by_length in found.values() for n in by_length})
    head = ["model", *(f"n = {n}" for n in lengths)]
    body = [
        [name, *(_cell(*by[n]) if n in by else "" for n in lengths)]
        for name, by in found.items()
    ]
    return table_text(head, body)


def _cell(share: float, seconds: float, passes: float) -> str:
    return f"{share:.2f} ({seconds:.2g} s, {digits(passes, 2)} passes)"


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"{label(config)}, n = {config['n']}, seed {config['seed']}: {row['free']} free "
        f"({row['share']:.2f}) in {row['search_seconds']:.2f} s = "
        f"{row['search_passes']:.3g} forward passes, "
        f"accepted {row['accepted']}"
    )


def read_shape(name: str) -> tuple[int, int, list[int]]:
    """Returns the layers, heads and caps that an entry of --shapes names."""
    try:
        layers, heads, caps = name.split(":")
        return int(layers), int(heads), [int(cap) for cap in caps.split(".") if cap]
    except ValueError:
        raise InputError(
            f"--shapes: {name!r} is not of the form LAYERS:HEADS:CAPS, as in 3:1:2.4"
        ) from None


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: length, seed and shape."""
    for layers, heads, caps in map(read_shape, SHAPES.value):
        for cell in grid(n=LENGTHS.value, seed=SEEDS.value):
            verified = cell["n"] <= VERIFY.value
            shape = {"layers": layers, "num_heads": heads, "caps": caps}
            shape["weighting"] = WEIGHTING.value
            yield {**cell, **shape, "verified": verified, **SIZES}


BENCHMARK = Benchmark("restriction_size", FLAGS, cells, measure, show, table, draw)


if __name__ == "__main__":
    run_script(BENCHMARK)
