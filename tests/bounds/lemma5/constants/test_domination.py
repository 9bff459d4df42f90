"""Exact influence <= corrected <= linear <= C1 and C2, by the independent oracle.

Models of every kind and long inputs are those of certificates.
"""

import math

import pytest

from tests.bounds.lemma5.constants.drawn import (
    FACTORS,
    ROUNDING,
    draw,
    measure,
)

SILENT = {"outputs": ".output", "symbols": "embedding"}


@pytest.mark.parametrize("masks", FACTORS["masks"], ids=lambda masks: "+".join(masks))
@pytest.mark.parametrize("layer_norm", ["none", "post"])
@pytest.mark.parametrize("silent", SILENT)
def test_the_chain_holds_where_one_symbol_changes_no_other_row(
    silent, layer_norm, masks
):
    """What moves no other row is a zero in every form that has the heads' gains."""
    drawn = draw(0, num_layers=2, masks=masks, layer_norm=layer_norm, num_heads=2)
    drawn = drawn.scaled(0, SILENT[silent])
    for query in (0, -1):
        found = measure(drawn, 3, 0, query)
        found.assert_chain()
        assert found.others == 0
        forms = found.forms
        for form in (forms.corrected, forms.linear, forms.causal):
            assert form is None or form.others.log_value == -math.inf


def test_the_oracle_notices_a_bound_that_is_too_small():
    """Half of the bound of some model of the family is below the exact influence."""
    case = {"num_layers": 1, "scale": 0.1, "biases": False}
    found = measure(draw(0, **case), 2, 0)
    assert 1 <= found.slack < 2
    assert found.others > found.forms.corrected.others.value / 2 * (1 + ROUNDING)
