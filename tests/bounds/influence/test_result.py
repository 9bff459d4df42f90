"""Ambiguous ties: an error, a warning, or ignored, wherever they are met."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds.influence import METHODS, compute_influence
from jax_models.run.evaluate import AmbiguousTieWarning
from tests.bounds.influence.models import (
    TOKENS,
    build,
    edit_weights,
    scaled_weights,
)
from tests.written import written

EXACT = list(METHODS)


def tied_model(*scores, num_layers=1):
    """Leftmost-hard on cells 1/4 wide; a key of symbol s has score scores[s]."""
    model = build(
        {
            "num_layers": num_layers,
            "weighting": "leftmost_hard",
            "score": "dot_product",
            "position": None,
            "tie_resolution": 0.25,
        }
    )

    nothing, no_row = jnp.zeros_like, lambda x: x.at[0].set(0)
    outputs = ("output", "output_bias", "w2", "b2")
    return edit_weights(
        model,
        query=nothing,
        query_bias=lambda x: nothing(x).at[:, 0].set(1),
        key=lambda x: nothing(x).at[:, 0, 0].set(1),
        key_bias=nothing,
        embedding=lambda x: x.at[:, 0].set(jnp.asarray(scores)),
        **dict.fromkeys(outputs, no_row),
    )


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_an_ambiguous_tie_is_an_error_a_warning_or_ignored(num_layers, method):
    # Symbols 0 and 1 stand in neighbouring cells; 2 is far below.
    model = tied_model(1.0, 0.75, -3.0, num_layers=num_layers)
    tokens = np.asarray([2, 1, 0] * 4)
    positions = [0, 2, 3, 5, 6, 8, 9]
    question = {"method": method, "positions": positions, "symbols": [1]}
    with pytest.raises(
        jm.TieError, match=r"row \d+: .* 1\.0 .* 0\.75 .*cells"
    ) as caught:
        compute_influence(model, tokens, **question)
    assert "\n" not in str(caught.value)
    with pytest.warns(AmbiguousTieWarning, match=r"1\.0 .* 0\.75") as warned:
        told = compute_influence(model, tokens, ties="warn", **question)
    assert len(warned) == 1
    quiet = compute_influence(model, tokens, ties="ignore", **question)
    np.testing.assert_array_equal(told.upper, quiet.upper)
    assert quiet.ties.ambiguous
    assert quiet.ties.scores == (1.0, 0.75)
    assert quiet.ties.gap == 0.25


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_tie_that_only_a_substitution_makes_ambiguous_is_seen(num_layers, method):
    model = tied_model(1.0, 0.75, -3.0, num_layers=num_layers)
    tokens = np.asarray([2, 2, 0, 2] * 3)
    question = {"method": method, "positions": [0, 1, 3, 4, 5, 7, 8]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clear = compute_influence(model, tokens, symbols=[0], **question)
    assert not clear.ties.ambiguous
    assert clear.ties.gap == 4.0
    with pytest.raises(jm.TieError):
        compute_influence(model, tokens, symbols=[1], **question)


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("weighting", ["average_hard", "leftmost_hard"])
def test_an_exact_zero_of_hard_attention_is_enclosed(weighting, method):
    """Without positions every column of a symbol is the same: all changes are zero."""
    model = build({"weighting": weighting, "position": None}, seed=1)
    exact = reference.influence(
        *written(model), TOKENS, arithmetic=reference.multiprecision(40), ties="ignore"
    )
    result = compute_influence(model, TOKENS, method=method, ties="ignore")
    asked = ~np.isnan(exact)
    assert (exact[asked] < 1e-30).all()
    assert (result.lower[asked] == 0).all()
    assert (result.upper[asked] < 1e-11).all()


@pytest.mark.slow
def test_the_methods_agree_that_cells_are_too_narrow_for_large_scores():
    """Equal columns and scores of some hundreds, in cells of 1e-4 in float32."""
    case = {"score": "dot_product", "position": None, "dtype": "float32"}
    model = build({"weighting": "average_hard", **case})
    for scale, ambiguous in ((1.0, False), (200.0, True)):
        scaled = scaled_weights(model, query=scale, query_bias=scale)
        for method in EXACT:
            result = compute_influence(scaled, TOKENS, method=method, ties="ignore")
            assert result.ties.ambiguous == ambiguous, (method, scale)
            if ambiguous:
                with pytest.raises(jm.TieError, match=r"row \d+: .* may be rounded by"):
                    compute_influence(scaled, TOKENS, method=method)
