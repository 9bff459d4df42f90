"""Readings of row programs: functions with one rule for each class of operation.

A reading is a `functools.singledispatch` over operations. What it has no rule for it
refuses by name, and so do the methods that need it, before they begin (`lacks`).
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
    """Returns the error of a reading without a rule for an operation."""
    return InputError(_said(reading, operation) + "; use a method that does without")


def lacks_of_attention(
    layers: tuple[Layer, ...], known: tuple[str, ...] = ()
) -> str | None:
    """Returns what attention has that no reading has a rule for, None if nothing.

    Forward passes and exact changes go by `jax_models.model.attending` and do all of it.

    Args:
        layers: of the model.
        known: pieces that the method does.
    """
    for depth, layer in enumerate(layers):
        for piece in layer.attention.pieces:
            if piece in known:
                continue
            return f"it needs a rule for {piece}, which layer {depth} has, and has none"
    return None


def lacks_of_dropout(model: Transformer) -> str | None:
    """Returns why a method that moves one row first cannot do a model, None if it can.

    Args:
        model: the transformer, of one input where no substitution changes what it scales.
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


def lacks_of_model(model: Transformer) -> str | None:
    """Returns what a model has that methods without rules for it cannot follow.

    Args:
        model: the transformer.
    """
    if isinstance(model.position, PairTable):
        return lacks_of_dropout(model)
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
    return lacks_of_attention(model.layers)


def of_one_text(model: Transformer, symbols: Collection[int]) -> Transformer:
    """Returns the model for inputs of some symbols: tokens of the first type alone.

    Where the separator of pairs is among them, the model as it is.
    """
    table = model.position
    if not isinstance(table, PairTable) or table.separator in symbols:
        return model
    return dataclasses.replace(model, position=PositionTable(table.table))


def lacks(
    layers: tuple[Layer, ...],
    reading: Callable[..., Any],
    apart: type[Operation] | tuple[()] = (),
) -> str | None:
    """Returns what a reading, or attention's, has no rule for; None where it has all.

    Args:
        layers: of the model.
        reading: a `functools.singledispatch` over operations that are not linear.
        apart: which of them it is not asked of.
    """
    # What goes by readings asks what each row sees, position by position.
    if found := lacks_of_attention(layers, known=(WINDOW,)):
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
    """Returns the norm in front of a layer's attention, None where there is none.

    Args:
        layer: the layer.

    Raises:
        InputError: something else stands there.
    """
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
