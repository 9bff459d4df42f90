"""Maps are their published definitions over forward passes, in any order of letters."""

import functools
from typing import Any

import numpy as np
import pytest

import bounds
from bounds.influence import LogProbability
from tests.bounds.influence.expect import refused
from tests.bounds.influence.test_scan import INPUT, N, jacobian_map, passes


@functools.cache
def logits_of_passes():
    """The model, logits [n, V], and logits [n, V, n, V] of every substitution."""
    model, _, logits = passes("two layers")
    return model, logits[0, INPUT[0]], logits


def ask(recipe, **question):
    function = getattr(bounds.recipes, recipe)
    return function(logits_of_passes()[0], INPUT, rounding="none", **question)


def log_odds(logits, letters, epsilon):
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    shares = shares[..., letters] + epsilon
    shares = shares / shares.sum(axis=-1, keepdims=True)
    return np.log(shares / (1 - shares))


def odds_map(letters, epsilon):
    """The published map over all positions, in nats, its diagonal too."""
    _, base, every = logits_of_passes()
    every = log_odds(every[:, letters], letters, epsilon)
    change = np.abs(every - log_odds(base, letters, epsilon))
    change[INPUT[:, None] == letters] = 0
    return change.max(axis=(1, 3))


@pytest.mark.parametrize(
    ("letters", "unit", "at"),
    [([2, 0, 1], "bits", None), ([0, 1, 2], "nats", [4, 1, 2]), ([2, 0], "nats", None)],
)
def test_a_dependency_map_is_its_definition(letters, unit, at):
    asked: dict[str, Any] = {"symbols": letters, "positions": at}
    epsilon, of = 1e-10, np.log(2)  # as published, by default
    if unit == "nats":
        epsilon, of = 1e-3, 1.0
        asked |= {"epsilon": epsilon, "unit": unit}
    found = ask("dependency_map", **asked)
    at = range(N) if at is None else at
    exact = odds_map(letters, epsilon)[np.ix_(at, at)] / of
    np.fill_diagonal(exact, 0)
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    assert found.axes == ("position", "row")
    assert exact.max() > 0.1


def centred_map(letters, left_out, symmetrize):
    """The published map, with the wild type's changes of 0 or without."""
    _, base, every = logits_of_passes()
    tensor = np.ma.array((every - base)[:, letters][..., letters])
    tensor[INPUT[:, None] == letters] = np.ma.masked if left_out else 0
    return jacobian_map(tensor, True, symmetrize, True)


@pytest.mark.parametrize(
    ("letters", "symmetrize", "left_out"),
    [
        ([2, 0, 1], "tensor", False),
        ([2, 0, 1], "tensor", True),
        ([0, 1, 2], "map", True),
        ([0, 1, 2], None, False),
        ([2, 0], "tensor", False),
    ],
)
def test_a_categorical_jacobian_is_its_definition(letters, symmetrize, left_out):
    wild_type = "left_out" if left_out else "zero"
    reduce = bounds.Frobenius(symmetrize=symmetrize, wild_type=wild_type)
    found = ask("categorical_jacobian", symbols=letters, reduce=reduce)
    exact = centred_map(letters, left_out, symmetrize)
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    other = centred_map(letters, not left_out, symmetrize)
    assert np.abs(found.values - other).max() > 1e-3


@pytest.mark.parametrize("reduce", [None, "max"])
def test_a_categorical_jacobian_is_a_norm_of_the_centred_tensor(reduce):
    with refused(r"reduce = .* norm of the centred tensor"):
        ask("categorical_jacobian", reduce=reduce)


def test_mutagenesis_is_the_change_of_every_entry():
    _, base, every = logits_of_passes()
    found = ask("mutagenesis", rows=2)
    exact = (every - base)[:, :, 2]
    exact[np.arange(N), INPUT] = np.nan
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    outputs = (found.values + found.base)[~np.isnan(exact)]
    np.testing.assert_allclose(outputs, every[:, :, 2][~np.isnan(exact)], atol=1e-9)
    one = ask("mutagenesis", target=LogProbability(1), rows=2)
    assert one.axes == ("position", "symbol")
    logs = base - np.log(np.exp(base).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(one.base, [[logs[2, 1]]], rtol=1e-12)


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("masked_marginals", "rows"),
        ("dependency_map", "target"),
        ("categorical_jacobian", "diagonal"),
        ("mutagenesis", "reduce"),
    ],
)
def test_what_a_recipe_sets_is_refused_in_its_name(recipe, name):
    with pytest.raises(TypeError, match=rf"^{recipe}\(\) sets {name} itself; leave it"):
        ask(recipe, **{name: 1})
    with pytest.raises(TypeError, match=rf"^{recipe}\(\) got .* argument 'tea'$"):
        ask(recipe, tea=1)
