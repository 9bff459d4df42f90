"""Report of simulations by length: a table, and the notes of its rows.

A simulation puts softmax at a temperature in place of a model's hard attention; a note
is a sentence with a condition or warning for the numbers of a row.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bounds.numbers.notation import column_table, ruled

# Header and key of the columns.
SHOWN = (
    *(("n", "n"), ("inputs", "inputs"), ("all", "all_inputs"), ("ties", "ties")),
    *(("gap", "gap"), ("theorem", "theorem"), ("tau, theorem", "tau_formula")),
    *(("tau, certificate", "tau_certificate"), ("error there", "error_certificate")),
    *(("certified", "bound_certificate"), ("error is the largest of", "measured_on")),
    *(("tau, --at", "tau_at"), ("certified there", "bound_at")),
)


def simulation_report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table of temperatures and errors by length, and each note with its lengths."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            notes.setdefault(note, []).append(str(row["n"]))
    title = (
        "Softmax at a temperature in place of hard attention, by length n (tokens): "
        "certified over\nexact reals for the inputs considered; the error was measured."
    )
    table = ruled(column_table(rows, SHOWN, ".3g"))
    lines = (f"n = {', '.join(lengths)}: {note}" for note, lengths in notes.items())
    return "\n".join(["", title, *table, *lines, ""])
