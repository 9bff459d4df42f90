"""The empirical Lipschitz constant against length, beside the closed forms."""

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from bounds.cli.options.lipschitz import LipschitzOptions
from bounds.cli.shared.input_source import num_symbols
from bounds.cli.shared.model_source import weighted_model
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.report import WIDTH, column_table, ruled
from bounds.cli.shared.runner import Exports, Work, describe_lengths, length_cells
from bounds.cli.shared.subject import read_subject
from bounds.curves.decay import MIN_LENGTHS, describe_trend, show_interval
from bounds.curves.inputs import check_changeable
from bounds.curves.measurement import Subject
from bounds.lemma5.lipschitz.curve import (
    NAMES,
    LipschitzCurve,
    measure_lipschitz,
)
from bounds.lemma5.lipschitz.searches import Effort
from bounds.store.forms import SIZE, each, fields
from bounds.store.sweep import Cell, Results, found_rows
from bounds.store.table import Table

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
# What every row has, and then the bounds that apply to the model.
COLUMNS = (
    "n",
    "estimate",
    "scaled",
    "method",
    "position",
    "seed",
    "iterations",
    "influence",
    "supremum",
    "radius",
    "substitution",
    "local",
    "ball",
)
CONFIDENCE = 0.95
FORM = fields(
    *("notes", *(name for name in COLUMNS[:-1] if name != "seed"), "ball?"),
    *(f"{kind}_{name}?" for kind in ("log10", "looseness") for name in NAMES),
    **each("estimate substitution", SIZE),
)


def lipschitz_report(curve: LipschitzCurve) -> str:
    """Returns the table of estimates and looseness, and what was found."""
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
    """Returns what the table shows, in lines, of the bounds that are there."""
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
    """Returns what was found, in a sentence or two."""
    estimate = _trend(curve, "estimate")
    exact = _trend(curve, "substitution")
    return (
        f"{curve.label}: K {estimate}; the exact ratio of substitutions {exact}. "
        f"{_nearest(curve)}"
    )


def _trend(curve: LipschitzCurve, column: str) -> str:
    """Returns how a column depends on n, in words."""
    fit = curve.fit(column)
    if fit.exponent is None:
        return (
            f"has values at too few lengths to fit, of which {MIN_LENGTHS} are needed"
        )
    found = f"exponent {fit.exponent:z.3f}, {show_interval(fit)}"
    return f"{describe_trend(fit)} ({found})"


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


def _show(key: str, value: Any) -> str:
    if key.startswith("looseness_"):
        return f"{value:z.2f}"  # a certificate may equal what it bounds
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plan(options: LipschitzOptions) -> Work:
    """Estimates at every length."""
    lengths, target = options.lengths, options.target
    check_changeable(lengths[0])
    prepare_jax(options)
    symbols = num_symbols(options)
    model = weighted_model(options, vocab_size=symbols, max_length=lengths[-1])
    subject = read_subject(options, model, lengths)
    cells = _cells(options, subject)

    def finish(store: Results) -> Exports:
        table = Table(tuple(found_rows(store, cells)))
        return _export(subject, LipschitzCurve(subject.label, target, table))

    opening = f"lipschitz: estimates at {describe_lengths(lengths)}"
    return Work(finish, cells, opening, "estimate", named=subject.named)


def _cells(options: LipschitzOptions, subject: Subject) -> list[Cell]:
    asked, effort = subject.question, Effort(options.restarts, options.steps)
    question: dict[str, Any] = {"query": asked.query, "target": asked.target}
    question["seed"] = subject.seed

    def compute(n: int) -> dict[str, Any]:
        model, source = subject.model, subject.source
        row = measure_lipschitz(model, n, source, effort=effort, **question)
        # The store has a column of its own for the seed.
        return {name: value for name, value in row.items() if name != "seed"}

    key = {**question, **dataclasses.asdict(effort)}
    return length_cells(options, subject.config, compute, FORM, **key)


def _export(subject: Subject, curve: LipschitzCurve) -> Exports:
    rows = [{**row, "seed": subject.seed} for row in curve]
    bounds = [
        f"{kind}_{name}"
        for kind in ("log10", "looseness")
        for name in NAMES
        if f"{kind}_{name}" in curve.table.columns
    ]
    fits = {
        name: {
            **dataclasses.asdict(curve.fit(name)),
            "interval": curve.interval(name, CONFIDENCE),
        }
        for name in ("estimate", "substitution")
    }
    record = {
        "kind": "estimated",
        "meaning": "lower estimates, not bounds",
        "weighting": curve.label,
        "model_sha256": subject.model_sha256,
        "fits": fits,
        "confidence": CONFIDENCE,
        "finding": finding(curve),
        "rows": rows,
    }
    report = lipschitz_report(curve) + "\n"
    return Exports(record, report, (*COLUMNS, *bounds), rows, curve.plot)
