"""What radii of targets are relative to: terms that cancel in norm, head or target."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence import carried_rounding, change_block, target_rounding
from tests.bounds.influence.expect import encloses
from tests.bounds.influence.many_digits import DIGITS
from tests.bounds.influence.models import TOKENS, build
from tests.written import written

pytestmark = pytest.mark.usefixtures("quick_compilation")


def saturated():
    case = {"num_layers": 1, "head": "classifier", "scale": 3.0, "gated": True}
    model, tokens = build(case, seed=161), np.asarray([2, 1, 2, 2, 2])
    many = reference.multiprecision(300)
    exact = reference.influence(
        *written(model), tokens, target="logits", arithmetic=many
    )
    assert np.nanmax(exact) > 1
    assert 0 < np.nanmin(np.where(exact > 0, exact, np.nan)) < 1e-100
    found = bounds.compute_influence(
        model, tokens, method="incremental", target="logits"
    )
    return encloses(found, exact)


def test_influences_behind_a_saturated_tanh_are_enclosed():
    assert saturated()


def test_a_radius_that_leaves_out_the_tails_of_tanh_is_caught(plant):
    plant(carried_rounding, "by_base", lambda *_: 0.0)
    assert not saturated()


def test_a_change_that_is_read_whole_is_its_own_scale():
    """No final norm, no head: nothing cancels behind the last layer."""
    model, row = build({}), jnp.arange(8.0)
    found, relative = target_rounding.measure_target(
        model, row, row[None] / 7, "activation"
    )
    assert relative == found


ONE = {"positions": [2], "symbols": [2], "method": "incremental"}


def unseen(case) -> Any:
    """The influence on a logit that what is substituted does not move, but for rounding."""
    model = build({**case, "num_layers": 1, "num_classes": 1})
    found = bounds.scan(model, TOKENS[:6], rows=[-1], reduce="none", **ONE)
    change = np.ravel(found.values)
    leaves, shape = jax.tree.flatten(model)
    (at,) = (k for k, x in enumerate(leaves) if np.shape(x) == (1, change.size))
    leaves[at] = leaves[at] - (leaves[at] @ change) / (change @ change) * change
    blind = jax.tree.unflatten(shape, leaves)
    return bounds.compute_influence(blind, TOKENS[:6], target="logits", **ONE)


@pytest.mark.parametrize(
    "case", [{}, {"layer_norm": "post", "final_norm": True}], ids=str
)
def test_a_head_that_does_not_see_a_change_leaves_nothing_exact(case, plant):
    found = unseen(case)
    assert 0 < found.max < 1e-14
    assert (found.max_lower, found.kind) == (0, "enclosure")
    plant(carried_rounding, "root_of_squares", lambda sizes, _: 0 * sizes[..., :1])
    assert unseen(case).exact


def narrow(num_layers, **options):
    """A model of rows of two entries, of which norms leave their signs alone."""
    shape = {"num_heads": 1, "d_model": 2, "d_ff": 6, "vocab_size": 3, "mask": "none"}
    return jm.random_transformer(
        jax.random.key(8),
        **shape,
        num_layers=num_layers,
        layer_norm="post",
        dtype="float64",
        **options,
    )


@pytest.mark.parametrize(
    ("num_layers", "method"),
    [(3, "incremental"), (1, "incremental"), (3, "lumped"), (4, "incremental")],
)
def test_norms_of_two_entries_leave_what_their_epsilon_adds(num_layers, method, plant):
    tokens = np.array([0, 1, 2, 0, 1])
    model = narrow(num_layers, **({"position": None} if method == "lumped" else {}))
    exact = reference.influence(*written(model), tokens, arithmetic=DIGITS)
    found = bounds.compute_influence(model, tokens, method=method)
    assert encloses(found, exact)
    # Below the last layer; of classes a share of the output counts anyway.
    if num_layers > 1 and method == "incremental":
        plant(change_block, "norm_condition", lambda *_: jnp.ones(()))
        found = bounds.compute_influence(model, tokens, method=method)
        assert not encloses(found, exact)


def test_rows_of_width_two_move_by_what_a_norm_leaves_of_their_change():
    """It leaves their signs alone, and what epsilon adds: all else cancels."""
    shape = {"num_heads": 1, "d_model": 2, "d_ff": 40, "vocab_size": 3, "mask": "past"}
    shape |= {
        "num_layers": 2,
        "position": None,
        "score": "dot_product",
        "biases": False,
    }
    model = jm.random_transformer(
        jax.random.key(742933468), **shape, final_norm=True, dtype="float64"
    )
    tokens = np.zeros(9, np.int64)
    exact = reference.influence(*written(model), tokens, query=4, arithmetic=DIGITS)
    found = bounds.compute_influence(model, tokens, query=4, method="incremental")
    assert encloses(found, exact)
