"""Tests of a compiled program's model against `evaluate_program`, string by string."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_models.errors import InputError
from jax_models.model.transformer import Transformer
from jax_models.programs.logic.self_test import count_strings, spell
from jax_models.programs.rasp.compile import read_result
from jax_models.programs.rasp.lower import ProgramPlan
from jax_models.programs.rasp.semantics import evaluate_program
from jax_models.programs.rasp.syntax import CheckedProgram
from jax_models.run.evaluate import apply_logits


def run_self_test(
    model: Transformer,
    plan: ProgramPlan,
    program: CheckedProgram,
    groups: Sequence[tuple[Int[np.ndarray, "_ _"], bool]],
    progress: Callable[[int, int, int], None] = lambda done, total, length: None,
) -> dict[str, Any]:
    """Tests a model; returns counts of strings by length; `InputError` at a mismatch."""
    for done, (strings, _) in enumerate(groups, 1):
        logits = np.array([np.asarray(apply_logits(model, row)) for row in strings])
        found, expected = read_result(plan, logits), evaluate_program(program, strings)
        for row, i in np.argwhere(found != expected)[:1]:
            raise InputError(
                f"the compiled model errs: at position {i} of "
                f"{spell(strings[row], plan.alphabet)} it gives {found[row, i]}, the "
                f"program {expected[row, i]}; report it"
            )
        progress(done, len(groups), strings.shape[1])
    return count_strings(groups)
