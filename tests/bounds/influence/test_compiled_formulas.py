"""On a compiled formula the influence of a symbol is whether it changes the truth."""

import numpy as np
import pytest

import bounds
from jax_models.programs.logic import compile_formula, evaluate_formula, parse_formula

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize(
    ("text", "mode", "method"),
    [
        ("Q_a S Q_b", "FU", "exhaustive"),
        pytest.param("Q_a S Q_b and P Q_a", "T", "incremental", marks=pytest.mark.slow),
    ],
)
def test_influence_is_a_change_of_truth(text, mode, method):
    formula = parse_formula(text)
    model = compile_formula(formula, "ab", mode, dtype="float64")
    tokens = np.array([1, 0, 1, 0, 0, 0])
    found = bounds.compute_influence(
        model, tokens, method=method, target="logits", include_query=True
    )
    truth = evaluate_formula(formula, tokens, "ab")[-1]
    for position in range(len(tokens)):
        changed = tokens.copy()
        changed[position] = symbol = 1 - tokens[position]
        flips = evaluate_formula(formula, changed, "ab")[-1] != truth
        low, high = (x[position, symbol] for x in (found.lower, found.upper))
        assert low - 1e-9 <= flips <= high + 1e-9
        assert high - low < 1e-6
