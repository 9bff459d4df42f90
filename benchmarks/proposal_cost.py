"""What it costs to find the largest influence in float64, and by proposing it first.

The same question by computing all in float64, by proposing in float32 and by ranking in
half precision, in turn, so that what else the machine does falls on all of them alike.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import bounds
import jax_models as jm
from benchmarks.page import digits, table_text
from benchmarks.script import Measured, Row
from bounds.influence.methods.proposed import Cheap

TYPES: tuple[Cheap, ...] = ("float32", "bfloat16", "float16")
REPEATS = 3


def measure_proposals(
    model: jm.Transformer, tokens: np.ndarray, types: Sequence[Cheap], **asked: Any
) -> dict[str, Any]:
    """Returns one row: seconds of each way, warm and compiling, and how many it decided.

    Args:
        model: in float64.
        tokens: the input [n].
        types: those that propose.
        asked: of `compute_influence`.
    """

    def ask(propose: Cheap | None) -> tuple[bounds.Influence, float]:
        start = time.perf_counter()
        found = bounds.compute_influence(
            model,
            tokens,
            keep="max",
            method="auto" if propose is None else bounds.Proposed(propose),
            **asked,
        )
        return found, time.perf_counter() - start

    ways = (None, *types)
    first = [ask(way) for way in ways]
    rounds = [[ask(way)[1] for way in ways] for _ in range(REPEATS)]
    warm = [statistics.median(seconds) for seconds in zip(*rounds, strict=True)]
    plain, _ = first[0]
    row: dict[str, Any] = {"n": int(tokens.size), "pairs": plain.substitutions}
    row |= {"method": plain.method, "influence": plain.max}
    for way, (found, seconds), median in zip(ways, first, warm, strict=True):
        name = way or "float64"
        row |= {f"{name}_seconds": median, f"{name}_compile_seconds": seconds - median}
        if found.decided is not None:
            row[f"{name}_decided"] = found.decided
            same = [(x.max, x.position, x.symbol) for x in (found, plain)]
            row[f"{name}_same"] = same[0] == same[1]
        if found.measured_error is not None:
            row[f"{name}_error"] = found.measured_error.max
    return row


def show_proposals(name: str, row: Row) -> str:
    """Returns one row as a line."""
    ways = [
        f"{way} {digits(row[f'{way}_seconds'])} s, {row[f'{way}_decided']} decided"
        for way in TYPES
        if f"{way}_seconds" in row
    ]
    return (
        f"{name}, n = {row['n']}, {row['pairs']} substitutions by {row['method']}: float64 "
        f"{digits(row['float64_seconds'])} s; {'; '.join(ways)}"
    )


def proposal_table(measured: Measured) -> str:
    """Returns the rows as a Markdown table."""
    head = ["model", "n", "substitutions", "method", "float64, s (compiling)"]
    for name in TYPES:
        head += [f"{name}, s (compiling)", "decided"]
    lines = []
    for config, row in measured:
        line = [config["model"], str(row["n"]), str(row["pairs"]), row["method"]]
        for name in ("float64", *TYPES):
            if f"{name}_seconds" not in row:
                line += ["", ""]
                continue
            seconds = (row[f"{name}_seconds"], row[f"{name}_compile_seconds"])
            warm, more = map(digits, seconds)
            line.append(f"{warm} ({'' if more.startswith('-') else '+'}{more})")
            if name != "float64":
                missed = "" if row[f"{name}_same"] else ", missed"
                line.append(f"{row[f'{name}_decided']}{missed}")
        lines.append(line)
    return table_text(head, lines)
