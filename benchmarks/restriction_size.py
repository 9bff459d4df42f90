"""How many positions can a hard-attention model leave free, and how long is the search?

Searches a restriction of random models at several lengths and reports the free share and
the seconds of the search, certificate included, warm. Every certificate is checked by the
independent checker up to --verify_up_to. Rows go to results.sqlite in --out; a row that is
there is not measured again. The figure and, with --page, the table of docs/restriction.md
are drawn from the store.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks.cells import find_or_measure
from benchmarks.page import replace_table, table_text
from bounds.figures import LOOKS, save_figure
from bounds.restriction import check_certificate, find_restriction
from bounds.store import ResultStore
from jax_models import random_transformer

LENGTHS = flags.DEFINE_list(
    "lengths", ["32", "64", "128", "256", "512", "1000"], "lengths n"
)
SHAPES = flags.DEFINE_list(
    "shapes",
    ["1:1:", "1:4:", "2:1:3", "2:2:4", "2:4:6", "3:1:2.4", "3:2:4.6"],
    "models and caps, each LAYERS:HEADS:CAPS with the caps separated by points",
)
SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "seeds of the models")
WEIGHTING = flags.DEFINE_string("weighting", "leftmost_hard", "weighting")
VERIFY = flags.DEFINE_integer("verify_up_to", 256, "longest certificate to check")
OUT = flags.DEFINE_string("out", "results/restriction_size", "folder of the store")
PAGE = flags.DEFINE_string("page", None, "Markdown page whose table to write")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SIZES: dict[str, Any] = {"d_model": 8, "d_ff": 16, "vocab_size": 2}
BLOCK = "restriction_size"


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: free positions, their share, seconds, whether it was accepted."""
    model = random_transformer(
        jax.random.key(config["seed"]),
        num_layers=config["layers"],
        num_heads=config["heads"],
        weighting=config["weighting"],
        dtype="float64",
        **SIZES,
    )

    def search() -> Any:
        return find_restriction(
            model, config["n"], caps=config["caps"], attempts=1, reverse_pass=False
        )

    search()  # compiles the forward pass that states the output
    start = time.perf_counter()
    found = search()
    seconds = time.perf_counter() - start
    row: dict[str, Any] = {
        "free": len(found.free),
        "share": len(found.free) / config["n"],
        "search_seconds": seconds,
        "mode": found.mode,
        "accepted": None,
    }
    if config["n"] <= VERIFY.value:
        start = time.perf_counter()
        row["accepted"] = check_certificate(model, found.certificate).accepted
        row["check_seconds"] = time.perf_counter() - start
    return row


def label(config: Mapping[str, Any]) -> str:
    """Returns the name of a model's shape: layers, heads, caps."""
    caps = ", ".join(map(str, config["caps"])) or "none"
    return f"L = {config['layers']}, H = {config['heads']}, caps {caps}"


def draw(rows: Sequence[tuple[dict[str, Any], Mapping[str, Any]]]) -> Any:
    """Returns the figure: free share and seconds against n, medians over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    shares, times = figure.subplots(1, 2)
    for look, (name, by_length) in zip(LOOKS, medians(rows).items(), strict=False):
        lengths = sorted(by_length)
        style = {**look, "label": name, "markersize": 4, "linewidth": 1.2}
        shares.plot(lengths, [by_length[n][0] for n in lengths], **style)
        times.plot(lengths, [by_length[n][1] for n in lengths], **style)
    shares.set_ylabel("share of positions left free")
    shares.set_ylim(0, 1.02)
    times.set_ylabel("seconds of the search")
    times.set_yscale("log")
    for axes in (shares, times):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("length n (tokens)")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *shares.get_legend_handles_labels(), loc="outside lower center", ncols=3
    )
    return figure


def medians(
    rows: Sequence[tuple[dict[str, Any], Mapping[str, Any]]],
) -> dict[str, dict[int, tuple[float, float]]]:
    """Returns for each shape and length the medians of share and seconds."""
    groups: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for config, row in rows:
        groups.setdefault(label(config), {}).setdefault(config["n"], []).append(row)
    return {
        name: {
            n: (
                float(np.median([row["share"] for row in some])),
                float(np.median([row["search_seconds"] for row in some])),
            )
            for n, some in by_length.items()
        }
        for name, by_length in groups.items()
    }


def page_table(rows: Sequence[tuple[dict[str, Any], Mapping[str, Any]]]) -> str:
    """Returns the table of the documentation page."""
    found = medians(rows)
    lengths = sorted({n for by_length in found.values() for n in by_length})
    head = ["model", *(f"n = {n}" for n in lengths)]
    body = [
        [
            name,
            *(f"{by[n][0]:.2f} ({by[n][1]:.2g} s)" if n in by else "" for n in lengths),
        ]
        for name, by in found.items()
    ]
    return table_text(head, body)


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, prints and draws all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    rows = []
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for shape in SHAPES.value:
            layers, heads, caps = shape.split(":")
            for n in LENGTHS.value:
                for seed in SEEDS.value:
                    config = {
                        "command": BLOCK,
                        "device": str(jax.devices()[0].device_kind),
                        "dtype": "float64",
                        "layers": int(layers),
                        "heads": int(heads),
                        "caps": [int(cap) for cap in caps.split(".") if cap],
                        "weighting": WEIGHTING.value,
                        "n": int(n),
                        "seed": int(seed),
                        **SIZES,
                    }
                    row = find_or_measure(
                        store,
                        config,
                        functools.partial(measure, config),
                        fresh=FRESH.value,
                    )
                    rows.append((config, row))
                    print(
                        f"{label(config)}, n = {n}, seed {seed}: {row['free']} free "
                        f"({row['share']:.2f}) in {row['search_seconds']:.2f} s, "
                        f"accepted {row['accepted']}",
                        flush=True,
                    )
    save_figure(draw(rows), Path(OUT.value) / "restriction_size", ["png"])
    if PAGE.value:
        replace_table(Path(PAGE.value), BLOCK, page_table(rows))


if __name__ == "__main__":
    app.run(main)
