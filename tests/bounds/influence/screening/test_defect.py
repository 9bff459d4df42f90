"""The bounds on what the derivative of a norm leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.screening.defect import (
    SECOND_DERIVATIVE,
    deviations,
    norm_defect,
)
from jax_models.model.rows import LayerNorm

WIDTH, ROWS = 4, 20_000


def _norm(epsilon):
    scale = jnp.asarray([1.0, -2.0, 0.5, 1.5])
    return LayerNorm(scale, jnp.ones(WIDTH), epsilon)


def test_the_second_derivative_is_at_most_two_over_root_three():
    """The constant is the maximum over all angles and all shares of epsilon."""
    rho, c = np.meshgrid(np.linspace(0, 1, 1001), np.linspace(0, 1, 1001))
    square = rho * ((1 + 2 * c**2 - 3 * rho * c**2) ** 2 + 4 * c**2 * (1 - c**2))
    assert np.sqrt(square.max()) == pytest.approx(SECOND_DERIVATIVE, rel=1e-5)
    assert np.sqrt(square.max()) <= SECOND_DERIVATIVE * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [1e-5, 1.0])
def test_no_change_goes_beyond_the_bounds_and_some_come_near(epsilon):
    """Both bounds hold for known and unknown changes of all sizes and directions."""
    rng = np.random.default_rng(1)
    norm = _norm(epsilon)
    base = rng.normal(size=(ROWS, WIDTH))
    scale = 10.0 ** rng.uniform(-4, 1, (2, ROWS, 1)) * (rng.random((2, ROWS, 1)) < 0.8)
    known, unknown = scale * rng.normal(size=(2, ROWS, WIDTH))

    def difference(row, known, unknown):
        _, slope = jax.jvp(norm, (row,), (unknown,))
        moved = norm(row + known + unknown) - norm(row + known)
        return moved - slope, moved, slope

    arguments = [jnp.asarray(x) for x in (base, known, unknown)]
    rest, moved, slope = (
        np.linalg.norm(x, axis=1) for x in jax.vmap(difference)(*arguments)
    )
    deviation = deviations(norm, arguments[0])
    sizes = [jnp.linalg.norm(x, axis=1) for x in arguments[1:]]
    defect, reach = (np.asarray(x) for x in norm_defect(norm, deviation, *sizes))
    slack = 1e-13 * (1 + reach)
    assert (rest <= defect + slack).all()
    assert (moved <= reach + slack).all()
    assert (slope <= reach + slack).all()
    shows = rest > 1e-9
    assert (rest[shows] / defect[shows]).max() > 0.3
