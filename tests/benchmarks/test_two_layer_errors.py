"""The error oracle of two-layer models: it sees what is wrong, on models that are hard."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import two_layer_errors
from benchmarks.script import FOLDER, read_lines, rows_of
from benchmarks.two_layer_errors import FAMILIES, first_neurons
from bounds.influence.moved import found_by
from bounds.influence.two_layers import choice
from bounds.numbers.rounding import unit_roundoff
from jax_models.model.transformer import embedded

STORED = rows_of(read_lines(FOLDER / "long/amd-epyc-2-cores.jsonl"), "two_layer_errors")
TYPES = ("float64", "float32")
LENGTH = 8
# Largest ratio of an error to the stored errors of all masks and lengths.
FACTOR = 3


def config(family, dtype="float64", mask="none", **entries):
    shape = {"family": family, "dtype": dtype, "mask": mask, "n": LENGTH}
    return {**shape, "seed": 0, "drawn": 0, "vocab_size": 3, **entries}


def admissible(family, dtype, error):
    """Largest admissible error in units of u: at least n u, as of sums of n terms."""
    asked = {"family": family, "dtype": dtype, "drawn": 0}
    rows = [row for stored, row in STORED if asked.items() <= stored.items()]
    return FACTOR * max(LENGTH, *(row[error] for row in rows))


CASES = [
    (family, dtype, mask)
    for dtype in TYPES
    for family, one in FAMILIES.items()
    for mask in one.masks
]


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize(("family", "dtype", "mask"), CASES)
def test_errors_are_near_the_stored_ones(family, dtype, mask, by_products, monkeypatch):
    if by_products:
        monkeypatch.setattr(choice, "SHORTEST", 0)
        monkeypatch.setattr(choice, "CHEAPER", 1e9)
    row = two_layer_errors.measure(config(family, dtype, mask))
    for error in two_layer_errors.ERRORS:
        assert row[error] <= admissible(family, dtype, error), error


def test_every_family_has_a_stored_error():
    found = {
        (c["family"], c["dtype"], c["mask"], c["n"])
        for c, _ in STORED
        if c["drawn"] == 0
    }
    assert found == {(*case, n) for case in CASES for n in (LENGTH, 20)}


@pytest.mark.parametrize("wrong", [1 + 1e-9, 0.0, np.nan])
def test_a_planted_error_is_noticed(monkeypatch, wrong):
    def planted(method, request):
        return wrong * found_by(method, request)

    monkeypatch.setattr(two_layer_errors, "found_by", planted)
    row = two_layer_errors.measure(config("as drawn", n=3))
    expected = pytest.approx(abs(wrong - 1) * 2**53, rel=1e-3, nan_ok=True)
    for error in two_layer_errors.ERRORS:
        assert row[error] == expected
        assert not row[error] <= admissible("as drawn", "float64", error)


def test_the_table_shows_that_an_error_is_not_a_number():
    rows = [
        (config("as drawn"), dict.fromkeys(two_layer_errors.ERRORS, x))
        for x in (1.0, np.nan)
    ]
    assert two_layer_errors.table(rows).splitlines()[-1] == "| as drawn | nan | nan |"


def test_an_error_of_one_small_influence_is_noticed_relative_to_it():
    exact = np.array([1.0, 1e-20, 1e-320])
    found = np.array([1.0, 2e-20, 0.0])
    row = two_layer_errors.errors(found, exact, "float64")
    assert row["relative"] == pytest.approx(2**53)
    assert row["of_largest"] == pytest.approx(1e-20 * 2**53)


def drawn(family, dtype="float64", mask="none", vocab_size=3):
    """A model of a family, its input, and log weights of its last row in layer 1 [h, n]."""
    asked = config(family, dtype, mask, vocab_size=vocab_size)
    model, tokens = FAMILIES[family].draw(asked)
    rows = embedded(model, jnp.asarray(tokens))
    own: Any = model.layers[0].attention
    q = own.query @ rows[-1] + own.query_bias
    k = jnp.einsum("hkd,nd->hnk", own.key, rows) + own.key_bias[:, None]
    scores = jnp.einsum("hk,hnk->hn", q, k)
    return model, tokens, np.asarray(jax.nn.log_softmax(scores), np.float64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vocab_size", two_layer_errors.VOCAB_SIZES)
def test_a_dominant_column_has_most_of_the_weight(vocab_size, dtype):
    _, tokens, weights = drawn("dominant", dtype, vocab_size=vocab_size)
    (at,) = np.flatnonzero(tokens == 0)
    assert (weights[:, at] > np.log(0.5)).all()
    _, tokens, weights = drawn("underflow", dtype, vocab_size=vocab_size)
    assert (weights[:, tokens == 0] == 0).all()
    assert (weights[:, tokens != 0] < np.log(float(jnp.finfo(dtype).tiny))).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_column_arrives_from_nothing_or_was_hardly_seen(dtype):
    _, tokens, weights = drawn("arriving", dtype)
    assert np.unique(tokens).tolist() == [1, 2]
    assert (abs(weights[:, tokens == 2] + 95) < 3).all()
    _, tokens, weights = drawn("leaving", dtype)
    assert (weights[:, tokens == 0] < np.log(1e-3)).all()


@pytest.mark.parametrize("mask", ["none", "future"])
@pytest.mark.parametrize("dtype", TYPES)
def test_neurons_are_at_0_or_within_roundings(dtype, mask):
    model, tokens, _ = drawn("kinks at 0", dtype, mask)
    assert (first_neurons(model, tokens) == 0).all()
    moved = first_neurons(model, np.append(0, tokens[1:]))
    assert (moved > 0).any()
    assert (moved < 0).any()
    model, tokens, _ = drawn("kinks within roundings", dtype, mask)
    nearest = abs(first_neurons(model, tokens)).min(axis=0)
    assert (nearest <= 100 * unit_roundoff(dtype)).all()
