"""What an outline says will run is what the kernel then runs."""

import dataclasses

import jax
import numpy as np
import pytest

from bounds.influence import METHODS
from bounds.influence.blocks.outline import shapes_of
from bounds.influence.build import build_request
from tests.bounds.influence.models import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
N = 40


def pose(num_layers, include_query=False, **case):
    model = build({"num_layers": num_layers, "vocab_size": 2, **case}, seed=3)
    tokens = np.random.default_rng(4).integers(0, 2, N, dtype=np.int32)
    return build_request(model, tokens, query=20, include_query=include_query)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("incremental", pose(1, include_query=True)),
        ("incremental", pose(2, weighting="average_hard")),
        ("incremental", pose(3, temperature="inverse_log")),
        ("exhaustive", pose(2)),
        ("partial", pose(2)),
    ],
    ids=["one layer", "two", "three", "exhaustive", "partial"],
)
def test_an_outline_is_the_kernel_without_numbers(name, asked):
    outline, kernel = (f(asked) for f in (METHODS[name].outline, METHODS[name].kernel))
    assert outline.function is kernel.function
    assert outline.parts == kernel.parts
    given, told = (jax.tree.flatten(shapes_of(x.shared)) for x in (kernel, outline))
    assert given == told


def test_methods_without_blocks_of_their_own_have_none():
    assert METHODS["lumped"].outline(pose(1)) is None
    bare = dataclasses.replace(pose(1), model=lambda tokens: tokens * 1.0)
    assert METHODS["exhaustive"].outline(bare) is None
