"""An error in any gadget of the compiler is noticed by comparison with the evaluator."""

import numpy as np
import pytest

from jax_models.model.temperature import ConstantTemperature
from jax_models.programs import circuit
from jax_models.programs.logic import compile, parse_formula, translate
from tests.jax_models.programs.logic.compiled import disagreements

LENGTHS = (1, 2, 3, 5, 16)


def without_gates(number, *gates):
    return ROUNDING(number)


def without_the_last_gate(number, *gates):
    return ROUNDING(number, *gates[:-1])


def constant_true(circuit, side, truth):
    return circuit.coordinate([1, 1])


def never(circuit):
    """Miss the lone position, where the number itself is read."""
    return circuit.coordinate([0, 0])


def first_conjunct(circuit, conjuncts):
    return CONJUNCTION(circuit, list(conjuncts)[:1])


ROUNDING, CONJUNCTION = translate.rounding, translate.conjunction
SINCE = translate.since
CONSTANT = lambda scale, exponent, of: ConstantTemperature(scale)


def leftmost(select):
    def changed(circuit, side, *rest):
        turned = "suffix" if side == "prefix" else "prefix"
        return select(circuit, turned, *rest)

    return changed


def rightmost_of_all(circuit, side, left, right):
    return SINCE(circuit, side, None, right)


PLANTED = {
    "open gates of P": ("T", "P Q_a", translate, "rounding", without_gates),
    "P open at 1": ("FU", "P Q_a", translate, "rounding", without_the_last_gate),
    "a blunt selection": ("T", "Q_a S Q_b", translate, "SHARPNESS", 0.3),
    "the other side": (
        "T",
        "Q_a S P Q_b",
        translate,
        "select",
        leftmost(translate.select),
    ),
    "any since": ("TB", "odd S Q_b", translate, "since", rightmost_of_all),
    "one conjunct": ("T", "odd and Q_a", translate, "conjunction", first_conjunct),
    "no mark of the end": ("FT", "P Q_a", translate, "mask_of", lambda side: "none"),
    "0 is 1": ("T", "#<[Q_a] >= 1", translate, "has_any", constant_true),
    "a blunt lookup": (
        "FT",
        "#<[T] >= 3",
        translate,
        "lookup_sharpness",
        lambda _: 0.2,
    ),
    "a vote of odd": ("TB", "#<[Q_a] >= 1", translate, "_only", never),
    "a blunt vote": ("TB", "#<[Q_a] > #<[Q_b]", translate, "SHARPNESS", 0.1),
    "a constant temperature": ("T", "Q_a S Q_b", circuit, "PowerTemperature", CONSTANT),
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
