"""Curves as text: a table of the largest influence per length, and sentences on each."""

import dataclasses
import itertools
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bounds.curves.columns import CurveColumn, shown_bounds
from bounds.curves.curve import BoundCurve, corrected_gap
from bounds.curves.decay import (
    MIN_LENGTHS,
    NO_TREND,
    describe_trend,
    exponent_interval,
    show_ends,
    show_exponent,
    show_interval,
)
from bounds.curves.measurement import influence_value
from bounds.numbers.kind import ROUNDING, RTOL_EXACT
from bounds.numbers.notation import WIDTH, aligned

TOO_FEW = "too few lengths to fit"


def curve_report(curves: Sequence[BoundCurve]) -> str:
    """Table of the largest influence per length, then sentences on fits and bounds."""
    lengths = sorted({row["n"] for curve in curves for row in curve})
    cells = {
        (curve.label, row["n"]): f"{influence_value(row):.4g}"
        for curve in curves
        for row in curve
    }
    labels = [curve.label for curve in curves]
    lines = [["n", *labels]]
    lines += [
        [str(n), *(cells.get((label, n), "-") for label in labels)] for n in lengths
    ]
    trained, sides = curves[0].trained_to, [curve.sides for curve in curves]
    names = ["exponent"]
    if trained is not None:
        names = [f"exponent to {trained}", f"beyond {trained}"]
    columns = zip(*sides, strict=True)
    lines += [[x, *map(_exponent, c)] for x, c in zip(names, columns, strict=True)]
    lines.append(["zeros", *map(_zeros, sides)])
    # All lines together, so that exponents stand below the influences of their curve.
    table = aligned(lines)
    rule = "-" * len(table[0])
    rows = table[1 : len(lengths) + 1]
    if trained is not None:
        at = sum(n <= trained for n in lengths)
        rows.insert(at, f" trained to n = {trained} ".center(len(rule), "-"))
    # Curves of several weightings measure the same inputs.
    measured = {(row["n"], row["input"]) for c in curves for row in c.measurements}
    inputs = max(Counter(n for n, _ in measured).values(), default=0)
    title = f"Largest influence over {inputs} inputs" if inputs > 1 else "Influence"
    return "\n".join(
        [
            "",
            f"{title} of one symbol, by length n (tokens) and weighting:",
            rule,
            table[0],
            rule,
            *rows,
            rule,
            *table[len(lengths) + 1 :],
            "",
            *_findings(curves),
            *_coincidences(curves),
            *bounds_report(curves),
        ]
    )


def _findings(curves: Sequence[BoundCurve]) -> list[str]:
    """Sentences on each curve's fit, or on its enclosures where lengths are too few."""
    said, few = [], False
    for curve in itertools.chain.from_iterable(curve.sides for curve in curves):
        if not curve.fit.used or curve.fit.exponent is not None:
            said.append(describe_decay(curve))
            continue
        few = True
        if curve.enclosed:
            total = curve.fit.used + curve.fit.zeros
            said.append(f"{curve.label}: {curve.enclosed} of {total} are enclosures.")
    if few:
        said.append(
            f"An exponent is fitted to values at {MIN_LENGTHS} lengths or more."
        )
    return said


def bounds_report(curves: Sequence[BoundCurve]) -> list[str]:
    """Table of bounds, and lines on bounds that do not apply; empty without both."""
    columns = [
        column
        for kind in shown_bounds()
        for column in kind.columns
        if any(
            row.get(column.name) is not None for c in curves for row in c.measurements
        )
    ]
    lines = []
    if columns:
        table = [["weighting", "n", "exact", *(column.heading for column in columns)]]
        for curve in curves:
            for row in curve:
                numbers = [row.get(column.name) for column in columns]
                if any(number is not None for number in numbers):
                    exact = f"{influence_value(row):.4g}"
                    cells = ["-" if x is None else f"{x:.4g}" for x in numbers]
                    table.append([curve.label, str(row["n"]), exact, *cells])
        lines += ["", *textwrap.wrap(_meanings(columns), WIDTH), *aligned(table)]
        said = [sentence for curve in curves for sentence in describe_gap(curve)]
        lines += [line for one in said for line in textwrap.wrap(one, WIDTH)]
    lacking: dict[str, list[str]] = {}
    for curve in curves:
        for without in curve.without:
            lacking.setdefault(without, []).append(curve.label)
    return [
        *lines,
        *(f"{' and '.join(some)}: no {why}" for why, some in lacking.items()),
    ]


