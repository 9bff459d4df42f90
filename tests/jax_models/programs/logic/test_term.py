"""Terms compute with integers, and alphabets are different names."""

import operator

import numpy as np
import pytest

from jax_models.programs.logic.derived import Term
from jax_models.programs.logic.semantics import evaluate_formula
from jax_models.programs.logic.syntax import Constant, Count, Symbol

COUNTS = [Count(side, Symbol(name)) for side in ("prefix", "suffix") for name in "ab"]
RELATIONS = {
    "more_than": operator.gt,
    "at_least": operator.ge,
    "equals": operator.eq,
}


def random_term(rng):
    """A term and its value at every position of the string abba."""
    values = np.array([[1, 1, 1, 2], [0, 1, 2, 2], [2, 1, 1, 1], [2, 2, 1, 0]])
    term, value = Term.of(int(rng.integers(-2, 3))), np.zeros(4, int)
    value += term.constant
    for _ in range(rng.integers(0, 4)):
        which, factor = rng.integers(4), int(rng.integers(-2, 3))
        summand = factor * Term.of(COUNTS[which])
        if rng.random() < 0.5:
            term, value = term + summand, value + factor * values[which]
        else:
            term, value = term - summand, value - factor * values[which]
    return term, value


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("seed", range(20))
def test_comparisons_of_terms_are_those_of_their_values(relation, seed):
    rng = np.random.default_rng(seed)
    (left, left_value), (right, right_value) = random_term(rng), random_term(rng)
    formula = getattr(left, relation)(right)
    found = evaluate_formula(formula, [0, 1, 1, 0], "ab")
    expected = RELATIONS[relation](left_value, right_value)
    np.testing.assert_array_equal(found, expected)


def test_terms_without_counts_compare_to_constants():
    assert Term.of(2).equals(Term.of(2)) is Constant(True)
    assert Term.of(2).more_than(Term.of(2)) is Constant(False)
    assert (0 * Term.of(COUNTS[0])).is_constant
