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


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("one_for_all", [True, False])
def test_cotangents_are_pulled_as_jax_pulls_them(case, one_for_all):
    layer, rng = build(case).layers[0], np.random.default_rng(0)
    program = layer.writes
    width = layer.attention.num_heads * layer.attention.value.shape[1]
    given = {
        "y": jnp.asarray(rng.normal(size=(ROWS, 8))),
        "heads": jnp.asarray(rng.normal(size=(ROWS, width))),
    }
    out = (8,) if one_for_all else (ROWS, 2, 8)
    wanted = jnp.eye(8) if one_for_all else jnp.asarray(rng.normal(size=out))
    found = pull(program, program.value(given), {"out": wanted})
    run = lambda row: program.value(row)["out"]
    each = jnp.broadcast_to(wanted, (ROWS, *wanted.shape[-2:]))
    for at in range(ROWS):
        row = {name: x[at] for name, x in given.items()}
        jacobians = jax.jacobian(run)(row)
        for name, jacobian in jacobians.items():
            pulled = jnp.broadcast_to(found[name], (ROWS, *found[name].shape[-2:]))
            np.testing.assert_allclose(pulled[at], each[at] @ jacobian, 1e-11, 1e-11)


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
