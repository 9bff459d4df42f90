"""Compiled formulas agree with the evaluator, in every mode, at every position."""

import numpy as np
import pytest

import jax_models as jm
from jax_models.programs.logic import evaluate_formula, exact_length, parse_formula
from jax_models.programs.logic.compile import compile_formula, truth_values
from jax_models.programs.logic.derived import all_of
from jax_models.programs.logic.modes import MODES, get_mode
from jax_models.programs.logic.translate import plan_formula
from tests.jax_models.programs.logic.compiled import (
    LENGTHS,
    disagreements,
    expressible,
    random_formulas,
    strings_of,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("mode", MODES)
def test_every_operator_agrees_with_the_evaluator(mode):
    rng = np.random.default_rng(1)
    found = disagreements(expressible(mode), mode, LENGTHS, rng, count=2)
    assert found == (0, 0.0)


@pytest.mark.parametrize("mode", MODES)
def test_random_formulas_agree_with_the_evaluator(mode):
    rng = np.random.default_rng(2)
    formulas = random_formulas(mode, 60, seed=0)
    for start in range(0, 60, 15):
        some = formulas[start : start + 15]
        assert disagreements(some, mode, (1, 2, 3, 16), rng, count=3) == (0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_two_thousand_random_formulas_agree_with_the_evaluator(mode, part):
    rng = np.random.default_rng(3)
    formulas = random_formulas(mode, 500, seed=1 + part)
    for start in range(0, 500, 5):
        some = formulas[start : start + 5]
        found = disagreements(some, mode, LENGTHS, rng, count=2)
        assert found == (0, 0.0), some


def check_compiled_pass(formulas, mode, length, dtype="float64"):
    """The engine's value of each formula, compiled together, is exactly its truth."""
    whole = all_of(formulas)
    model = compile_formula(whole, "ab", mode, dtype=dtype)
    truth = plan_formula(whole, ("a", "b"), get_mode(mode)).truth
    tokens = strings_of(length, 3, np.random.default_rng(length))[-1]
    y = np.asarray(jm.apply(model, tokens))
    for formula in (whole, *formulas):
        expected = evaluate_formula(formula, tokens, "ab").astype(dtype)
        np.testing.assert_array_equal(y[:, truth[formula]], expected)


@pytest.mark.parametrize("mode", [pytest.param("TB", marks=pytest.mark.slow), "FT"])
def test_the_compiled_pass_agrees_with_the_evaluator(mode):
    text = "P (Q_a S Q_b) or even(#<[Q_a]) and #<[Q_a] > #<[Q_b] + 1"
    check_compiled_pass([parse_formula(text)], mode, 12)


@pytest.mark.slow
@pytest.mark.parametrize("length", [5, 33])
@pytest.mark.parametrize("mode", MODES)
def test_fifty_random_formulas_agree_in_the_compiled_pass(mode, length):
    check_compiled_pass(random_formulas(mode, 25, seed=length), mode, length)


def test_saves_and_loads(tmp_path):
    formula = parse_formula("Q_x S Q_y and not mod(3,1)")
    model = compile_formula(formula, ("x", "y", "z"), "FT", dtype="float64")
    jm.save(model, tmp_path / "model.safetensors")
    loaded = jm.load(tmp_path / "model.safetensors")
    assert jm.model_bytes(loaded) == jm.model_bytes(model)
    assert exact_length(loaded) == exact_length(model)
    assert loaded.vocabulary == ("x", "y", "z")
    assert loaded.substitutable == (0, 1, 2)
    tokens = [2, 1, 0, 0, 2, 1]
    expected = evaluate_formula(formula, tokens, "xyz")
    np.testing.assert_array_equal(truth_values(loaded, tokens), expected)
    assert jm.accepts(loaded, tokens) == expected[-1]


@pytest.mark.parametrize(
    ("text", "mode", "reasons"),
    [
        (
            "N Q_c or Q_a U (#>[Q_d] >= 1)",
            "FU",
            [
                "'c' is not in the alphabet a b",
                "N (next)",
                "U (until)",
                "'d' is not in",
                "#> counts later positions",
                "use T, TB or U",
            ],
        ),
        ("Q_c", "T", ["mode T cannot express the formula: the symbol 'c'"]),
        ("#<[T] >= " + "9" * 400, "TB", ["an integer beyond 2^53"]),
        (f"{2**53 + 1} * #<[T] >= 1", "U", ["an integer beyond 2^53"]),
        ("Q_a", "V", ["unknown mode 'V'; known are T, TB, U, FT, FU"]),
    ],
)
def test_a_mode_refuses_with_all_reasons(text, mode, reasons):
    with pytest.raises(jm.InputError) as raised:
        compile_formula(parse_formula(text), "ab", mode)
    for reason in reasons:
        assert reason in str(raised.value)


def test_an_alphabet_with_a_symbol_twice_is_refused():
    with pytest.raises(jm.InputError, match="has 'a' twice"):
        compile_formula(parse_formula("Q_a"), "aba", "T")


LARGE = ["P (Q_a S Q_b)", "2 * #<[Q_a] >= 3 * #<[Q_b] + 5", "even(#<[Q_a])"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_long_strings(mode):
    check_compiled_pass([parse_formula(text) for text in LARGE], mode, 1200)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Q_a S Q_b", "#<[Q_a] > #<[Q_b]"])
@pytest.mark.parametrize("mode", MODES)
def test_strings_of_ten_thousand(mode, text):
    check_compiled_pass([parse_formula(text)], mode, 10_000)
