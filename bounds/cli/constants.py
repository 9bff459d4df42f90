"""Every closed-form constant of a model, printed and corrected.

One row per length and layer in `constants.json`; the last layer's speaks of the output.
All bounds hold for every input of the length and every substitution, at a position that
is not the one exchanged. They are decimal logarithms, because the constants leave the
range of floats: null stands for a bound of zero, for one beyond any float, and for a
form that does not apply; the hypotheses of the row say of each null which it is. Lengths
are kept in --out as they are done, and the same command continues where it stopped.

    --lengths=16:4096:9 --scale=0.5 --out=results/small_weights
    --model=model.safetensors --lengths=64,1024 --out=results/mine
"""

from typing import Any

from bounds.cli.shared.groups import Lengths, Model, Read, Stored, Weighted
from bounds.cli.shared.runner import Exports, Work, sweep_lengths
from bounds.cli.shared.subject import name_model, weighted_model
from bounds.curves.inputs import check_changeable
from bounds.lemma5.constants import closed_forms
from jax_models.run.evaluate import require_readout


class ConstantsOptions(Lengths, Weighted, Model, Read, Stored):
    """Options of the command."""

    DRAWS = lambda one: one.is_drawn


def plan(options: ConstantsOptions) -> Work:
    """Work that evaluates the closed forms at every length."""
    lengths = options.lengths
    model = weighted_model(options, max_length=lengths[-1])
    if options.target == "logits":
        require_readout(model)
    check_changeable(lengths[0])
    named = name_model(options, model)
    asked: Any = {"query": options.query, "target": options.target}

    def compute(n: int) -> dict[str, Any]:
        return closed_forms.record_rows(closed_forms.constants_rows(model, n, **asked))

    def export(found: list[dict[str, Any]]) -> Exports:
        rows = [row for payload in found for row in closed_forms.read_rows(payload)]
        return Exports(
            {**named, "rows": rows}, closed_forms.constants_report(rows) + "\n"
        )

    return sweep_lengths(
        options,
        opening="",
        key={**asked, "dtype": model.dtype.name, **named},
        compute=compute,
        export=export,
    )
