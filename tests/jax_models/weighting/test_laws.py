"""Every weighting passes every law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.weighting import WEIGHTINGS, Column, MovedKeys, contract, spread_of
from tests.jax_models.weighting.laws import LAWS, lift
from tests.jax_models.weighting.rows import CASES

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_law(name, law):
    LAWS[law](WEIGHTINGS[name]())


@pytest.mark.parametrize("case", CASES)
def test_the_top_columns_weight_is_the_largest_and_the_rest_its_complement(case):
    softmax, rows = WEIGHTINGS["softmax"](), CASES[case]
    found, sees = lift(softmax, rows), rows.visible.any(axis=1)
    weights = np.asarray(softmax.weights(jnp.asarray(rows.scores), rows.visible))
    np.testing.assert_allclose(found.top_weight, weights.max(axis=-1), rtol=1e-14)
    rest = np.sort(weights, axis=-1)[..., :-1].sum(axis=-1)
    np.testing.assert_allclose(found.rest_weight[:, sees], rest[:, sees], rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_the_float_type_survives_every_operation(name, dtype):
    weighting = WEIGHTINGS[name]()
    h, r, k, v = 2, 3, 4, 5

    def floats(*shape):
        return jax.ShapeDtypeStruct(shape, dtype)

    index = jax.ShapeDtypeStruct((k,), "int32")
    seen = jax.ShapeDtypeStruct((r, k), "bool")

    def run(scores, values, index, seen):
        summary = weighting.lift(scores, values, index, seen)
        value = values.swapaxes(1, 2)
        column = Column(index, scores, scores, value, value, seen)
        moved = MovedKeys(
            index,
            scores,
            scores,
            seen,
            spread_of(weighting, values),
            lambda w: contract(w, values),
        )
        change = weighting.merge_change(*[weighting.lift_change(summary, moved)] * 2)
        rows = jnp.arange(r, dtype=jnp.int32)
        reports = (
            weighting.ties(summary, rows),
            weighting.ties_replaced(summary, column, rows),
            weighting.ties_changed(change, rows),
        )
        return (
            weighting.weights(scores, seen),
            weighting.merge(summary, summary),
            weighting.read(summary),
            weighting.replace(summary, column),
            weighting.read_change(change),
            reports,
        )

    found = jax.eval_shape(run, floats(h, r, k), floats(h, k, v), index, seen)
    assert found[0].shape == (h, r, k)
    assert found[2].shape == (h, r, v)
    assert found[3].shape == (r, h, v, k)
    assert found[4].shape == (h, r, v)
    for leaf in jax.tree.leaves(found):
        assert leaf.dtype in (jnp.dtype(dtype), jnp.dtype("int32"), jnp.dtype(bool))
