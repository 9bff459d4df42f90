"""From planned layers to a transformer."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_models.assembly import Head, Neuron, build_layer, build_readout, embed_symbols
from jax_models.attention import Schedule
from jax_models.float_type import check_float_type
from jax_models.layer import Layer
from jax_models.layers import Accept
from jax_models.logic.modes import Mode
from jax_models.logic.plan import Plan, PlannedHead, Terms
from jax_models.logic.schedule import PlannedLayer
from jax_models.position import Coordinates
from jax_models.temperature import PowerTemperature
from jax_models.transformer import Transformer
from jax_models.weighting import Softmax


def build_transformer(
    plan: Plan,
    layers: tuple[PlannedLayer, ...],
    alphabet: tuple[str, ...],
    mode: Mode,
    dtype: Any,
) -> Transformer:
    """Returns the transformer of a plan.

    Args:
        plan: the plan.
        layers: its heads and neurons in layers.
        alphabet: the symbols, all substitutable.
        mode: the mode, for its temperature.
        dtype: float32 or float64.

    Returns:
        The model: one logit, the truth of the formula, accepted from 1/2.

    Raises:
        InputError: for float64 without x64.
    """
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
