"""A key of the best two cells touches, however its score is rounded, and few others do."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.first_layer import prepare_layer
from bounds.influence.propagation.sparse import least_scores, touched_rows
from jax_models.weighting.hard import HardWeighting
from tests.bounds.influence.models import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
SCORES = np.array([8.0, 4.0, 4.375, 1.5, 0.25])
IN_BEST_TWO = np.array([True, True, True, False, False])


def scored(resolution) -> Any:
    """A layer of one head where all rows score the keys by the rows' first coordinate."""
    case = {"weighting": "average_hard", "num_layers": 1, "num_heads": 1}
    case |= {"score": "dot_product", "tie_resolution": resolution}
    layer: Any = jax.tree.map(jnp.zeros_like, build(case)).layers[0]
    attention = layer.attention
    attention = dataclasses.replace(
        attention,
        query_bias=attention.query_bias.at[0, 0].set(1),
        key=attention.key.at[0, 0, 0].set(1),
        value=attention.value.at[0, 0, 1].set(1),
    )
    return dataclasses.replace(layer, attention=attention)


@pytest.mark.parametrize(
    ("resolution", "term"),
    [(1.0, "resolution"), (1e-30, "score_roundoff")],
    ids=["wide cells", "narrow cells"],
)
def test_a_score_that_comes_out_lower_touches_still(resolution, term, monkeypatch):
    layer = scored(resolution)
    at = jnp.arange(SCORES.size, dtype=jnp.int32)
    scores = SCORES
    if term == "score_roundoff":  # a second cell of one score
        scores = np.where(SCORES == 4.375, 4.0, SCORES)
    rows = jnp.zeros((SCORES.size, 8)).at[:, 0].set(jnp.asarray(scores))
    base = jax.jit(prepare_layer)(layer, rows, at)
    weighting = layer.attention.weighting
    roundoff = 2 * weighting.score_roundoff(rows.dtype) * SCORES.max()
    lower = 0.9 * (weighting.resolution(rows.dtype) + roundoff)
    # All scores computed anew are lower, by nearly as much as they may be.
    store = dataclasses.replace(base.store, keys=base.store.keys - lower)
    base = dataclasses.replace(base, store=store)
    change = jnp.zeros_like(rows).at[:, 1].set(1)  # values move, and no score does

    def touched():
        program: Any = least_scores  # which would keep the term in its trace
        least = program.__wrapped__(layer, base)
        return np.asarray(touched_rows(layer, base, least, at, at, change)[0]).T

    assert (touched() == IN_BEST_TWO).all()
    # The oracle notices where the term is left out.
    monkeypatch.setattr(HardWeighting, term, lambda *_: 0.0)
    assert not touched()[:, 1].any()
