"""Every completion of a restriction has one output: enumerated, run by the model itself."""

import itertools

import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import check_certificate, find_restriction
from tests.bounds.restriction.drawn_models import (
    HARD,
    MASKS,
    TIES,
    completions,
    is_constant,
    outputs,
    random_model,
)

# Layers of real weights, but for the first two.
KINDS = {
    "integer": {"integer": True},
    "concat": {"combine": "concat", "integer": True},
    "parallel": {"combine": "parallel"},
    "gelu": {"combine": "concat", "activation": "gelu"},
    "additive": {"score": "additive"},
    "pre-norm": {"score": "scaled_dot_product", "layer_norm": "pre"},
    "post-norm": {"layer_norm": "post", "final_norm": True},
    "sinusoidal": {"position": "sinusoidal"},
    "no positions": {"position": None},
    "constant temperature": {"temperature": jm.ConstantTemperature(0.25)},
    "inverse log": {"temperature": jm.InverseLogTemperature(0.7)},
    "power": {"temperature": jm.PowerTemperature(1.5, -0.5)},
    "coarse cells": {"tie_resolution": 0.3},
}
# Every weighting under every mask, and every kind with every weighting.
CASES = [
    *itertools.product(["integer"], MASKS, HARD),
    *(
        (kind, MASKS[(number + turn) % len(MASKS)], weighting)
        for number, kind in enumerate(KINDS)
        for turn, weighting in enumerate(HARD)
    ),
]


def check(structure, seeds, length, **options):
    """Enumerate the restrictions of random models; return the free bits of each."""
    free = []
    for seed in seeds:
        # Without positions and with coarse weights most scores tie.
        model = random_model(seed, spread=1 + seed % 2, **{**structure, **options})
        found = find_restriction(model, length, attempts=1 + seed % 2, seed=seed)
        assert is_constant(model, found.rho, found.query), (structure, seed)
        checked = check_certificate(model, found.certificate)
        assert checked.accepted, checked.reasons
        # Another program, which may sum in another order, gives the stated output.
        string = completions(found.rho)[:1]
        (output,) = outputs(model, string, found.query)
        tolerance = 0.0 if found.mode == "exact" else 1e-12
        np.testing.assert_allclose(output, found.output, rtol=tolerance, atol=tolerance)
        # Of averages a mean of three is not dyadic.
        if structure.get("weighting") != "average_hard":
            assert (found.mode == "exact") == options.get("integer", True)
        free.append(len(found.free))
    return free


# Everything but the seed is a structure, which is compiled; seeds are cheap.
@pytest.mark.parametrize("weighting", TIES)
@pytest.mark.parametrize("mask", ["none", "future"])
@pytest.mark.parametrize(("num_heads", "width"), [(1, 4), (2, 4), (3, 6), (4, 4)])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_every_completion_has_the_same_output(
    num_layers, num_heads, width, mask, weighting
):
    structure = {"num_layers": num_layers, "num_heads": num_heads, "d_model": width}
    structure |= {"mask": mask, "weighting": weighting}
    free = check(structure, range(5), 10)
    free += check(structure, range(100, 102), 12, position=None)
    assert max(free) > 0
    if (mask, weighting) == ("none", "leftmost_hard"):
        check(structure, range(4), 11, integer=False)


@pytest.mark.parametrize(("kind", "mask", "weighting"), CASES)
def test_every_kind_of_layer_is_sound(kind, mask, weighting):
    structure = {"num_layers": 2, "num_heads": 2, "mask": mask, "weighting": weighting}
    check(structure, range(2), 8, **{"integer": False, **KINDS[kind]})


@pytest.mark.parametrize("query", [3, 0])
def test_layers_may_differ_and_any_position_may_be_read(query):
    names = ("average_hard", "leftmost_hard", "rightmost_hard")
    for seed in range(2):
        model = random_model(seed, num_layers=3, num_heads=2, weighting=names)
        found = find_restriction(model, 8, query=query, attempts=1)
        assert is_constant(model, found.rho, query)


def test_symbols_other_than_0_and_1_and_fixed_tokens_are_kept():
    model = random_model(1, vocab_size=4, num_heads=2)
    given = np.array([-1, -1, 0, -1, -1, -1, -1, 1])
    found = find_restriction(model, 8, pre_restriction=given, symbols=(3, 2))
    assert found.rho[2] == 0
    assert found.rho[7] == 1
    assert set(found.rho[[0, 1, 3, 4, 5, 6]]) <= {-1, 2, 3}
    assert is_constant(model, found.rho, 7, symbols=(3, 2))


def test_enumeration_notices_a_bit_that_matters():
    """The oracle is no oracle if it lets a freed bit of consequence pass."""
    noticed = 0
    for seed in range(2):
        model = random_model(seed, num_heads=2)
        found = find_restriction(model, 8)
        for position in np.flatnonzero(found.rho != -1):
            rho = found.rho.copy()
            rho[position] = -1
            noticed += not is_constant(model, rho, found.query)
    assert noticed > 0


def test_a_model_with_one_layer_always_keeps_a_free_bit():
    """docs/theory/hard-attention.md, section 3, Theorem 4: n = H + 2 suffices."""
    for seed, heads in itertools.product(range(3), (1, 4)):
        model = random_model(seed, num_layers=1, num_heads=heads)
        assert find_restriction(model, heads + 2).free


def test_a_winner_that_rounding_decides_is_refused_and_not_guessed():
    """Equal rows without positions, under cells that are finer than the rounding."""
    options = {"num_heads": 2, "position": None, "integer": False}
    fine = random_model(0, tie_resolution=1e-20, **options)
    with pytest.raises(jm.InputError, match="rounding decides which of the positions"):
        find_restriction(fine, 8, attempts=1)
    # The same weights under cells that are wider than it.
    assert find_restriction(random_model(0, **options), 8, attempts=1).free


@pytest.mark.parametrize(
    ("model", "options", "complaint"),
    [
        ({"weighting": ("leftmost_hard", "softmax")}, {}, "layer 1"),
        ({"num_layers": 0}, {}, "no layers"),
        ({"dtype": "float32"}, {}, "float64"),
        ({}, {"symbols": (0, 2)}, "symbols"),
        ({}, {"symbols": (1, 1)}, "symbols"),
        ({}, {"pre_restriction": [0, 1]}, "pre-restriction"),
        ({}, {"pre_restriction": [5] * 6}, "position 0"),
        ({}, {"caps": (2, 2)}, "caps"),
        ({}, {"caps": (0,)}, "caps"),
        # Beyond the tables that a certificate may have, and of 2^15 rows each.
        ({}, {"caps": (15,)}, "from 1 to 14"),
        ({}, {"attempts": 0}, "attempts"),
        ({}, {"method": "fast"}, "method"),
        ({}, {"query": 6}, "query"),
    ],
)
def test_what_cannot_be_used_is_refused(model, options, complaint):
    with pytest.raises(jm.InputError, match=complaint):
        find_restriction(random_model(0, **model), 6, **options)
