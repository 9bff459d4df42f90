"""Registered dataclasses: distinct classes are distinct structures."""

import itertools

import jax
import jax.numpy as jnp

import jax_models as jm
from jax_models.model.temperature import ConstantTemperature, InverseLogTemperature


def test_weightings_with_the_same_fields_are_distinct_structures():
    structures = [jax.tree.structure(kind()) for kind in jm.WEIGHTINGS.values()]
    for one, two in itertools.combinations(structures, 2):
        assert one != two
    assert jax.tree.structure(ConstantTemperature(1.0)) != jax.tree.structure(
        InverseLogTemperature(1.0)
    )


def test_jaxs_own_registration_would_confuse_them():
    # Why `register` exists; when this fails, JAX has been mended and it can go.
    import dataclasses

    def make(name):
        made = dataclasses.make_dataclass(name, [("x", int)], frozen=True)
        return jax.tree_util.register_dataclass(made, data_fields=["x"], meta_fields=[])

    one, two = make("One"), make("Two")
    assert jax.tree.structure(one(1)) == jax.tree.structure(two(1))


def test_a_compiled_function_is_never_taken_for_another_weightings():
    @jax.jit
    def name(weighting, x):
        return x * list(jm.WEIGHTINGS).index(weighting.name)

    for at, kind in enumerate(jm.WEIGHTINGS.values()):
        assert name(kind(), jnp.ones(())) == at


def test_static_fields_and_children_survive_flattening():
    term = jm.PowerTerm(0, 2)
    position = jm.Coordinates((term,))
    leaves, structure = jax.tree.flatten(position)
    assert leaves == []
    assert jax.tree.unflatten(structure, leaves) == position
    assert hash(structure) == hash(
        jax.tree.structure(jm.Coordinates((jm.PowerTerm(0, 2.0),)))
    )
