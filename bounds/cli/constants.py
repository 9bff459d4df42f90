"""Every closed-form constant of a model: as Hahn 2020 prints them, and corrected.

One row per length and layer in `constants.json`; the last layer's speaks of the output.
All bounds hold for every input of the length and every substitution, at a position that
is not the one exchanged. They are decimal logarithms, because the constants leave the
range of floats: null stands for a bound of zero, for one beyond any float, and for a
form that does not apply; the hypotheses of the row say of each null which it is. Lengths
are kept in --out as they are done, and the same command continues where it stopped.

    --lengths=16:4096:9 --scale=0.5 --out=results/small_weights
    --model=model.safetensors --lengths=64,1024 --out=results/mine
"""

import textwrap
from typing import Any

from bounds.cli.shared.groups import Lengths, Model, Read, Stored, Weighted
from bounds.cli.shared.runner import Exports, LengthSweep, Work
from bounds.cli.shared.subject import name_model, weighted_model
from bounds.curves.inputs import check_changeable
from bounds.lemma5.constants import closed_forms, evaluate_closed_forms, read_constants
from bounds.numbers.notation import column_table, ruled
from jax_models.run.evaluate import require_readout


class ConstantsOptions(Lengths, Weighted, Model, Read, Stored):
    """Options of the command."""

    DRAWS = lambda one: one.is_drawn


WIDTH = 88
# Header and key of each column of the report.
TABLE = (
    *((name, name) for name in ("n", "layer", "F", "A", "D", "abar")),
    *(("n_half", "log10_half_weight"), ("corrected", "log10_corrected")),
    *(("linear", "log10_corrected_linear"), ("C1", "log10_c1"), ("C2", "log10_c2")),
    *(("causal", "log10_causal"), ("tight", "log10_printed_tight")),
    ("printed", "log10_printed"),
)


def plan(options: ConstantsOptions) -> Work:
    """Work that evaluates the closed forms at every length."""
    lengths = options.lengths
    model = weighted_model(options, max_length=lengths[-1])
    if options.target == "logits":
        require_readout(model)
    check_changeable(lengths[0])
    named = name_model(options, model)
    asked = {"query": options.query, "target": options.target}
    depth = len(model.layers)

    def compute(n: int) -> dict[str, Any]:
        known = read_constants(model, n)
        layers = range(1, depth + 1)
        forms = (evaluate_closed_forms(known, layer=k, **asked) for k in layers)
        return closed_forms.record_rows(list(map(closed_forms.constants_row, forms)))

    def export(found: list[dict[str, Any]]) -> Exports:
        rows = [row for payload in found for row in closed_forms.read_rows(payload)]
        return Exports({**named, "rows": rows}, _report(rows, depth) + "\n")

    return LengthSweep(
        opening="",
        verb="evaluate",
        key={**asked, "dtype": model.dtype.name, **named},
        compute=compute,
        export=export,
    ).work(options)


def _report(rows: list[dict[str, Any]], depth: int) -> str:
    intro = (
        "Bounds on the influence of one symbol, for all inputs of n tokens, as decimal "
        f"logarithms; the last of {depth} layers is the output. F bounds what the "
        "attention reads, A (nats) half the range of a row of its logits, D the "
        "distance of two embeddings, abar a weight; n_half = 1 + e^(2A), a logarithm too, "
        "is the n at which the bound on a weight of a row of n is 1/2, about where "
        "constants begin to fall."
    )

    table = ruled(column_table(rows, TABLE, ".5g"))
    intro, *notes = (textwrap.fill(text, WIDTH) for text in (intro, *_notes(rows)))
    return "\n".join(["", intro, *table, *notes])


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """Sentences on conditions of the table's columns, one for each that applies."""
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
