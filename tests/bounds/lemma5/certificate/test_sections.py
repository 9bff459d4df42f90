"""Sections of a row program, and certificates of a placement that no format names."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence import compute_influence
from bounds.lemma5.certificate import certify_influence
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Affine, Program, Step, Sum
from tests.architecture import small_model


def own_program(steps_of):
    """A class of layers whose program is what a function makes of one."""

    @pytree
    class Own(Layer):
        @property
        def writes(self) -> Program:
            return Program(tuple(steps_of(self)), "out")

    return Own


def written(layer, weight=None):
    weight = layer.attention.output if weight is None else weight
    return Step("written", Affine(weight, layer.attention.output_bias), ("heads",))


def residual(layer, *steps):
    return [written(layer), Step("summed", Sum(), ("y", "written")), *steps]


PARALLEL = own_program(
    lambda x: [
        Step("read", x.norm1, ("y",)),
        *x._block("read", "y", "blocked"),
        written(x),
        Step("out", Sum(), ("blocked", "written")),
    ]
)
# out = norm2(s + block(norm1(s))), s = y + heads: a norm before and one behind.
BOTH_ENDS = own_program(
    lambda x: residual(
        x,
        Step("entered", x.norm1, ("summed",)),
        *x._block("entered", "summed", "left"),
        Step("out", x.norm2, ("left",)),
    )
)
SANDWICH = own_program(
    lambda x: residual(
        x,
        Step("in", x.norm1, ("summed",)),
        *x._block("in", "in", "left"),
        Step("after", x.norm2, ("left",)),
        Step("out", Sum(), ("summed", "after")),
    )
)
ATTENTION = own_program(lambda x: [written(x), Step("out", Sum(), ("y", "written"))])
LONE = own_program(lambda x: [written(x), *x._block("written", "written", "out")])
FOLLOWED = {
    "both ends": BOTH_ENDS,
    "parallel": PARALLEL,
    "sandwich": SANDWICH,
    "attention": ATTENTION,
    "lone": LONE,
}


EXHAUSTIVE: Any = {"method": "exhaustive", "rounding": "none"}


def of_own(kind):
    """Two layers of a placement that no format names."""
    shape = {"num_layers": 2, "num_heads": 2, "d_model": 6, "d_ff": 8, "vocab_size": 3}
    model = small_model(2, **shape, layer_norm="post", dtype="float64")
    layers = tuple(kind(**vars(x)) for x in model.layers)
    return dataclasses.replace(model, layers=layers)


@pytest.mark.parametrize("name", FOLLOWED)
def test_programs_of_ones_own_are_certified(name):
    model, tokens = of_own(FOLLOWED[name]), [0, 1, 2, 1, 0]
    exact = compute_influence(model, tokens, **EXHAUSTIVE)
    for method in ("centred", "base"):
        found = certify_influence(model, tokens, method=method)
        # Rounding adds less than 1e-12 to the differences of two outputs.
        least = exact.position_upper[:-1] * (1 - 1e-12)
        assert (found.position_upper[:-1] >= least).all()
        if method == "centred" and name == "both ends":
            assert found.max_upper <= exact.max_upper * (1 + 1e-8)
    # The placement that the format would take these layers for says something else.
    post = compute_influence(of_own(Layer), tokens, **EXHAUSTIVE)
    assert abs(post.max_upper - exact.max_upper) > 1e-3 * exact.max_upper


SCALED = own_program(
    lambda x: [
        written(x, 1000 * x.attention.output),
        Step("summed", Sum(), ("y", "written")),
        *x._block("summed", "summed", "out"),
    ]
)
CHAIN = own_program(
    lambda x: residual(
        x,
        Step("mixed", Affine(jnp.eye(6) * 1e9), ("summed",)),
        Step("back", Affine(jnp.eye(6) * 1e-9), ("mixed",)),
        *x._block("back", "summed", "out"),
    )
)
TWICE = own_program(
    lambda x: residual(
        x,
        *x._block("summed", "summed", "mid"),
        Step("more", Affine(x.feed_forward.w2), ("preactivation",)),
        Step("out", Sum(), ("mid", "more")),
    )
)
NORMED = own_program(
    lambda x: [
        written(x),
        Step("in", x.norm1, ("written",)),
        *x._block("in", "y", "out"),
    ]
)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (SCALED, "heads"),
        (CHAIN, "two maps"),
        (TWICE, "twice"),
        (NORMED, "a norm reads"),
    ],
    ids=["scaled", "chain", "twice", "normed"],
)
def test_programs_that_certificates_cannot_follow_are_refused(kind, why):
    with pytest.raises(jm.InputError, match=why):
        certify_influence(of_own(kind), [0, 1, 2])


BESIDE = own_program(
    lambda x: [
        Step(
            "preactivation", Affine(x.feed_forward.w1[:, :4], x.feed_forward.b1), ("y",)
        ),
        Step("active", x.feed_forward.bend, ("preactivation",)),
        Step("block", Affine(x.feed_forward.w2, x.feed_forward.b2), ("active",)),
        Step("blocked", Sum(), ("y", "block")),
        Step("beside", Affine(jnp.asarray(BESIDE_WEIGHT)), ("heads",)),
        Step("out", Sum(), ("blocked", "beside")),
    ]
)
# Two heads of very different sizes, side by side and not projected.
BESIDE_WEIGHT = np.diag([1e3, 1e3, 1e-3, 1e-3])


def test_heads_beside_the_block_have_norms_for_every_row():
    """Two substitutions and two heads: rows and heads are as many."""
    model = small_model(num_heads=2, dtype="float64", combine="concat")
    layers = tuple(BESIDE(**vars(x)) for x in model.layers)
    model = dataclasses.replace(model, layers=layers)
    exact = compute_influence(model, [0, 1, 0], **EXHAUSTIVE)
    found = certify_influence(model, [0, 1, 0], method="base")
    least = exact.position_upper[:-1] * (1 - 1e-12)
    assert (found.position_upper[:-1] >= least).all()
