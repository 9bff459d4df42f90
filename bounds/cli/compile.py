"""A temporal-logic formula or a program as a transformer file, tested.

The syntax of formulas and the modes are in docs/logic.md, that of programs in docs/rasp.md.
`model.safetensors` is an ordinary model whose one logit is the truth of the formula at
every position, or whose logits are the program's result. `compile.json` has the formula as
printed or the program, what the model is made of, and the self-test:
all strings up to a length and random longer ones, compared with the evaluator at every
position. A disagreement is an error, and no model is written. A test that was passed is kept
in --out, and found there by the same command.

    --formula='P Q_a and #<[Q_b] >= 2' --alphabet=ab --mode=FU --out=results/formula
    --formula='P Q_a' --alphabet=ab --mode=FU --self_test=8 --out=results/tested
"""

from typing import Any

import jax_models as jm
from bounds.cli.shared.groups import Computed, Stored
from bounds.cli.shared.options import option
from bounds.cli.shared.runner import Exports, Work, model_exports
from bounds.store.output import sha256
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, found_rows
from jax_models.errors import InputError, errors_of
from jax_models.format.input_files import read_whole
from jax_models.programs.compiled import compile_formula_text, compile_program_text
from jax_models.programs.logic import MODES, read_alphabet
from jax_models.programs.logic.self_test import LONGEST, MOST_STRINGS
from jax_models.run.progress import tell


class CompileOptions(Computed, Stored):
    """Options of the command."""

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
        MODES,
        used_if=lambda one: one.program is None,
        otherwise="is of formulas: heads of a program are average-hard; leave it out",
    )
    self_test: int = option(
        8,
        "Compare the model with its formula or program on all strings up to this length "
        f"(as far as one has at most {MOST_STRINGS}) and on random ones up to it or to "
        f"{LONGEST}; 0 for no test.",
        least=0,
    )


def plan(options: CompileOptions) -> Work:
    """Work that tests the model of the formula or program, then writes it."""
    path, longest = options.program, options.self_test
    asked = "formula" if path is None else "program"
    for name, example in ((asked, "'Q_a S Q_b'"), ("alphabet", "ab")):
        if getattr(options, name) is None:
            raise InputError(f"--{name} is missing; give one, as in --{name}={example}")
    alphabet, dtype = read_alphabet(options.alphabet or ""), options.dtype
    if path is None:
        text, mode = options.formula or "", options.mode
        found = compile_formula_text(text, alphabet, mode, dtype, longest)
    else:
        text = read_whole("program", path)
        with errors_of(path):
            found = compile_program_text(text, alphabet, dtype, longest)
    digest = sha256(jm.model_bytes(found.model))
    key = {**options.key("self_test", "seed", "dtype"), **found.about}

    def compute() -> dict[str, Any]:
        report = lambda done, all_of, n: tell(f"{done} of {all_of} rounds, n = {n}")
        return {"self_test": found.test(longest, options.seed, report)}

    cell = Cell({**key, "model_sha256": digest}, "self-test", compute)
    cells = [cell] if longest else []

    def finish(store: ResultStore) -> Exports:
        tested = None
        for row in found_rows(store, cells):
            tested = row["self_test"]
        named = found.about.get("formula", path)
        report = lambda one: f"{named}\n{found.report(tested, one)}"
        return model_exports(found.model, found.record(tested), report)

    return Work(finish, cells, unit="self-tests", is_whole=True)
