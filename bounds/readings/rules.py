"""Readings of row programs: functions with one rule for each class of operation.

A reading is a `functools.singledispatch` over operations. It refuses by name the
operations it has no rule for, and so do the methods that need it, before they begin
(`unsupported_operation`).
"""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from jax_models import InputError
from jax_models.model.attention import WINDOW
from jax_models.model.layer import Layer
from jax_models.model.position import PairTable, PositionTable
from jax_models.model.rows import Norm, Operation
from jax_models.model.transformer import Transformer


def no_rule(reading: str, operation: Operation) -> InputError:
    """Error of a reading without a rule for an operation."""
    return InputError(_said(reading, operation) + "; use a method that does without")


def unsupported_attention(
    layers: tuple[Layer, ...], known: tuple[str, ...] = ()
) -> str | None:
    """Reason that a part of attention has no rule, or None.

    Forward passes and exact changes use `jax_models.model.attending`, which has all parts;
    `known` names the parts that the method follows itself.
    """
    for depth, layer in enumerate(layers):
        for piece in layer.attention.pieces:
            if piece in known:
                continue
            return f"it needs a rule for {piece}, which layer {depth} has, and has none"
    return None


def unsupported_dropout(model: Transformer) -> str | None:
    """Reason that a method that moves one row first is unsupported, or None.

    The model is that of one input where no substitution changes its scale of embeddings.
    """
    dropout = model.token_dropout
    if isinstance(model.position, PairTable):
        return (
            "it needs all but one row to stay, and tokens are of the second type behind "
            f"symbol {model.position.separator}, the model's separator"
        )
    if dropout is None or dropout.scale is not None:
        return None
    return (
        f"it needs all but one row to stay, and the scale of the model's embeddings goes "
        f"with how many tokens are symbol {dropout.mask}, its mask"
    )


def unsupported_model(model: Transformer) -> str | None:
    """Reason that methods without rules for the model's parts refuse it, or None."""
    if isinstance(model.position, PairTable):
        return unsupported_dropout(model)
    if model.token_dropout is not None:
        return "it begins with embeddings, and the model's are scaled by the input"
    if model.entry is not None:
        names = (type(x).__name__ for x in model.entry.operations)
        return (
            f"it begins with embeddings and positions, and the model has "
            f"{' and '.join(names)} behind them"
        )
    if model.padding is not None:
        padding = model.padding.symbol
        return f"it takes every symbol for one that rows see, and {padding} is padding"
    return unsupported_attention(model.layers)


def of_one_text(model: Transformer, symbols: Collection[int]) -> Transformer:
    """The model for inputs of some symbols: tokens of the first type alone.

    Where the separator of pairs is among the symbols, the model is unchanged.
    """
    table = model.position
    if not isinstance(table, PairTable) or table.separator in symbols:
        return model
    return dataclasses.replace(model, position=PositionTable(table.table))


def unsupported_operation(
    layers: tuple[Layer, ...],
    reading: Callable[..., Any],
    apart: type[Operation] | tuple[()] = (),
) -> str | None:
    """Reason that a reading, or attention's, has no rule for a layer, or None.

    `reading` is a `functools.singledispatch` over operations that are not linear, without
    those of the classes `apart`.
    """
    # What goes by readings asks what each row sees, position by position.
    if found := unsupported_attention(layers, known=(WINDOW,)):
        return found
    of: Any = reading
    for layer in layers:
        for operation in layer.operations:
            if operation.linear or isinstance(operation, apart):
                continue
            if of.dispatch(type(operation)) is of.dispatch(object):
                return _said(of.__name__, operation)
    return None


def norm_before(layer: Layer) -> Norm | None:
    """The norm in front of a layer's attention, or None; an error for anything else."""
    match [step.operation for step in layer.reads.steps]:
        case []:
            return None
        case [Norm() as norm]:
            return norm
        case [*_, operation]:
            raise no_rule("more than one norm before attention:", operation)


def _said(reading: str, operation: Operation) -> str:
    name = type(operation).__name__
    reading = reading.replace("_", " ").removesuffix(" of")
    return f"it needs a rule for {reading} of {name}, and has none"
