"""Power iteration gives singular values, from below, of every map at once."""

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.lipschitz.jacobian import power_iteration

pytestmark = pytest.mark.usefixtures("quick_compilation")
RANDOM = np.random.default_rng(3)
# Two orders of magnitude apart, rank one, zero, and two equal singular values.
MAPS = np.stack(
    [
        RANDOM.standard_normal((5, 4)),
        1e-9 * RANDOM.standard_normal((5, 4)),
        np.outer(RANDOM.standard_normal(5), RANDOM.standard_normal(4)),
        np.zeros((5, 4)),
        np.eye(5, 4),
        1e200 * RANDOM.standard_normal((5, 4)),
    ]
)
START = jnp.asarray(RANDOM.standard_normal((len(MAPS), 4)))


def iterate(maps, iterations, transposed=None):
    transposed = maps if transposed is None else transposed
    return power_iteration(
        lambda v: jnp.einsum("bmd,bd->bm", maps, v),
        lambda u: jnp.einsum("bmd,bm->bd", transposed, u),
        START,
        iterations,
    )


def singular_values(maps):
    return np.linalg.svd(maps, compute_uv=False)[:, 0]


def test_many_iterations_give_the_operator_norm():
    # The iteration stops when a norm grows by less than 1e-10 of itself; with a gap
    # the rest to come is of that size.
    norms, vectors, count = iterate(MAPS, 2000)
    np.testing.assert_allclose(norms, singular_values(MAPS), rtol=1e-7)
    assert 1 < int(count) < 2000
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_few_iterations_give_no_more_than_the_operator_norm(iterations):
    norms, vectors, count = iterate(MAPS, iterations)
    assert (np.asarray(norms) <= singular_values(MAPS) * (1 + 1e-14)).all()
    attained = np.linalg.norm(np.einsum("bmd,bd->bm", MAPS[:5], vectors[:5]), axis=1)
    np.testing.assert_allclose(norms[:5], attained, rtol=1e-12)
    assert int(count) <= iterations


def test_a_wrong_transpose_is_caught():
    norms, *_ = iterate(MAPS, 2000, transposed=MAPS[:, ::-1])
    assert not np.allclose(norms, singular_values(MAPS), rtol=1e-3)
