"""The substituted column seen from other rows, by its definition from the n x n weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.certificate.base_radius import rule_of
from bounds.lemma5.certificate.mean_deviation import inflate
from bounds.lemma5.certificate.own_column import see_column
from bounds.lemma5.certificate.pointwise import OwnMove
from tests.bounds.lemma5.certificate.one_layer import (
    EVERY,
    D,
    N,
    draw_layer,
    one_tile,
    prepared,
)
from tests.bounds.lemma5.certificate.plain_lemma import PlainLayer, around

ABOVE = ("farthest", "steepest")


def seen_plainly(plain, rows, centre, j, i, head):
    """The numbers of one row, key i and head, each by its definition."""
    found = around(plain, head, rows, centre, j, i, False)
    # Of dot products the query is over the scale, not the slope.
    steep = found.steep * (1.0 if plain.additive else plain.scale)
    return {
        "weight": found.weight,
        "remain": found.remain,
        "shift": found.shift,
        "jump": found.away[i],
        "steep": steep[i],
        "farthest": found.away[found.others].max(),
        "steepest": steep[found.others].max(),
    }


@jax.jit
def see_all(held, centre):
    """Every column as every row sees it once it has moved."""
    known, own = held.radius.by_row, OwnMove(EVERY, centre, jnp.zeros(N))
    inflation = inflate(rule_of(held, EVERY), held, known)
    return see_column(held, one_tile(held, inflation), own)


@pytest.mark.parametrize(
    ("score", "scale"),
    # Larger scores: often the substituted column is the top one.
    [("scaled_dot_product", 1.0), ("scaled_dot_product", 3.0), ("additive", 2.0)],
)
def test_distances_are_from_the_mean_of_the_others(score, scale):
    layer = draw_layer({"mask": "none", "score": score, "combine": "residual"})
    rng = np.random.default_rng(0)
    rows, centre = scale * rng.normal(size=(N, D)), rng.normal(size=(N, D))
    found = see_all(prepared(layer, rows), jnp.asarray(centre))
    numbers = {x: np.asarray(y) for x, y in vars(found).items() if y is not None}
    plain, tops, closest = PlainLayer(layer, N), 0, dict.fromkeys(ABOVE, np.inf)
    for i, j, head in np.ndindex(N, N, plain.h):
        if i == j:
            continue
        exact = seen_plainly(plain, rows, centre, j, i, head)
        at = {x: float(numbers[x][head, j, i]) for x in exact}
        top = bool(numbers["is_top"][head, j, i])
        tops += top
        # What the column's own share hides of the plain difference.
        close = {"rel": 1e-9, "abs": 1e-12 * scale}
        for name in ("weight", "remain", "shift"):
            assert at[name] == pytest.approx(exact[name], **close)
        for name in ("jump", "steep", *ABOVE):
            assert at[name] >= exact[name] * (1 - 1e-9)
            if top and name not in ABOVE:
                assert at[name] == pytest.approx(exact[name], **close)
        closest |= {x: min(closest[x], at[x] / exact[x]) for x in ABOVE}
    assert 3 < tops < N * (N - 1) * plain.h / 2
    assert all(x < 1.3 for x in closest.values())
