"""How fast is the exact influence of all positions, in forward passes?

Times `incremental` over all positions and symbols, with its base pass, against one forward
pass of the same model and float type, against one evaluation of the last row alone (the
fair unit for one layer), and against `exhaustive`, all in one run. `exhaustive` is timed on
its first substitutions and scaled to all of them where all would take longer than --budget;
the row says how many were run. Beside the times stand the floating-point operations of
`incremental`, counted in its programs (`benchmarks/operations.py` says why not by the
compiler), how many a second they are, and the bytes of one block's program. Rows go to
results.sqlite in --out; a row that is there is not measured again.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags

from benchmarks.flags import (
    benchmark_flags,
    define_dtypes,
    define_integers,
    define_lengths,
    define_mask,
    define_weightings,
)
from benchmarks.line_figure import Panel, line_figure, lines_by
from benchmarks.operations import Outline, influence_operations, program_bytes
from benchmarks.page import column_table, digits
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, asked_anew, random_model, random_tokens
from benchmarks.timing import spread, time_call
from bounds.figures.primitives import MAX_SERIES
from bounds.influence.build import build_request
from bounds.influence.methods.exhaustive import EXHAUSTIVE, batch_size
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.request import InfluenceRequest
from jax_models import Transformer, forward

FLAGS = benchmark_flags(
    "influence_speed", repeats=7, budget=20.0, table=True, figure=True
)
LENGTHS = define_lengths(FLAGS, "256,1024,4096,16384")
LAYERS = define_integers(FLAGS, "layers", [1, 2], "numbers of layers L")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
WEIGHTINGS = define_weightings(FLAGS, "softmax")
MASK = define_mask(FLAGS)
QUERY_FACTORS = define_integers(
    FLAGS, "query_factors", [1], "factors of all queries; large ones peak attention"
)
EXHAUSTIVE_TO = flags.DEFINE_integer(
    "exhaustive_to", 16384, "longest n at which exhaustive is timed", flag_values=FLAGS
)


def run_all(request: InfluenceRequest, method: Any, limit: int | None = None) -> int:
    """Runs a method's blocks up to about `limit` substitutions; returns the number done."""
    done = 0
    for block in method.blocks(request):
        done += len(block.changes)
        if limit is not None and done >= limit:
            break
    return done


