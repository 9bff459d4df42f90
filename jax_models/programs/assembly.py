"""Weights written as equations: linear forms on named coordinates of the activations.

A form {c: a, ...} is the number sum_c a y_c; the key `CONSTANT` adds a constant. A head
is given by the forms that make its query, key and value vectors and by the coordinates
to which each component of the attended value is added; a neuron by the form that it
reads and the coordinates that it adds to. The code of a construction
then follows its proof.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jax_models.jax_arguments import check_float_type
from jax_models.model.attention import Attention, Schedule
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.mask import Mask
from jax_models.model.position import Coordinates, PowerTerm, ResidueTerm
from jax_models.model.readout import Accept, Readout
from jax_models.model.transformer import Transformer
from jax_models.programs.forms import CONSTANT
from jax_models.weighting import Weighting

Form = Mapping[int, float]


@dataclasses.dataclass(frozen=True)
class Head:
    """One attention head; its score is the sum of query times key components, or 0."""

    query: Sequence[Form]
    key: Sequence[Form]
    value: Sequence[Form]
    write: Sequence[Form]  # one per value component: what it adds to which coordinate


@dataclasses.dataclass(frozen=True)
class Neuron:
    """One hidden unit: adds write[c] * relu(read) to each coordinate c."""

    read: Form
    write: Form


def _stack(
    forms: Sequence[Form], width: int
) -> tuple[Float[np.ndarray, "forms width"], Float[np.ndarray, "forms"]]:
    """Matrix [len(forms), width] and constants [len(forms)] of linear forms on rows."""
    weight, constant = np.zeros((len(forms), width)), np.zeros(len(forms))
    for row, form in enumerate(forms):
        for coordinate, factor in form.items():
            if coordinate == CONSTANT:
                constant[row] = factor
            else:
                weight[row, coordinate] = factor
    return weight, constant


def _padded(forms: Sequence[Form], length: int) -> list[Form]:
    return [*forms, *({} for _ in range(length - len(forms)))]


def build_layer(
    width: int,
    *,
    weighting: Weighting,
    heads: Sequence[Head] = (),
    neurons: Sequence[Neuron] = (),
    mask: Mask = "none",
    temperature: Schedule | None = None,
    dtype: Any = jnp.float32,
) -> Layer:
    """Returns a layer of residual sums, no layer norm, and unscaled dot-product scores.

    Without heads the attention adds nothing, without neurons the feed-forward block
    adds nothing (one of zero weights stands in). Heads of different key or value width
    are filled with zeros.
    """
    check_float_type(dtype, "the model asked for")
    heads = heads or [Head([], [], [{}], [{}])]
    neurons = neurons or [Neuron({}, {})]
    key_width = max(1, *(len(head.key) for head in heads))
    value_width = max(len(head.value) for head in heads)

    arrays: dict[str, Any] = {}
    sizes = {"query": key_width, "key": key_width, "value": value_width}
    for name, length in sizes.items():
        forms = [_stack(_padded(getattr(head, name), length), width) for head in heads]
        weight, constant = (np.stack(parts) for parts in zip(*forms, strict=True))
        arrays[name] = jnp.asarray(weight, dtype)
        bias = jnp.asarray(constant, dtype) if constant.any() else None
        arrays[f"{name}_bias"] = bias
    writes = [form for head in heads for form in _padded(head.write, value_width)]
    w1, b1 = _stack([neuron.read for neuron in neurons], width)
    w2, _ = _stack([neuron.write for neuron in neurons], width)
    return Layer(
        Attention(
            **arrays,
            output=jnp.asarray(_stack(writes, width)[0].T, dtype),
            weighting=weighting,
            temperature=temperature,
            mask=mask,
            score="dot_product",
        ),
        FeedForward(
            w1=jnp.asarray(w1, dtype),
            b1=jnp.asarray(b1, dtype),
            w2=jnp.asarray(w2.T, dtype),
            b2=jnp.zeros(width, dtype),
        ),
    )


def build_transformer(
    symbols: Mapping[str, Form],
    layers: Sequence[Layer],
    logits: Sequence[Form],
    # of the first logit that accepts; None without a rule
    least: float | None,
    position: Sequence[PowerTerm | ResidueTerm] | None = None,
    # name of the symbol that no other replaces
    query: str | None = "$",
) -> Transformer:
    """Transformer of layers, with embedding rows and logits as forms on coordinates."""
    first = layers[0].feed_forward.w1
    width, dtype = first.shape[1], first.dtype
    embedding, _ = _stack(list(symbols.values()), width)
    weight, constant = _stack(logits, width)
    return Transformer(
        embedding=jnp.asarray(embedding, dtype),
        position=None if position is None else Coordinates(tuple(position)),
        layers=tuple(layers),
        readout=Readout(jnp.asarray(weight, dtype), jnp.asarray(constant, dtype)),
        accept=None if least is None else Accept(0, least),
        vocabulary=tuple(symbols),
        substitutable=tuple(at for at, name in enumerate(symbols) if name != query),
    )
