"""The check of shapes notices a wrong one, and runs where it is asked for."""

import contextlib
import importlib
import os

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from jax_models.model.mask import Sight
from tests import shapes

PLANTED = """
from jax import Array
from jaxtyping import Float

def scores(
    queries: Float[Array, "rows d_k"], keys: Float[Array, "keys d_k"]
) -> Float[Array, "{axes}"]:
    return queries @ keys.T
"""


@pytest.fixture
def scores(tmp_path, monkeypatch):
    """Make a checked function that declares its result to have some axes."""

    def make(axes):
        name = "planted_" + axes.replace(" ", "_")
        (tmp_path / f"{name}.py").write_text(PLANTED.format(axes=axes))
        with shapes.check_packages(name):
            return importlib.import_module(name).scores

    monkeypatch.syspath_prepend(tmp_path)
    return make


@pytest.mark.parametrize("axes", ["keys rows", "rows d_k", "rows", "rows keys _"])
def test_a_wrong_axis_of_a_result_is_caught(scores, axes):
    queries, keys = jnp.ones((2, 5)), jnp.ones((3, 5))
    assert scores("rows keys")(queries, keys).shape == (2, 3)
    with pytest.raises(TypeCheckError, match="return value"):
        scores(axes)(queries, keys)


def test_arguments_that_do_not_fit_together_or_have_another_type_are_caught(scores):
    queries, keys = jnp.ones((2, 5)), jnp.ones((3, 5))
    for wrong in (jnp.ones((5, 3)), jnp.ones(5), jnp.ones((3, 5), int)):
        with pytest.raises(TypeCheckError, match="parameters"):
            scores("rows keys")(queries, wrong)
    with pytest.raises(TypeCheckError, match="parameters"):
        scores("rows keys")(queries, keys.tolist())


@pytest.mark.long
def test_long_tests_check_the_packages_and_others_do_not():
    wanted = os.environ.get("CHECK_SHAPES")
    caught = pytest.raises(TypeCheckError) if wanted else contextlib.nullcontext()
    with caught:
        Sight(end=2).present(jnp.ones((2, 3), int))
