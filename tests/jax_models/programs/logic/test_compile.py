"""Compiled formulas agree with the evaluator up to the length that rounding leaves."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.programs.logic import evaluate_formula, parse_formula
from jax_models.programs.logic.applications import all_of
from jax_models.programs.logic.compile import (
    compile_formula,
    exact_length,
    truth_values,
)
from jax_models.programs.logic.modes import MODES, get_mode
from jax_models.programs.logic.self_test import apply_eagerly
from tests.bounds.influence.expect import refused
from tests.jax_models.programs.logic.compiled import (
    LENGTHS,
    coordinates_of_parts,
    disagreements,
    expressible,
    random_formulas,
    strings_of,
)


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
    truth = coordinates_of_parts(whole, mode)
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
        ("Q_a", "V", ["mode = 'V'; expected one of T, TB, U, FT, FU"]),
    ],
)
def test_a_mode_refuses_with_all_reasons(text, mode, reasons):
    with pytest.raises(jm.InputError) as raised:
        compile_formula(parse_formula(text), "ab", mode)
    for reason in reasons:
        assert reason in str(raised.value)


PREFIX = ["P (Q_a S Q_b)", "odd(#<[Q_a])", "2 * #<[Q_a] >= 3 * #<[Q_b] + 5"]
SUFFIX = ["N (Q_a U Q_b)", "odd(#>[Q_a])", "#>[Q_a] >= #<[Q_b] + 1"]
SLOW = pytest.mark.slow
REST = ("TB", "U", "FT")


def texts(mode):
    return PREFIX if get_mode(mode).future_only else PREFIX + SUFFIX


def hard_strings(length, rng):
    """Strings with few, about half and all of them the symbol b."""
    return (rng.random((3, length)) < [[0.02], [0.5], [1.0]]) * 1


def errors(model, formula, length):
    strings = hard_strings(length, np.random.default_rng(length))
    logits = apply_eagerly(model, strings) @ np.asarray(model.readout.weight)[0]
    return int(np.sum((logits >= 0.5) != evaluate_formula(formula, strings, "ab")))


@pytest.mark.parametrize(
    "mode", ["T", "FU", *(pytest.param(m, marks=SLOW) for m in REST)]
)
def test_no_value_is_wrong_up_to_the_length(mode):
    for text in texts(mode):
        formula = parse_formula(text)
        model = compile_formula(formula, "ab", mode)
        assert exact_length(model) > 250
        assert not errors(model, formula, min(exact_length(model), 450)), text


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_values_are_wrong_some_way_beyond_the_length(mode):
    formula = parse_formula("odd(#<[Q_a])")
    model = compile_formula(formula, "ab", mode)
    most = exact_length(model)
    assert not errors(model, formula, most)
    assert any(errors(model, formula, factor * most) for factor in (2, 4, 8, 16))


def longest(text, mode, dtype="float32"):
    return exact_length(compile_formula(parse_formula(text), "ab", mode, dtype=dtype))


@pytest.mark.parametrize("mode", MODES)
def test_float64_reaches_a_million(mode):
    for text in texts(mode):
        assert longest(text, mode, "float64") > 10**6, text


# As docs/logic.md has them: every bound that decides one of them is held to its constants.
DOCUMENTED = [
    ("Q_a S Q_b", "T", 167_773),
    ("Q_a S Q_b", "FT", 1015),
    ("#<[Q_a] > #<[Q_b]", "T", 446),
    ("#<[Q_a] > #<[Q_b]", "FU", 27_189),
    ("odd(#<[Q_a])", "T", 442),
    ("odd(#<[Q_a])", "FU", 308),
]


@pytest.mark.parametrize(("text", "mode", "length"), DOCUMENTED)
def test_lengths_are_those_of_the_documentation(text, mode, length):
    assert longest(text, mode) == length


@pytest.mark.parametrize("mode", ["T", "TB", "FU"])
def test_larger_integers_leave_shorter_strings(mode):
    one, ten, hundred = (
        longest(f"{k} * #<[Q_a] > #<[Q_b]", mode) for k in (1, 10, 100)
    )
    assert one > ten > hundred


@pytest.mark.parametrize("mode", MODES)
def test_a_head_that_looks_up_a_number_and_a_predicate_answers_for_both(mode):
    number, predicate = "#<[Q_a] >= 2", "odd(#<[Q_a])"
    both = longest(f"{number} and {predicate}", mode)
    assert both == longest(predicate, mode) < longest(number, mode)


def test_a_float32_model_says_so_beyond_its_length():
    model = compile_formula(parse_formula("#<[Q_a] >= #<[Q_b]"), "ab", "T")
    most = exact_length(model)
    with refused(rf"n = 4096 rounding could flip .* up to n = {most}; .* float64"):
        truth_values(model, jnp.zeros(4096, jnp.int32))


@pytest.mark.parametrize("mode", MODES)
def test_integers_beyond_the_float_type_are_refused(mode):
    text = "#<[Q_a] >= 100000000"
    with refused(r"too large for float32.* or dtype float64"):
        longest(text, mode)
    assert longest(text, mode, "float64") > 1000


@pytest.mark.parametrize("name", ["first", "parity"])
@pytest.mark.parametrize("ask", [exact_length, lambda x: truth_values(x, [0, 1])])
def test_another_model_is_no_compiled_formula(name, ask):
    with refused("not compiled from a formula"):
        ask(jm.build_preset(name))
