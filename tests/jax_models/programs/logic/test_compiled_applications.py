"""Compiled formulas of the applications against definitions that use no formula.

The logits are those of the model; what they should be comes from `direct` and from the
languages, not from the evaluator.
"""

import numpy as np
import pytest

from jax_models.languages import FlipFlop, Majority, Parity
from jax_models.programs.logic.applications import (
    ending_ngram,
    flip_flop,
    hops,
    majority,
    odd_parity,
    odd_parity_by_halves,
    starting_ngram,
)
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.logic.modes import MODES
from jax_models.programs.logic.parser import parse_formula
from jax_models.programs.logic.self_test import eager_logits, engine_logits
from tests.jax_models.programs.logic.direct import gram_ends, gram_starts, hop_outputs
from tests.jax_models.programs.logic.test_applications import (
    all_strings,
    flip_flop_members,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

LOOK_AHEAD = [mode for mode in MODES if not MODES[mode].future_only]


def every_prefix(language):
    """Membership of each prefix of some strings, as a formula decides it."""

    def truth(strings):
        lengths = range(1, strings.shape[1] + 1)
        return np.stack([language(strings[:, :n]) for n in lengths], axis=1)

    return truth


# What is compiled, over which symbols, in which modes, and what it should say [count, n].
APPLICATIONS = {
    "starting n-gram": (
        starting_ngram("aba"), "abc", LOOK_AHEAD, lambda w: gram_starts(w, [0, 1, 0])
    ),
    "ending n-gram": (
        ending_ngram("aba"), "abc", [*MODES], lambda w: gram_ends(w, [0, 1, 0])
    ),
    "induction": (hops("abc", "b", 1), "abc", [*MODES], lambda w: hop_outputs(w, 1) == 1),
    "two hops": (hops("ab", "a", 2), "ab", [*MODES], lambda w: hop_outputs(w, 2) == 0),
    "three hops": (hops("abc", "c", 3), "abc", [*MODES], lambda w: hop_outputs(w, 3) == 2),
    "flip-flop": (
        flip_flop(), FlipFlop().symbols, [*MODES], every_prefix(FlipFlop().contains)
    ),
    "parity": (
        odd_parity(), "01", [*MODES], every_prefix(lambda w: ~Parity().contains(w))
    ),
    "majority": (majority(), "01", [*MODES], every_prefix(Majority().contains)),
}  # fmt: skip
CASES = [(name, mode) for name, row in APPLICATIONS.items() for mode in row[2]]
# Each in one mode, so that every mode occurs; the slow tests take all.
SOME = [
    (name, row[2][at % len(row[2])])
    for at, (name, row) in enumerate(APPLICATIONS.items())
]


def compiled(name, mode):
    formula, alphabet, _, truth = APPLICATIONS[name]
    return compile_formula(formula, alphabet, mode, dtype="float64"), truth


def strings_for(name, length, count):
    """Random strings; for the flip-flop half of them members."""
    symbols = len(APPLICATIONS[name][1])
    rng = np.random.default_rng(length)
    strings = rng.integers(0, symbols, (count, length))
    if name == "flip-flop" and length >= 4 and length % 2 == 0:
        strings[: count // 2] = flip_flop_members(rng, length, count // 2)
    return strings


def test_every_mode_is_met():
    assert {mode for _, mode in SOME} == set(MODES)


@pytest.mark.parametrize(("name", "mode"), SOME)
def test_compiled_applications_do_what_they_are_defined_to(name, mode):
    model, truth = compiled(name, mode)
    for length in (1, 2, 3, 16, 33):
        strings = strings_for(name, length, 4)
        np.testing.assert_array_equal(eager_logits(model, strings), truth(strings))


def test_parity_by_halves_is_compiled():
    model = compile_formula(odd_parity_by_halves(), "01", "TB", dtype="float64")
    for length in (1, 2, 3, 4, 16, 33):
        strings = np.random.default_rng(length).integers(0, 2, (4, length))
        found = eager_logits(model, strings)[:, -1]
        np.testing.assert_array_equal(found, ~Parity().contains(strings))


@pytest.mark.parametrize("name", ["flip-flop", "three hops", "majority"])
def test_a_definition_catches_the_model_of_another_application(name):
    wrong = {
        "flip-flop": parse_formula("(Q_0 or Q_1) and P Q_r"),  # keeps no memory
        "three hops": hops("abc", "c", 2),
        "majority": odd_parity(),
    }[name]
    _, alphabet, _, truth = APPLICATIONS[name]
    model = compile_formula(wrong, alphabet, "T", dtype="float64")
    strings = strings_for(name, 16, 8)
    assert (eager_logits(model, strings) != truth(strings)).any()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_compiled_applications_on_every_short_string_and_at_many_lengths(name, mode):
    model, truth = compiled(name, mode)
    symbols = len(APPLICATIONS[name][1])
    for length in range(1, {2: 10, 3: 7, 5: 5}[symbols] + 1):
        strings = all_strings(symbols, length)
        np.testing.assert_array_equal(eager_logits(model, strings), truth(strings))
    for length in (*range(11, 50, 3), 50, 100, 200):
        strings = strings_for(name, length, 4)
        np.testing.assert_array_equal(eager_logits(model, strings), truth(strings))


@pytest.mark.slow
@pytest.mark.parametrize("mode", LOOK_AHEAD)
def test_compiled_parity_by_halves_on_every_short_string(mode):
    model = compile_formula(odd_parity_by_halves(), "01", mode, dtype="float64")
    for length in (*range(1, 11), 50, 100, 200):
        strings = all_strings(2, length) if length < 11 else None
        if strings is None:
            strings = np.random.default_rng(length).integers(0, 2, (8, length))
        found = eager_logits(model, strings)[:, -1]
        np.testing.assert_array_equal(found, ~Parity().contains(strings))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_compiled_flip_flop_accepts_ten_of_all_strings_of_six(mode):
    model, _ = compiled("flip-flop", mode)
    strings = all_strings(5, 6)
    accepted = eager_logits(model, strings)[:, -1]
    np.testing.assert_array_equal(accepted, FlipFlop().contains(strings))
    assert accepted.sum() == 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_the_engine_agrees_on_compiled_applications(name, mode):
    model, truth = compiled(name, mode)
    strings = strings_for(name, 18, 4)
    np.testing.assert_array_equal(engine_logits(model, strings), truth(strings))
