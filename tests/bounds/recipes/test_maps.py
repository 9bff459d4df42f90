"""Maps are their published definitions over forward passes, in any order of letters."""

import functools

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability
from tests.bounds.influence.models import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
TOKENS = np.array([2, 0, 1, 1, 2, 0, 1])
N = len(TOKENS)
ORDERS = ([0, 1, 2], [2, 0, 1])


@functools.cache
def passes():
    """The model, logits [n, V], and logits [n, V, n, V] of every substitution."""
    model = build({"num_layers": 2, "head": "masked_lm"}, seed=1)
    base = np.asarray(jm.apply_logits(model, TOKENS))
    every = np.empty((N, 3, N, 3))
    for i, s in np.ndindex(N, 3):
        changed = TOKENS.copy()
        changed[i] = s
        every[i, s] = jm.apply_logits(model, changed)
    return model, base, every


def log_odds(logits, epsilon):
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True) + epsilon
    shares = shares / shares.sum(axis=-1, keepdims=True)
    return np.log(shares / (1 - shares))


@pytest.mark.parametrize(("unit", "of"), [("bits", np.log(2)), ("nats", 1.0)])
@pytest.mark.parametrize("letters", ORDERS)
def test_a_dependency_map_is_its_definition(letters, unit, of):
    model, base, every = passes()
    epsilon = 1e-10 if unit == "bits" else 1e-3  # which is published is the default
    change = np.abs(log_odds(every, epsilon) - log_odds(base, epsilon))
    change[np.arange(N), TOKENS] = 0
    exact = change.max(axis=(1, 3)) / of
    np.fill_diagonal(exact, 0)
    more = {} if unit == "bits" else {"epsilon": epsilon, "unit": unit}
    found = bounds.recipes.dependency_map(model, TOKENS, symbols=letters, **more)
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    assert found.axes == ("position", "row")
    assert exact.max() > 0.1


def jacobian_map(tensor, symmetrize, left_out):
    """Centred over each axis in turn, with the wild type's changes of 0 or without."""
    tensor = np.ma.array(tensor, copy=True)
    tensor[np.arange(N), TOKENS] = np.ma.masked if left_out else 0
    for axis in range(4):
        tensor = tensor - tensor.mean(axis=axis, keepdims=True)
    tensor = tensor.filled(0)
    if symmetrize == "tensor":
        tensor = (tensor + tensor.transpose(2, 3, 0, 1)) / 2
    found = np.sqrt((tensor**2).sum(axis=(1, 3)))
    np.fill_diagonal(found, 0)
    found = found - np.outer(found.sum(axis=1), found.sum(axis=0)) / found.sum()
    np.fill_diagonal(found, 0)
    return (found + found.T) / 2 if symmetrize == "map" else found


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("symmetrize", ["tensor", "map", None])
@pytest.mark.parametrize("letters", ORDERS)
def test_a_categorical_jacobian_is_its_definition(letters, symmetrize, left_out):
    model, base, every = passes()
    found = bounds.recipes.categorical_jacobian(
        model,
        TOKENS,
        symbols=letters,
        reduce=bounds.Frobenius(
            symmetrize=symmetrize, wild_type="left_out" if left_out else "zero"
        ),
    )
    exact = jacobian_map(every - base, symmetrize, left_out)
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    other = jacobian_map(every - base, symmetrize, not left_out)
    assert np.abs(found.values - other).max() > 1e-3


def test_a_map_of_some_positions_is_of_these_alone():
    model, base, every = passes()
    at = [4, 1, 2]
    found = bounds.recipes.dependency_map(model, TOKENS, positions=at)
    change = np.abs(log_odds(every, 1e-10) - log_odds(base, 1e-10))
    change[np.arange(N), TOKENS] = 0
    exact = change.max(axis=(1, 3))[np.ix_(at, at)] / np.log(2)
    np.fill_diagonal(exact, 0)
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)


def test_mutagenesis_is_the_change_of_every_entry():
    model, base, every = passes()
    found = bounds.recipes.mutagenesis(model, TOKENS, rows=2)
    exact = (every - base)[:, :, 2]
    exact[np.arange(N), TOKENS] = np.nan
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)
    outputs = (found.values + found.base)[~np.isnan(exact)]
    np.testing.assert_allclose(outputs, every[:, :, 2][~np.isnan(exact)], atol=1e-9)
    one = bounds.recipes.mutagenesis(model, TOKENS, target=LogProbability(1), rows=2)
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
    model, _, _ = passes()
    ask = getattr(bounds.recipes, recipe)
    with pytest.raises(TypeError, match=rf"^{recipe}\(\) sets {name} itself; leave it"):
        ask(model, TOKENS, **{name: 1})
    with pytest.raises(TypeError, match=rf"^{recipe}\(\) got .* argument 'tea'$"):
        ask(model, TOKENS, tea=1)


def test_a_list_of_inputs_gives_a_list_of_maps():
    model, _, _ = passes()
    found = bounds.recipes.mutagenesis(model, [TOKENS, TOKENS[:4]])
    assert [x.values.shape for x in found] == [(7, 3, 3), (4, 3, 3)]
