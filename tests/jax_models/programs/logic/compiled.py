"""Formulas for the tests of the compiler, and the comparison with the evaluator."""

import numpy as np

from jax_models.programs.logic import evaluate_formula, parse_formula
from jax_models.programs.logic.applications import all_of
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.logic.modes import MODES, get_mode
from jax_models.programs.logic.self_test import apply_eagerly
from jax_models.programs.logic.translate import plan_formula
from tests.formulas import random_formula

LENGTHS = (1, 2, 3, 4, 5, 7, 16, 33, 100)
AHEAD = ("next", "until", "suffix")

# Every operator alone and at its boundaries, on the prefix and on the suffix side.
BACKWARD = [
    "not F",
    "Q_a and not Q_b and T",
    "Q_a or P Q_a or F",
    "P Q_a",
    "P P not Q_a",
    "first",
    "Q_a S Q_b",
    "F S Q_a",
    "T S Q_b",
    "historically Q_a",
    "(not P Q_a) S (P Q_a and Q_b)",
    "odd",
    "not mod(3,1)",
    "not mod(1,0)",
    "not mod(70,7) and not mod(1180591620717411303424,5)",
    "#<[Q_a] >= 1",
    "#<[Q_a] = 0",
    "#<[Q_a] - #<[not Q_a] >= 1",
    "2 * #<[Q_a] = 3 * #<[Q_b] + 1",
    "#<[Q_a] >= 40 - 3",
    "#<[T] > 7",
    "odd(#<[Q_a])",
    "mod(3,0)(#<[P Q_a])",
    "not mod(5,4)(#<[not Q_a])",
]
FORWARD = [
    "N Q_a",
    "N N not Q_a",
    "last",
    "Q_a U Q_b",
    "#>[Q_a] >= 1",
    "#>[Q_a] = #<[Q_a]",
    "not (#<[#<[P Q_a] = #>[Q_a]] >= 1)",
    "odd(#>[Q_a])",
    "mod(3,2)(#>[not Q_a])",
]


def expressible(mode):
    """The formulas of the lists that a mode can express."""
    texts = BACKWARD if get_mode(mode).future_only else BACKWARD + FORWARD
    return [parse_formula(text) for text in texts]


def random_formulas(mode, count, seed, depth=4):
    """Draw formulas that a mode can express."""
    rng = np.random.default_rng([seed, list(MODES).index(mode)])
    without = AHEAD if get_mode(mode).future_only else ()
    return [random_formula(rng, depth, without=without) for _ in range(count)]


def strings_of(length, count, rng, symbols=2):
    """Random strings, the first two of one symbol and sparse in the other."""
    strings = rng.integers(0, symbols, (count, length))
    strings[0] = rng.integers(symbols)
    if count > 1:
        strings[1] = rng.random(length) < 1.5 / length
    return strings


def coordinates_of_parts(formula, mode):
    """The coordinate of every sub-formula of a formula over ab."""
    plan = plan_formula(formula, ("a", "b"), get_mode(mode))
    return {part: at for part, (at,) in plan.truth.items()}


def disagreements(formulas, mode, lengths, rng, *, count=4, dtype="float64"):
    """How often one compiled model errs about some formulas, run eagerly.

    They are compiled together, as a conjunction, so that they share what they can. How
    many truth values of the formulas are wrong, and the largest distance of the
    coordinate of any sub-formula from 0 and 1.
    """
    whole = all_of(formulas)
    model = compile_formula(whole, "ab", mode, dtype=dtype)
    truth = coordinates_of_parts(whole, mode)
    wrong, deviation = 0, 0.0
    for length in lengths:
        strings = strings_of(length, count, rng)
        y = apply_eagerly(model, strings)
        for formula in (whole, *formulas):
            held = y[..., truth[formula]] >= 0.5
            wrong += np.sum(held != evaluate_formula(formula, strings, "ab"))
        booleans = y[..., list(truth.values())]
        deviation = max(deviation, np.abs(booleans - (booleans >= 0.5)).max())
    return int(wrong), float(deviation)
