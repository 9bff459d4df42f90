"""Rows of `<mask>` are zero, the others scaled by how many there are: ESM-2's embeddings."""

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from jax_models.model.transformer import embed
from tests.jax_models.format.pretrained.folders import by_rerunning
from tests.jax_models.format.pretrained.test_families import expected, imported

MASK = 3
pytestmark = pytest.mark.usefixtures("quick_compilation")


def with_masks():
    tokens = expected("esm")["tokens"].copy()
    tokens[[2, 7]] = MASK
    return tokens


def test_masked_rows_are_zero_and_the_others_grow():
    model = imported("esm")
    rows = np.asarray(embed(model, jnp.asarray(with_masks())))
    assert not rows[[2, 7]].any()
    grown = (1 - 0.15 * 0.8) / (1 - 2 / 12)
    table = np.asarray(model.embedding)[with_masks()[0]]
    np.testing.assert_allclose(rows[0], grown * table, rtol=1e-14)


@pytest.mark.parametrize("method", ["exhaustive", "incremental"])
def test_beside_masks_substitutions_of_others_are_exact(method):
    model, tokens, symbols = imported("esm"), with_masks(), [0, 4, 5]
    positions = np.flatnonzero(tokens != MASK)
    found = bounds.compute_influence(
        model,
        tokens,
        method=method,
        symbols=symbols,
        positions=positions,
        include_query=True,
    )
    wanted = by_rerunning(model, tokens, symbols)
    asked = ~np.isnan(found.upper)
    assert asked.sum() > 20
    assert (wanted >= found.lower - 1e-13)[asked].all()
    assert (wanted <= found.upper + 1e-13)[asked].all()


def test_a_substitution_by_the_mask_moves_all_rows():
    model, tokens = imported("esm"), expected("esm")["tokens"]
    found = bounds.compute_influence(model, tokens, symbols=[MASK])
    assert found.method == "exhaustive"
    wanted = by_rerunning(model, tokens, [MASK])[:-1]
    np.testing.assert_allclose(found.upper[:-1], wanted, rtol=1e-9)
    with pytest.raises(jm.InputError, match="how many tokens are symbol 3"):
        bounds.compute_influence(model, tokens, symbols=[MASK], method="incremental")


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: bounds.certify_influence(model, with_masks()),
        lambda model: bounds.closed_form_bounds(model, 9),
        lambda model: bounds.supremum(model, 9),
    ],
)
def test_what_does_not_know_it_refuses(ask):
    with pytest.raises(jm.InputError, match="scale"):
        ask(imported("esm"))
