"""A temporal-logic formula as a transformer file, tested."""

from typing import Any

import jax_models as jm
from bounds.cli.options.compile import CompileOptions
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.progress import tell
from bounds.cli.shared.runner import Exports, Work, model_exports
from bounds.store.forms import COUNT, each
from bounds.store.output import sha256
from bounds.store.sweep import Cell, Results, found_rows
from jax_models.errors import InputError
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from jax_models.programs.logic import format_formula, read_alphabet
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.logic.exactness import exact_length, require_exact
from jax_models.programs.logic.modes import get_mode, require_expressible
from jax_models.programs.logic.parser import locate_formula
from jax_models.programs.logic.self_test import (
    require_testable,
    run_self_test,
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
        asked = model, formula, alphabet, list(groups)
        return {"self_test": run_self_test(*asked, progress=_tell)}

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


def _tell(done: int, total: int, length: int) -> None:
    tell(f"{done} of {total} rounds, n = {length}")


def _description(model: jm.Transformer) -> dict[str, Any]:
    """Sizes and words of a compiled model, as in the config of its file."""
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
