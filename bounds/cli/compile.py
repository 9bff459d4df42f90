"""Compile a temporal-logic formula to a transformer file, and test it.

The syntax of formulas and the modes are in docs/logic.md. `model.safetensors` is an
ordinary model whose one logit is the truth of the formula at every position;
`compile.json` has the formula as printed, what the model is made of, and the self-test:
all strings up to a length and random longer ones, compared with the evaluator at every
position. A disagreement is an error, and no model is written. A test that was passed is kept
in --out, and found there by the same command.
"""

from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

import jax_models as jm
from bounds.cli.shared import flags as shared
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.record import Output
from bounds.cli.shared.values import define_count
from bounds.store.forms import COUNT, each
from bounds.store.output import sha256
from bounds.store.sweep import Cell, found_rows, missing_cells, run_cells
from bounds.version import __version__
from jax_models.errors import InputError
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from jax_models.programs.logic import (
    Formula,
    format_formula,
    read_alphabet,
)
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.logic.exactness import exact_length, require_exact
from jax_models.programs.logic.modes import MODES, get_mode, require_expressible
from jax_models.programs.logic.parser import locate_formula
from jax_models.programs.logic.self_test import (
    LONGEST,
    MOST_STRINGS,
    Margin,
    check_strings_of_model,
    eager_logits,
    engine_logits,
    require_testable,
    spell,
    strings_to_test,
)

