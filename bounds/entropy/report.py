"""Report of cross-entropies by length: a table, and a sentence on a measured model.

A floor is a lower bound on a model's cross-entropy; the levels are the optimum and the
best predictions without context or from the last symbol alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bounds.numbers.notation import column_table

COLUMNS = (
    *("n", "optimal", "unigram", "last_symbol", "floor_r1", "floor_r2", "eps", "model"),
    *("model_stderr", "p0", "eps_kind", "floor_kind", "floor_stderr", "log10_eps"),
)
NUM_SHOWN = 10  # columns that are printed, the first
FLOORS = {"last": "floor_r1", "query": "floor_r2"}  # by the reading


def entropy_report(
    rows: Sequence[Mapping[str, Any]],  # one for each length
    has_theorem: bool,  # that puts a floor above the optimum
    reading: str | None,  # of the measured model; None without one
) -> str:
    """Table of levels and floors by length n, and a sentence on a model and its floor."""
    last, said = rows[-1], []
    floors = "the floors are those of a model in which one symbol has no influence"
    if not has_theorem:
        floors = "no theorem puts a floor above the optimum"
    if reading is not None:
        floors = f"floors are {last['floor_kind']} at n = {last['n']}"
        above = last["model"] - last[FLOORS[reading]]
        gap = last["unigram"] - last["model"]
        said = [
            "",
            f"At n = {last['n']} the model has {last['model']:.6g} (standard error "
            f"{last['model_stderr']:.2g}): {above:.3g} above its floor, {abs(gap):.3g} "
            f"{'below' if gap >= 0 else 'above'} the best constant prediction.",
        ]
    table = column_table(rows, [(name, name) for name in COLUMNS[:NUM_SHOWN]], ".6g")
    return "\n".join(["", f"Cross-entropies in nats; {floors}:", *table, *said, ""])
