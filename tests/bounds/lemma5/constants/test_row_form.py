"""Programs that forms cannot hold are refused by name, not read as something smaller."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.constants.row_form import (
    Corner,
    Form,
    Reader,
    path_gain,
    read_rows,
    residual_lipschitz,
)
from bounds.numbers.spectral import Enclosure
from jax_models import InputError
from jax_models.model.layer import FeedForward
from jax_models.model.rows import (
    Affine,
    Gelu,
    Join,
    LayerNorm,
    Program,
    Relu,
    Step,
    Sum,
)
from tests.bounds.lemma5.constants.drawn import FACTORS, draw

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


@pytest.mark.parametrize("activation", FACTORS["activation"])
def test_one_neuron_attains_its_constants(activation):
    """Its steepest point is reached, so the constants are the least possible."""
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(size=(1, 4)), rng.normal(size=(4, 1))
    block = FeedForward(w1, np.zeros(1), w2, np.zeros(4), activation)
    top = Gelu.steepest if activation == "gelu" else 1.0
    product = np.linalg.norm(w1) * np.linalg.norm(w2)
    assert path_gain(top, block.w2, Enclosure(w1)) == pytest.approx(
        top * product, rel=1e-12
    )
    aligned = dataclasses.replace(block, w2=w1.T)
    steepest = 1 + top * np.linalg.norm(w1) ** 2
    found = residual_lipschitz(top, aligned.w2, Enclosure(w1))
    assert found == pytest.approx(steepest, rel=1e-12)
    assert found >= steepest


@pytest.mark.parametrize("power", [-170, 170])
def test_weights_whose_squares_leave_the_floats_have_their_constants(power):
    """W1 times 10^p and W2 times 10^-p are the same map, but for its activation."""
    t = draw(16, biases=False).tensors
    even, uneven = (
        FeedForward(w1, np.zeros(len(w1)), w2, np.zeros(len(w2)), "relu")
        for w1, w2 in (
            (t["layers.0.ffn.w1"], t["layers.0.ffn.w2"]),
            (t["layers.0.ffn.w1"] * 10.0**power, t["layers.0.ffn.w2"] / 10.0**power),
        )
    )
    for constant in (path_gain, residual_lipschitz):
        expected, found = (constant(1.0, x.w2, Enclosure(x.w1)) for x in (even, uneven))
        assert found == pytest.approx(expected, rel=1e-12)
