"""PARITY in hard attention, at the lengths where hard attention can (any tie rule).

Every row looks up H others at fixed distances, so that the bits that reach a row grow by
the factor H + 1 a layer. Beyond a polynomial in H no hard-attention transformer of L
layers computes PARITY (Hahn 2020, Theorem 1); at (H+1)^L this one does.
"""

import functools
from enum import IntEnum, auto
from typing import Any

import jax.numpy as jnp

from jax_models.arguments import expect_integer
from jax_models.model.position import PowerTerm
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import (
    CONSTANT,
    Form,
    Head,
    Neuron,
    build_layer,
    build_transformer,
)
from jax_models.run.device_memory import require_memory
from jax_models.weighting import LeftmostHardmax

# Scores are integers, so cells of width 1/4 keep them apart in float32 too.
TIE_RESOLUTION = 0.25


class Coordinate(IntEnum):
    """Names of the coordinates of a row of the residual stream."""

    PARITY = 0  # the token, then the parity of ever more bits
    PLACE = auto()  # p
    SQUARE = auto()  # p^2
    FOUND = auto()  # sum of the looked-up parities between attention and feed-forward


def saw_neurons(total: Form, unit: int, count: int, out: int) -> list[Neuron]:
    """Returns neurons that add u [s is odd] to coordinate `out`, for `total` = s u.

    u is the coordinate `unit`, s an integer from 0 to `count`.
    """
    # u [s is odd] is R(s u) - 2 R((s - 1) u) + 2 R((s - 2) u) - …: a saw of slopes +1 and -1
    # with teeth at the odd multiples of u.
    slope = lambda k: 2.0 * (-1) ** k if k else 1.0
    return [Neuron({**total, unit: -k}, {out: slope(k)}) for k in range(count)]


def hard_parity_transformer(
    *, num_layers: int = 2, num_heads: int = 1, dtype: Any = jnp.float32
) -> Transformer:
    """Returns a hard-attention transformer that computes PARITY of length (H+1)^L.

    Layer l = 0 … L-1, head h = 1 … H: the row at place p looks up the place
    t = p - h (H+1)^l by the score

        2 t j - j^2 = t^2 - (j - t)^2,

    largest at j = t alone, so that no tie rule matters. It adds the H parities that it
    finds to its own, and the feed-forward block leaves the sum's parity. By induction the
    row at p holds, after l layers, the parity of the (H+1)^l bits that end at p, as long
    as these are there: the blocks that end at p, p - (H+1)^l, … lie side by side. At the
    last place n = (H+1)^L all are, after all layers too, and the logit is 1 where the
    number of ones is even, 0 where it is odd.

    At other lengths the model decides something else: rows that look up places before
    the first get the first.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1.
        dtype: float32 or float64.

    Returns:
        The model: vocabulary 0, 1, both `substitutable`; the result is read at the last
        position.

    Raises:
        InputError: if L or H is below 1, or for float64 without x64.

    Source:
        docs/theory/hard-attention.md, section 3, Theorem 5.
    """
    for name, value in (("num_layers", num_layers), ("num_heads", num_heads)):
        expect_integer(name, value, 1)
        require_memory(f"{name} = {value}", 200 * value)
    y = Coordinate

    # With t = p - distance the score of place j is 2 t j - j^2 = t^2 - (j - t)^2, largest at
    # j = t alone: no tie rule matters.
    def look_up(distance: int) -> Head:
        return Head(
            query=[{y.PLACE: 1, CONSTANT: -distance}, {CONSTANT: 1}],
            key=[{y.PLACE: 2}, {y.SQUARE: -1}],
            value=[{y.PARITY: 1}],
            write=[{y.FOUND: 1}],
        )

    replace = [
        *saw_neurons({y.PARITY: 1, y.FOUND: 1}, CONSTANT, num_heads + 1, y.PARITY),
        # What the parity replaces: both are counts, so the ReLU leaves them alone.
        Neuron({y.PARITY: 1}, {y.PARITY: -1}),
        Neuron({y.FOUND: 1}, {y.FOUND: -1}),
    ]
    tie = LeftmostHardmax(TIE_RESOLUTION)
    build = functools.partial(build_layer, len(y), weighting=tie, dtype=dtype)
    layers = []
    for layer in range(num_layers):
        nearest = (num_heads + 1) ** layer
        heads = [look_up(h * nearest) for h in range(1, num_heads + 1)]
        layers.append(build(heads=heads, neurons=replace))
    terms = [PowerTerm(at, position_power=k) for at, k in ((y.PLACE, 1), (y.SQUARE, 2))]
    symbols: dict[str, Form] = {"0": {}, "1": {y.PARITY: 1}}
    logit: Form = {y.PARITY: -1, CONSTANT: 1}
    return build_transformer(symbols, layers, [logit], 0.5, terms)
