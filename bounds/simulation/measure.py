"""Measures of a hard model: over listed inputs, or, with one layer, over all inputs.

A measure holds the numbers from which the distance of the softmax twin, the model with
softmax at a temperature in place of hard attention, is bounded: of each head the least
gap from a row's best score to the next, and the widest spread of tied scores. A candidate
is a symbol at a position, y^(0) the embedded tokens with their positions, and a class the
positions (or candidates) whose rows of a layer's input are equal real vectors.

Activations and scores are float64 numbers with radii (`bounds.restriction.enclosed`), 0
where a count of bits proves float64 exact, so that the measures bound those of exact
reals. A hard weighting compares integer cells of scores; the maximisers are those in
the best cell. Scores are kept before the temperature, which the twin replaces.
"""

import functools
import itertools
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.all_inputs.universe import AllInputs
from bounds.restriction.enclosed import (
    Enclosed,
    divided,
    inflated,
    linear,
    mean_of_members,
    run_enclosed,
    score_block,
)
from bounds.restriction.possible import first_in_order, visible_keys
from bounds.simulation.certificate import HardMeasure, HeadMeasure, LayerMeasure
from bounds.simulation.paper_shape import (
    HeadMaps,
    magnitude,
    read_gains,
    read_heads,
)
from jax_models import TieError, Transformer
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.temperature import PowerTemperature
from jax_models.model.transformer import encode_positions

Candidates: TypeAlias = Int[np.ndarray, "candidates"]
Rows: TypeAlias = Int[np.ndarray, "rows"]
Tokens: TypeAlias = Int[np.ndarray, "inputs tokens"]
Members: TypeAlias = Bool[np.ndarray, "inputs rows keys"]

UNIT = 2.0**-53
NO_CLASS = np.iinfo(np.int64).max


def safe_radius(score: Enclosed) -> Float[np.ndarray, "..."]:
    """Radii of `score`, enlarged to cover the rounding of score ± radius."""
    size = np.abs(score.value) + score.radius
    return np.where(score.radius > 0, score.radius + 4 * UNIT * size, 0)


# Scores held at once, for blocks of rows of some inputs, so that nothing n x n is kept:
# 32 MiB each of a dozen arrays.
MOST_SCORES = 2**22