# Of a self-test.
FORM = {
    **each("all_strings_up_to strings strings_in_engine positions mismatches", COUNT),
    **each("lengths margin_tokens", [COUNT]),
    **{"margin": float, "margin_string": str, "margin_position": COUNT},
    "=": lambda found: len(found["lengths"]) > 0,
}


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    flags.DEFINE_string(
        "formula",
        None,
        "The formula, as in 'P Q_a and #<[Q_b] >= 2'.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "alphabet",
        None,
        "One character per symbol, ids in that order (ab), or names with commas "
        "(open,close).",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "mode",
        "T",
        tuple(MODES),
        "Where sharp attention comes from: a temperature (T, TB, FT) or the position "
        "encoding (U, FU); FT and FU look back only.",
        flag_values=values,
    )
    define_count(
        values,
        "self_test",
        8,
        "Compare model and formula on all strings up to this length (as far as a length "
        f"has at most {MOST_STRINGS}) and on random ones up to it or to {LONGEST}; "
        "0 for no test.",
        0,
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "compile")
    shared.define_store(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Compile the formula, test the model and write both."""
    for name, example in (("formula", "'Q_a S Q_b'"), ("alphabet", "ab")):
        if options[name].value is None:
            raise InputError(f"--{name} is missing; give one, as in --{name}={example}")
    prepare_jax(options)
    alphabet = read_alphabet(options.alphabet)
    formula, places = locate_formula(options.formula, alphabet)
    require_expressible(
        formula,
        alphabet,
        get_mode(options.mode),
        lambda part: str(places[part]),
    )
    model = compile_formula(formula, alphabet, options.mode, dtype=options.dtype)
    require_exact(model, options.self_test)
    require_testable(model, options.self_test)
    output = Output.of("compile", options)
    tested = None
    if options.self_test:
        config = {
            "command": "compile",
            "version": __version__,
            "formula": format_formula(formula),
            "alphabet": alphabet,
            "mode": options.mode,
            "self_test": options.self_test,
            "seed": options.seed,
            "dtype": options.dtype,
            "model_sha256": sha256(jm.model_bytes(model)),
        }
        tested = _tested(output, config, model, formula)
    about = {
        "formula": format_formula(formula),
        "alphabet": alphabet,
        "mode": options.mode,
        **_description(model),
        "exact_length": exact_length(model),
        "self_test": tested,
    }
    with output.exports() as staged:
        record = staged.write_model(model, about)
    print(_report(record, output.path("")))


def _description(model: jm.Transformer) -> dict[str, Any]:
    """Returns what a compiled model is made of, as the file's config names it."""
    config = encode_config(model, name_tensors(model))
    layers = config["layers"]
    return {
        "num_layers": len(model.layers),
        "num_heads": [layer.attention.num_heads for layer in model.layers],
        "d_model": model.width,
        "d_ff": [len(layer.feed_forward.w1) for layer in model.layers],
        "masks": [layer["mask"] for layer in layers],
        "position": config.get("position"),
        "temperature": [layer.get("temperature") for layer in layers],
    }


def _tested(
    output: Output, config: dict[str, Any], model: jm.Transformer, formula: Formula
) -> dict[str, Any]:
    """Returns the self-test, from the store where this model passed it before.

    Raises:
        InputError: The model errs somewhere.
    """
    alphabet = config["alphabet"]

    def compute() -> dict[str, Any]:
        groups = strings_to_test(
            len(alphabet), config["self_test"], config["seed"], exact_length(model)
        )
        found = _self_test(model, formula, alphabet, list(groups))
        return {"self_test": found}

    with output.open_store() as store:
        cell = Cell(config, "self-test", compute, form={"self_test": FORM})
        todo = missing_cells(store, [cell], fresh=output.fresh)
        if not todo:
            print("The self-test is in the store", flush=True)
        for failure in run_cells(store, todo):
            raise InputError(failure.message)
        (found,) = found_rows(store, [cell])
    return found["self_test"]


def _self_test(
    model: jm.Transformer,
    formula: Formula,
    alphabet: tuple[str, ...],
    groups: list[tuple[np.ndarray, bool]],
) -> dict[str, Any]:
    """Returns what was tested and the margin, of strings and whether they are all.

    Raises:
        InputError: The model errs somewhere.
    """
    complete = [strings for strings, is_all in groups if is_all]
    # NumPy takes the bulk. What is run is the engine: it takes the last strings of the
    # longest complete length, whose pass compiles once, and one of the longest.
    engine = [groups[-1][0][:1]]
    if complete:
        engine.insert(0, complete[-1][-8:])
    rounds = [(strings, eager_logits) for strings, _ in groups]
    rounds += [(strings, engine_logits) for strings in engine]
    margins: list[Margin] = []
    with Progress(len(rounds), "lengths") as progress:
        for strings, logits_of in rounds:
            margins.append(
                check_strings_of_model(model, formula, alphabet, strings, logits_of)
            )
            progress.advance(f"n = {strings.shape[1]}")
    least = min(margins, key=lambda margin: margin.value)
    return {
        "all_strings_up_to": complete[-1].shape[1] if complete else 0,
        "lengths": [strings.shape[1] for strings, _ in groups],
        "strings": sum(len(strings) for strings, _ in groups),
        "strings_in_engine": sum(map(len, engine)),
        "positions": sum(strings.size for strings, _ in groups),
        "mismatches": 0,
        "margin": least.value,
        "margin_string": spell(least.string, alphabet),
        "margin_tokens": least.string,
        "margin_position": least.position,
    }


def _report(record: dict[str, Any], folder: Path) -> str:
    lines = [
        f"{record['formula']}",
        f"{folder / 'model.safetensors'}: mode {record['mode']}, "
        f"L = {record['num_layers']}, heads {sum(record['num_heads'])}, "
        f"d = {record['d_model']}, SHA-256 {record['model_sha256']}",
        f"In {record['dtype']} rounding cannot flip a truth value up to "
        f"n = {record['exact_length']}",
    ]
    tested = record["self_test"]
    if tested is None:
        return "\n".join([*lines, "Not tested."])
    lines.append(
        f"Self-test: {tested['strings']} strings (all up to n = "
        f"{tested['all_strings_up_to']}, random up to n = {tested['lengths'][-1]}), "
        f"0 of {tested['positions']} positions differ, margin {tested['margin']:.6g} at "
        f"position {tested['margin_position']} of {tested['margin_string']}"
    )
    return "\n".join(lines)
