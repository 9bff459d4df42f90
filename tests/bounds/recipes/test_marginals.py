"""Marginals are those of passes by `transformers` whose positions are masked in turn."""

import functools

import numpy as np
import pytest
from safetensors.numpy import load_file

import bounds
import jax_models as jm
from tests.bounds.influence.expect import encloses, refused
from tests.jax_models.format.pretrained.folders import FIXTURES

MASK = 3
LETTERS = [5, 16, 4, 13, 7]
NAMES = ("esm", "bert")


def passes(name):
    """The model, and the tokens and logits [n, V] of the reference, masked and not."""
    model = jm.from_pretrained(FIXTURES / name, dtype="float64")
    found = load_file(FIXTURES / name / "masked.safetensors")
    return model, found["tokens"], found["logits"], found["unmasked"]


def marginals(logits, tokens, letters):
    """log p(t) - log p(wild type) of rows of logits; NaN at the wild type."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    logs = np.log(shares / shares.sum(axis=-1, keepdims=True))
    found = logs[:, letters] - logs[np.arange(len(tokens)), tokens][:, None]
    return np.where(tokens[:, None] == letters, np.nan, found)


def assert_is(scan, exact):
    np.testing.assert_allclose(scan.values, exact, rtol=0, atol=1e-9)
    assert scan.axes == ("position", "symbol")
    assert scan.kind == "exact"
    largest = np.nanmax(np.abs(exact))
    assert encloses(scan, exact, 1e-13 * largest)  # of the reference's own rounding
    assert 0 < np.nanmax(scan.upper - scan.lower) < 1e-9
    assert largest > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_masked_marginals_are_those_of_masked_passes(name):
    model, tokens, masked, unmasked = passes(name)
    mask = None if name == "esm" else MASK  # which its rule for embeddings names
    found = bounds.recipes.masked_marginals(model, tokens, mask=mask, symbols=LETTERS)
    assert_is(found, marginals(masked, tokens, LETTERS))
    own = marginals(unmasked, tokens, LETTERS)
    np.testing.assert_allclose(found.base, own, rtol=0, atol=1e-9)
    # Of the mask itself the reference differs: neither is the other.
    assert np.nanmax(np.abs(found.values - own)) > 0.1
    assert found.substitutions == len(tokens)


@pytest.mark.parametrize("name", NAMES)
def test_wild_type_marginals_are_those_of_one_pass(name):
    model, tokens, _, unmasked = passes(name)
    given = {"positions": [7, 2, 10]}
    ask = functools.partial(bounds.recipes.wild_type_marginals, model, tokens, **given)
    found = ask(symbols=LETTERS)
    assert_is(found, marginals(unmasked, tokens, LETTERS)[[7, 2, 10]])
    bits = ask(symbols=LETTERS[::-1], unit="bits").values[:, ::-1]
    np.testing.assert_allclose(bits * np.log(2), found.values, rtol=1e-14)


def test_a_masked_position_has_no_wild_type():
    model, tokens, _, _ = passes("bert")
    tokens = np.where(np.arange(len(tokens)) == 2, MASK, tokens)
    given = {"mask": MASK, "rounding": "none"}
    ask = functools.partial(bounds.recipes.masked_marginals, model, tokens, **given)
    found = ask()
    assert found.positions.tolist() == [x for x in range(len(tokens)) if x != 2]
    every = model.substitutable or range(model.vocab_size)
    assert np.isfinite(found.values).sum() >= len(found.positions) * (len(every) - 1)
    with refused("position 2 is masked already, and has no wild type"):
        ask(positions=[1, 2])


def test_without_radii_marginals_are_estimates():
    model, tokens, masked, _ = passes("esm")
    found = bounds.recipes.masked_marginals(model, tokens, rounding="none")
    assert found.kind == "estimated"
    np.testing.assert_array_equal(found.lower, found.upper)
    exact = marginals(masked, tokens, list(model.substitutable))
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "recipe", ["masked_marginals", "wild_type_marginals", "mutagenesis"]
)
def test_symbols_are_different_and_some(recipe):
    model, tokens, _, _ = passes("esm")
    for symbols in ([5, 5, 4], []):
        with refused("expected one or more different symbols"):
            getattr(bounds.recipes, recipe)(model, tokens, symbols=symbols)


def test_what_has_no_marginals_is_refused():
    model, tokens, _, _ = passes("bert")
    with refused("names no mask; give mask="):
        bounds.recipes.masked_marginals(model, tokens)
    with refused("mask = 20; expected"):
        bounds.recipes.masked_marginals(model, tokens, mask=20)
    with refused("unit = 'decibel'"):
        bounds.recipes.masked_marginals(model, tokens, mask=MASK, unit="decibel")
    classifier = jm.from_pretrained(FIXTURES / "bert_classifier")
    headless = jm.from_pretrained(FIXTURES / "bert", head="none")
    for name in ("wild_type_marginals", "dependency_map", "categorical_jacobian"):
        recipe = getattr(bounds.recipes, name)
        with refused("needs a language model"):
            recipe(classifier, tokens)
        with refused('the model has no head .head "none" was asked for, or'):
            recipe(headless, tokens)
