"""Report of curves: tables of influences and bounds against n, and sentences on fits.

A curve is the largest influence (change of an output by replacing one symbol) at each
length n of several; its fit is a power law. An influence that is not exact has an
enclosure, its lower and upper end. Lemma 5 (Hahn 2020) bounds influences on all inputs
of a length.
"""

import dataclasses
import itertools
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bounds.curves import decay
from bounds.curves.columns import CurveColumn, shown_bounds
from bounds.curves.curve import BoundCurve, corrected_gap
from bounds.curves.measurement import influence_value
from bounds.numbers.kind import ROUNDING, RTOL_EXACT
from bounds.numbers.notation import WIDTH, aligned, column_table, ruled

TOO_FEW = "too few lengths to fit"


def curve_report(curves: Sequence[BoundCurve]) -> str:
    """Text of a table of largest influences per length, then of fits and bounds."""
    shown = [{row["n"]: f"{influence_value(row):.4g}" for row in c} for c in curves]
    lengths = sorted({n for values in shown for n in values})
    trained, sides = curves[0].trained_to, [curve.sides for curve in curves]
    names = ["exponent"]
    if trained is not None:
        names = [f"exponent to {trained}", f"beyond {trained}"]
    lines = [["n", *(curve.label for curve in curves)]]
    lines += [[str(n), *(values.get(n, "-") for values in shown)] for n in lengths]
    columns = zip(*sides, strict=True)
    lines += [[x, *map(_exponent, c)] for x, c in zip(names, columns, strict=True)]
    # All lines together, so that exponents stand below the influences of their curve.
    table = aligned([*lines, ["zeros", *map(_zeros, sides)]])
    rows, below = table[: len(lengths) + 1], table[len(lengths) + 1 :]
    if trained is not None:
        at = sum(n <= trained for n in lengths) + 1
        rows.insert(at, f" trained to n = {trained} ".center(len(rows[0]), "-"))
    # Curves of several weightings measure the same inputs.
    measured = {(row["n"], row["input"]) for c in curves for row in c.measurements}
    inputs = max(Counter(n for n, _ in measured).values(), default=0)
    title = f"Largest influence over {inputs} inputs" if inputs > 1 else "Influence"
    title = f"{title} of one symbol, by length n (tokens) and weighting:"
    said = [*_findings(curves), *_coincidences(curves), *bounds_report(curves)]
    return "\n".join(["", title, *ruled(rows), *below, "", *said])


def _exponent(curve: BoundCurve) -> str:
    fit = curve.fit
    ends = decay.exponent_interval(fit)
    if fit.exponent is None or ends is None:
        return TOO_FEW if fit.used else "-"
    told = f"{decay.show_exponent(fit.exponent)} ({decay.show_ends(ends)})"
    return told if fit.tells else f"{told}: {decay.NO_TREND}"


def _zeros(sides: Sequence[BoundCurve]) -> str:
    zeros = sum(side.fit.zeros for side in sides)
    return f"{zeros} of {zeros + sum(side.fit.used for side in sides)}"


def _findings(curves: Sequence[BoundCurve]) -> list[str]:
    """Sentences on each curve's fit, or on its enclosures where lengths are too few."""
    said, few = [], False
    for curve in itertools.chain.from_iterable(curve.sides for curve in curves):
        fit = curve.fit
        if not fit.used or fit.exponent is not None:
            said.append(describe_decay(curve))
            continue
        few = True
        if curve.enclosed:
            total = fit.used + fit.zeros
            said.append(f"{curve.label}: {curve.enclosed} of {total} are enclosures.")
    if few:
        said.append(
            f"An exponent is fitted to values at {decay.MIN_LENGTHS} lengths or more."
        )
    return said


