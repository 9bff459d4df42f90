"""Formulas as transformers: compile them, read their truth off the activations."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_models.alphabet import check_alphabet
from jax_models.arguments import expect_kind
from jax_models.evaluate import apply_logits, check_tokens
from jax_models.logic.exactness import require_compiled, require_exact
from jax_models.logic.modes import get_mode
from jax_models.logic.requirements import require_expressible
from jax_models.logic.schedule import schedule_plan
from jax_models.logic.syntax import Formula
from jax_models.logic.translate import plan_formula
from jax_models.logic.weights import build_transformer
from jax_models.transformer import Transformer


def compile_formula(
    formula: Formula,
    alphabet: Sequence[str],
    mode: str,
    *,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns the softmax transformer that decides a formula at every position.

    The logit of a position is 1 where the formula holds and 0 where it does not, exactly:
    every sub-formula has a coordinate of its own, which a layer rounds to a Boolean. A
    string is accepted if the formula holds at its last position.

    Args:
        formula: the formula (`jax_models.logic`).
        alphabet: the symbols in the order of their ids.
        mode: what the model may use: T, TB, U, FT or FU (`jax_models.logic.MODES`).
        dtype: float32 or float64.

    Returns:
        The model; `truth_values` reads it.

    Raises:
        InputError: for an unknown mode, an alphabet that is none, a formula that the mode
            cannot express (with all reasons), integers beyond the float type, or
            float64 without x64.

    Source:
        Yang, Strobl, Chiang & Angluin 2024, Theorems 12-23;
        docs/logic.md, section 6.
    """
    symbols = check_alphabet(alphabet)
    chosen = get_mode(mode)
    expect_kind("formula", formula, Formula, "one, such as parse_formula returns")
    require_expressible(formula, symbols, chosen)
    plan = plan_formula(formula, symbols, chosen)
    layers = schedule_plan(plan)
    model = build_transformer(plan, layers, symbols, chosen, dtype)
    require_exact(model, 1)
    return model


def truth_values(model: Transformer, tokens: Any) -> np.ndarray:
    """Returns whether the formula of a compiled model holds at each position [n].

    Args:
        model: from `compile_formula`, or saved and loaded.
        tokens: integers in [0, V) [n].

    Returns:
        Booleans [n].

    Raises:
        InputError: beyond the length up to which rounding cannot flip a truth value
            (`exact_length`), for tokens that do not fit the model, or a model that is
            not compiled from a formula.
    """
    require_compiled(model)
    checked = check_tokens(model.vocab_size, tokens)
    require_exact(model, checked.shape[0])
    return np.asarray(apply_logits(model, checked)[:, 0] >= 0.5)
