"""The hard model's own pass over a set of inputs, enclosed and measured.

Activations and scores are float64 numbers with radii (`bounds.restriction.enclosed`), so
that the measures bound those of exact reals.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.restriction.enclosed import Enclosed, divided, linear
from bounds.restriction.pointwise import combine_heads
from bounds.simulation.hard_scores import (
    find_winners,
    mean_of_members,
    score_block,
)
from bounds.simulation.measured import (
    HardMeasure,
    HeadMeasure,
    LayerMeasure,
    merge_all,
)
from bounds.simulation.paper_shape import (
    HeadMaps,
    check_simulable,
    magnitude,
    read_gains,
    read_heads,
)
from jax_models import Transformer
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import visible
from jax_models.model.temperature import PowerTemperature
from jax_models.model.transformer import encode_positions

# Scores held at once, for blocks of rows of some inputs, so that nothing n x n is kept:
# 32 MiB each of a dozen arrays.
MOST_SCORES = 2**22


def measure_hard_model(
    model: Transformer, tokens: Int[np.ndarray, "inputs tokens"]
) -> HardMeasure:
    """Measures a hard model over a set of inputs, for a certificate."""
    check_simulable(model)
    embedding = np.asarray(model.embedding, np.float64)
    positions = np.asarray(encode_positions(model, tokens.shape[1]), np.float64)
    step = max(1, MOST_SCORES // tokens.shape[1] ** 2)
    measures = []
    for start in range(0, len(tokens), step):
        chosen = Enclosed.exactly(embedding[tokens[start : start + step]])
        rows = chosen + Enclosed.exactly(np.broadcast_to(positions, chosen.value.shape))
        classes = _equal_rows(tokens[start : start + step], embedding, positions)
        layers, exact = [], rows.exact
        for k, layer in enumerate(model.layers):
            rows, measure, scores_exact = measure_layer(
                layer, rows, classes, f"layers.{k}"
            )
            sight = layer.attention.sight
            if not sight.everything or by_position(layer.attention):
                # Equal rows see different positions or divide by different temperatures,
                # and may become different.
                classes = np.broadcast_to(np.arange(classes.shape[1]), classes.shape)
            layers.append(measure)
            exact = exact and scores_exact and rows.exact
        measures.append(
            HardMeasure(tokens.shape[1], tuple(layers), len(chosen.value), exact)
        )
    return merge_all(measures)


def by_position(attention: Attention) -> bool:
    """Returns whether rows divide their scores by temperatures of their own."""
    schedule = attention.temperature
    return isinstance(schedule, PowerTemperature) and schedule.of == "position"


def _equal_rows(
    tokens: Int[np.ndarray, "inputs tokens"],
    embedding: Float[np.ndarray, "symbols width"],
    positions: Float[np.ndarray, "tokens width"],
) -> Int[np.ndarray, "inputs tokens"]:
    """Classes of positions whose rows of y^(0) are equal real numbers."""
    # A layer without mask and with one temperature for all rows keeps them equal, by
    # symmetry and whatever float64 rounds.
    symbol = np.unique(embedding, axis=0, return_inverse=True)[1].reshape(-1)
    place = np.unique(positions, axis=0, return_inverse=True)[1].reshape(-1)
    first = np.unique(place, return_index=True)[1][place]
    return symbol[tokens] * tokens.shape[1] + first


def measure_layer(
    layer: Layer,
    rows: Enclosed,
    classes: Int[np.ndarray, "inputs tokens"],
    name: str,
) -> tuple[Enclosed, LayerMeasure, bool]:
    """Returns a layer's output, its measure, and whether scores are exact."""
    attention = layer.attention
    length = rows.value.shape[1]
    heads = [
        HeadPass(attention, maps, rows, classes, f"{name}, head {h}")
        for h, maps in enumerate(read_heads(attention))
    ]
    block = max(1, MOST_SCORES // (len(rows.value) * length))
    outputs = []
    for start in range(0, length, block):
        at = np.arange(start, min(start + block, length))
        read = [head.attend(at) for head in heads]
        joined = Enclosed.concatenate(read, axis=-1)
        outputs.append(combine_heads(layer, rows[:, at], joined))
    out = Enclosed.concatenate(outputs, axis=1)
    w1, w2 = read_gains(layer.feed_forward)
    size = float(magnitude(rows).max())
    measure = LayerMeasure(tuple(head.measure() for head in heads), w1, w2, size)
    return out, measure, all(head.exact for head in heads)


class HeadPass:
    """Running measure of one head over a batch of inputs, block of rows by block."""

    def __init__(
        self,
        attention: Attention,
        maps: HeadMaps,
        rows: Enclosed,
        classes: Int[np.ndarray, "inputs tokens"],
        name: str,
    ) -> None:
        """Project the rows."""
        self.attention, self.maps, self.name = attention, maps, name
        self.classes = classes
        self.query = divided(linear(rows, *maps.query), np.asarray(maps.divisor))
        self.key = linear(rows, *maps.key)
        self.value = linear(rows, *maps.value)
        self.exact = True
        self.tied_rows = 0
        self.gap, self.spread, self.odds = np.inf, 0.0, 0.0
        self.score_size = 0.0

    def attend(self, at: Int[np.ndarray, "rows"]) -> Enclosed:
        """Attended values of the rows at these positions; updates the measure."""
        length = self.key.value.shape[1]
        seen = mask_block(self.attention, at, length)
        score = score_block(self.query[:, at], self.key)
        width = cell_width(self.attention, at, length)
        found = find_winners(score, seen, width, self.classes, at, self.name)
        there = found.count > 0
        self.exact = self.exact and score.exact
        self.tied_rows += int((found.count > 1).sum())
        self.gap = min(self.gap, float(found.gap.min()))
        self.spread = max(self.spread, float(found.spread.max()))
        odds = found.others / np.maximum(found.count, 1)
        self.odds = max(self.odds, float(np.where(there, odds, 0).max()))
        size = np.where(seen, np.abs(score.value) + score.radius, 0.0).max()
        self.score_size = max(self.score_size, float(size))
        return mean_of_members(_chosen(self.attention, found.members), self.value)

    def measure(self) -> HeadMeasure:
        """Returns the head's measure over all rows attended so far."""
        maps = self.maps
        by_query = linear(self.query, np.ascontiguousarray(maps.key[0].T))
        by_key = linear(self.key, np.ascontiguousarray(maps.query[0].T))
        pull = magnitude(by_query).max(axis=(0, 1))
        pull = pull + magnitude(by_key, maps.divisor).max(axis=(0, 1))
        written = linear(self.value, maps.output)
        high = (written.value + written.radius).max(axis=1)
        low = (written.value - written.radius).min(axis=1)
        size = np.abs(high) + np.abs(low)
        # Covers the rounding of both ends and of their difference.
        half = (high - low) / 2 + np.where(high > low, 2.0**-50 * size, 0.0)
        weighting = self.attention.weighting
        rounding = weighting.score_roundoff(self.attention.query.dtype)
        return HeadMeasure(
            uniform=maps.uniform and not weighting.side,
            averages=not weighting.side,
            tied_rows=self.tied_rows,
            gap=self.gap,
            spread=self.spread,
            odds=self.odds * (1 + 2.0**-50),
            pull=pull * (1 + 2.0**-50),
            curvature=maps.curvature,
            half_range=half.max(axis=0),
            gain=magnitude(maps.written),
            score_size=self.score_size,
            score_error=rounding * self.score_size,
        )


def mask_block(
    attention: Attention, at: Int[np.ndarray, "rows"], length: int
) -> Bool[np.ndarray, "rows keys"]:
    """Returns the mask of the rows at some positions."""
    # `visible` is typed for JAX arrays; NumPy arrays work and compile nothing.
    rows: Any = at
    keys: Any = np.arange(length)
    return np.asarray(visible(attention.sight, rows, keys))


def cell_width(
    attention: Attention, at: Int[np.ndarray, "rows"], length: int
) -> Float[np.ndarray, "rows 1"]:
    """Returns the width of a score cell before the model's own temperature."""
    dtype = attention.query.dtype
    width = attention.weighting.resolution(dtype) * np.ones((len(at), 1))
    if attention.temperature is None:
        return width
    rows = jnp.asarray(at, jnp.int32)
    tau = np.asarray(attention.temperature(length, rows, dtype), np.float64)
    return width * tau.reshape(-1, 1)


def _chosen(
    attention: Attention, members: Bool[np.ndarray, "inputs rows keys"]
) -> Bool[np.ndarray, "inputs rows keys"]:
    """The maximisers that the weighting reads: all, the first or the last."""
    side = attention.weighting.side
    if not side:
        return members
    met = np.cumsum(members[..., ::side], axis=-1)[..., ::side]
    return members & (met == 1)
