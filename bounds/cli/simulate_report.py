"""Simulations as text: a table, and what a reader must know beside it."""

from collections.abc import Mapping
from typing import Any

from bounds.simulation.curve import SimulationCurve

# Header and key of the columns.
SHOWN = (
    ("n", "n"),
    ("inputs", "inputs"),
    ("all", "all_inputs"),
    ("ties", "ties"),
    ("gap", "gap"),
    ("theorem", "theorem"),
    ("tau, theorem", "tau_formula"),
    ("tau, certificate", "tau_certificate"),
    ("error there", "error_certificate"),
    ("certified", "bound_certificate"),
)


def simulation_report(curve: SimulationCurve) -> str:
    """Returns the table of temperatures and errors, and the notes.

    Args:
        curve: The simulations.

    Returns:
        The text.
    """
    lines = [[header for header, _ in SHOWN]]
    lines += [[_cell(row, key) for _, key in SHOWN] for row in curve]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    rule = "-" * len(table[0])
    return "\n".join(
        [
            "",
            "Softmax at a temperature in place of hard attention, by length n (tokens): "
            "certified over",
            "exact reals for the inputs considered; the error was measured.",
            rule,
            table[0],
            rule,
            *table[1:],
            rule,
            *_notes(curve),
        ]
    )


def _notes(curve: SimulationCurve) -> list[str]:
    """The notes of all rows, each with the lengths that it is about."""
    about: dict[str, list[int]] = {}
    for row in curve:
        for note in row["notes"]:
            about.setdefault(note, []).append(row["n"])
    return [
        f"n = {', '.join(map(str, lengths))}: {note}" for note, lengths in about.items()
    ]


def _cell(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
    return str(value)
