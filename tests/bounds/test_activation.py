"""The steepest slope of each activation is reached, and never passed."""

import jax.numpy as jnp
import numpy as np
import pytest

from bounds import certify_influence, compute_influence
from bounds.activation import GELU_CURVATURE, slopes, steepest
from bounds.readings import lacks
from jax_models import InputError
from jax_models.rows import ACTIVATIONS, Gelu, Operation
from tests.bounds.influence.models import build


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_slopes_reach_the_steepest_and_stay_within_it(kind):
    operation = ACTIVATIONS[kind]
    found = np.asarray(slopes(operation, jnp.linspace(-9.0, 9.0, 90001)))
    most = steepest(operation)
    assert most - 1e-8 <= found.max() <= most
    assert 1 - most <= found.min() <= 1 - most + 1e-8


def test_the_curvature_of_gelu_is_reached_and_never_passed():
    z = np.linspace(-9.0, 9.0, 90001)
    curvature = np.abs(np.diff(slopes(Gelu(), jnp.asarray(z))) / np.diff(z))
    assert GELU_CURVATURE - 1e-7 <= curvature.max() <= GELU_CURVATURE


class Tripled(Operation):
    """An activation that nobody has a rule for."""

    def __call__(self, *rows):
        return 3 * rows[0]

    def change(self, *rows):
        return 3 * rows[1]


def test_what_has_no_rule_is_refused_by_name(monkeypatch):
    layers = build({"activation": "gelu"}).layers
    assert lacks(layers, slopes) is None
    monkeypatch.setitem(ACTIVATIONS, "gelu", Tripled())
    assert (
        lacks(layers, slopes) == "it needs a rule for slopes of Tripled, and has none"
    )
    with pytest.raises(InputError, match="a rule for steepest of Tripled"):
        steepest(layers[0].feed_forward.bend)


def test_methods_refuse_what_they_have_no_rule_for_and_others_do_it(monkeypatch):
    """A new activation: exact by change propagation at once, the rest says why not."""
    monkeypatch.setitem(ACTIVATIONS, "gelu", Tripled())
    case = {"activation": "gelu", "num_layers": 2, "d_ff": 7}
    model, tokens = build(case), np.asarray([0, 1, 0, 2])
    exact = compute_influence(model, tokens, method="incremental")
    whole = compute_influence(model, tokens, method="exhaustive")
    assert exact.max_lower <= whole.max_upper
    assert whole.max_lower <= exact.max_upper
    with pytest.raises(InputError, match="rule for neuron defect of Tripled"):
        compute_influence(model, tokens, method="screened")
    with pytest.raises(InputError, match="rule for slope strays of Tripled"):
        certify_influence(model, tokens)
