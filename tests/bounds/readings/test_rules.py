"""Methods do what they have rules for, and refuse the rest by name."""

import numpy as np
import pytest

from bounds import certify_influence, compute_influence
from bounds.lemma5.constants.row_form import activated
from bounds.readings.rules import unsupported_operation
from jax_models import InputError
from jax_models.model.rows import ACTIVATIONS, Operation
from tests.bounds.influence.models import build


class Tripled(Operation):
    """An activation that nobody has a rule for."""

    def __call__(self, *rows):
        return 3 * rows[0]

    def change(self, *rows):
        return 3 * rows[1]


def test_what_has_no_rule_is_refused_by_name(monkeypatch):
    layers = build({"activation": "gelu"}).layers
    assert unsupported_operation(layers, activated) is None
    monkeypatch.setitem(ACTIVATIONS, "gelu", Tripled())
    missing = "it needs a rule for activated of Tripled, and has none"
    assert unsupported_operation(layers, activated) == missing
    with pytest.raises(InputError, match="a rule for activated of Tripled"):
        activated(layers[0].feed_forward.bend, None)


def test_methods_refuse_what_they_have_no_rule_for_and_others_do_it(monkeypatch):
    """A new activation: exact by change propagation at once, the rest says why not."""
    monkeypatch.setitem(ACTIVATIONS, "gelu", Tripled())
    case = {"activation": "gelu", "num_layers": 2, "d_ff": 7}
    model, tokens = build(case), np.asarray([0, 1, 0, 2])
    exact = compute_influence(model, tokens, method="incremental")
    whole = compute_influence(model, tokens, method="exhaustive")
    assert exact.max_lower <= whole.max_upper
    assert whole.max_lower <= exact.max_upper
    with pytest.raises(InputError, match="rule for defect of Tripled"):
        compute_influence(model, tokens, method="screened")
    with pytest.raises(InputError, match="rule for slope strays of Tripled"):
        certify_influence(model, tokens)
