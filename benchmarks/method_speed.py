"""What does a method take for all substitutions of an input, told from some of its blocks?

`enumerate` is what a screen's remainder is computed by, the cheapest method that computes
any substitutions alone; --blocks of its blocks are run, spread evenly over the input, since
under a mask early positions move more rows than late ones, and scaled to all. `lumped`, of a
model without positions, computes all of them. Beside the seconds stands one forward pass of
the same model in the same run, and of three layers and more, where all rows move, the time
at n = 10^5 by the third power. The base pass of `enumerate` is there before it is timed.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.flags import (
    benchmark_flags,
    define_dtypes,
    define_lengths,
    define_masks,
)
from benchmarks.page import column_table, digits
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, random_model, random_tokens
from benchmarks.timing import spread, time_call
from bounds.influence.blocks.kernel import run_kernel
from bounds.influence.build import build_request
from bounds.influence.methods.lumped import LUMPED
from bounds.influence.screening.climb import cheapest
from jax_models import forward

FAR = 100_000  # the length that the engine was ordered for

FLAGS = benchmark_flags("method_speed", repeats=3, budget=10.0, table=True)
LENGTHS = define_lengths(FLAGS, "512,1024")
METHOD = flags.DEFINE_enum(
    "method", "enumerate", ["enumerate", "lumped"], "method", flag_values=FLAGS
)
LAYERS = flags.DEFINE_integer(
    "layers", 3, "number of layers L", lower_bound=1, flag_values=FLAGS
)
DTYPES = define_dtypes(FLAGS, "float64", "float32")
MASKS = define_masks(FLAGS, "none", "future")
SCALE = flags.DEFINE_float(
    "scale", 1.0, "scale of the weights", lower_bound=0, flag_values=FLAGS
)
BLOCKS = flags.DEFINE_integer(
    "blocks", 4, "blocks that are run at most", lower_bound=1, flag_values=FLAGS
)


def spread_blocks(count: int, batch: int, blocks: int) -> np.ndarray:
    """Returns the indices of whole blocks, each in the middle of its share of all.

    Args:
        count: of all substitutions.
        batch: substitutions of a block.
        blocks: how many at most.

    Returns:
        Indices in order; all of them where these are no more than the blocks have.
    """
    if count <= batch * blocks:
        return np.arange(count)
    middles = (np.arange(blocks) + 0.5) * count / blocks
    starts = np.floor(middles - batch / 2).astype(np.int64)
    return (starts[:, None] + np.arange(batch)).ravel()


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds of the blocks that are run, of all, of a forward pass."""
    model, tokens = random_model(config), random_tokens(config)
    whole = build_request(model, tokens)
    way = LUMPED if config["method"] == "lumped" else cheapest(whole)
    count, sizes = len(whole.pairs), way.sizes(whole)
    batch = count if sizes is None else min(sizes.substitutions, count)
    chosen = spread_blocks(count, batch, config["blocks"])
    request = dataclasses.replace(whole, pairs=whole.pairs.only(chosen))
    time_it = functools.partial(
        time_call, repeats=config["repeats"], budget=config["budget"]
    )
    run, given = jax.jit(lambda m, x: forward(m, x)[0]), jnp.asarray(tokens)
    kernel = way.kernel(request)  # with the base pass
    blocks = (
        functools.partial(way.blocks, request)
        if kernel is None
        else functools.partial(run_kernel, kernel, request)
    )
    timing = time_it(lambda: list(blocks()))
    one = time_it(lambda: run(model, given))
    seconds = timing.median * count / chosen.size
    row: dict[str, Any] = {
        **timing.columns("method"),
        **one.columns("forward"),
        "method": way.name,
        "substitutions": count,
        "timed": int(chosen.size),
        "batch": batch,
        "all_seconds": seconds,
        "forward_passes": seconds / one.median,
    }
    if way is not LUMPED and config["layers"] > 2:
        row["far_seconds"] = seconds * (FAR / config["n"]) ** 3
    return row


def show(config: Config, row: Row) -> str:
    """Returns one row as a line."""
    far = row.get("far_seconds")
    told = "" if far is None else f"; {far / 3600:.3g} hours at n = {FAR}"
    return (
        f"L = {config['layers']}  n = {config['n']}  {config['dtype']}  mask "
        f"{config['mask']}: {row['method']} of {row['timed']} substitutions "
        f"{row['method_seconds']:.4g} s, of all {row['substitutions']} "
        f"{row['all_seconds']:.4g} s = {row['forward_passes']:.4g} forward passes{told}"
    )


def table(measured: Measured) -> str:
    """Returns the rows as a Markdown table."""

    def hours(_: Config, row: Row) -> str:
        far = row.get("far_seconds")
        return "" if far is None else digits(far / 3600)

    return column_table(
        {
            "L": lambda config, _: str(config["layers"]),
            "method": lambda _, row: row["method"],
            "mask": lambda config, _: config["mask"],
            "n": lambda config, _: str(config["n"]),
            "type": lambda config, _: config["dtype"],
            "substitutions timed": lambda _, row: (
                f"{row['timed']} of {row['substitutions']}"
            ),
            "seconds": lambda _, row: spread(row, "method"),
            "compiling": lambda _, row: digits(row["method_compile_seconds"]),
            "all, seconds": lambda _, row: digits(row["all_seconds"]),
            "forward passes": lambda _, row: digits(row["forward_passes"]),
            "hours at n = 10^5, by n^3": hours,
        },
        measured,
    )


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in."""
    lumped = METHOD.value == "lumped"
    fixed = {"layers": LAYERS.value, "scale": SCALE.value, "blocks": BLOCKS.value}
    if lumped:
        fixed["position"] = None  # equal symbols then have equal rows
    for cell in grid(
        dtype=DTYPES.value,
        mask=["none"] if lumped else MASKS.value,
        n=LENGTHS.value,
    ):
        yield {**cell, **fixed, "method": METHOD.value, **SIZES}


BENCHMARK = Benchmark("method_speed", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
