"""`replace_set`: some columns replaced, by the summary alone, against all seen again."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, MovedKeys, contract, spread_of

pytestmark = pytest.mark.usefixtures("quick_compilation")
HARD = [name for name, weighting in WEIGHTINGS.items() if weighting.hard]
H, ROWS, KEYS, SET, V = 2, 200, 12, 4, 3


def draw(name, levels, seed) -> Any:
    """Weighting, summaries of scores 0 .. levels - 1, all keys moved, and a part."""
    rng = np.random.default_rng(seed)
    weighting = WEIGHTINGS[name]()
    scores = jnp.asarray(rng.integers(0, levels, (H, ROWS, KEYS)), float)
    values = jnp.asarray(rng.normal(size=(H, KEYS, V)))
    seen = jnp.asarray(rng.random((ROWS, KEYS)) < 0.8)
    index = jnp.arange(KEYS, dtype=jnp.int32)
    moving = np.sort(rng.permutation(KEYS)[:SET])
    step = np.zeros((H, ROWS, KEYS))
    step[..., moving] = rng.integers(-levels, levels + 1, (H, ROWS, SET))
    carried = np.zeros((H, KEYS, V))
    carried[:, moving] = rng.normal(size=(H, SET, V))

    def moved(keys):
        return MovedKeys(
            index[keys],
            scores[..., keys],
            jnp.asarray(step[..., keys]),
            seen[:, keys],
            spread_of(weighting, values[:, keys]),
            lambda w: contract(w, jnp.asarray(carried[:, keys])),
        )

    summary = weighting.lift(scores, values, index, seen)
    return weighting, summary, moved(np.arange(KEYS)), moved(moving)


@pytest.mark.parametrize("levels", [2, 5, 40])
@pytest.mark.parametrize("name", HARD)
def test_what_the_summary_decides_is_what_seeing_all_keys_gives(name, levels):
    for seed in range(3):
        weighting, summary, every, some = draw(name, levels, seed)
        whole = weighting.lift_change(summary, every)
        change, decided = weighting.replace_set(summary, some)
        decided = np.asarray(decided)
        assert 0.3 < decided.mean()
        found = np.asarray(weighting.read_change(change))[decided]
        expected = np.asarray(weighting.read_change(whole))[decided]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        # The two best cells too, and how many keys are in the best: the tie report.
        for level in ("first", "second"):
            one, two = (getattr(x.levels, level) for x in (change, whole))
            fields = ["cell", "low", "high"] + ["count"] * (level == "first")
            for field in fields:
                np.testing.assert_array_equal(
                    *(np.asarray(getattr(x, field))[decided] for x in (one, two))
                )


@pytest.mark.parametrize("name", HARD)
def test_what_it_does_not_decide_would_often_be_wrong(name):
    """The claim is not idle: without it rows whose best keys all left go wrong."""
    weighting, summary, every, some = draw(name, 40, 0)
    change, decided = weighting.replace_set(summary, some)
    found = weighting.read_change(change)
    expected = weighting.read_change(weighting.lift_change(summary, every))
    wrong = np.abs(np.asarray(found - expected)).max(axis=-1) > 1e-9
    assert not wrong[np.asarray(decided)].any()
    assert wrong.any()


@pytest.mark.parametrize("name", HARD)
def test_a_score_computed_anew_beside_a_cell_is_left_to_a_second_look(name):
    """A last bit on the edge of the second best cell: which cell it left is not known."""
    weighting: Any = WEIGHTINGS[name](tie_resolution=1.0)
    scores = jnp.asarray([[[9.0, 5.49999, 1.0]]])
    values = jnp.ones((1, 3, 1))
    seen = jnp.ones((1, 3), bool)
    index = jnp.arange(3, dtype=jnp.int32)
    summary = weighting.lift(scores, values, index, seen)
    moved = MovedKeys(
        index[1:2],
        jnp.asarray([[[5.50001]]]),
        jnp.asarray([[[-9.0]]]),
        seen[:, 1:2],
        spread_of(weighting, values[:, 1:2]),
        lambda w: contract(w, values[:, 1:2]),
    )
    _, decided = weighting.replace_set(summary, moved)
    assert not bool(decided.all())
    clear = dataclasses.replace(moved, score=jnp.asarray([[[5.4]]]))
    assert bool(weighting.replace_set(summary, clear)[1].all())
