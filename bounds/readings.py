"""Readings of row programs: functions with one rule for each class of operation.

A row program is the sequence of operations (norm, affine map, activation, ...) that a
layer applies to each row before or after attention. A method is one that computes or
bounds the effect of a substitution, another symbol at one position. A reading is a
`functools.singledispatch` over operations. It refuses by name the operations it has no
rule for, and so do the methods that need it, before they begin
(`unsupported_operation`). Token types are embeddings that tokens before and behind a
separator symbol have added.

One reading stands here: `slope`, the slope of a program at its base (its rows on the
unchanged input), as cotangents, derivatives of outputs, pulled back through its steps.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_models import InputError, Transformer
from jax_models.model.attention import WINDOW
from jax_models.model.layer import Layer
from jax_models.model.position import PairTable, PositionTable
from jax_models.model.rows import (
    Activation,
    Affine,
    Join,
    Norm,
    Operation,
    Product,
    Program,
    Sum,
)
from jax_models.model.transformer import shared_symbols

HIGHEST = jax.lax.Precision.HIGHEST
Cotangents: TypeAlias = Float[Array, "... outputs _"]


def no_rule(reading: str, operation: Operation) -> InputError:
    """`InputError` of a reading without a rule for an operation."""
    return InputError(_said(reading, operation) + "; use a method that does without")


def unsupported_attention(
    layers: tuple[Layer, ...], known: tuple[str, ...] = ()
) -> str | None:
    """Reason that a method refuses layers with parts of attention not `known`, or None."""
    # Forward passes and exact changes use `jax_models.model.attending`, which has all
    # parts; `known` names the parts that the method follows itself.
    for depth, layer in enumerate(layers):
        for piece in layer.attention.pieces:
            if piece in known:
                continue
            return f"it needs a rule for {piece}, which layer {depth} has, and has none"
    return None


def unsupported_layers(model: object) -> str | None:
    """Reason that the change of one row cannot be carried through layers, or None."""
    if not isinstance(model, Transformer):
        return "it needs the model's layers, and a bare function has none to see"
    if not model.layers:
        return "it needs a layer, and the model has none"
    return unsupported_dropout(model)


def unsupported_dropout(model: Transformer) -> str | None:
    """Reason that a substitution may change other rows' embeddings, or None."""
    dropout = model.token_dropout
    if isinstance(model.position, PairTable):
        return (
            "it needs all but one row to stay, and tokens are of the second type behind "
            f"symbol {model.position.separator}, the model's separator"
        )
    # A scale that is fixed, as in the model of one input, moves no row.
    if dropout is None or dropout.scale is not None:
        return None
    return (
        f"it needs all but one row to stay, and the scale of the model's embeddings goes "
        f"with how many tokens are symbol {dropout.mask}, its mask"
    )


def unsupported_model(model: Transformer, known: tuple[str, ...] = ()) -> str | None:
    """Reason that a method for plain layers, and parts `known`, refuses a model; or None."""
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
    return unsupported_attention(model.layers, known)


def of_one_text(model: Transformer, symbols: Collection[int]) -> Transformer:
    """Model without token types, of equal outputs, if `symbols` have no separator."""
    table = model.position
    # Unchanged without token types, and where a separator may begin the second type.
    if not isinstance(table, PairTable) or table.separator in symbols:
        return model
    return dataclasses.replace(model, position=PositionTable(table.table))


def unsupported_operation(
    layers: tuple[Layer, ...],
    reading: Callable[..., Any],
    apart: type[Operation] | tuple[()] = (),
) -> str | None:
    """Reason that a method refuses operations that `reading` has no rule for, or None."""
    # What goes by readings asks what each row sees, position by position.
    if found := unsupported_attention(layers, known=(WINDOW,)):
        return found
    # `reading` is a `functools.singledispatch` over operations that are not linear,
    # without those of the classes `apart`. The rule of `object` is the refusal.
    of: Any = reading
    for layer in layers:
        for operation in layer.operations:
            if operation.linear or isinstance(operation, apart):
                continue
            if of.dispatch(type(operation)) is of.dispatch(object):
                return _said(of.__name__, operation)
    return None


def norm_before(layer: Layer) -> Norm | None:
    """The norm before a layer's attention, or None; an `InputError` for other programs."""
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


def unsupported_padding(model: Transformer) -> str | None:
    """Reason that padding could change rows of a model that cannot see it, or None."""
    if shared_symbols(model):
        return "some symbols move all rows"
    if model.position is not None and model.position.depends_on_length:
        return "its positions depend on the length"
    for layer in model.layers:
        schedule = layer.attention.temperature
        if schedule is not None and schedule.depends_on_length:
            return "a temperature depends on the length"
    # A row of the padding that vanishes is not a number, and enters sums with weight 0.
    if any(norm.epsilon == 0 for norm in _norms(model) if norm is not None):
        return "a norm divides by rows that may vanish"
    return None


def _norms(model: Transformer) -> Iterator[Norm | None]:
    for layer in model.layers:
        yield from (layer.norm1, layer.norm2)
        yield from (layer.attention.query_norm, layer.attention.key_norm)
    yield from (model.final_norm, model.entry and model.entry.norm)


@functools.singledispatch
def slope(
    operation: Operation,
    base: tuple[Float[Array, "rows read"] | None, ...],
    cotangents: Cotangents,
) -> tuple[Cotangents, ...]:
    """Cotangents of the rows that an operation reads, from those of the row it writes."""
    # A row of `base` is None where the operation is linear and the row is not known.
    raise no_rule("slope", operation)


@slope.register
def _(operation: Affine, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return (jnp.matmul(cotangents, operation.weight, precision=HIGHEST),)


@slope.register
def _(operation: Sum, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return cotangents, cotangents


@slope.register
def _(operation: Join, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return cotangents[..., : operation.width], cotangents[..., operation.width :]


@slope.register
def _(operation: Activation, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    return (cotangents * operation.slope(*base)[:, None],)


@slope.register
def _(operation: Product, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    one, two = base
    return cotangents * two[:, None], cotangents * one[:, None]


@slope.register
def _(operation: Norm, base, cotangents: Cotangents) -> tuple[Cotangents, ...]:
    (row,) = base
    z = operation.centre(row)
    z, s = z[:, None], operation.deviation(z)[:, None]
    # N' = diag(scale) (P/s - z z^T/(d s³)), of which this is the transpose.
    scaled = cotangents * operation.scale
    along = (scaled * z).mean(axis=-1, keepdims=True)
    # The projection that centres is its own transpose.
    return (operation.centre(scaled) / s - z * along / s**3,)


def pull(
    program: Program,
    base: Mapping[str, Float[Array, "..."]],
    given: Mapping[str, Float[Array, "..."]],
) -> dict[str, Float[Array, "..."]]:
    """Cotangents of a program's rows by name, from those `given` for rows it writes."""
    # `base` must hold the rows [rows, width] that nonlinear steps read; `given` holds
    # cotangents [outputs, width], or [rows, outputs, width] of every row.
    found = dict(given)
    for step in reversed(program.steps):
        if step.name not in found:
            continue
        reads = tuple(base.get(name) for name in step.inputs)
        pulled = slope(step.operation, reads, found[step.name])
        # A row that several steps read sums what they pull back.
        for name, cotangents in zip(step.inputs, pulled, strict=True):
            found[name] = found[name] + cotangents if name in found else cotangents
    return found
