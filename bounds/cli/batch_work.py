"""How much a run of a command does, as far as its flags tell: what estimates rest on.

    tokens    = Σ_n k_n n
    passes    = Σ_n k_n L (n² d + n (4 d² + 2 d d_ff))
    positions = Σ_n k_n n L (n² d + n (4 d² + 2 d d_ff))

over the lengths n, with k_n inputs times weightings; `simulate` runs all inputs of a length
where its budget allows. Sizes are those of the model and the inputs that the flags name.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from absl import flags

from bounds.batch.cells import Work
from bounds.batch.figure import LENGTH_FLAGS
from bounds.cli.batch_shape import given_lengths, model_shape
from jax_models.blocks import MAX_KEY_TILE

# Flags that choose among data of one form: cells that differ in these alone share what
# is compiled.
DATA_FLAGS = ("seed", "input")
# Weightings that a curve compares where none is named.
MAIN_WEIGHTINGS = 4
DEFAULT_LENGTH = 64
# Rows of activations that a layer holds beside its scores: values, keys, queries, sums.
ROWS_HELD = 6
# Scores of one tile on a CPU, which are held three times over: scores, exponentials, mask.
TILE_SCORES = 3 * 2**19


def estimate_cell_work(options: flags.FlagValues, config: Mapping[str, Any]) -> Work:
    """Returns how much a run with these flags does.

    Args:
        options: Parsed flags of any of the swept commands.
        config: The cell's configuration, with the hashes of its files.

    Returns:
        The terms of the module's formulas, and the bytes of the arrays of the longest
        input: activations of every layer, and a tile of scores.
    """
    shape = model_shape(options, config)
    lengths = _lengths(config)
    layers, width, hidden = shape.num_layers, shape.d_model, shape.d_ff
    weighting = config.get("weighting")
    if isinstance(weighting, list) or "bounds" in config:
        series = len(weighting or range(MAIN_WEIGHTINGS))
    else:
        series = 1
    each = series * (1 + config.get("restarts", 0) * config.get("steps", 1))
    counts = {n: each * _num_inputs(config, shape.vocab_size, n) for n in lengths}

    def one_pass(n: int) -> float:
        return layers * (n**2 * width + n * (4 * width**2 + 2 * width * hidden))

    itemsize = 8 if config.get("dtype", "float64") == "float64" else 4
    longest = max(lengths)
    scores = min(
        TILE_SCORES, 3 * shape.num_heads * longest * min(longest, MAX_KEY_TILE)
    )
    held = layers * longest * (ROWS_HELD * width + hidden) + scores
    terms = {
        "runs": sum(counts.values()),
        "tokens": sum(k * n for n, k in counts.items()),
        "passes": sum(k * one_pass(n) for n, k in counts.items()),
        "positions": sum(k * n * one_pass(n) for n, k in counts.items()),
        "programs": series * len(lengths) * layers,
    }
    return Work(
        {name: _as_float(term) for name, term in terms.items()},
        _as_float(itemsize * held),
    )


def _as_float(count: int) -> float:
    """Returns a count, the largest float of one beyond all floats."""
    return float(min(count, int(sys.float_info.max)))


def shape_name(config: Mapping[str, Any]) -> str:
    """Returns what names a cell but for its data: its configuration without them."""
    return json.dumps({k: v for k, v in config.items() if k not in DATA_FLAGS})


def program_names(
    options: flags.FlagValues, config: Mapping[str, Any]
) -> tuple[str, ...]:
    """Returns what names the programs of a cell: its shape, for each length and weighting.

    Args:
        options: Parsed flags of any of the swept commands.
        config: The cell's configuration, with the hashes of its files.

    Returns:
        A name for each of the two, whatever other lengths and weightings it has. How many
        inputs there are is part of it for `simulate` alone, which runs them at once.
    """
    apart = (*DATA_FLAGS, *LENGTH_FLAGS, "given", "weighting", "num_inputs")
    alike = json.dumps({k: v for k, v in config.items() if k not in apart})
    symbols = model_shape(options, config).vocab_size
    at_once = "epsilon" in config
    weighting = config.get("weighting")
    weightings = weighting if isinstance(weighting, list) else [weighting]
    return tuple(
        f"{alike} {n} {_num_inputs(config, symbols, n) if at_once else ''} {one}"
        for n in _lengths(config)
        for one in weightings
    )


def _lengths(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the lengths of a run."""
    if config.get("lengths"):
        return tuple(config["lengths"])
    if config.get("length"):
        return (config["length"],)
    return (max(given_lengths(config), default=DEFAULT_LENGTH),)


def _num_inputs(config: Mapping[str, Any], symbols: int, n: int) -> int:
    """Returns how many inputs a run has at a length."""
    if given := given_lengths(config):
        return len(given)
    if "epsilon" in config and symbols**n <= config["budget"]:
        return symbols**n
    return config.get("num_inputs", 1)
