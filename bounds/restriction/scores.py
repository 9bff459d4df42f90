"""Score cells of abstract rows: projections once, cells of pairs by blocks.

A row is an activation of one position under one assignment of free bits. A hard weighting
compares integer cells round(s / resolution). Of each pair of a query and a key row the cell
is enclosed, lowest <= cell <= highest; both are the same integer where rounding cannot change
it, which for exact scores is everywhere but on the edge of a cell. An excluded position and a
decided winner are then comparisons of integers, with no tolerance of their own.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from bounds.restriction.enclosed import (
    SMALLEST,
    Enclosed,
    Floats,
    attention_input,
    divided,
    inflated,
    linear,
    products_counted,
    row_norms,
)
from bounds.restriction.tables import Tables
from jax_models import InputError
from jax_models.model.attending import score_scale
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.scores import AdditiveScore, DotProductScore, Score
from jax_models.model.temperature import ConstantTemperature

Rows = Int[np.ndarray, "rows"]


@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """Projections of the rows of a layer's input, by head and row."""

    attention: Attention
    query: Enclosed  # queries, divided by the scale where scores are bilinear
    key: Enclosed
    value: Enclosed
    # Divisor of the scores of each row; 1 where queries are divided instead.
    scale: Float[np.ndarray, "rows 1"]
    exact: bool  # whether all scores are known to the bit

    def keep(self, rows: Int[np.ndarray, "rows"]) -> "ScoredRows":
        """Returns the projections of the given rows."""
        return dataclasses.replace(
            self,
            query=self.query[:, rows],
            key=self.key[:, rows],
            value=self.value[:, rows],
            scale=self.scale[rows],
        )

    def cells(
        self, head: int, queries: Rows, keys: Rows | None = None
    ) -> tuple[Floats, Floats]:
        """Lowest and highest score cells of queries, each with its key or all keys."""
        score, radius = score_enclosed(
            self.attention.scoring, self, head, queries, keys
        )
        # Cells of score ± radius, as any order of operations computes them.
        width = self.attention.weighting.resolution(self.attention.query.dtype)
        place = score / width
        # Division by a power of two rounds nothing.
        power = np.frexp(width)[0] == 0.5
        if self.exact and power:
            cell = np.rint(place)
            return cell, cell
        # The quotient, or the product with the reciprocal, here and in the model.
        off = radius / width + 4 * gamma_upper(2) * (np.abs(place) + radius / width)
        off = inflated(np.asarray(off), 8)
        return np.rint(place - off), np.rint(place + off)


@functools.singledispatch
def score_enclosed(
    score: Score, rows: ScoredRows, head: int, queries: Rows, keys: Rows | None
) -> tuple[Floats, Floats | float]:
    """Scores and radii of query rows, each with its key in `keys`, or with all if None."""
    del rows, head, queries, keys
    raise InputError(f"no enclosure of {score.word} scores; no restriction is found")


@score_enclosed.register
def _(
    score: AdditiveScore, rows: ScoredRows, head: int, queries: Rows, keys: Rows | None
) -> tuple[Floats, Floats | float]:
    """w · tanh(q + k) / scale; tanh is 1-Lipschitz and at most 1."""
    query, scale = rows.query[head, queries], rows.scale[queries]
    if keys is None:
        query, key = query[:, None], rows.key[head][None]
    else:
        key, scale = rows.key[head, keys], scale[:, 0]
    vector = np.asarray(score.vector)[head]
    size = np.abs(vector)
    found = (np.tanh(query.value + key.value) * vector).sum(axis=-1) / scale
    moved = (query.radius + key.radius) @ size
    around = (np.abs(query.value) + np.abs(key.value)) @ size
    steps = gamma_upper(len(vector) + 2 * SCALAR_STEPS)
    radius = moved + 2 * steps * (around + moved + size.sum())
    return found, inflated(radius / scale, 2 * len(vector) + 16)


@score_enclosed.register
def _(
    score: DotProductScore,
    rows: ScoredRows,
    head: int,
    queries: Rows,
    keys: Rows | None,
) -> tuple[Floats, Floats | float]:
    del score
    query, key = rows.query[head, queries], rows.key[head]
    if keys is None:
        found = query.value @ key.value.T
    else:
        key = key[keys]
        found = (query.value * key.value).sum(axis=-1)
    if rows.exact:
        return found, 0.0
    # By Cauchy's inequality on the magnitudes.
    q, k = row_norms(query), row_norms(key)
    q = [size[:, None] for size in q] if keys is None else q
    terms = key.value.shape[-1] + 1
    radius = q[2] * (k[1] + 2 * gamma_upper(terms) * k[2]) + q[1] * k[2]
    return found, inflated(radius, 8) + 4 * terms * SMALLEST


def score_rows(layer: Layer, tables: Tables, length: int) -> ScoredRows:
    """Projects the rows of `tables` to a layer's queries, keys and values."""
    attention, positions = layer.attention, tables.position_of_row
    inputs = attention_input(layer, tables.rows)

    def projected(weight: Any, bias: Any) -> Enclosed:
        heads = [
            linear(inputs, np.asarray(w), None if bias is None else np.asarray(bias)[h])
            for h, w in enumerate(np.asarray(weight))
        ]
        return Enclosed(
            np.stack([head.value for head in heads]),
            np.stack([head.radius for head in heads]),
        )

    query = projected(attention.query, attention.query_bias)
    key = projected(attention.key_by_head, attention.key_bias_by_head)
    value = projected(attention.value_by_head, attention.value_bias_by_head)
    at = jnp.asarray(positions, jnp.int32)
    scale = np.asarray(score_scale(attention, length, at)).reshape(-1, 1)
    scale = np.broadcast_to(scale, (len(positions), 1))
    exact = False
    if attention.scoring.bilinear:
        # A power or a logarithm may come out otherwise in a compiled program.
        temperature = attention.temperature
        plain = temperature is None or isinstance(temperature, ConstantTemperature)
        error = 0.0 if plain else gamma_upper(SCALAR_STEPS)
        query = divided(query, scale, error)
        scale = np.ones_like(scale)
        heads = zip(query.value, key.value, strict=True)
        exact = query.exact and key.exact and all(products_counted(*x) for x in heads)
    return ScoredRows(attention, query, key, value, scale, exact)
