"""How much a run of a command does, as far as its flags tell: what estimates rest on.

    tokens    = Σ_n k n
    passes    = Σ_n k L (n² d + n (4 d² + 2 d d_ff))
    positions = Σ_n k n L (n² d + n (4 d² + 2 d d_ff))

over the lengths n, with k = inputs × weightings. Files and constructions count with the
default shape: how far they differ from it is left to the calibration.
"""

import json
from collections.abc import Mapping
from typing import Any

from absl import flags

from bounds.batch.cells import Work
from jax_models.blocks import MAX_KEY_TILE

# Flags that choose among data of one form: cells that differ in these alone share what
# is compiled.
DATA_FLAGS = ("seed", "input")
# Weightings that a curve compares where none is named.
MAIN_WEIGHTINGS = 4
DEFAULT_LENGTH = 64
DEFAULT_SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 16, "d_ff": 64}
# Rows of activations that a layer holds beside its scores: values, keys, queries, sums.
ROWS_HELD = 6
# Scores of one tile on a CPU, which are held three times over: scores, exponentials, mask.
TILE_SCORES = 3 * 2**19


def estimate_cell_work(options: flags.FlagValues) -> Work:
    """Return how much a run with these flags does.

    Args:
        options: Parsed flags of any of the swept commands.

    Returns:
        The terms of the module's formulas, and the bytes of the arrays of the longest
        input: activations of every layer, and a tile of scores.
    """
    lengths = _value(options, "lengths", None) or (
        _value(options, "length", None) or DEFAULT_LENGTH,
    )
    layers, heads, width, hidden = (
        _value(options, name, default) for name, default in DEFAULT_SHAPE.items()
    )
    weighting = _value(options, "weighting", None)
    if isinstance(weighting, list) or "bounds" in options:
        series = len(weighting or range(MAIN_WEIGHTINGS))
    else:
        series = 1
    each = series * _value(options, "num_inputs", 1)
    each *= 1 + _value(options, "restarts", 0) * _value(options, "steps", 1)

    def one_pass(n: int) -> float:
        return layers * (n**2 * width + n * (4 * width**2 + 2 * width * hidden))

    itemsize = 8 if _value(options, "dtype", "float64") == "float64" else 4
    longest = max(lengths)
    scores = min(TILE_SCORES, 3 * heads * longest * min(longest, MAX_KEY_TILE))
    held = layers * longest * (ROWS_HELD * width + hidden) + scores
    terms = {
        "runs": each * len(lengths),
        "tokens": each * sum(lengths),
        "passes": each * sum(map(one_pass, lengths)),
        "positions": each * sum(n * one_pass(n) for n in lengths),
        "programs": series * len(lengths) * layers,
    }
    return Work({name: float(term) for name, term in terms.items()}, itemsize * held)


def shape_name(config: Mapping[str, Any]) -> str:
    """Return what names the programs of a cell: its configuration without its data."""
    return json.dumps({k: v for k, v in config.items() if k not in DATA_FLAGS})


def _value(options: flags.FlagValues, name: str, default: Any) -> Any:
    return options[name].value if name in options else default
