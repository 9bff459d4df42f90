"""A temporal-logic formula as a transformer file, tested."""

from typing import Any

import numpy as np

import jax_models as jm
from bounds.cli.options.compile import CompileOptions
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.runner import Exports, Work, model_exports
from bounds.store.forms import COUNT, each
from bounds.store.output import sha256
from bounds.store.sweep import Cell, Results, found_rows
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
from jax_models.programs.logic.modes import get_mode, require_expressible
from jax_models.programs.logic.parser import locate_formula
from jax_models.programs.logic.self_test import (
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


def plan(options: CompileOptions) -> Work:
    """The model of the formula, and its self-test."""
    for name, example in (("formula", "'Q_a S Q_b'"), ("alphabet", "ab")):
        if getattr(options, name) is None:
            raise InputError(f"--{name} is missing; give one, as in --{name}={example}")
    assert options.formula is not None
    assert options.alphabet is not None
    prepare_jax(options)
    alphabet = read_alphabet(options.alphabet)
    formula, places = locate_formula(options.formula, alphabet)
    mode = get_mode(options.mode)
    require_expressible(formula, alphabet, mode, lambda part: str(places[part]))
    model = compile_formula(formula, alphabet, options.mode, dtype=options.dtype)
    require_exact(model, options.self_test)
    require_testable(model, options.self_test)
    about = {
        "formula": format_formula(formula),
        "alphabet": alphabet,
        "mode": options.mode,
    }
    config = {
        **options.key("self_test", "seed", "dtype"),
        **about,
        "model_sha256": sha256(jm.model_bytes(model)),
    }

    def compute() -> dict[str, Any]:
        groups = strings_to_test(
            len(alphabet), options.self_test, options.seed, exact_length(model)
        )
        return {"self_test": _self_test(model, formula, alphabet, list(groups))}

    cell = Cell(config, "self-test", compute, form={"self_test": FORM})

    def finish(store: Results) -> Exports:
        found = found_rows(store, [cell] if options.self_test else [])
        tested = found[0]["self_test"] if found else None
        said = {**about, **_description(model), "exact_length": exact_length(model)}
        said["self_test"] = tested
        return model_exports(
            model, said, lambda digest: _report(said, options.dtype, digest)
        )

    cells = [cell] if options.self_test else []
    return Work(finish, cells, verb="run", unit="self-tests", is_whole=True)


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


def _report(record: dict[str, Any], dtype: str, digest: str) -> str:
    lines = [
        f"{record['formula']}",
        f"model.safetensors: mode {record['mode']}, "
        f"L = {record['num_layers']}, heads {sum(record['num_heads'])}, "
        f"d = {record['d_model']}, SHA-256 {digest}",
        f"In {dtype} rounding cannot flip a truth value up to "
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
