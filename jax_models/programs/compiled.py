"""Formulas and programs compiled from texts: the model, its self-test, record and report."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from jax_models.model.transformer import Transformer
from jax_models.programs import rasp
from jax_models.programs.logic.compile import (
    compile_formula,
    exact_length,
    require_exact,
)
from jax_models.programs.logic.modes import get_mode, require_expressible
from jax_models.programs.logic.parser import format_formula, locate_formula
from jax_models.programs.logic.self_test import (
    require_testable,
    run_self_test,
    strings_to_test,
)
from jax_models.programs.rasp.compile import check_length
from jax_models.programs.rasp.self_test import run_self_test as run_program_test

Alphabet = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CompiledText:
    """Model compiled from a formula's or program's text, with functions to test it."""

    model: Transformer
    about: Mapping[str, Any]  # formula or program, alphabet, and the mode of a formula
    exact_length: int  # longest n up to which rounding changes no result
    run_test: Callable[..., dict[str, Any]]

    def test(
        self, longest: int, seed: int, progress: Callable[[int, int, int], None]
    ) -> dict[str, Any]:
        """Tests the model on all short and random longer strings; returns counts of them."""
        size = len(self.about["alphabet"]), longest, seed, self.exact_length
        return self.run_test(list(strings_to_test(*size)), progress)

    def record(self, tested: Mapping[str, Any] | None) -> dict[str, Any]:
        """JSON entries: source text, sizes of the model, counts of its self-test."""
        model, config = self.model, encode_config(self.model, name_tensors(self.model))
        return {
            **self.about,
            "num_layers": len(model.layers),
            "num_heads": [layer.attention.num_heads for layer in model.layers],
            "d_model": model.width,
            "d_ff": [len(layer.feed_forward.w1) for layer in model.layers],
            "masks": [layer["mask"] for layer in config["layers"]],
            "position": config.get("position"),
            "temperature": [layer.get("temperature") for layer in config["layers"]],
            "exact_length": self.exact_length,
            "self_test": tested,
        }

    def report(self, tested: Mapping[str, Any] | None, digest: str) -> str:
        """Text on the model, the length up to which it is exact, and its self-test."""
        model, heads = self.model, [x.attention.num_heads for x in self.model.layers]
        mode, flips = "", "change a result"
        if "mode" in self.about:
            mode, flips = f"mode {self.about['mode']}, ", "flip a truth value"
        lines = [
            f"model.safetensors: {mode}L = {len(heads)}, heads {sum(heads)}, "
            f"d = {model.width}, SHA-256 {digest}",
            f"In {model.dtype} rounding cannot {flips} up to n = {self.exact_length}",
        ]
        if tested is None:
            return "\n".join([*lines, "Not tested."])
        lines.append(
            f"Self-test: {tested['strings']} strings (all up to n = "
            f"{tested['all_strings_up_to']}, random up to n = {tested['lengths'][-1]}), "
            f"0 of {tested['positions']} positions differ"
        )
        if "margin" in tested:
            lines[-1] += (
                f", margin {tested['margin']:.6g} at position "
                f"{tested['margin_position']} of {tested['margin_string']}"
            )
        return "\n".join(lines)


def compile_formula_text(
    text: str, alphabet: Alphabet, mode: str, dtype: str, longest: int
) -> CompiledText:
    """Compiles a formula; `InputError` unless exact and testable at n = `longest`."""
    formula, places = locate_formula(text, alphabet)
    require_expressible(
        formula, alphabet, get_mode(mode), lambda part: str(places[part])
    )
    model = compile_formula(formula, alphabet, mode, dtype=dtype)
    require_exact(model, longest)
    require_testable(model, longest)
    about = {"formula": format_formula(formula), "alphabet": alphabet, "mode": mode}
    test = partial(run_self_test, model, formula, alphabet)
    return CompiledText(model, about, exact_length(model), test)


def compile_program_text(
    text: str, alphabet: Alphabet, dtype: str, longest: int
) -> CompiledText:
    """Compiles a program; `InputError` unless exact and testable at n = `longest`."""
    program = rasp.check_program(text, alphabet)
    plan = rasp.plan_program(program)
    check_length(plan, max(1, longest), dtype)
    model = rasp.build_model(plan, dtype)
    require_testable(model, longest)
    test = partial(run_program_test, model, plan, program)
    exact = rasp.longest_exact_length(plan, dtype)
    return CompiledText(model, {"program": text, "alphabet": alphabet}, exact, test)
