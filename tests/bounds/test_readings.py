"""Methods refuse what they have no rules for by name; slopes are derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds import certify_influence, compute_influence
from bounds.lemma5.constants.row_form import activated
from bounds.readings import pull, slope, unsupported_operation
from jax_models.model.rows import ACTIVATIONS, Operation
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import build

ROWS = 3
CASES = [
    {"combine": "residual"},
    {"combine": "concat"},
    {"layer_norm": "pre"},
    {"gated": True, "activation": "silu"},
    {"layer_norm": "post", "activation": "gelu"},
]


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
    with refused("a rule for activated of Tripled"):
        activated(layers[0].feed_forward.bend, None)
    with refused("a rule for slope of Tripled"):
        slope(Tripled(), (None,), jnp.eye(2))


def test_methods_refuse_what_they_have_no_rule_for_and_others_do_it(monkeypatch):
    """A new activation: exact by change propagation at once, the rest says why not."""
    monkeypatch.setitem(ACTIVATIONS, "gelu", Tripled())
    case = {"activation": "gelu", "num_layers": 2, "d_ff": 7}
    model, tokens = build(case), np.asarray([0, 1, 0, 2])
    exact = compute_influence(model, tokens, method="incremental")
    whole = compute_influence(model, tokens, method="exhaustive")
    assert exact.max_lower <= whole.max_upper
    assert whole.max_lower <= exact.max_upper
    with refused("rule for defect of Tripled"):
        compute_influence(model, tokens, method="screened")
    with refused("rule for slope strays of Tripled"):
        certify_influence(model, tokens)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cotangents_are_pulled_as_jax_pulls_them(case):
    """One for all rows, and some for each of them."""
    layer, rng = build(case).layers[0], np.random.default_rng(0)
    program = layer.writes
    width = layer.attention.num_heads * layer.attention.value.shape[1]
    sizes = {"y": 8, "heads": width}
    given = {k: jnp.asarray(rng.normal(size=(ROWS, n))) for k, n in sizes.items()}
    run = lambda row: program.value(row)["out"]
    jacobians = jax.jit(jax.vmap(jax.jacobian(run)))(given)
    for wanted in (jnp.eye(8), jnp.asarray(rng.normal(size=(ROWS, 2, 8)))):
        found = pull(program, program.value(given), {"out": wanted})
        for name, jacobian in jacobians.items():
            ends = np.broadcast_arrays(found[name], wanted @ jacobian)
            np.testing.assert_allclose(*ends, 1e-11, 1e-11)
