"""The Lipschitz estimates as text: a table, and what was found."""

import math
from collections.abc import Mapping
from typing import Any

from bounds.lipschitz.curve import LipschitzCurve

# Header and key of the columns; the bounds are given by their looseness.
OBSERVED = (
    ("n", "n"),
    ("estimate", "estimate"),
    ("n K", "scaled"),
    ("by", "method"),
    ("exact ratio", "substitution"),
)
BOUNDS = (
    ("centred", "looseness_centred"),
    ("base", "looseness_base"),
    ("corrected", "looseness_corrected"),
    ("linear", "looseness_linear"),
    ("C1", "looseness_c1"),
    ("C2", "looseness_c2"),
    ("causal", "looseness_causal"),
    ("tight", "looseness_printed_tight"),
    ("printed", "looseness_printed"),
)


def lipschitz_report(curve: LipschitzCurve, confidence: float) -> str:
    """Returns the table of estimates and looseness, and what was found.

    Args:
        curve: The estimates.
        confidence: Level of the interval of the exponent.

    Returns:
        The text.
    """
    bounds = [
        (header, key)
        for header, key in BOUNDS
        if any(row.get(key) is not None for row in curve)
    ]
    columns = [*OBSERVED, *bounds]
    lines = [[header for header, _ in columns]]
    lines += [[_cell(row, key) for _, key in columns] for row in curve]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    rule = "-" * len(table[0])
    notes = dict.fromkeys(note for row in curve for note in row["notes"])
    return "\n".join(
        [
            "",
            "Output change per embedding change of one position, as observed, by length "
            "n (tokens);",
            "on the right, how many decades each bound is above it: certificates above "
            "the exact ratio",
            "they bound, corrected above the largest influence, the others above the "
            "estimate.",
            rule,
            table[0],
            rule,
            *table[1:],
            rule,
            finding(curve, confidence),
            *notes,
        ]
    )


def finding(curve: LipschitzCurve, confidence: float) -> str:
    """Returns what was found, in a sentence or two.

    Args:
        curve: The estimates.
        confidence: Level of the interval of the exponent.
    """
    estimate = _trend(curve, "estimate", confidence)
    exact = _trend(curve, "substitution", confidence)
    return (
        f"{curve.label}: K {estimate}; the exact ratio of substitutions {exact}. "
        f"{_nearest(curve)}"
    )


def _trend(curve: LipschitzCurve, column: str, confidence: float) -> str:
    """Returns how a column depends on n, in words."""
    fit = curve.fit(column)
    if fit.exponent is None:
        return "has values at too few lengths for a decay exponent"
    interval = curve.interval(column, confidence)
    about = (
        ""
        if interval is None
        else f" ({confidence:.0%} interval {interval[0]:z.3f} to {interval[1]:z.3f})"
    )
    return f"goes like n^-a, a = {fit.exponent:z.3f}{about}"


def _nearest(curve: LipschitzCurve) -> str:
    """Returns how loose the best and the worst closed form are at the largest n."""
    row = curve.table[-1]
    found = {
        header: row[key]
        for header, key in BOUNDS[3:]
        if row.get(key) is not None and math.isfinite(row[key])
    }
    if not found:
        return "No closed form was compared."
    best, worst = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    text = f"At n = {row['n']} the {best} bound is {found[best]:.1f} decades above it"
    if worst != best:
        text += f", {worst} {found[worst]:.1f}"
    return text + "."


def _cell(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return "-"
    if key.startswith("looseness_"):
        return f"{value:z.2f}"  # a certificate may equal what it bounds
    return f"{value:.4g}" if isinstance(value, float) else str(value)
