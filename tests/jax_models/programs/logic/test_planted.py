"""An error in any gadget of the compiler is noticed by comparison with the evaluator."""

import numpy as np
import pytest

from jax_models.model.temperature import ConstantTemperature
from jax_models.programs.logic import (
    builder,
    compile,
    gadgets,
    parse_formula,
    schedule,
    translate,
)
from tests.jax_models.programs.logic.compiled import disagreements

LENGTHS = (1, 2, 3, 5, 16)


def without_gates(plan, into, number, gates=()):
    builder.add_rounded(plan, into, number)


def without_the_last_gate(plan, into, number, gates=()):
    builder.add_rounded(plan, into, number, list(gates)[:-1])


def constant_true(plan, mode, side, truth):
    return plan.coordinate("some", constant=1.0)


def never(plan, into, number, gate, factors, offset):
    """Leave out what is added at a lone position."""


def masked_lookup(lookup):
    def changed(plan, *arguments, **options):
        found = plan.attend

        def attend(name, mask, *rest):
            return found(name, "past" if mask == "none" else mask, *rest)

        plan.attend = attend
        out = lookup(plan, *arguments, **options)
        plan.attend = found
        return out

    return changed


def first_conjunct(plan, name, conjuncts):
    return builder.conjunction(plan, name, list(conjuncts)[:1])


def shifted(combination):
    def changed(self, name, constant, parts):
        return combination(self, name, constant + 1.0, parts)

    return changed


def least_exponent(layer):
    return min((head.exponent for head in layer.heads if head.query), default=0)


def leftmost(select):
    def changed(plan, mode, side, *rest):
        turned = "suffix" if side == "prefix" else "prefix"
        return select(plan, mode, turned, *rest)

    return changed


def rightmost_of_all(plan, mode, side, left, right):
    return gadgets.since(plan, mode, side, None, right)


PLANTED = {
    "the gates of P stay open": ("T", "P Q_a", gadgets, "add_rounded", without_gates),
    "P is not closed at the first position": (
        "FU",
        "P Q_a",
        gadgets,
        "add_rounded",
        without_the_last_gate,
    ),
    "N is not closed at the last position": (
        "U",
        "N Q_a",
        gadgets,
        "add_rounded",
        without_the_last_gate,
    ),
    "selection is not sharp": ("T", "Q_a S Q_b", gadgets, "SHARPNESS", 0.3),
    "selection is not sharp (FT)": ("FT", "Q_a S Q_b", gadgets, "SHARPNESS", 0.03),
    "selection is not sharp (FU)": ("FU", "Q_a S Q_b", gadgets, "SHARPNESS", 0.3),
    "S looks to the other side": (
        "T",
        "Q_a S P Q_b",
        gadgets,
        "select",
        leftmost(gadgets.select),
    ),
    "S forgets what must hold since": (
        "TB",
        "odd S Q_b",
        translate,
        "since",
        rightmost_of_all,
    ),
    "a conjunction forgets one": (
        "T",
        "odd and Q_a",
        translate,
        "conjunction",
        first_conjunct,
    ),
    "the mark of the end is nowhere": (
        "FT",
        "P Q_a",
        gadgets,
        "mask_of",
        lambda side: "none",
    ),
    "a count of 0 is taken for 1": (
        "T",
        "#<[Q_a] >= 1",
        gadgets,
        "has_any",
        constant_true,
    ),
    "a count of 0 is taken for 1 (TB)": (
        "TB",
        "#>[Q_a] >= 1",
        gadgets,
        "has_any",
        constant_true,
    ),
    "a predicate has no value at 0": (
        "U",
        "even(#<[Q_a])",
        translate,
        "has_any",
        constant_true,
    ),
    "a lookup is not sharp": (
        "FT",
        "#<[T] >= 3",
        gadgets,
        "lookup_sharpness",
        lambda factors: 0.2,
    ),
    "the lookup of a suffix count is masked": (
        "T",
        "#>[Q_a] >= 3",
        gadgets,
        "lookup",
        masked_lookup(gadgets.lookup),
    ),
    "a vote without an even position": (
        "TB",
        "#<[Q_a] >= 1",
        gadgets,
        "_add_where",
        never,
    ),
    "a vote without an even position (FU)": (
        "FU",
        "#<[Q_a] >= 1",
        gadgets,
        "_add_where",
        never,
    ),
    "a vote is not sharp": ("TB", "#<[Q_a] > #<[Q_b]", gadgets, "SHARPNESS", 0.1),
    "both halves are taken": (
        "FU",
        "odd(#<[Q_a])",
        translate,
        "add_rounded",
        without_gates,
    ),
    "a combination is off by one": (
        "U",
        "not P Q_a",
        builder.Builder,
        "combination",
        shifted(builder.Builder.combination),
    ),
    "a layer is too warm": (
        "FT",
        "#<[Q_a] > #<[Q_b] and P P Q_a",
        schedule.PlannedLayer,
        "exponent",
        property(least_exponent),
    ),
    "the temperature does not fall": (
        "T",
        "Q_a S Q_b",
        compile,
        "PowerTemperature",
        lambda scale, exponent, of: ConstantTemperature(scale),
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_error_is_noticed(planted, monkeypatch):
    mode, text, where, name, replacement = PLANTED[planted]
    formulas = [parse_formula(text)]
    rng = np.random.default_rng(0)
    assert disagreements(formulas, mode, LENGTHS, rng) == (0, 0.0)
    # The compiler itself refuses some of them, for want of any length it could vouch for.
    monkeypatch.setattr(compile, "require_exact", lambda model, length: None)
    monkeypatch.setattr(where, name, replacement)
    assert disagreements(formulas, mode, LENGTHS, rng) != (0, 0.0)
