"""Rows are one real vector only where that is certain; tables hold those of the model."""

import numpy as np
import pytest

from benchmarks import reference
from bounds.restriction.checking import layer as checked_layer
from bounds.restriction.checking.claim import decode_claim
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.tables import embed_tables, identify_rows
from tests.bounds.restriction.drawn_models import integer_model
from tests.bounds.restriction.enumerated import certified

DIGITS = reference.multiprecision(40)


def test_rows_are_one_if_exact_and_equal_or_made_alike():
    """0.1 + 0.2 and 0.3 may round alike and differ: their values say nothing."""
    rows = np.array([[0.3, 1.0]] * 4 + [[0.3, -0.0], [0.3, 0.0]])
    radius = np.zeros_like(rows)
    radius[:4, 1] = 1e-17  # one rounded entry makes a row rounded
    ways = [("one",), ("other",), ("one",), ("third",), None, None]
    found = identify_rows(Enclosure(rows, radius), ways).tolist()
    assert found[0] == found[2]
    # Exact rows are equal by value, zeros of either sign among them.
    assert found[4] == found[5]
    assert len(set(found)) == 4


def test_rows_of_one_identity_share_what_holds_each():
    rows = Enclosure(np.array([[1.0], [1 + 1e-15], [3.0]]), np.array([[1e-17]] * 3))
    found = checked_layer._share(rows, np.array([7, 7, 8]))
    assert found.centre[0] == found.centre[1]
    assert (np.abs(found.centre - rows.centre) + rows.radius <= found.radius).all()


def rows_of(enumeration, tables, certificate):
    """Every completion, position and table row: what the table says of it."""
    for string in enumeration.strings[enumeration.completions(certificate["rho"])]:
        for position, deps in tables.deps.items():
            index = sum(int(string[b]) << at for at, b in enumerate(deps))
            yield string, position, tables.start[position] + index


@pytest.mark.parametrize("combine", ["residual", "parallel", "concat"])
@pytest.mark.parametrize("seed", [6, 10])
def test_tables_hold_the_rows_of_every_completion(seed, combine):
    model = integer_model(seed, weighting="average_hard", combine=combine)
    enumeration, certificate = certified(model, seed)
    config, rounded = enumeration.config, 0
    claim = decode_claim(certificate)
    tables = embed_tables(model, claim)
    for depth, (layer, claims) in enumerate(
        zip(model.layers, claim.layers, strict=True)
    ):
        tables, _ = checked_layer.check_layer(layer, tables, claims)
        part = {**config, "layers": config["layers"][: depth + 1]}
        known = {}
        for string, position, row in rows_of(enumeration, tables, certificate):
            key = tuple(string.tolist())
            if key not in known:
                known[key] = reference.forward(
                    part, enumeration.tensors, string, DIGITS, ties="ignore"
                )
            found = tables.values[row]
            assert (np.abs(found.centre - known[key][position]) <= found.radius).all()
            rounded += found.radius.any()
    assert rounded or combine == "parallel"  # whose means here are exact


def test_the_digits_notice_a_mean_of_one_row_too_few(monkeypatch):
    mean = checked_layer.mean_of_rows
    monkeypatch.setattr(checked_layer, "mean_of_rows", lambda values: mean(values[:2]))
    with pytest.raises(AssertionError):
        test_tables_hold_the_rows_of_every_completion(6, "residual")