def build(config: Config) -> tuple[Transformer, InfluenceRequest]:
    """Returns the model of a config, and the request of all its influences."""
    model = random_model(config)
    return model, build_request(model, random_tokens(config))


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds of each method and of passes, and their ratios."""
    model, request = build(config)
    tokens, pairs = jnp.asarray(request.tokens), request.position.size
    time_it = functools.partial(
        time_call, repeats=config["repeats"], budget=config["budget"]
    )
    whole = jax.jit(lambda m, x: forward(m, x)[0])
    last = jax.jit(lambda m, x: forward(m, x, jnp.asarray([x.shape[0] - 1]))[0])
    row: dict[str, Any] = {"substitutions": pairs}
    timings = {
        "forward": time_it(lambda: whole(model, tokens)),
        "last_row": time_it(lambda: last(model, tokens)),
        "incremental": time_it(lambda: run_all(asked_anew(request), INCREMENTAL)),
    }
    for name, timing in timings.items():
        row |= timing.columns(name)
    outline = Outline.of(INCREMENTAL, request)
    if outline.kernel.again is None:
        # Products go through tiles until too many columns are lost: their program does
        # not say how often.
        row["flops"] = influence_operations(outline)
        row["flops_per_second"] = row["flops"] / row["incremental_seconds"]
    largest = max(outline.kernel.parts, key=lambda part: part.end - part.start)
    row["block_bytes"] = program_bytes(outline.trace(largest))
    row["calls"] = timings["incremental"].calls
    row["forward_passes"] = row["incremental_seconds"] / row["forward_seconds"]
    row["last_row_passes"] = row["incremental_seconds"] / row["last_row_seconds"]
    if config["exhaustive"]:
        probe = min(pairs, 4 * batch_size(model, config["n"]))
        every = pairs * row["forward_seconds"] <= config["budget"]
        count = pairs if every else probe
        timing = time_it(lambda: run_all(request, EXHAUSTIVE, count))
        row |= timing.columns("exhaustive")
        row["exhaustive_substitutions"] = count
        row["exhaustive_seconds"] = timing.median * pairs / count
        row["speedup"] = row["exhaustive_seconds"] / row["incremental_seconds"]
    memory = jax.devices()[0].memory_stats() or {}
    row["peak_device_bytes"] = memory.get("peak_bytes_in_use")
    return row


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    speedup = row.get("speedup")
    return (
        f"L = {config['layers']}  n = {config['n']:>6}  {config['dtype']}  "
        f"{config['weighting']}, queries x {config['query_factor']}: "
        f"incremental {row['incremental_seconds']:.4g} s = "
        f"{row['forward_passes']:.3g} forward passes = {row['last_row_passes']:.3g} "
        "last rows"
        + (f" = exhaustive / {speedup:.3g}" if speedup is not None else "")
        + f"; {digits(giga(row.get('flops_per_second'))) or '?'} GFLOP/s, {_memory(row)}"
    )


def _memory(row: Row) -> str:
    """Words on the memory of a block's program and of the device, where known."""
    kinds = {"block_bytes": "a block", "peak_device_bytes": "the device at most"}
    known = [
        f"{row[name] / 2**20:.3g} MiB {kind}"
        for name, kind in kinds.items()
        if row[name] is not None
    ]
    return ", ".join(known) or "memory not told"


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table, both float types on a line."""
    alike: dict[tuple[Any, ...], dict[str, Row]] = {}
    for config, row in measured:
        shape = [config[name] for name in ("layers", "weighting", "mask", "n")]
        line = alike.setdefault((*shape, config.get("query_factor", 1)), {})
        line[config["dtype"]] = row

    def of_each(text: Callable[[Row], str]) -> Callable[[Any, Mapping[str, Row]], str]:
        """Texts of the types, of which one may lack."""
        types = ("float64", "float32")

        def join(_: Any, rows: Mapping[str, Row]) -> str:
            texts = [text(rows[name]) if name in rows else "" for name in types]
            return " / ".join(texts) if any(texts) else ""

        return join

    return column_table(
        {
            "L": lambda shape, _: str(shape[0]),
            "weighting": lambda shape, _: shape[1],
            "mask": lambda shape, _: shape[2],
            "n": lambda shape, _: str(shape[3]),
            "queries x": lambda shape, _: str(shape[4]),
            "seconds, float64 / float32": of_each(
                lambda row: spread(row, "incremental")
            ),
            "compiling": of_each(_compiling),
            "forward passes": of_each(lambda row: digits(row["forward_passes"])),
            "last rows": of_each(lambda row: digits(row["last_row_passes"])),
            "exhaustive /": of_each(lambda row: digits(row.get("speedup"))),
            "GFLOP/s": of_each(lambda row: digits(giga(row.get("flops_per_second")))),
        },
        list(alike.items()),
    )


def _compiling(row: Row) -> str:
    """Seconds of the first call beyond the others, which vary by more where none is left."""
    seconds = row.get("incremental_compile_seconds")
    return "" if seconds is None else digits(max(0.0, seconds))


def giga(value: float | None) -> float | None:
    """Returns a rate divided by 10^9; None for None."""
    return None if value is None else value / 1e9


def draw(measured: Measured) -> Any:
    """Returns the figure: seconds, forward passes, and the ratio to `exhaustive`.

    Of rows that are too many to be told apart it shows float64 alone.
    """
    quantities = {
        "incremental_seconds": "seconds, all positions",
        "forward_passes": "forward passes of the same model",
        "speedup": "times as fast as exhaustive",
    }
    several = len({config["weighting"] for config, _ in measured}) > 1

    def label(config: Config) -> str:
        weighting = f", {config['weighting']}" if several else ""
        factor = config.get("query_factor", 1)
        peaked = f", queries x {factor}" if factor > 1 else ""
        mask = f", {config['mask']}" if config["mask"] != "none" else ""
        return f"L = {config['layers']}, {config['dtype']}{weighting}{mask}{peaked}"

    if len({label(config) for config, _ in measured}) > MAX_SERIES:
        measured = [pair for pair in measured if pair[0]["dtype"] == "float64"]
    lines = {
        quantity: lines_by(
            measured, label, lambda _, row, quantity=quantity: row.get(quantity)
        )
        for quantity in quantities
    }
    return line_figure(
        [Panel(label, lines[name]) for name, label in quantities.items() if lines[name]]
    )


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: float type, layers, weighting, length and sizes."""
    for cell in grid(
        dtype=DTYPES.value,
        layers=LAYERS.value,
        weighting=WEIGHTINGS.value,
        query_factor=QUERY_FACTORS.value,
        n=LENGTHS.value,
    ):
        exhaustive = cell["n"] <= EXHAUSTIVE_TO.value
        yield {**cell, "mask": MASK.value, "exhaustive": exhaustive, **SIZES}


BENCHMARK = Benchmark("influence_speed", FLAGS, cells, measure, show, table, draw)


if __name__ == "__main__":
    run_script(BENCHMARK)
