"""One input's influences in blocks of positions, so that long work can be resumed."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from jax.sharding import Mesh

import jax_models as jm
from bounds.cli.memory_flag import memory_limit
from bounds.cli.progress import Progress
from bounds.influence import (
    METHODS,
    Influence,
    Problem,
    SharedBase,
    compute_influence,
)
from bounds.influence.incremental import is_sparse
from bounds.measurement import Question, block_columns, planned_blocks
from bounds.output import canonical_json, sha256
from bounds.sweep import Cell
from bounds.version import __version__

# Substitutions beyond which only the largest of each position is kept.
MAX_PAIRS = 2**18
COLUMNS = ("position", "symbol", "lower", "upper")
# What is recorded of the largest influence, for each block and for the whole input.
SUMMARY = (
    "max",
    "max_lower",
    "max_upper",
    "position",
    "symbol",
    "exact",
    "method",
    "reason",
    "evaluated",
    "uncertified",
)
# The sizes that its method worked in.
BLOCK = ("block_substitutions", "block_rows")


def make_blocks(
    options: flags.FlagValues,
    model: jm.Transformer,
    tokens: np.ndarray,
    identity: dict[str, Any],
    progress: Progress | None,
    mesh: Mesh | None = None,
) -> list[Cell]:
    """Returns the blocks of positions of one input, as cells of a sweep.

    Args:
        options: Flags of the `influence` command.
        model: The model.
        tokens: The input [n].
        identity: Hashes of the two, and the query position.
        progress: Counts positions as they are done; None counts nothing.
        mesh: Devices that positions are shared out over; None is one.

    Returns:
        The cells, in order of position.
    """
    n = len(tokens)
    size = block_size(model, tokens, options.method)
    keep = "pairs" if n * (model.vocab_size - 1) <= MAX_PAIRS else "position_max"
    asked = {
        "target": options.target,
        "method": options.method,
        "ties": options.ties,
        "include_query": options.include_query,
        "keep": keep,
        "query": identity["query"],
        "memory_limit": memory_limit(options),
    }
    if options.method == "screened":
        asked |= {"rtol": options.rtol, "budget": options.budget}

    shared = SharedBase()
    # Sizes change the last bits: results of others are not gone on from. A limit that
    # leaves them as they are changes nothing.
    sizes = planned_blocks(
        model,
        tokens,
        Question(
            identity["query"],
            options.target,
            options.method,
            options.ties,
            memory_limit(options),
        ),
        range(min(size, n)),
        options.include_query,
    )

    def make(start: int) -> Cell:
        stop = min(start + size, n)
        label = f"positions {start} to {stop - 1}"

        def compute() -> dict[str, Any]:
            reported = 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                if progress is None:
                    return
                progress.advance(label, (stop - start) * done // total - reported)
                reported = (stop - start) * done // total

            result = compute_influence(
                model,
                tokens,
                positions=range(start, stop),
                checkpoint=find_checkpoint(options, config),
                progress=report,
                mesh=mesh,
                shared=shared,
                **asked,
            )
            if progress is not None:
                progress.advance(label, stop - start - reported)
            return summarise(result)

        named = {name: value for name, value in asked.items() if name != "memory_limit"}
        config = {
            "command": "influence",
            "version": __version__,
            "start": start,
            "stop": stop,
            "dtype": options.dtype,
            "seed": options.seed,
            **named,
            **sizes,
            **identity,
        }
        return Cell(config, label, compute)

    return [make(start) for start in range(0, n, size)]


def find_checkpoint(
    options: flags.FlagValues, config: Mapping[str, Any]
) -> Path | None:
    """Returns the file in which a screen keeps where it stands.

    Args:
        options: Flags of the `influence` command.
        config: Of the cell that screens. How far the screen is to go names no other
            file: what was screened is used by a run that is to go further.

    Returns:
        A path in --out; None where nothing is screened.
    """
    if options.method != "screened":
        return None
    question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
    name = sha256(canonical_json(question).encode())[:16]
    return Path(options.out) / f"screen-{name}.npz"


def block_size(model: jm.Transformer, tokens: np.ndarray, method: str) -> int:
    """Returns how many positions are done, and recorded, at a time.

    A run has one base pass for all blocks of `incremental`, which are worth some ten
    passes together; `exhaustive` takes one for every position, and `lumped` looks at each
    class of positions once in every block.

    Args:
        model: The model.
        tokens: The input [n].
        method: The influence method asked for.

    Returns:
        A number of positions.
    """
    if method == "screened":
        return len(tokens)  # the largest of all is what it looks for
    if method == "exhaustive":
        return 256
    none, n = np.zeros(0, int), len(tokens)
    problem = Problem(model, tokens, n - 1, "activation", none, none)
    able = method in ("auto", "lumped")
    lumps = able and METHODS["lumped"].refuse(problem) is None
    if lumps or len(model.layers) <= 2:
        return max(8192, -(-n // 4))
    return max(1024, n // 16) if is_sparse(problem) else 256


def summarise(result: Influence) -> dict[str, Any]:
    """Returns what is recorded of one block: the largest influence, and all of them.

    Args:
        result: The influences of its positions.

    Returns:
        The fields of `SUMMARY` and `BLOCK`, `levels`, `ties`, and `substitutions` by column.
    """
    if result.lower is None or result.upper is None:
        position = np.flatnonzero(result.position_symbol >= 0)
        symbol = result.position_symbol[position]
        lower, upper = result.position_lower[position], result.position_upper[position]
    else:
        position, symbol = np.nonzero(~np.isnan(result.lower))
        lower, upper = result.lower[position, symbol], result.upper[position, symbol]
    return {
        **{name: getattr(result, name) for name in SUMMARY},
        **block_columns(result.block),
        "levels": [dataclasses.asdict(level) for level in result.levels],
        "ambiguous": result.ties is not None and result.ties.ambiguous,
        "ties": None if result.ties is None else dataclasses.asdict(result.ties),
        "substitutions": {
            "position": position,
            "symbol": symbol,
            "lower": lower,
            "upper": upper,
        },
    }


def read_rows(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the substitutions of a recorded block, one row each.

    Args:
        block: What `summarise` returned, read back from a store.

    Returns:
        Rows with the entries of `COLUMNS`, by position, then symbol.
    """
    columns = block["substitutions"]
    return [
        dict(zip(COLUMNS, row, strict=True))
        for row in zip(*(columns[name] for name in COLUMNS), strict=True)
    ]
