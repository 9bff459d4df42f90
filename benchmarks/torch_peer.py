"""How does the exact influence compare with a plain leave-one-out loop in PyTorch?

The loop reruns the model for every substitution and subtracts, in batches and one at a
time, with the last layer for the query row only (`benchmarks/torch_loop.py`). Times are
compared only where the two answers agree, in float64 to 1e-9 of the largest influence.
PyTorch is optional: where --peer_python, an interpreter that has it and NumPy
($PEER_PYTHON, or this one, by default), has not, the script says so and ends. PyTorch is
timed on one thread, which small products are often fastest on, and on as many as there
are cores; JAX uses all of them.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import benchmarks
from benchmarks.device import usable_cores
from benchmarks.flags import (
    benchmark_flags,
    define_dtypes,
    define_integers,
    define_lengths,
    define_peer,
)
from benchmarks.page import digits, table_text
from benchmarks.peer import ask_peer, missing_packages, named_weights, package_version
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, asked_anew, random_model, random_tokens
from benchmarks.timing import spread, time_call
from bounds.influence.build import build_request
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.request import InfluenceRequest
from jax_models import InputError, forward
from jax_models.model.transformer import embed

FLAGS = benchmark_flags("torch_peer", repeats=5, budget=5.0, table=True)
LENGTHS = define_lengths(FLAGS, "128,256,512")
LAYERS = define_integers(FLAGS, "layers", [1, 2], "numbers of layers L")
DTYPES = define_dtypes(FLAGS, "float64")
BATCH = flags.DEFINE_integer(
    "batch", 32, "inputs in one pass of the peer", lower_bound=1, flag_values=FLAGS
)
ALONE = flags.DEFINE_integer(
    "alone", 64, "passes timed one at a time", lower_bound=1, flag_values=FLAGS
)
THREADS = define_integers(
    FLAGS, "threads", sorted({1, usable_cores()}), "threads that PyTorch may use"
)
PEER = define_peer(FLAGS)
LIMIT = flags.DEFINE_float(
    "limit", 600.0, "seconds for each answer", lower_bound=0, flag_values=FLAGS
)

# What the two may differ by, as a share of the largest influence.
AGREEMENT = {"float64": 1e-9, "float32": 1e-3}
TORCH_PART = Path(benchmarks.__path__[0]) / "torch_loop.py"
HEAD = (
    *("type", "L", "n", "threads", "incremental s", "loop, batched s", "loop, alone s"),
    *("batched /", "alone /", "JAX pass s", "PyTorch pass s"),
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries; none without PyTorch."""
    reason = missing_packages(PEER.value, "torch, numpy")
    if reason is not None:
        print(
            f"skipped: {PEER.value} has no PyTorch ({reason}); install torch and numpy "
            "there, or name another interpreter with --peer_python"
        )
        return
    torch = package_version(PEER.value, "torch")
    fixed = {"batch": BATCH.value, "alone": ALONE.value, "torch": torch}
    axes = grid(
        dtype=DTYPES.value, layers=LAYERS.value, n=LENGTHS.value, threads=THREADS.value
    )
    for cell in axes:
        yield {**cell, **fixed, **SIZES}


def question(request: InfluenceRequest, config: Config) -> dict[str, Any]:
    """Returns the arrays and settings that `torch_loop` reads."""
    model = request.model
    how = ("batch", "alone", "threads", "repeats", "budget")
    return {
        "rows": np.asarray(embed(model, jnp.asarray(request.tokens))),
        "embedding": np.asarray(model.embedding),
        "tokens": request.tokens,
        "positions": request.position,
        "symbols": request.symbol,
        "query": request.query,
        **named_weights(model),
        **{name: config[name] for name in how},
    }


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds of `incremental` and of the loop, and the ratios."""
    model, tokens, n = random_model(config), random_tokens(config), config["n"]
    request = build_request(model, tokens)
    answer = ask_peer(PEER.value, TORCH_PART, question(request, config), LIMIT.value)
    if "error" in answer:
        raise InputError(f"{PEER.value} failed at n = {n}: {answer['error']}")

    def influences() -> np.ndarray:
        blocks = INCREMENTAL.blocks(asked_anew(request))
        return np.concatenate([request.read(one.changes) for one in blocks])

    time_it = functools.partial(
        time_call, repeats=config["repeats"], budget=config["budget"]
    )
    difference = disagreement(influences(), answer.pop("influence"))
    if difference > AGREEMENT[config["dtype"]]:
        raise RuntimeError(f"the two answers differ by {difference} of the largest")
    run, given = jax.jit(lambda m, x: forward(m, x)[0]), jnp.asarray(tokens)
    timing = time_it(influences)
    return {
        **timing.columns("incremental"),
        **time_it(lambda: run(model, given)).columns("forward"),
        **{f"peer_{name}": value for name, value in answer.items()},
        "difference": difference,
        "batched_speedup": answer["batched_seconds"] / timing.median,
        "alone_speedup": answer["alone_seconds"] / timing.median,
    }


def disagreement(one: Any, two: Any) -> float:
    """Returns the largest difference of two arrays over the first's largest magnitude."""
    one, two = np.asarray(one), np.asarray(two)
    return float(np.abs(one - two).max() / np.abs(one).max())


def line(config: Config, row: Row) -> list[str]:
    """Returns one row as the cells of a line of the table."""
    named = [config["dtype"], str(config["layers"]), str(config["n"])]
    return [
        *named,
        str(row["peer_threads"]),
        *(spread(row, name) for name in ("incremental", "peer_batched", "peer_alone")),
        *(digits(row[name]) for name in ("batched_speedup", "alone_speedup")),
        *(spread(row, name) for name in ("forward", "peer_forward")),
    ]


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return (
        f"L = {config['layers']}  n = {config['n']}  {config['dtype']}: incremental "
        f"{row['incremental_seconds']:.4g} s; PyTorch {row['peer_torch']} on "
        f"{row['peer_threads']} threads {row['peer_batched_seconds']:.4g} s in batches of "
        f"{config['batch']} ({row['batched_speedup']:.3g} times), "
        f"{row['peer_alone_seconds']:.4g} s one at a time ({row['alone_speedup']:.3g}); "
        f"they differ by {row['difference']:.1e}"
    )


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    return table_text(HEAD, [line(config, row) for config, row in measured])


BENCHMARK = Benchmark("torch_peer", FLAGS, cells, measure, show, table)

if __name__ == "__main__":
    run_script(BENCHMARK)
