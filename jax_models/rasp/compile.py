"""Compiled programs as models: average-hard attention, uniform or tieless in each head.

The weights depend on the program and its alphabet alone; the length enters by the
position encoding. The scores are scaled so that the best is 1 or more above the next in
real arithmetic, at every length, so that softmax at a temperature of
docs/theory/softmax-approximation.md, section 10, Theorem 26, computes the same.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_models.arguments import expect_integer
from jax_models.assembly import (
    Head,
    Neuron,
    build_layer,
    build_readout,
    embed_symbols,
)
from jax_models.errors import InputError
from jax_models.evaluate import apply_logits
from jax_models.layer import Layer
from jax_models.layers import Accept, Readout
from jax_models.position import Coordinates
from jax_models.rasp.affine import Affine
from jax_models.rasp.check import check_program
from jax_models.rasp.exactness import TIE_RESOLUTION, check_length
from jax_models.rasp.lower import plan_program
from jax_models.rasp.plan import (
    BooleanValue,
    IntegerValue,
    Plan,
    PlannedHead,
    PlannedLayer,
    SymbolValue,
)
from jax_models.transformer import Transformer
from jax_models.weighting import AverageHardmax

_UNIFORM = (Affine(),)


def compile_program(
    text: str,
    alphabet: str | Sequence[str],
    *,
    max_length: int = 1,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns an average-hard transformer that computes a program at every position.

    The read-out gives what the program returns: one logit that is 1 or 0 for a Boolean,
    with an accept rule; one that is the integer; one logit for each symbol that the
    result can be, 1 for the one it is, in the order of `SymbolValue.symbols`.

    Args:
        text: the program, in the grammar of `jax_models.rasp.parser`.
        alphabet: the input symbols in the order of their ids.
        max_length: a length for which the model is wanted. It changes no weight: it is
            an error if floats are not proved exact up to there.
        dtype: float32 or float64.

    Returns:
        The model, whose vocabulary is the alphabet.

    Raises:
        InputError: for a program that is not in order, with line and column; for a
            length beyond what is proved; for float64 without x64.

    Source:
        docs/rasp.md, Theorem.
    """
    expect_integer("max_length", max_length, 1)
    plan = plan_program(check_program(text, alphabet))
    check_length(plan, max_length, dtype)
    return build_model(plan, dtype)


def build_model(plan: Plan, dtype: Any = jnp.float32) -> Transformer:
    """Returns the transformer of a plan.

    Args:
        plan: from `plan_program`.
        dtype: float32 or float64.

    Raises:
        InputError: for float64 without x64, and for integers that the float type does
            not hold even at n = 1.
    """
    check_length(plan, 1, dtype)
    width = plan.width
    # A program such as `return in` has no layer; a model has one that adds nothing.
    layers = plan.layers or (PlannedLayer("none", (), ()),)
    symbols = [{t: 1.0} for t in range(len(plan.alphabet))]
    match plan.result:
        case BooleanValue(form=form):
            forms, accept = [form], Accept(0, 0.5)
        case IntegerValue(form=form):
            forms, accept = [form], None
        case SymbolValue(forms=several):
            forms, accept = list(several), None
    rows = [build_readout(form.written(), width, dtype) for form in forms]
    weight = np.concatenate([row.weight for row in rows])
    bias = np.concatenate([row.bias for row in rows if row.bias is not None])
    return Transformer(
        embedding=embed_symbols(symbols, width, dtype),
        position=Coordinates(plan.position),
        layers=tuple(_build_layer(layer, width, dtype) for layer in layers),
        readout=Readout(jnp.asarray(weight, dtype), jnp.asarray(bias, dtype)),
        accept=accept,
        vocabulary=plan.alphabet,
        substitutable=tuple(range(len(plan.alphabet))),
    )


def _build_layer(layer: PlannedLayer, width: int, dtype: Any) -> Layer:
    return build_layer(
        width,
        weighting=AverageHardmax(TIE_RESOLUTION),
        heads=[_build_head(head) for head in layer.heads],
        neurons=[
            Neuron(neuron.read.written(), {neuron.write: float(neuron.coefficient)})
            for neuron in layer.neurons
        ],
        mask=layer.mask,
        dtype=dtype,
    )


def _build_head(head: PlannedHead) -> Head:
    return Head(
        query=[form.written() for form in head.query or _UNIFORM],
        key=[form.written() for form in head.key or _UNIFORM],
        value=[form.written() for form in head.value],
        write=[{coordinate: 1.0} for coordinate in head.write],
    )


@dataclasses.dataclass(frozen=True)
class CompiledProgram:
    """A model with its plan, which reads what it says and guards its length.

    Args:
        plan: from `plan_program`.
        model: from `build_model`, or one with the same layout of coordinates, such as
            its twin with softmax and a temperature.
    """

    plan: Plan
    model: Transformer

    def run(self, tokens: Any) -> np.ndarray:
        """Returns what the program returns at every position, read off the model.

        Args:
            tokens: ids of symbols of the alphabet [n].

        Returns:
            Booleans, integers or symbols [n].

        Raises:
            InputError: beyond the length up to which floats are proved exact, and as in
                `apply`.
        """
        check_length(self.plan, np.size(tokens), self.model.dtype)
        return read_result(self.plan, np.asarray(apply_logits(self.model, tokens)))


def read_result(plan: Plan, logits: np.ndarray) -> np.ndarray:
    """Returns what a program returns from the logits of its model.

    Args:
        plan: of the model.
        logits: of its read-out [..., classes]; approximate ones are rounded.

    Returns:
        Booleans (a logit of at least 1/2), integers (the nearest) or symbols (of the
        largest logit), of the shape of the logits without the last axis.

    Raises:
        InputError: for logits of another number of classes.
    """
    result = plan.result
    classes = len(result.symbols) if isinstance(result, SymbolValue) else 1
    if logits.shape[-1] != classes:
        raise InputError(
            f"logits of {logits.shape[-1]} classes; the program's result has {classes}"
        )
    match result:
        case BooleanValue():
            return logits[..., 0] >= 0.5
        case IntegerValue():
            return np.round(logits[..., 0]).astype(np.int64)
        case SymbolValue(symbols=symbols):
            return np.array(symbols)[logits.argmax(axis=-1)]
