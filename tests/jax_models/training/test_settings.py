"""The curriculum draws the lengths that it says, shorter ones first where they grow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm

pytestmark = pytest.mark.usefixtures("quick_compilation")


def drawn(training, step, count=400):
    keys = jax.random.split(jax.random.key(0), count)
    which = jax.vmap(lambda key: training.draw_length(key, jnp.asarray(step)))(keys)
    return {training.lengths[at] for at in np.asarray(which)}


@pytest.mark.parametrize(
    ("length", "num_lengths", "lengths"),
    [(40, 1, (40,)), (40, 4, (10, 20, 30, 40)), (7, 3, (3, 5, 7)), (3, 3, (1, 2, 3))],
)
def test_lengths_are_spaced_evenly_up_to_the_longest(length, num_lengths, lengths):
    assert jm.Training(length, 1, num_lengths=num_lengths).lengths == lengths


def test_every_length_is_drawn_from_the_start_without_growth():
    training = jm.Training(40, 100, num_lengths=4)
    assert drawn(training, 0) == {10, 20, 30, 40}


@pytest.mark.parametrize(
    ("step", "lengths"),
    [
        (0, {10}),
        (16, {10}),
        (17, {10, 20}),
        (33, {10, 20}),
        (34, {10, 20, 30}),
        (50, {10, 20, 30, 40}),
        (99, {10, 20, 30, 40}),
    ],
)
def test_longer_lengths_join_over_the_share_of_the_steps(step, lengths):
    training = jm.Training(40, 100, num_lengths=4, growth=0.5)
    assert drawn(training, step) == lengths
