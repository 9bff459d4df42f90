"""Rows are one real vector only where that is certain, and as fractions the model's."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.restriction.checking.claim import decode_claim
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.layer import check_layer
from bounds.restriction.checking.tables import Rationals, embed_tables, identify_rows
from tests.bounds.restriction.drawn_models import integer_model
from tests.bounds.restriction.enumerated import certified

DIGITS = reference.multiprecision(40)
ROWS = np.array([[0.3, 1.0], [0.3, 1.0], [0.3, -0.0], [0.3, 0.0]])


def test_rounded_rows_are_one_only_if_they_are_made_alike():
    """0.1 + 0.2 and 0.3 may round alike and differ: their values say nothing."""
    radius = np.full_like(ROWS, 1e-17)
    ways = [("one",), ("other",), ("one",), ("third",)]
    found = identify_rows({}, Enclosure(ROWS, radius), ways).tolist()
    assert found[0] == found[2]
    assert len(set(found)) == 3


def test_one_rounded_entry_makes_a_row_rounded():
    radius = np.zeros_like(ROWS)
    radius[:2, 1] = 1e-17
    known = {}
    found = identify_rows(
        known, Enclosure(ROWS, radius), [("one",), ("other",), None, None]
    )
    assert len(set(found.tolist())) == 3
    # Exact rows are equal by value, zeros of either sign among them, in every layer.
    assert found[2] == found[3]
    again = identify_rows(known, Enclosure.exactly(ROWS[2:]), [("one",), ("new",)])
    assert again.tolist() == found[2:].tolist()


def tables_by_layer(model, certificate):
    """The tables of y^(0), y^(1), … that the checker computes."""
    claim = decode_claim(certificate)
    identities = {}
    found = [embed_tables(model, claim, identities)]
    for depth, layer in enumerate(model.layers):
        claims = claim.layers[depth]
        found.append(check_layer(layer, found[-1], claims, identities)[0])
    return found


def rows_of(enumeration, tables, certificate):
    """Every completion, position and table row: what the table says of it."""
    for string in enumeration.strings[enumeration.completions(certificate["rho"])]:
        for position, deps in tables.deps.items():
            index = sum(int(string[b]) << at for at, b in enumerate(deps))
            yield string, position, tables.start[position] + index


@pytest.mark.parametrize("combine", ["residual", "parallel", "concat"])
@pytest.mark.parametrize("seed", [6, pytest.param(10, marks=pytest.mark.slow)])
def test_tables_hold_the_rows_of_every_completion(seed, combine):
    model = integer_model(seed, weighting="average_hard", combine=combine)
    enumeration, certificate = certified(model, seed)
    config, rounded = enumeration.config, 0
    levels = tables_by_layer(model, certificate)
    for depth, tables in enumerate(levels[1:], start=1):
        part = {**config, "layers": config["layers"][:depth]}
        known = {}
        for string, position, row in rows_of(enumeration, tables, certificate):
            key = tuple(string.tolist())
            if key not in known:
                known[key] = reference.forward(
                    part, enumeration.tensors, string, DIGITS, ties="ignore"
                )
            real = known[key][position]
            found = tables.made.row(int(tables.numbers[row]))
            difference = [
                abs(float(a - DIGITS.numbers(b.numerator) / b.denominator))
                for a, b in zip(real, found, strict=True)
            ]
            assert max(difference) < 1e-30
            enclosed = (
                np.abs(tables.values.centre[row] - real) <= tables.values.radius[row]
            )
            assert enclosed.all()
            rounded += tables.values.radius[row].any()
    assert rounded or combine == "parallel"  # whose means here are exact


def test_equal_means_of_thirds_are_one_row_and_others_are_not():
    """(1 + 4 + 2)/3 = (2 + 3 + 2)/3, which float64 does not hold, made of other rows."""
    model = integer_model(0, num_layers=1, num_heads=1, position=None, vocab_size=5)
    layer = model.layers[0]
    value = jnp.array([[[1.0, 0.0], [0.0, 0.0]]])
    attention = dataclasses.replace(layer.attention, value=value)
    layer = dataclasses.replace(layer, attention=attention)
    _, certificate = certified(integer_model(0, num_layers=1, num_heads=1), 0)
    embedding = np.array([[1.0, 0], [4, 0], [2, 0], [3, 0], [2, 1]])
    model = dataclasses.replace(model, embedding=embedding)
    claim = dataclasses.replace(decode_claim(certificate), rho=(0, 1, 2, 3, 4))
    below = embed_tables(model, claim, {})
    recipes = [(4, ((0, 1, 2),)), (4, ((2, 3, 4),)), (4, ((1, 2, 3),)), (4, ((),))]
    rationals = Rationals(layer, below, recipes)
    assert rationals.are_equal(0, 1)
    assert not rationals.are_equal(0, 2)
    assert not rationals.are_equal(0, 3)
    block = dataclasses.replace(layer.feed_forward, activation="gelu")
    smooth = dataclasses.replace(layer, feed_forward=block)
    assert not Rationals(smooth, below, recipes).are_equal(0, 0)


def test_the_digits_notice_a_mean_of_one_row_too_few(monkeypatch):
    head = Rationals._head
    monkeypatch.setattr(
        Rationals, "_head", lambda self, at, rows: head(self, at, rows[:2])
    )
    with pytest.raises(AssertionError):
        test_tables_hold_the_rows_of_every_completion(6, "residual")