def measure_hard_model(model: Transformer, tokens: Tokens) -> HardMeasure:
    """`HardMeasure` of a hard model over the listed inputs."""
    embedding = np.asarray(model.embedding, np.float64)
    positions = np.asarray(encode_positions(model, tokens.shape[1]), np.float64)
    step = max(1, MOST_SCORES // tokens.shape[1] ** 2)
    measures = []
    for start in range(0, len(tokens), step):
        chosen = Enclosed.exactly(embedding[tokens[start : start + step]])
        rows = chosen + Enclosed.exactly(np.broadcast_to(positions, chosen.value.shape))
        classes = _equal_rows(tokens[start : start + step], embedding, positions)
        layers = []
        for k, layer in enumerate(model.layers):
            rows, measure = measure_layer(layer, rows, classes, f"layers.{k}")
            sight, schedule = layer.attention.sight, layer.attention.temperature
            own = isinstance(schedule, PowerTemperature) and schedule.of == "position"
            if own or not sight.everything:
                # Equal rows see different positions or divide by different temperatures,
                # and may become different.
                classes = np.broadcast_to(np.arange(classes.shape[1]), classes.shape)
            layers.append(measure)
        size = tokens.shape[1], tuple(layers), len(chosen.value)
        measures.append(HardMeasure(*size))
    return functools.reduce(HardMeasure.merge, measures)


def _equal_rows(
    tokens: Tokens,
    embedding: Float[np.ndarray, "symbols width"],
    positions: Float[np.ndarray, "tokens width"],
) -> Tokens:
    """Class number of each position; positions with equal rows of y^(0) share one."""
    # A layer without mask and with one temperature for all rows keeps them equal, by
    # symmetry and whatever float64 rounds.
    symbol = np.unique(embedding, axis=0, return_inverse=True)[1].reshape(-1)
    place = np.unique(positions, axis=0, return_inverse=True)[1].reshape(-1)
    # The first position with the same encoding stands for all of them.
    first = np.unique(place, return_index=True)[1][place]
    return symbol[tokens] * tokens.shape[1] + first


def measure_layer(
    layer: Layer, rows: Enclosed, classes: Tokens, name: str
) -> tuple[Enclosed, LayerMeasure]:
    """Returns a hard layer's output rows and its measure, from input rows of many inputs."""
    attention = layer.attention
    length = rows.value.shape[1]
    heads = _read_passes(attention, rows, classes, name)
    block = max(1, MOST_SCORES // (len(rows.value) * length))
    outputs = []
    for start in range(0, length, block):
        at = np.arange(start, min(start + block, length))
        read = [head.attend(at) for head in heads]
        joined = Enclosed.concatenate(read, axis=-1)
        outputs.append(run_enclosed(layer.writes, y=rows[:, at], heads=joined))
    out = Enclosed.concatenate(outputs, axis=1)
    measured = tuple(head.measure() for head in heads)
    return out, LayerMeasure(measured, *read_gains(layer.feed_forward))


def _read_passes(
    attention: Attention, rows: Enclosed, classes: Tokens, name: str
) -> list["HeadPass"]:
    heads = enumerate(read_heads(attention))
    return [
        HeadPass(attention, x, rows, classes, f"{name}, head {h}") for h, x in heads
    ]


class HeadPass:
    """Measure of one head over a batch of inputs, updated by each block of query rows."""

    def __init__(
        self,
        attention: Attention,
        maps: HeadMaps,
        rows: Enclosed,
        classes: Tokens,
        name: str,
    ) -> None:
        """Projects `rows` to queries, keys and values."""
        self.attention, self.maps, self.name = attention, maps, name
        self.classes = classes
        # √d_k belongs to the queries, as in the theorems; the temperature does not.
        self.query = divided(linear(rows, *maps.query), np.asarray(maps.divisor))
        self.key = linear(rows, *maps.key)
        self.value = linear(rows, *maps.value)
        self.tied_rows = 0
        self.gap, self.spread, self.odds = np.inf, 0.0, 0.0
        self.score_size = 0.0

    def attend(self, at: Rows) -> Enclosed:
        """Attended values of the query rows at positions `at`; updates the measure."""
        length = self.key.value.shape[1]
        seen = visible_keys(self.attention.sight, at, np.arange(length))
        members = self._winners(self.score(at, seen), seen, at)
        side = self.attention.weighting.side
        if side:  # a unique-hard head chooses the leftmost or the rightmost
            first = first_in_order(members, side)[..., None]
            members = members & (np.arange(length) == first)
        return mean_of_members(members, self.value)

    def _winners(
        self, score: Enclosed, seen: Bool[np.ndarray, "rows keys"], at: Rows
    ) -> Members:
        """Keys in each row's best score cell; a TieError if rounding decides them."""
        width = cell_width(self.attention, at, seen.shape[1])
        cells = np.where(seen, np.rint(score.value / width), -np.inf)
        best = cells.max(axis=-1, keepdims=True)
        members = (cells == best) & seen
        others = seen & ~members
        off = safe_radius(score)
        # The least that a member may be, the most, and the most that another key may be.
        low = np.where(members, score.value - off, np.inf).min(axis=-1)
        high = np.where(members, score.value + off, -np.inf).max(axis=-1)
        next_ = np.where(others, score.value + off, -np.inf).max(axis=-1)
        count = members.sum(axis=-1)
        with np.errstate(invalid="ignore"):
            # Exact scores are few enough units for their difference to be exact too.
            gap = (low - next_) * (1.0 if score.exact else 1 - 8 * UNIT)
            spread = inflated(high - low, 2)
        # Members of one class have equal rows, and so equal scores: their spread is 0,
        # whatever float64 made of it.
        classes = self.classes[:, None]
        largest = np.where(members, classes, -1).max(axis=-1)
        least = np.where(members, classes, NO_CLASS).min(axis=-1)
        spread = np.where((count > 1) & (largest > least), spread, 0.0)
        gap = np.where(others.any(axis=-1), gap, np.inf)
        # A neighbouring cell could be the same one but for rounding.
        beside = (cells == best - 1).any(axis=-1) & (count > 0)
        if np.any(beside | (gap <= 0)):
            row = tuple(np.argwhere(beside | (gap <= 0))[0])
            raise TieError(
                f"{self.name}, row {at[row[1]]}: the best score {low[row]!r} and the next "
                f"{next_[row]!r} stand in one score cell or in neighbouring ones, so "
                "rounding decides the winner; widen or shrink tie_resolution"
            )
        self.tied_rows += int((count > 1).sum())
        self.gap = min(self.gap, float(gap.min()))
        self.spread = max(self.spread, float(spread.max()))
        odds = np.where(count > 0, others.sum(axis=-1) / np.maximum(count, 1), 0)
        self.odds = max(self.odds, float(odds.max()))
        return members

    def score(self, rows: Rows, seen: Bool[np.ndarray, "rows keys"]) -> Enclosed:
        """Scores of query rows `rows` with all keys; updates the largest visible |score|."""
        score = score_block(self.query[:, rows], self.key)
        size = np.where(seen, np.abs(score.value) + score.radius, 0.0).max()
        self.score_size = max(self.score_size, float(size))
        return score

    def measure(self) -> HeadMeasure:
        """Returns the head's measure over all rows attended so far."""
        maps = self.maps
        by_query = linear(self.query, np.ascontiguousarray(maps.key[0].T))
        by_key = linear(self.key, np.ascontiguousarray(maps.query[0].T))
        # Kᵀq and Qᵀk/√d_k: a query has been divided, a key has not.
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
            # A unique-hard head picks one of the equal scores, softmax none.
            uniform=maps.uniform and not weighting.side,
            averages=not weighting.side,
            tied_rows=self.tied_rows,
            gap=self.gap,
            spread=self.spread,
            # More than the rounding of a quotient.
            odds=self.odds * (1 + 2.0**-50),
            pull=pull * (1 + 2.0**-50),
            curvature=maps.curvature,
            half_range=half.max(axis=0),
            gain=magnitude(maps.written),
            score_size=self.score_size,
            score_error=rounding * self.score_size,
        )


def cell_width(
    attention: Attention, at: Rows, length: int
) -> Float[np.ndarray, "rows 1"]:
    """Width of each row's score cells, in scores before division by the temperature."""
    dtype = attention.query.dtype
    width = attention.weighting.resolution(dtype) * np.ones((len(at), 1))
    if attention.temperature is None:
        return width
    rows = jnp.asarray(at, jnp.int32)
    tau = np.asarray(attention.temperature(length, rows, dtype), np.float64)
    return width * tau.reshape(-1, 1)


def measure_structure(model: Transformer, inputs: AllInputs) -> HardMeasure:
    """`HardMeasure` of a one-layer hard model over all inputs of a length, not listed."""
    (layer,) = model.layers
    n = inputs.length
    # In the first layer a row depends on its position and its symbol alone, so that every row
    # and key that any input can bring is one of n V candidates. Ranges, gains and sizes over
    # all inputs are theirs. Beyond one layer rows depend on whole inputs, which have to be
    # listed.
    symbols = [inputs.symbols] * n
    symbols[inputs.query] = inputs.query_symbols
    at = np.repeat(np.arange(n), [len(some) for some in symbols])
    symbol = np.concatenate(symbols)
    embedding = np.asarray(model.embedding, np.float64)
    place = np.asarray(encode_positions(model, n), np.float64)[at]
    rows = (Enclosed.exactly(embedding[symbol]) + Enclosed.exactly(place))[None]
    classes = _equal_rows(symbol[None], embedding, place)
    heads = _read_passes(layer.attention, rows, classes, "layers.0")
    step = max(1, MOST_SCORES // len(at))
    for head, start in itertools.product(heads, range(0, len(at), step)):
        _look(head, np.arange(start, min(start + step, len(at))), at, n)
    measured = tuple(head.measure() for head in heads)
    measure = LayerMeasure(measured, *read_gains(layer.feed_forward))
    return HardMeasure(n, (measure,), inputs.num_inputs)


def _look(head: HeadPass, block: Rows, at: Candidates, n: int) -> None:
    """Updates the measure of `head`, with the candidates numbered `block` as queries."""
    own = np.arange(len(at))
    mask = visible_keys(head.attention.sight, at[block], np.arange(n))
    # At its own position a row sees its own symbol alone.
    seen = mask[:, at] & ((at[block][:, None] != at) | (block[:, None] == own))
    score = head.score(block, seen)[0]
    width = cell_width(head.attention, at[block], n)
    cells = np.where(seen, np.rint(score.value / width), -np.inf)
    off = safe_radius(score).max(axis=1, where=seen, initial=0.0)
    # The gap from below: the maximum of a row is at least M, the largest over positions of
    # the position's least score, and the next score is at another position. So the least
    # difference of a candidate's score >= M and the next lower one at another position is a
    # lower bound; it is the gap itself where the other positions can stay below.
    floor = _least_maximum(cells, at)
    visible = mask.sum(axis=1)
    # At worst one maximum against all other keys that the row sees.
    head.odds = max(head.odds, float(np.maximum(visible - 1, 0).max()))
    for row in np.flatnonzero(visible > 1):
        shown = np.flatnonzero(seen[row])
        name = f"{head.name}, row {at[block[row]]}"
        scores = score.value[row, shown], cells[row, shown]
        own = at[shown], head.classes[0, shown]
        gap, spread = _levels(*scores, *own, floor[row], off[row], name)
        if np.isfinite(gap):
            # Both scores of a gap may be off by the largest radius of the row.
            gap = (gap - 2 * off[row]) * (1.0 if off[row] == 0 else 1 - 8 * UNIT)
            if gap <= 0:
                raise TieError(
                    f"{name}: two scores are closer than they are rounded, "
                    f"{off[row]:.3g}, so rounding could decide the winner; widen "
                    "tie_resolution"
                )
        head.gap = min(head.gap, gap)
        if spread is not None:
            head.tied_rows += 1
            head.spread = max(head.spread, float(inflated(np.asarray(spread), 3)))


def _least_maximum(
    cells: Float[np.ndarray, "rows candidates"], at: Candidates
) -> Float[np.ndarray, "rows"]:
    """Lowest cell, over all inputs, that each query row's largest score can have."""
    # Candidates stand position by position: `reduceat` takes each position's least cell.
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    hidden = np.isneginf(cells)
    least = np.minimum.reduceat(np.where(hidden, np.inf, cells), starts, axis=1)
    return np.where(np.isinf(least), -np.inf, least).max(axis=1)


def _levels(
    scores: Float[np.ndarray, "candidates"],
    cells: Float[np.ndarray, "candidates"],
    at: Candidates,
    classes: Candidates,
    floor: float,
    off: float,
    name: str,
) -> tuple[float, float | None]:
    """Least gap from a row's best score to the next, and widest tie or None; all inputs."""
    # From the highest score down; a level is a run of candidates in one cell.
    order = np.argsort(-scores, kind="stable")
    scores, cells, at, classes = (x[order] for x in (scores, cells, at, classes))
    first = np.flatnonzero(np.diff(cells, prepend=np.inf))
    last = np.append(first[1:], len(cells)) - 1
    gap, ties = np.inf, []
    for level, (begin, end) in enumerate(zip(first, last, strict=True)):
        # No maximum is lower: some position's score is as high whatever its symbol.
        if cells[begin] < floor:
            break
        members = set(at[begin : end + 1].tolist())
        if len(members) > 1:
            # One class has equal rows, whose scores are equal however they were rounded.
            equal = len(set(classes[begin : end + 1].tolist())) == 1
            wide = float(scores[begin] - scores[end])
            ties.append(0.0 if equal else wide + 2 * off)
        # The runner-up is the first level below with a position that is no member's.
        for below in range(level + 1, len(first)):
            others = set(at[first[below] : last[below] + 1].tolist())
            if len(members) > 1 or others - members:
                if cells[first[below]] == cells[begin] - 1:
                    raise TieError(
                        f"{name}: scores {float(scores[end])!r} and "
                        f"{float(scores[first[below]])!r} stand in neighbouring score "
                        "cells, so rounding could decide the winner; widen or shrink "
                        "tie_resolution"
                    )
                gap = min(gap, float(scores[end] - scores[first[below]]))
                break
    return gap, max(ties, default=None)
