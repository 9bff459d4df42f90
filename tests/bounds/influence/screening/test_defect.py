"""The bounds on what the derivative of a norm leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.screening.defect import (
    SECOND_DERIVATIVE,
    Moved,
    defect,
    gain,
    norm_defect,
)
from jax_models.model.rows import ACTIVATIONS, LayerNorm, Product

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


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_reach_that_is_no_number_bounds_nothing(activation):
    at, reach = jnp.ones((1, WIDTH)), jnp.full(1, jnp.nan)
    assert np.isnan(gain(ACTIVATIONS[activation], (at,), reach)).all()
    bounds = norm_defect(_norm(1.0), at, at[..., None], reach[None])
    assert np.isnan(bounds).all()


@pytest.mark.parametrize("epsilon", [1e-5, 1.0])
def test_no_change_goes_beyond_the_bounds_and_some_come_near(epsilon):
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
    found = jax.vmap(difference)(*arguments)
    rest, moved, slope = (np.linalg.norm(x, axis=1) for x in found)
    size = jnp.linalg.norm(arguments[2], axis=1)[:, None]
    bounds = norm_defect(norm, arguments[0], arguments[1][..., None], size)
    defect, reach = (np.asarray(x)[:, 0] for x in bounds)
    slack = 1e-13 * (1 + reach)
    assert (rest <= defect + slack).all()
    assert (moved <= reach + slack).all()
    assert (slope <= reach + slack).all()
    shows = rest > 1e-9
    assert (rest[shows] / defect[shows]).max() > 0.3


BENT = {**ACTIVATIONS, "product": Product()}


def entries(name):
    """Base, known and unknown changes [rows, entries], of one row or of two."""
    rng = np.random.default_rng(2)
    count = 2 if name == "product" else 1
    base = 2 * rng.normal(size=(count, ROWS, WIDTH))
    scale = 10.0 ** rng.uniform(-4, 1, (2, count, ROWS, 1))
    known, unknown = scale * rng.normal(size=(2, count, ROWS, WIDTH))
    return [jnp.asarray(x) for x in (base, known, unknown)]


@pytest.mark.parametrize("name", BENT)
def test_entries_stay_within_their_defect_and_some_come_near(name):
    operation = BENT[name]
    base, known, unknown = entries(name)
    _, slope = jax.jvp(operation, tuple(base), tuple(unknown))
    there = base + known
    rest = np.abs(operation(*(there + unknown)) - operation(*there) - slope)
    rows = zip(base, known[..., None], jnp.abs(unknown)[..., None], strict=True)
    bound = np.asarray(defect(operation, *(Moved(*row) for row in rows)))[..., 0]
    assert (rest <= bound + 1e-12 * (1 + np.abs(slope) + bound)).all()
    shows = rest > 1e-9
    assert (rest[shows] / bound[shows]).max() > 0.9


@pytest.mark.parametrize("name", BENT)
def test_no_path_leads_further_than_the_gain(name):
    operation = BENT[name]
    base, _, unknown = entries(name)
    moved = np.linalg.norm(operation(*(base + unknown)) - operation(*base), axis=1)
    reach = jnp.linalg.norm(unknown, axis=-1)
    bound = np.asarray(gain(operation, tuple(base), *(x[None] for x in reach)))[0]
    assert (moved <= bound * (1 + 1e-12) + 1e-12).all()
    assert (moved / bound).max() > 0.9


def test_a_defect_without_the_second_order_is_caught(monkeypatch):
    wrong = lambda one, two: one[2] * jnp.abs(two[1]) + jnp.abs(one[1]) * two[2]
    monkeypatch.setitem(globals(), "defect", lambda _, *rows: wrong(*rows))
    with pytest.raises(AssertionError):
        test_entries_stay_within_their_defect_and_some_come_near("product")