def describe_decay(curve: BoundCurve) -> str:
    """Sentence on a curve: its trend in n, fitted exponent, counts of values."""
    fit, enclosed = curve.fit, curve.enclosed
    total = fit.used + fit.zeros
    if not total:
        return f"{curve.label}: nothing was measured."
    if not fit.used:
        # An upper end of 0 is an exact zero, a larger one a radius of rounding.
        upper = max(row["influence_upper"] for row in curve.measurements)
        said = f"no symbol changes the output; all {total} influences are zero."
        if upper:
            said = f"no influence is told apart from zero; all {total} are below {upper:.2g}."
        return f"{curve.label}: {said}"
    wide = f", and {enclosed} of {total} are enclosures" if enclosed else ""
    zeros = f"; {fit.zeros} of {total} are zero" if fit.zeros else ""
    over = f"{fit.used} values at {fit.lengths} lengths"
    if fit.exponent is None:
        return (
            f"{curve.label}: {TOO_FEW}: {over}{zeros}; a decay exponent needs values at "
            f"{decay.MIN_LENGTHS} lengths{wide}."
        )
    return (
        f"{curve.label}: the influence {decay.describe_trend(fit)}, fitted exponent "
        f"{fit.exponent:z.3f} ({decay.show_interval(fit)}) over {over}, n = {fit.first} to "
        f"{fit.last}{zeros}{wide}."
    )


def _coincidences(curves: Sequence[BoundCurve]) -> list[str]:
    """Sentences on pairs of curves with equal influences on all inputs."""
    values = {c.label: list(map(influence_value, c.measurements)) for c in curves}
    return [
        f"{first} and {second} have the same influence on every input."
        for first, second in itertools.combinations(values, 2)
        if values[first] == values[second]
    ]


def bounds_report(curves: Sequence[BoundCurve]) -> list[str]:
    """Lines of a table of bounds, and on bounds that do not apply; [] without both."""
    columns = [column for kind in shown_bounds() for column in kind.columns]
    rows = [
        {**row, "weighting": curve.label, "value": influence_value(row)}
        for curve in curves
        for row in curve
        if any(row.get(column.name) is not None for column in columns)
    ]
    lines = []
    if rows:
        there = {name for row in rows for name, x in row.items() if x is not None}
        columns = [column for column in columns if column.name in there]
        shown = [("weighting", "weighting"), ("n", "n"), ("exact", "value")]
        shown += [(column.heading, column.name) for column in columns]
        table = column_table(rows, shown, ".4g")
        lines += ["", *textwrap.wrap(_meanings(columns), WIDTH), *table]
        for sentence in (sentence for c in curves for sentence in describe_gap(c)):
            lines += textwrap.wrap(sentence, WIDTH)
    lacking: dict[str, list[str]] = {}
    for curve in curves:
        for without in curve.without:
            lacking.setdefault(without, []).append(curve.label)
    return [
        *lines,
        *(f"{' and '.join(some)}: no {why}" for why, some in lacking.items()),
    ]


def describe_gap(curve: BoundCurve) -> list[str]:
    """Sentence on where and how far Lemma 5's corrected bound falls; [] without one."""
    gap = corrected_gap(curve)
    if gap is None:
        return []
    bend, then = gap.bend, ": from about there the corrected constant falls, to"
    if bend is None:
        bend = gap.half_weight
        then = f", beyond n = {gap.end}: the corrected constant does not fall,"
    said = (
        f"{curve.label}: the bound on an attention weight is 1/2 at n_half = 1 + e^(2A) = "
        f"10^{bend:.3g}{then} 10^{gap.at_end:.3g} at n = {gap.end}."
    )
    if gap.decades is not None:
        above = f"{gap.decades:.1f} decades above the exact influence"
        said += f" At n = {gap.last} it is {above}."
    return [said]


def _meanings(columns: Sequence[CurveColumn]) -> str:
    there = [kind for kind in shown_bounds() if any(c in columns for c in kind.columns)]
    own = [kind.meaning for kind in there if kind.per_input]
    others = [kind.meaning for kind in there if not kind.per_input]
    said = [f"{_listed(own)} for that input"] if own else []
    said += [f"over all inputs of the length, {_listed(others)}"] if others else []
    return f"Beside the largest of them: {'; '.join(said)}:"


def _listed(words: Sequence[str]) -> str:
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


def describe_curve(curve: BoundCurve) -> dict[str, Any]:
    """Record, for a JSON file, of a curve's fits, largest influences and bounds."""
    return {
        "fit": dataclasses.asdict(curve.fit),
        "intervals_95": [decay.exponent_interval(side.fit) for side in curve.sides],
        "trained_to": curve.trained_to,
        "beyond_training": [dataclasses.asdict(x.fit) for x in curve.sides[1:]],
        "finding": " ".join(map(describe_decay, curve.sides)),
        "largest": list(curve),
        "beyond": list(curve.beyond),
        "hypotheses": [ROUNDING],
        "rtol_exact": RTOL_EXACT,
        "without": list(curve.without),
    }
