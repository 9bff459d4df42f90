"""How fast is a scan of an encoder of a known shape, beside batched passes in half precision?

Random weights in the shapes of AntiBERTy and MiniLM, so that nothing is downloaded; one row
is watched. `bounds.scan` in float32, and with products of changes in bfloat16, beside PyTorch
(`benchmarks/scan_torch.py`) with the same weights on the same device, in float32 and under
autocast of float16 and bfloat16, where --peer_python has it: all substitutions in batches,
the best of several sizes. Times in float32 are compared only where the changes agree.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

import bounds
import jax_models as jm
from benchmarks.device import usable_cores
from benchmarks.flags import benchmark_flags, define_choices, define_peer
from benchmarks.operations import influence_operations
from benchmarks.page import column_table, digits
from benchmarks.peer import ask_peer, missing_packages, package_version
from benchmarks.scan_peer import (
    AGREEMENT,
    TORCH_PART,
    changed_inputs,
    matrix_rate,
    percent,
)
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.timing import spread, time_call
from benchmarks.trained import random_state
from bounds.influence.build import build_request
from bounds.influence.methods.partial import PARTIAL
from jax_models import InputError

# Of PyTorch; the scan has float32 and bfloat16.
TYPES = ("float32", "float16", "bfloat16")
BATCHES = {"cpu": (1, 4, 16), "gpu": (64, 256)}


@dataclasses.dataclass(frozen=True)
class Shape:
    """An encoder's sizes and what is asked of it."""

    num_layers: int
    width: int
    heads: int
    hidden: int
    n: int
    positions: int  # at which symbols are replaced
    substitutes: int
    row: int  # that is watched


SHAPES = {
    "antiberty": Shape(8, 512, 8, 2048, 127, 125, 19, 64),  # 2375 substitutions
    "minilm": Shape(6, 384, 12, 1536, 512, 32, 16, 0),
}

