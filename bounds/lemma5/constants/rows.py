"""Closed forms of one length and layer as a row of a table."""

import math
from typing import Any

from bounds.lemma5.closed_form import LayerInfluence
from bounds.lemma5.constants.closed_forms import ClosedForms, PrintedInfluence
from bounds.store.forms import Form, each

# Form of the names of infinite entries in a record, which has null for them.
ENDLESS: dict[str, Form] = {
    "endless": each("inf -inf", [str]),
    "=": lambda row: all(
        row.get(name, name) is None
        for names in row["endless"].values()
        for name in names
    ),
}


def constants_row(forms: ClosedForms) -> dict[str, Any]:
    """Row of one length and layer."""
    constants, layer = forms.constants, forms.layer
    row = {
        "n": constants.length,
        "layer": layer,
        "query": forms.query,
        "F": constants.attended_norm(layer),
        "F_output": constants.norms[layer - 1],
        "A": constants.half_oscillation(layer),
        "D": constants.embedding.distance,
        "abar": constants.attention_weight(layer, forms.query),
        "log10_half_weight": constants.log10_half_weight(layer),
        "log10_printed": _log10(forms.printed),
        "log10_printed_tight": _log10(forms.printed_tight),
        "printed_implied": forms.printed is not None and forms.printed.implied,
        "printed_tight_implied": forms.printed_tight.implied,
        "log10_corrected": _log10(forms.corrected),
        "log10_corrected_linear": _log10(forms.linear),
        "log10_corrected_own": forms.corrected.own.log10_value,
        "log10_c1": _log10(forms.c1),
        "log10_c2": _log10(forms.c2),
        "log10_causal": _log10(forms.causal),
    }
    return {**row, "hypotheses": [*forms.hypotheses, *_nulls(row)]}


def _nulls(row: dict[str, Any]) -> list[str]:
    """Sentences on values that JSON writes as null."""
    meanings = (
        ("does not apply", lambda value: value is None),
        ("the bound is zero", lambda value: value == -math.inf),
        ("beyond every float", lambda value: value == math.inf),
    )
    said = []
    for meaning, holds in meanings:
        if names := [name for name, value in row.items() if holds(value)]:
            said.append(f"null, {meaning}: {', '.join(names)}")
    return said


def _log10(form: LayerInfluence | PrintedInfluence | None) -> float | None:
    return None if form is None else form.others.log10_value


def record_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Record of rows, with the names of their infinite entries, which JSON has not."""

    def infinite(row: dict[str, Any], end: float) -> list[str]:
        return [name for name, value in row.items() if value == end]

    ends = (math.inf, -math.inf)
    return {
        "rows": [
            {**row, "endless": {str(end): infinite(row, end) for end in ends}}
            for row in rows
        ]
    }


def read_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a record."""
    found = []
    for row in record["rows"]:
        for end, names in row.pop("endless").items():
            row |= dict.fromkeys(names, float(end))
        found.append(row)
    return found
