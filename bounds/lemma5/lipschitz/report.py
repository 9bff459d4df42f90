"""Empirical Lipschitz constants as text: a table beside the bounds, and sentences."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from bounds.curves.decay import MIN_LENGTHS, describe_trend, show_interval
from bounds.curves.text_table import WIDTH, column_table, ruled
from bounds.lemma5.lipschitz.curve import LipschitzCurve

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


def lipschitz_report(curve: LipschitzCurve) -> str:
    """Table of estimates and looseness, and sentences on them."""
    bounds = [
        (header, key)
        for header, key in BOUNDS
        if any(row.get(key) is not None for row in curve)
    ]
    notes = dict.fromkeys(note for row in curve for note in row["notes"])
    return "\n".join(
        [
            "",
            *_heading([header for header, _ in bounds]),
            *ruled(column_table(curve, [*OBSERVED, *bounds], _show)),
            finding(curve),
            *notes,
        ]
    )


def _heading(bounds: Sequence[str]) -> list[str]:
    """Lines on the columns of the table, of which `bounds` are shown."""
    observed = (
        "Output change per embedding change of one position, as observed, by length n "
        "(tokens)"
    )
    above = {
        **dict.fromkeys(
            ("centred", "base"), "certificates above the exact ratio they bound"
        ),
        "corrected": "corrected above the largest influence",
    }
    said = list(dict.fromkeys(above[name] for name in bounds if name in above))
    if set(bounds) - set(above):
        said.append(f"{'the others' if said else 'all'} above the estimate")
    right = (
        f"; on the right, how many decades each bound is above it: {', '.join(said)}"
    )
    return textwrap.wrap(f"{observed}{right if said else ''}.", WIDTH)


def finding(curve: LipschitzCurve) -> str:
    """Trends of the estimates, and the looseness at the largest n, in sentences."""
    estimate = _trend(curve, "estimate")
    exact = _trend(curve, "substitution")
    return (
        f"{curve.label}: K {estimate}; the exact ratio of substitutions {exact}. "
        f"{_nearest(curve)}"
    )


def _trend(curve: LipschitzCurve, column: str) -> str:
    """Dependence of a column on n, in words."""
    fit = curve.fit(column)
    if fit.exponent is None:
        return (
            f"has values at too few lengths to fit, of which {MIN_LENGTHS} are needed"
        )
    found = f"exponent {fit.exponent:z.3f}, {show_interval(fit)}"
    return f"{describe_trend(fit)} ({found})"


def _nearest(curve: LipschitzCurve) -> str:
    """Looseness of the best and the worst closed form at the largest n."""
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


def _show(key: str, value: Any) -> str:
    if key.startswith("looseness_"):
        return f"{value:z.2f}"  # a certificate may equal what it bounds
    return f"{value:.4g}" if isinstance(value, float) else str(value)
