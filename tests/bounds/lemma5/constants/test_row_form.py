"""Programs that forms cannot hold are refused by name, not read as something smaller."""

import math

import jax.numpy as jnp
import pytest

from bounds.lemma5.constants.row_form import Corner, Form, Reader, read_rows
from jax_models import InputError
from jax_models.model.rows import Affine, Join, LayerNorm, Program, Relu, Step, Sum

MAP, NORM = Affine(2 * jnp.eye(2)), LayerNorm(jnp.ones(2), jnp.zeros(2))


def read(*steps):
    named = [Step(*step) for step in steps]
    norms = {id(NORM): "norm"}
    reader = Reader({"y": Corner(1.0, math.inf, {"y": 1.0})}, norms)
    program = Program(tuple(named), named[-1].name)
    return read_rows(reader, program, {"y": Form(2, {"y": None})})


ACTIVE = ("active", Relu(), ("y",))


def test_a_chain_of_maps_has_the_product_of_their_gains():
    found = read(("once", MAP, ("y",)), ("twice", MAP, ("once",)))
    assert found.gains["y"] == pytest.approx(4, rel=1e-12)
    found = read(ACTIVE, ("out", MAP, ("active",)))
    assert found.gains["y"] == pytest.approx(2, rel=1e-12)


@pytest.mark.parametrize(
    "steps",
    [
        (ACTIVE, ("once", MAP, ("active",)), ("twice", MAP, ("once",))),
        (ACTIVE, ("again", Relu(), ("active",))),
        (ACTIVE, ("normed", NORM, ("active",))),
        (("joined", Join(2), ("y", "y")), ("bent", Relu(), ("joined",))),
        (("joined", Join(2), ("y", "y")), ("sum", Sum(), ("joined", "joined"))),
        (("joined", Join(2), ("y", "y")),),
        (("sum", Sum(), ("y", "y")),),
    ],
    ids=lambda steps: "-".join(step[0] for step in steps),
)
def test_what_a_form_cannot_hold_is_refused(steps):
    with pytest.raises(InputError, match="it needs a rule for"):
        read(*steps)
