"""Refuses rows that vanish before a norm of epsilon 0, which divides by rounding then.

A row is a token's activation vector; it vanishes if the number that the norm divides it
by is no larger than rounding. A substitution replaces one token, its influence is the
norm of the output's change. Checked are the input, each substitute's row before the
first attention, and the substitutions of the largest influence, of the largest upper
bound and of any influence that is not finite.
"""

from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import reaching
from bounds.rounding.moved_inputs import move_apart
from jax_models import InputError, Transformer
from jax_models.model.layer import Layer
from jax_models.model.rows import Norm
from jax_models.model.transformer import (
    apply_layer,
    embed,
    encode_positions,
    of_input,
    symbol_rows,
)

# Pairs whose rows are formed at once.
PAIRS = 1 << 14


def refuse_vanishing_rows(request: InfluenceRequest, *at: int) -> None:
    """Raises if a row vanishes in input or substitutes, or under substitutions `at`."""
    model, tokens, pairs = request.model, request.tokens, request.pairs
    if not isinstance(model, Transformer):
        return
    norms = [x for layer in model.layers for x in (layer.norm1, layer.norm2)]
    if not any(_divides(norm) for norm in (*norms, model.final_norm)):
        return
    if request.deletes:  # rows of shorter inputs are not looked at
        at = ()
    # Each float by its epsilon: a model is refused in every run or in none.
    moved = move_apart(model, 1, lambda unit: 2 * unit)
    both, told = (model, moved), "with symbol {} put in, the "
    for one in at:
        changed = np.array(tokens)
        changed[pairs.position[one]] = pairs.symbol[one]
        _check_input(request, both, changed, told.format(pairs.symbol[one]))
    if not at:
        _check_input(request, both, tokens, "the ")
    if at or request.deletes:
        return
    # Where the first layer begins with a norm, that norm reads the substitute's own row,
    # which is cheap to form for all substitutions.
    first = [step.operation for x in model.layers[:1] for step in x.reads.steps]
    if not first or not _divides(norm := first[0]):
        return
    for start in range(0, len(pairs), PAIRS):
        some = pairs.only(slice(start, start + PAIRS))
        rows = (_put_in(x, tokens, some.position, some.symbol) for x in both)
        lost = _vanished(norm, *rows) & _seen(request)[some.position]
        for position, symbol in zip(
            some.position[lost], some.symbol[lost], strict=True
        ):
            raise _refusal(told.format(symbol), position, "norm1 of layer 0")


def not_finite(request: InfluenceRequest, at: int) -> InputError:
    """`InputError` for the non-finite influence `at`; raises another if a row vanishes."""
    refuse_vanishing_rows(request, at)
    position, symbol = request.pairs[at]
    edit = "deleted," if request.deletes else f"symbol {symbol}"
    return InputError(
        f"the influence of position {position}, {edit} is not a finite number: "
        "the model overflows or divides by zero"
    )


def _refusal(told: str, position: int, norm: str) -> InputError:
    return InputError(
        f"{told}row at position {position} vanishes before {norm}, whose epsilon is 0: "
        "what is left to divide by is rounding; give the norm a positive epsilon, or "
        "change the input"
    )


def _seen(request: InfluenceRequest) -> Bool[np.ndarray, "tokens"]:
    """True at positions on which some watched output row may depend through all layers."""
    sights = [layer.attention.sight for layer in request.model.layers]
    # One more row where a span begins, one less behind its end.
    spans = np.zeros(request.tokens.size + 1, int)
    first, last = reaching(sights, request.tokens.size, request.rows)
    np.add.at(spans, first, 1)
    np.add.at(spans, last + 1, -1)
    return spans.cumsum()[:-1] > 0


def _check_input(
    request: InfluenceRequest, both: Any, tokens: Int[np.ndarray, "tokens"], told: str
) -> None:
    layers = request.model.layers
    found, moved = (_entering(x, jnp.asarray(tokens)) for x in both)
    for (depth, of_read, name), rows in found.items():
        above = depth == len(layers)
        norm = getattr(request.model if above else layers[depth], name)
        lost = _vanished(norm, rows, moved[depth, of_read, name])
        # Of the last layer's own norms only the rows count that are read.
        lost &= (
            np.isin(np.arange(lost.size), request.rows) if of_read else _seen(request)
        )
        if lost.any():
            norm = "the final norm" if above else f"{name} of layer {depth}"
            raise _refusal(told, int(np.argmax(lost)), norm)


def _vanished(
    norm: Norm, rows: Float[Array, "rows width"], moved: Float[Array, "rows width"]
) -> Bool[np.ndarray, "rows"]:
    """True for rows whose divisor is rounding only, judged by `moved`, off by roundings."""
    centred = norm.centre(rows)
    size, change, whole = (
        np.sqrt(np.square(np.asarray(x, np.float64)).mean(axis=-1))
        for x in (centred, centred - norm.centre(moved), rows)
    )
    # A sum of d entries, and so their mean, is off by up to d roundings of the row's size.
    of_mean = rows.shape[-1] * float(jnp.finfo(rows.dtype).eps) * whole
    # Negated, so that a change that is NaN counts as vanishing.
    return np.isfinite(size) & ~(size > np.maximum(2 * change, of_mean))


def _divides(operation: Any) -> TypeGuard[Norm]:
    return isinstance(operation, Norm) and operation.epsilon == 0


@jax.jit
def _put_in(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    at: Int[Array, "substitutions"],
    symbols: Int[Array, "substitutions"],
) -> Float[Array, "substitutions width"]:
    """Input rows of the first layer at positions `at` with `symbols` put in."""
    model = of_input(model, tokens)
    places = encode_positions(model, tokens.shape[0])[at]
    return symbol_rows(model, symbols, places)


@jax.jit
def _entering(
    model: Transformer, tokens: Int[Array, "tokens"]
) -> dict[tuple[int, bool, str], Float[Array, "tokens width"]]:
    """Rows that enter norms of epsilon 0, by (layer, True if only read rows count, norm)."""
    # By the layer, whether only the rows count whose final activation is read, and the
    # norm's name.
    found, y = {}, embed(model, tokens)
    hidden = None if model.padding is None else model.padding.hides(tokens)
    for depth, layer in enumerate(model.layers):
        last = depth == len(model.layers) - 1
        (y, entering), _ = apply_layer(layer, y, None, hidden, _combine)
        read_first = [step.operation for step in layer.reads.steps]
        for name, rows in entering.items():
            attended = any(x is getattr(layer, name) for x in read_first)
            found[depth, last and not attended, name] = rows
    if _divides(model.final_norm):
        found[len(model.layers), True, "final_norm"] = y
    return found


def _combine(
    layer: Layer,
    rows: Float[Array, "tokens width"],
    heads: Float[Array, "tokens concatenated"],
) -> tuple[Float[Array, "tokens width"], dict[str, Float[Array, "tokens width"]]]:
    """Output rows of a layer, and rows that enter its norms with epsilon 0, by name."""
    entering, written = {}, {}
    for program in (layer.reads, layer.writes):
        written = program.value({"y": rows, "heads": heads})
        for step in program.steps:
            if _divides(step.operation):
                name = "norm1" if step.operation is layer.norm1 else "norm2"
                (entering[name],) = (written[x] for x in step.inputs)
    return written[layer.writes.output], entering