def describe_gap(curve: BoundCurve) -> list[str]:
    """Sentence on where Lemma 5's corrected constant falls and its gap; [] without one."""
    gap = corrected_gap(curve)
    if gap is None:
        return []
    bend = gap.half_weight if gap.bend is None else gap.bend
    trivial = (
        f"{curve.label}: the bound on an attention weight is 1/2 at n_half = 1 + e^(2A) = "
        f"10^{bend:.3g}"
    )
    where = f"10^{gap.at_end:.3g} at n = {gap.end}"
    if gap.bend is None:
        beyond = f"beyond n = {gap.end}: the corrected constant does not fall"
        said = f"{trivial}, {beyond}, {where}."
    else:
        said = f"{trivial}: from about there the corrected constant falls, to {where}."
    if gap.decades is None:
        return [said]
    return [
        f"{said} At n = {gap.last} it is {gap.decades:.1f} decades above the exact "
        "influence."
    ]


def _meanings(columns: Sequence[CurveColumn]) -> str:
    """Sentence on the meaning of the columns of bounds."""
    there = [kind for kind in shown_bounds() if any(c in columns for c in kind.columns)]
    own = [kind.meaning for kind in there if kind.per_input]
    others = [kind.meaning for kind in there if not kind.per_input]
    said = [f"{_listed(own)} for that input"] if own else []
    said += [f"over all inputs of the length, {_listed(others)}"] if others else []
    return f"Beside the largest of them: {'; '.join(said)}:"


def _listed(words: Sequence[str]) -> str:
    """Words joined by commas and a last "and"."""
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


def describe_decay(curve: BoundCurve) -> str:
    """Sentence on one curve: its dependence on n, and the fitted values."""
    fit = curve.fit
    total = fit.used + fit.zeros
    if not total:
        return f"{curve.label}: nothing was measured."
    enclosed = curve.enclosed
    wide = f", and {enclosed} of {total} are enclosures" if enclosed else ""
    if not fit.used:
        # An upper end of 0 is an exact zero, a larger one a radius of rounding.
        upper = max(row["influence_upper"] for row in curve.measurements)
        return f"{curve.label}: " + (
            f"no influence is told apart from zero; all {total} are below {upper:.2g}."
            if upper
            else f"no symbol changes the output; all {total} influences are zero."
        )
    zeros = f"; {fit.zeros} of {total} are zero" if fit.zeros else ""
    over = f"{fit.used} values at {fit.lengths} lengths"
    if fit.exponent is None:
        return (
            f"{curve.label}: {TOO_FEW}: {over}{zeros}; a decay exponent needs values at "
            f"{MIN_LENGTHS} lengths{wide}."
        )
    found = (
        f"fitted exponent {fit.exponent:z.3f} ({show_interval(fit)}) over {over}, n = "
        f"{fit.first} to {fit.last}{zeros}{wide}."
    )
    return f"{curve.label}: the influence {describe_trend(fit)}, {found}"


def describe_curve(curve: BoundCurve) -> dict[str, Any]:
    """Record of a curve's fits and largest influences."""
    return {
        "fit": dataclasses.asdict(curve.fit),
        "intervals_95": [exponent_interval(side.fit) for side in curve.sides],
        "trained_to": curve.trained_to,
        "beyond_training": [dataclasses.asdict(x.fit) for x in curve.sides[1:]],
        "finding": " ".join(map(describe_decay, curve.sides)),
        "largest": list(curve),
        "beyond": list(curve.beyond),
        "hypotheses": [ROUNDING],
        "rtol_exact": RTOL_EXACT,
        "without": list(curve.without),
    }


def _coincidences(curves: Sequence[BoundCurve]) -> list[str]:
    """A sentence for each pair of curves with equal influences on all inputs."""
    values = {
        curve.label: [influence_value(row) for row in curve.measurements]
        for curve in curves
    }
    return [
        f"{first} and {second} have the same influence on every input."
        for first, second in itertools.combinations(values, 2)
        if values[first] == values[second]
    ]


def _exponent(curve: BoundCurve) -> str:
    fit = curve.fit
    if not fit.used:
        return "-"
    if fit.exponent is None:
        return TOO_FEW
    ends = exponent_interval(fit)
    assert ends is not None
    told = f"{show_exponent(fit.exponent)} ({show_ends(ends)})"
    return told if fit.tells else f"{told}: {NO_TREND}"


def _zeros(sides: Sequence[BoundCurve]) -> str:
    fits = [side.fit for side in sides]
    zeros = sum(fit.zeros for fit in fits)
    return f"{zeros} of {zeros + sum(fit.used for fit in fits)}"
