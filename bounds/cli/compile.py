"""Compile a temporal-logic formula or an S-RASP program to a transformer file, and test it.

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

from collections.abc import Callable
from functools import partial
from typing import Any

import jax_models as jm
from bounds.cli.shared.groups import Computed, Stored
from bounds.cli.shared.input_source import read_whole
from bounds.cli.shared.options import option
from bounds.cli.shared.progress import tell
from bounds.cli.shared.runner import Exports, Work, model_exports
from bounds.store.output import sha256
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, found_rows
from jax_models.errors import InputError, errors_of
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from jax_models.programs import rasp
from jax_models.programs.logic import format_formula, read_alphabet
from jax_models.programs.logic.compile import (
    compile_formula,
    exact_length,
    require_exact,
)
from jax_models.programs.logic.modes import MODES, get_mode, require_expressible
from jax_models.programs.logic.parser import locate_formula
from jax_models.programs.logic.self_test import (
    LONGEST,
    MOST_STRINGS,
    require_testable,
    run_self_test,
    strings_to_test,
)
from jax_models.programs.rasp.compile import check_length
from jax_models.programs.rasp.self_test import run_self_test as test_program


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


# A model, columns on its origin, the longest n that it is exact to, and its test on the
# groups of `strings_to_test`, which reports its rounds.
Compiled = tuple[jm.Transformer, dict[str, Any], int, Callable[..., dict[str, Any]]]


def plan(options: CompileOptions) -> Work:
    """Work that tests the model of the formula or program, then writes it."""
    asked = "formula" if options.program is None else "program"
    for name, example in ((asked, "'Q_a S Q_b'"), ("alphabet", "ab")):
        if getattr(options, name) is None:
            raise InputError(f"--{name} is missing; give one, as in --{name}={example}")
    alphabet = read_alphabet(options.alphabet or "")
    build = _of_formula if options.program is None else _of_program
    model, about, most, test = build(options, alphabet)
    require_testable(model, options.self_test)
    config = {
        **options.key("self_test", "seed", "dtype"),
        **about,
        "model_sha256": sha256(jm.model_bytes(model)),
    }

    def compute() -> dict[str, Any]:
        size = len(alphabet), options.self_test, options.seed, most
        report = lambda done, all_of, n: tell(f"{done} of {all_of} rounds, n = {n}")
        return {"self_test": test(list(strings_to_test(*size)), report)}

    cells = [Cell(config, "self-test", compute)] if options.self_test else []

    def finish(store: ResultStore) -> Exports:
        config = encode_config(model, name_tensors(model))
        record = {
            **about,
            "num_layers": len(model.layers),
            "num_heads": [layer.attention.num_heads for layer in model.layers],
            "d_model": model.width,
            "d_ff": [len(layer.feed_forward.w1) for layer in model.layers],
            "masks": [layer["mask"] for layer in config["layers"]],
            "position": config.get("position"),
            "temperature": [layer.get("temperature") for layer in config["layers"]],
            "exact_length": most,
            "self_test": None,
        }
        record.update(*found_rows(store, cells))
        return model_exports(model, record, partial(_report, record, options))

    return Work(finish, cells, unit="self-tests", is_whole=True)


def _of_program(options: CompileOptions, alphabet: tuple[str, ...]) -> Compiled:
    text = read_whole("program", path := options.program or "")
    with errors_of(path):
        program = rasp.check_program(text, alphabet)
        plan = rasp.plan_program(program)
        check_length(plan, max(1, options.self_test), options.dtype)
    model = rasp.build_model(plan, options.dtype)
    longest = rasp.longest_exact_length(plan, options.dtype)
    test = partial(test_program, model, plan, program)
    return model, {"program": text, "alphabet": alphabet}, longest, test


def _of_formula(options: CompileOptions, alphabet: tuple[str, ...]) -> Compiled:
    formula, places = locate_formula(options.formula or "", alphabet)
    mode = get_mode(options.mode)
    require_expressible(formula, alphabet, mode, lambda part: str(places[part]))
    model = compile_formula(formula, alphabet, options.mode, dtype=options.dtype)
    require_exact(model, options.self_test)
    test = partial(run_self_test, model, formula, alphabet)
    about = {"formula": format_formula(formula), "alphabet": alphabet}
    return model, {**about, "mode": options.mode}, exact_length(model), test


def _report(record: dict[str, Any], options: CompileOptions, digest: str) -> str:
    mode = f"mode {record['mode']}, " if "mode" in record else ""
    flips = "flip a truth value" if "mode" in record else "change a result"
    lines = [
        record.get("formula") or f"{options.program}",
        f"model.safetensors: {mode}"
        f"L = {record['num_layers']}, heads {sum(record['num_heads'])}, "
        f"d = {record['d_model']}, SHA-256 {digest}",
        f"In {options.dtype} rounding cannot {flips} up to n = {record['exact_length']}",
    ]
    tested = record["self_test"]
    if tested is None:
        return "\n".join([*lines, "Not tested."])
    lines.append(
        f"Self-test: {tested['strings']} strings (all up to n = "
        f"{tested['all_strings_up_to']}, random up to n = {tested['lengths'][-1]}), "
        f"0 of {tested['positions']} positions differ"
    )
    if "margin" in tested:
        lines[-1] += (
            f", margin {tested['margin']:.6g} at position {tested['margin_position']} of "
            f"{tested['margin_string']}"
        )
    return "\n".join(lines)
