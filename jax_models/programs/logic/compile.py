"""Formulas as transformers: compile them, read their truth off the activations."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from jax_models.arguments import check_alphabet, expect_kind
from jax_models.model.attention import Schedule
from jax_models.model.layer import Layer
from jax_models.model.position import Coordinates
from jax_models.model.readout import Accept
from jax_models.model.temperature import PowerTemperature
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    Head,
    Neuron,
    build_layer,
    build_readout,
    embed_symbols,
)
from jax_models.programs.logic.exactness import require_compiled, require_exact
from jax_models.programs.logic.modes import Mode, get_mode, require_expressible
from jax_models.programs.logic.schedule import (
    FormulaPlan,
    PlannedHead,
    PlannedLayer,
    Terms,
    schedule_plan,
)
from jax_models.programs.logic.syntax import Formula
from jax_models.programs.logic.translate import plan_formula
from jax_models.run.evaluate import apply_logits, check_tokens
from jax_models.run.float_type import check_float_type
from jax_models.weighting import Softmax


def build_transformer(
    plan: FormulaPlan,
    layers: tuple[PlannedLayer, ...],
    alphabet: tuple[str, ...],
    # for its temperature
    mode: Mode,
    dtype: Any,
) -> Transformer:
    """Returns the transformer of a plan: one logit, the truth of the formula from 1/2."""
    check_float_type(dtype, "the model asked for")
    width = len(plan.coordinates)
    symbols = [
        {c: one.symbols[at] for c, one in enumerate(plan.coordinates)}
        for at in range(len(alphabet))
    ]
    terms = tuple(term for one in plan.coordinates for term in one.terms)
    return Transformer(
        embedding=embed_symbols(symbols, width, dtype),
        position=Coordinates(terms) if terms else None,
        layers=tuple(_build_layer(layer, width, mode, dtype) for layer in layers),
        readout=build_readout({plan.output: 1.0}, width, dtype),
        accept=Accept(0, 0.5),
        vocabulary=alphabet,
        substitutable=tuple(range(len(alphabet))),
    )


def _build_layer(layer: PlannedLayer, width: int, mode: Mode, dtype: Any) -> Layer:
    alike: dict[tuple[tuple[Terms, ...], tuple[Terms, ...]], list[PlannedHead]] = {}
    for head in layer.heads:
        alike.setdefault((head.query, head.key), []).append(head)
    temperature: Schedule | None = None
    if layer.exponent:
        assert mode.temperature is not None
        # A rank-0 array of the model's type, as a loaded model has it.
        temperature = PowerTemperature(
            jnp.asarray(np.ones(()), dtype), -layer.exponent, of=mode.temperature
        )
    return build_layer(
        width,
        weighting=Softmax(),
        mask=layer.mask,
        temperature=temperature,
        heads=[
            Head(
                query=list(map(dict, query)) or [{}],
                key=list(map(dict, key)) or [{}],
                value=[dict(head.value) for head in heads],
                write=[dict(head.write) for head in heads],
            )
            for (query, key), heads in alike.items()
        ],
        neurons=[Neuron(dict(one.read), dict(one.write)) for one in layer.neurons],
        dtype=dtype,
    )


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
        formula: the formula (`jax_models.programs.logic`).
        alphabet: the symbols in the order of their ids.
        mode: what the model may use: T, TB, U, FT or FU (`jax_models.programs.logic.MODES`).
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


def truth_values(model: Transformer, tokens: Any) -> Bool[np.ndarray, "tokens"]:
    """Returns whether the formula of a compiled model holds at each position.

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
