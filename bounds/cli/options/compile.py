"""Compile a temporal-logic formula or an S-RASP program to a transformer file, and test it.

The syntax of formulas and the modes are in docs/logic.md, that of programs in docs/rasp.md.
`model.safetensors` is an ordinary model whose one logit is the truth of the formula at
every position, or whose logits are the program's result. `compile.json` has the formula as
printed or the program, what the model is made of, and the self-test:
all strings up to a length and random longer ones, compared with the evaluator at every
position. A disagreement is an error, and no model is written. A test that was passed is kept
in --out, and found there by the same command.
"""

import dataclasses

from bounds.cli.shared.groups import Computed, Stored
from bounds.cli.shared.options import option

_TEST = "jax_models.programs.logic.self_test"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileOptions(Computed, Stored):
    """Options of the command."""

    COMMAND = "compile"
    DRAWS = lambda one: one.self_test > 0

    formula: str | None = option(None, "The formula, as in 'P Q_a and #<[Q_b] >= 2'.")
    program: str | None = option(
        None,
        "Instead of a formula: file of an S-RASP program (docs/rasp.md).",
        file=True,
    )
    alphabet: str | None = option(
        None,
        "One character per symbol, ids in that order (ab), or names with commas "
        "(open,close).",
    )
    mode: str = option(
        "T",
        "Where sharp attention comes from: a temperature (T, TB, FT) or the position "
        "encoding (U, FU); FT and FU look back only.",
        "jax_models.programs.logic.modes:MODES",
        used_if=lambda one: one.program is None,
        otherwise="is of formulas: heads of a program are average-hard; leave it out",
    )
    self_test: int = option(
        8,
        "Compare the model with its formula or program on all strings up to this length "
        f"(as far as one has at most {{{_TEST}:MOST_STRINGS}}) and on random ones up to it "
        f"or to {{{_TEST}:LONGEST}}; 0 for no test.",
        least=0,
    )
