"""Measure of a one-layer hard model over all inputs of a length, without listing them.

In the first layer a row depends on its position and its symbol alone, so that every row
and key that any input can bring is one of n V candidates. Ranges, gains and sizes over
all inputs are theirs. So is the gap, from below: the maximum of a row is at least M, the
largest over positions of the position's least score, and the next score is at another
position. So the least difference of a candidate's score >= M and the next lower one at
another position is a lower bound; it is the gap itself where the other positions can
stay below. Beyond one layer rows depend on whole inputs, which have to be listed.
"""

import numpy as np
from jaxtyping import Float, Int

from bounds.all_inputs.universe import AllInputs
from bounds.restriction.enclosed import Enclosed, inflated
from bounds.simulation.hard_scores import UNIT, safe_radius, score_block
from bounds.simulation.measure import MOST_SCORES, HeadPass, cell_width, mask_block
from bounds.simulation.measured import HardMeasure, LayerMeasure
from bounds.simulation.paper_shape import (
    check_simulable,
    magnitude,
    read_gains,
    read_heads,
)
from jax_models import TieError, Transformer
from jax_models.model.transformer import encode_positions


def measure_structure(model: Transformer, inputs: AllInputs) -> HardMeasure:
    """Measures a one-layer hard model over all its inputs, for a certificate."""
    check_simulable(model)
    (layer,) = model.layers
    n = inputs.length
    at, symbol = _candidates(inputs)
    embedding = np.asarray(model.embedding, np.float64)[symbol]
    place = np.asarray(encode_positions(model, n), np.float64)[at]
    rows = (Enclosed.exactly(embedding) + Enclosed.exactly(place))[None]
    kinds = np.unique(np.hstack([embedding, place]), axis=0, return_inverse=True)[1]
    classes = kinds.reshape(1, -1)
    heads = []
    exact = rows.exact
    for h, maps in enumerate(read_heads(layer.attention)):
        head = HeadPass(layer.attention, maps, rows, classes, f"layers.0, head {h}")
        step = max(1, MOST_SCORES // len(at))
        for start in range(0, len(at), step):
            block = np.arange(start, min(start + step, len(at)))
            _look(head, block, at, n)
        heads.append(head.measure())
        exact = exact and head.exact
    w1, w2 = read_gains(layer.feed_forward)
    size = float(magnitude(rows).max())
    measure = LayerMeasure(tuple(heads), w1, w2, size)
    return HardMeasure(n, (measure,), inputs.num_inputs, exact)


def _candidates(
    inputs: AllInputs,
) -> tuple[Int[np.ndarray, "candidates"], Int[np.ndarray, "candidates"]]:
    """Positions and symbols of all candidates, position by position."""
    symbols = [inputs.symbols] * inputs.length
    symbols[inputs.query] = inputs.query_symbols
    counts = [len(some) for some in symbols]
    return np.repeat(np.arange(inputs.length), counts), np.concatenate(symbols)


def _look(
    head: HeadPass,
    block: Int[np.ndarray, "rows"],
    at: Int[np.ndarray, "candidates"],
    n: int,
) -> None:
    """Update a head's measure by the rows of some candidates."""
    score = score_block(head.query[:, block], head.key)[0]
    own = np.arange(len(at))
    seen = mask_block(head.attention, at[block], n)[:, at]
    # At its own position a row sees its own symbol alone.
    seen = seen & ((at[block][:, None] != at) | (block[:, None] == own))
    width = cell_width(head.attention, at[block], n)
    cells = np.where(seen, np.rint(score.value / width), -np.inf)
    off = safe_radius(score).max(axis=1, where=seen, initial=0.0)
    head.exact = head.exact and score.exact
    size = np.where(seen, np.abs(score.value) + score.radius, 0.0).max()
    head.score_size = max(head.score_size, float(size))
    floor = _least_maximum(cells, at)
    visible = mask_block(head.attention, at[block], n).sum(axis=1)
    head.odds = max(head.odds, float(np.maximum(visible - 1, 0).max()))
    for row in np.flatnonzero(visible > 1):
        shown = np.flatnonzero(seen[row])
        gap, spread = _levels(
            score.value[row, shown],
            cells[row, shown],
            at[shown],
            head.classes[0, shown],
            floor[row],
            off[row],
            f"{head.name}, row {at[block[row]]}",
        )
        if np.isfinite(gap):
            gap = (gap - 2 * off[row]) * (1.0 if off[row] == 0 else 1 - 8 * UNIT)
            if gap <= 0:
                raise TieError(
                    f"{head.name}, row {at[block[row]]}: two scores are closer than "
                    f"they are rounded, {off[row]:.3g}, so rounding could decide the "
                    "winner; widen tie_resolution"
                )
        head.gap = min(head.gap, gap)
        if spread is not None:
            head.tied_rows += 1
            head.spread = max(head.spread, float(inflated(np.asarray(spread), 3)))


def _least_maximum(
    cells: Float[np.ndarray, "rows candidates"], at: Int[np.ndarray, "candidates"]
) -> Float[np.ndarray, "rows"]:
    """The lowest cell that the maximum of each row can have."""
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    hidden = np.isneginf(cells)
    least = np.minimum.reduceat(np.where(hidden, np.inf, cells), starts, axis=1)
    return np.where(np.isinf(least), -np.inf, least).max(axis=1)


def _levels(
    scores: Float[np.ndarray, "candidates"],
    cells: Float[np.ndarray, "candidates"],
    at: Int[np.ndarray, "candidates"],
    classes: Int[np.ndarray, "candidates"],
    floor: float,
    off: float,
    name: str,
) -> tuple[float, float | None]:
    """The least distance of a maximum from the next score, and the widest tie, of a row."""
    order = np.argsort(-scores, kind="stable")
    scores, cells, at, classes = scores[order], cells[order], at[order], classes[order]
    first = np.flatnonzero(np.diff(cells, prepend=np.inf))
    last = np.append(first[1:], len(cells)) - 1
    gap, ties = np.inf, []
    for level, (begin, end) in enumerate(zip(first, last, strict=True)):
        if cells[begin] < floor:
            break
        members = set(at[begin : end + 1].tolist())
        if len(members) > 1:
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
