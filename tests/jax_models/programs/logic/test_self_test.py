"""The self-test meets every short string, and catches whatever differs."""

import numpy as np
import pytest

from jax_models.programs.logic import self_test
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.logic.parser import parse_formula
from jax_models.programs.logic.self_test import (
    LONGEST,
    MOST_STRINGS,
    Margin,
    apply_eagerly,
    check_strings_of_model,
    spell,
    strings_to_test,
)
from tests.architecture import small_model
from tests.bounds.influence.expect import refused


@pytest.mark.parametrize("num_symbols", [1, 2, 3, 5, 100, 5000])
@pytest.mark.parametrize("longest", [1, 4, 20, 150])
def test_every_short_string_is_tested_once_and_longer_ones_at_random(
    num_symbols, longest
):
    groups = list(strings_to_test(num_symbols, longest, seed=0, most=10_000))
    lengths = [strings.shape[1] for strings, _ in groups]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] >= max(longest, LONGEST)
    complete = 0
    for strings, is_all in groups:
        assert 0 <= strings.min() <= strings.max() < num_symbols
        if is_all:
            complete += 1
            assert strings.shape[1] == complete
            assert len(np.unique(strings, axis=0)) == num_symbols**complete
    assert complete == longest or num_symbols ** (complete + 1) > MOST_STRINGS


@pytest.mark.parametrize("most", [1, 2, 3, 50])
def test_no_string_is_longer_than_the_model_is_exact(most):
    lengths = [strings.shape[1] for strings, _ in strings_to_test(2, 2, 0, most)]
    assert lengths[-1] == most
    assert lengths[:2] == [1, 2][:most]


def test_random_strings_differ_in_their_frequencies_and_depend_on_the_seed():
    first, again, other = (
        [strings for strings, is_all in strings_to_test(2, 4, seed, 1000) if not is_all]
        for seed in (0, 0, 1)
    )
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    shares = np.concatenate([strings.mean(axis=1) for strings in first])
    assert shares.min() < 0.1
    assert shares.max() > 0.9


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        ("Q_a S Q_b", "P (Q_a S Q_b)"),
        ("#<[Q_a] >= 4", "#<[Q_a] >= 5"),
        ("#<[Q_a] <= 40", "T"),
        ("not P P P P Q_b", "T"),
    ],
)
def test_a_right_model_has_exact_booleans_and_that_of_another_formula_is_caught(
    compiled, said
):
    right, other = map(parse_formula, (compiled, said))
    model = compile_formula(right, "ab", "T", dtype="float64")
    groups = [strings for strings, _ in strings_to_test(2, 5, 0, 100)]

    def margins(formula):
        return [check_strings_of_model(model, formula, "ab", x) for x in groups]

    assert {margin.value for margin in margins(right)} == {0.5}
    with refused("the compiled model errs"):
        margins(other)


def test_a_logit_that_is_no_number_is_an_error_wherever_the_formula_is_false():
    formula = parse_formula("F")
    model = compile_formula(formula, "ab", "T", dtype="float64")
    strings = np.array([[0, 1]])
    logits = np.array([[0.0, np.nan]])
    with refused("position 1 of ab its logit is nan"):
        check_strings_of_model(model, formula, "ab", strings, lambda *_: logits)


def test_the_margin_is_that_of_the_logit_nearest_the_threshold():
    formula = parse_formula("Q_a")
    model = compile_formula(formula, "ab", "T", dtype="float64")
    logits = np.array([[1.0, 0.1], [0.25, 0.875]])
    margin = check_strings_of_model(
        model, formula, "ab", np.array([[0, 1], [1, 0]]), lambda *_: logits
    )
    assert margin == Margin(0.25, (1, 0), 0)


def test_long_strings_are_shortened_and_names_kept_apart():
    assert spell([0, 1], ("open", "close")) == "open close"
    assert spell([0] * 100, "ab") == "a" * 40 + " ... (100 symbols)"


# With biases in every projection.
MODEL = small_model(
    3,
    num_layers=2,
    num_heads=2,
    d_model=6,
    d_ff=7,
    vocab_size=3,
    mask="past",
    score="dot_product",
)


def test_blocks_of_rows_and_of_strings_do_not_matter(monkeypatch):
    strings = np.random.default_rng(0).integers(0, 3, (3, 9))
    whole = apply_eagerly(MODEL, strings)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(apply_eagerly(MODEL, strings[1]), whole[1], 1e-6, 1e-6)
    monkeypatch.setattr(self_test, "MAX_SCORES", 2 * 2 * 9 * 2)
    np.testing.assert_allclose(apply_eagerly(MODEL, strings), whole, 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("strings", "message"),
    [([0.5], "integers"), ([0, 3], "from 0 to 3; the model has the tokens 0 to 2")],
)
def test_refuses_what_is_no_token(strings, message):
    with refused(message):
        apply_eagerly(MODEL, strings)
