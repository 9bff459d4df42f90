"""The oracle of the tests: `benchmarks.reference`, which a benchmark measures with too."""

from benchmarks.reference import (
    FLOAT64,
    Arithmetic,
    accepts,
    activate,
    forward,
    influence,
    layer_norm,
    logits,
    multiprecision,
    position_table,
    read_file,
    row_weights,
    scores,
    temperatures,
    visible,
)

__all__ = [
    "FLOAT64",
    "Arithmetic",
    "accepts",
    "activate",
    "forward",
    "influence",
    "layer_norm",
    "logits",
    "multiprecision",
    "position_table",
    "read_file",
    "row_weights",
    "scores",
    "temperatures",
    "visible",
]
