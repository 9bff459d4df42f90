"""Every closed-form constant of a model, printed and corrected."""

import math
import textwrap
from typing import Any

import jax_models as jm
from bounds.cli.options.constants import ConstantsOptions
from bounds.cli.shared.columns import FILES
from bounds.cli.shared.model_source import model_sha256, weighted_model
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.report import column_table, ruled
from bounds.cli.shared.runner import Exports, Work, describe_lengths, length_cells
from bounds.curves.inputs import check_changeable
from bounds.curves.measurement import weighting_label
from bounds.lemma5.closed_form import LayerInfluence
from bounds.lemma5.constants import ClosedForms, evaluate_closed_forms, read_constants
from bounds.lemma5.constants.closed_forms import PrintedInfluence
from bounds.store.forms import each, fields, only
from bounds.store.sweep import Results, found_rows
from jax_models.run.evaluate import require_readout

WIDTH = 88
VOCAB_SIZE = 2  # symbols of a random model where nothing is said
# Header and key of each column of the report.
TABLE = (
    ("n", "n"),
    ("layer", "layer"),
    ("F", "F"),
    ("A", "A"),
    ("D", "D"),
    ("abar", "abar"),
    ("n_half", "log10_half_weight"),
    ("corrected", "log10_corrected"),
    ("linear", "log10_corrected_linear"),
    ("C1", "log10_c1"),
    ("C2", "log10_c2"),
    ("causal", "log10_causal"),
    ("tight", "log10_printed_tight"),
    ("printed", "log10_printed"),
)


_ENDLESS = (math.inf, -math.inf)
FORM = fields(
    *FILES["constants.json, rows"],
    **each("printed_implied printed_tight_implied", bool),
    endless=each("inf -inf", [str]),
    **{
        "=": lambda row: all(
            row.get(name, name) is None
            for names in row["endless"].values()
            for name in names
        )
    },
)


def plan(options: ConstantsOptions) -> Work:
    """Closed forms at every length."""
    prepare_jax(options)
    lengths = options.lengths
    model = weighted_model(options, vocab_size=VOCAB_SIZE, max_length=lengths[-1])
    if options.target == "logits":
        require_readout(model)
    check_changeable(lengths[0])
    hashes = {
        "model_sha256": model_sha256(options, model),
        "weighting": weighting_label(model),
    }
    asked = {"query": options.query, "target": options.target}
    depth = len(model.layers)

    def compute(n: int) -> dict[str, Any]:
        return _recorded([_row(forms) for forms in _layers(model, n, asked)])

    key = {**asked, "dtype": model.dtype.name, **hashes}
    layers = {"layer": range(1, depth + 1)}
    cells = length_cells(
        options,
        key,
        compute,
        lambda n: {"rows": [FORM | layers | {"n": only(n)}, depth]},
    )

    def finish(store: Results) -> Exports:
        rows = [row for payload in found_rows(store, cells) for row in _read(payload)]
        return Exports({**hashes, "rows": rows}, _report(rows, depth) + "\n")

    opening = f"constants: {describe_lengths(lengths)}"
    return Work(finish, cells, opening, "evaluate")


def _recorded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns rows for the store, which holds no infinities: their names by what they are."""
    endless = [
        {str(end): [name for name, x in row.items() if x == end] for end in _ENDLESS}
        for row in rows
    ]
    return {
        "rows": [{**row, "endless": e} for row, e in zip(rows, endless, strict=True)]
    }


def _read(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what `_recorded` was given."""
    found = []
    for row in payload["rows"]:
        for end, names in row.pop("endless").items():
            row |= dict.fromkeys(names, float(end))
        found.append(row)
    return found


def _layers(
    model: jm.Transformer, length: int, asked: dict[str, Any]
) -> list[ClosedForms]:
    constants = read_constants(model, length)
    return [
        evaluate_closed_forms(constants, layer=layer, **asked)
        for layer in range(1, len(constants.layers) + 1)
    ]


def _row(forms: ClosedForms) -> dict[str, Any]:
    """Returns what is written about one length and layer."""
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
    """Returns what the values mean that the file writes as null."""
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


def _report(rows: list[dict[str, Any]], depth: int) -> str:
    """Returns the rows as a table, without columns that are empty, and what they say."""
    intro = (
        "Bounds on the influence of one symbol, for all inputs of n tokens, as decimal "
        f"logarithms; the last of {depth} layers is the output. F bounds what the "
        "attention reads, A (nats) half the range of a row of its logits, D the "
        "distance of two embeddings, abar a weight; n_half = 1 + e^(2A), a logarithm too, "
        "is the n at which the bound on a weight of a row of n is 1/2, about where "
        "constants begin to fall."
    )
    notes = (textwrap.fill(note, WIDTH) for note in _notes(rows))
    lines = ["", textwrap.fill(intro, WIDTH), *ruled(column_table(rows, TABLE, _show))]
    return "\n".join([*lines, *notes])


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """Returns what holds of the columns, in a line each."""
    notes = []
    if any(row["log10_c1"] is None for row in rows):
        notes.append(
            "C1 and C2 need attention without a mask; corrected is the masked "
            f"recursion at the query, position {rows[-1]['query']} in the last row."
        )
    claims = {"printed_implied": "printed", "printed_tight_implied": "tight"}
    for key, name in claims.items():
        open_rows = sum(not row[key] for row in rows)
        if open_rows:
            notes.append(
                f"{name}: a claim of Hahn 2020, not proved; in {open_rows} of {len(rows)} "
                "rows no bound here implies it."
            )
    return notes or [
        "printed, tight: claims of Hahn 2020, not proved; corrected implies both here."
    ]


def _show(_: str, value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5g}"
