"""Report of the constants and bounds of Lemma 5: table by length and layer, conditions."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from bounds.numbers.notation import column_table, ruled

Rows = Sequence[Mapping[str, Any]]  # as `constants_row` makes them

WIDTH = 88
# Header and key of each column of the report.
TABLE = (
    *((name, name) for name in ("n", "layer", "F", "A", "D", "abar")),
    *(("n_half", "log10_half_weight"), ("corrected", "log10_corrected")),
    *(("linear", "log10_corrected_linear"), ("C1", "log10_c1"), ("C2", "log10_c2")),
    *(("causal", "log10_causal"), ("tight", "log10_printed_tight")),
    ("printed", "log10_printed"),
)


def constants_report(rows: Rows) -> str:
    """Text on constants: definitions, the table, then a sentence for each condition."""
    intro = (
        "Bounds on the influence of one symbol, for all inputs of n tokens, as decimal "
        f"logarithms; the last of {rows[-1]['layer']} layers is the output. F bounds what "
        "the attention reads, A (nats) half the range of a row of its logits, D the "
        "distance of two embeddings, abar a weight; n_half = 1 + e^(2A), a logarithm too, "
        "is the n at which the bound on a weight of a row of n is 1/2, about where "
        "constants begin to fall."
    )
    notes = ["printed, tight: claims of Hahn 2020, not proved."]
    if any(row["log10_c1"] is None for row in rows):
        notes.append(
            "C1 and C2 need attention without a mask; corrected is the masked "
            f"recursion at the query, position {rows[-1]['query']} in the last row."
        )
    table = ruled(column_table(rows, TABLE, ".5g"))
    intro, *notes = (textwrap.fill(text, WIDTH) for text in (intro, *notes))
    return "\n".join(["", intro, *table, *notes])
