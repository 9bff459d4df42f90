"""Cotangents pulled back through a layer are the transposed derivative."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.readings.slopes import pull, slope
from jax_models import InputError
from jax_models.model.rows import Operation
from tests.bounds.influence.models import build

ROWS = 3
CASES = [
    {"combine": "residual"},
    {"combine": "concat"},
    {"layer_norm": "pre"},
    {"gated": True, "activation": "silu"},
    {"layer_norm": "post", "activation": "gelu"},
]


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cotangents_are_pulled_as_jax_pulls_them(case):
    """One for all rows, and some for each of them."""
    layer, rng = build(case).layers[0], np.random.default_rng(0)
    program = layer.writes
    width = layer.attention.num_heads * layer.attention.value.shape[1]
    given = {
        "y": jnp.asarray(rng.normal(size=(ROWS, 8))),
        "heads": jnp.asarray(rng.normal(size=(ROWS, width))),
    }
    run = lambda row: program.value(row)["out"]
    jacobians = jax.jit(jax.vmap(jax.jacobian(run)))(given)
    for wanted in (jnp.eye(8), jnp.asarray(rng.normal(size=(ROWS, 2, 8)))):
        found = pull(program, program.value(given), {"out": wanted})
        for name, jacobian in jacobians.items():
            np.testing.assert_allclose(
                *np.broadcast_arrays(found[name], wanted @ jacobian), 1e-11, 1e-11
            )


@dataclasses.dataclass(frozen=True)
class Unknown(Operation):
    """An operation that nobody has a rule for."""

    linear: ClassVar[bool] = True

    def __call__(self, *rows):
        return rows[0]

    change = __call__


def test_an_operation_without_a_rule_is_refused_by_name():
    with pytest.raises(InputError, match="a rule for slope of Unknown"):
        slope(Unknown(), (None,), jnp.eye(2))