FLAGS = benchmark_flags("scan_shapes", repeats=3, budget=60.0, table=True)
MODELS = define_choices(FLAGS, "models", list(SHAPES), list(SHAPES), "shapes")
PEER = define_peer(FLAGS)
LIMIT = flags.DEFINE_float(
    "limit", 600.0, "seconds for PyTorch's answer", lower_bound=0, flag_values=FLAGS
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in; PyTorch is left out where there is none."""
    reason, torch = missing_packages(PEER.value, "torch, numpy"), None
    if reason is None:
        torch = package_version(PEER.value, "torch")
    else:
        print(f"{PEER.value} has no PyTorch ({reason}): the scan is timed alone")
    for cell in grid(model=MODELS.value):
        sizes = dataclasses.asdict(SHAPES[cell["model"]])
        yield {**cell, **sizes, "dtype": "float32", "torch": torch}


def draw_question(config: Config) -> tuple[np.ndarray, ...]:
    """Returns the input [n], the positions [P] and the substitutes [P, K] of each.

    Args:
        config: Of a row.
    """
    n, symbols = config["n"], config["substitutes"] + 1
    tokens = np.random.default_rng(config["seed"] + 1).integers(0, symbols, n)
    most = min(config["positions"], n - 2)
    positions = np.unique(np.linspace(1, n - 2, most).astype(int))
    turns = np.arange(1, symbols)
    return tokens, positions, (tokens[positions][:, None] + turns) % symbols


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds of all substitutions by each way, ratios, errors.

    Raises:
        InputError: PyTorch failed, or the changes in float32 differ.
    """
    state, (tokens, positions, symbols) = random_state(config), draw_question(config)
    draws = np.random.default_rng(config["seed"] + 2)
    d, n = config["width"], config["n"]
    embedding, place = (
        draws.standard_normal((size, d)).astype(np.float32)
        for size in (config["substitutes"] + 1, n)
    )
    model = jm.from_torch(
        state, config["heads"], embedding=embedding, position=place, activation="gelu"
    )
    row = min(config["row"], n - 1)
    asked: dict[str, Any] = {"positions": positions.tolist(), "symbols": symbols}
    scan = functools.partial(bounds.scan, model, tokens, rows=row, **asked)
    time_it = functools.partial(
        time_call, repeats=config["repeats"], budget=config["budget"]
    )
    half = bounds.Incremental("bfloat16")
    timings = {
        name: time_it(lambda how=how: scan(**how).values)
        for name, how in (("float32", {}), ("bfloat16", {"method": half}))
    }
    found = scan()
    values, scale = found.values.ravel(), found.values.max()
    rounded = scan(method=half).values.ravel()
    told: dict[str, Any] = {
        **timings["float32"].columns("float32"),
        **timings["bfloat16"].columns("bfloat16"),
        "method": found.method,
        "substitutions": int(symbols.size),
        "bfloat16_error": float(np.abs(rounded - values).max() / scale),
    }
    request = build_request(model, tokens, query=row, include_query=True, **asked)
    outline = PARTIAL.outline(request) if found.method == PARTIAL.name else None
    if outline is not None:
        rate = influence_operations(outline) / told["float32_seconds"]
        told |= {"flops_per_second": rate, "matrix_rate_share": rate / matrix_rate()}
    if config["torch"] is None:
        return told
    question = {
        **{f"state.{name}": x for name, x in state.items()},
        **{"heads": config["heads"], "activation": "gelu", "row": row},
        **{"embedding": embedding, "position": place},
        "inputs": changed_inputs(tokens, positions, symbols),
    }
    return told | beside(config, told, values, question)


def beside(
    config: Config, told: Row, values: np.ndarray, question: dict[str, Any]
) -> dict[str, Any]:
    """Returns PyTorch's columns: seconds of all substitutions, ratios, errors.

    Raises:
        InputError: PyTorch failed, or the changes in float32 differ.
    """
    batches = [x for x in BATCHES[config["platform"]] if x <= len(question["inputs"])]
    ways = np.asarray([(x, compiled) for x in batches for compiled in (0, 1)])
    how = {"ways": ways, "types": TYPES, "threads": usable_cores()}
    answer = ask_peer(PEER.value, TORCH_PART, question | how, LIMIT.value)
    if "error" in answer:
        raise InputError(f"{PEER.value} failed: {answer['error']}")
    columns: dict[str, Any] = {}
    for name in TYPES:
        seconds = answer[name]["seconds"] * values.size
        changes = np.asarray(answer[name]["changes"])  # of whole batches
        apart = np.abs(values[: len(changes)] - changes).max() / values.max()
        if name == "float32" and apart > AGREEMENT:
            raise InputError(f"the changes differ by {apart:.3g} of the largest")
        ours = told["float32_seconds" if name == "float32" else "bfloat16_seconds"]
        columns |= {
            f"torch_{name}_seconds": seconds,
            f"torch_{name}_way": answer[name]["way"],
            f"torch_{name}_error": float(apart),
            f"torch_{name}_ratio": seconds / ours,
        }
    return columns


def show(config: Config, row: Row) -> str:
    """Returns one row as a line."""
    peers = "; ".join(
        f"PyTorch in {name} {row[f'torch_{name}_seconds']:.4g} s"
        for name in TYPES
        if f"torch_{name}_seconds" in row
    )
    return (
        f"{config['model']}, n = {config['n']}, {row['substitutions']} substitutions: "
        f"{row['float32_seconds']:.4g} s by {row['method']}, with bfloat16 "
        f"{row['bfloat16_seconds']:.4g} s (off by {row['bfloat16_error']:.2g})"
        + (f"; {peers}" if peers else "")
    )


def table(measured: Measured) -> str:
    """Returns the rows as a Markdown table; errors are shares of the largest change."""
    columns: dict[str, Any] = {
        "shape": lambda config, _: config["model"],
        "n": lambda config, _: str(config["n"]),
        "substitutions": lambda _, row: str(row["substitutions"]),
        "float32, s": lambda _, row: spread(row, "float32"),
        "of the matrix rate": lambda _, row: percent(row.get("matrix_rate_share")),
        "bfloat16, s": lambda _, row: spread(row, "bfloat16"),
        "its error": lambda _, row: f"{row['bfloat16_error']:.1e}",
    }
    for name in TYPES:
        columns[f"PyTorch {name} /"] = lambda _, row, name=name: digits(
            row.get(f"torch_{name}_ratio")
        )
        if name != "float32":
            columns[f"its error in {name}"] = lambda _, row, name=name: (
                f"{row[f'torch_{name}_error']:.1e}"
                if f"torch_{name}_error" in row
                else ""
            )
    return column_table(columns, measured)


BENCHMARK = Benchmark("scan_shapes", FLAGS, cells, measure, show, table)

if __name__ == "__main__":
    run_script(BENCHMARK)
