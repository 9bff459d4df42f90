"""Registered dataclasses: distinct classes are distinct structures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.reweight import at_length
from jax_models.model.temperature import ConstantTemperature, InverseLogTemperature
from tests.architecture import small_model


def test_a_compiled_function_is_never_taken_for_another_class():
    known = [kind() for kind in jm.WEIGHTINGS.values()]
    known += [ConstantTemperature(1.0), InverseLogTemperature(1.0)]

    @jax.jit
    def place(one, x):
        return x * list(map(type, known)).index(type(one))

    for at, one in enumerate(known):
        assert place(one, jnp.ones(())) == at


def repeated():
    shape = {"num_layers": 4, "d_ff": 3, "vocab_size": 3, "dtype": "float64"}
    return small_model(**shape, same_layers=(0, 0, 2, 0))


def pattern(model):
    return [[one is other for one in model.layers] for other in model.layers]


def apart(model):
    """The same model, each layer an object of its own."""
    layers = tuple(jax.tree.map(lambda x: x, layer) for layer in model.layers)
    return dataclasses.replace(model, layers=layers)


CHANGES = {
    "tree.map": lambda model: jax.tree.map(lambda x: 2 * x, model),
    "with_dtype": lambda model: jm.with_dtype(model, "float32"),
    "with_weighting": lambda model: jm.with_weighting(model, "average_hard"),
    "with_temperature": lambda model: jm.with_temperature(model, 2.0),
    "at_length": lambda model: at_length(model, 5),
    "jit": jax.jit(lambda model: jax.tree.map(lambda x: x + 1, model)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_layer_in_several_places_stays_one(name):
    model = repeated()
    changed = CHANGES[name](model)
    assert pattern(changed) == pattern(model)
    assert changed.layers[0] is not model.layers[0]


def test_one_layer_in_several_places_has_its_weights_once():
    model = repeated()
    leaves, structure = jax.tree.flatten(model)
    assert len(leaves) == 1 + 2 * len(jax.tree.leaves(model.layers[0]))
    assert structure != jax.tree.structure(apart(model))
    assert pattern(jax.tree.unflatten(structure, leaves)) == pattern(model)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(model)]
    assert len(set(map(jax.tree_util.keystr, paths))) == len(leaves)


def test_a_derivative_by_a_layer_sums_over_its_places():
    model, tokens = repeated(), jnp.asarray([0, 2, 1])
    loss = lambda model: (jm.forward(model, tokens)[0] ** 2).sum()
    slope = jax.jit(jax.grad(loss))
    one = slope(model).layers[0].feed_forward.w1
    each = [x.feed_forward.w1 for x in slope(apart(model)).layers]
    np.testing.assert_allclose(one, each[0] + each[1] + each[3], 1e-12)


def test_jax_may_put_its_own_marks_in_place_of_layers():
    model = repeated()
    structure = jax.tree.structure(model)
    marked = jax.tree.unflatten(structure, [0] * structure.num_leaves)
    assert jax.tree.structure(marked) == structure
    scaled = jax.vmap(lambda model, x: model.embedding * x, (None, 0))
    assert scaled(model, jnp.arange(2.0)).shape == (2, 3, 4)
