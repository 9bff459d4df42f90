"""Changes in half precision: estimated, off by a little, and by what is measured."""

import dataclasses

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds import Incremental
from bounds.influence.propagation import change_block
from bounds.rounding import ranked
from bounds.rounding.precision import PRECISIONS
from bounds.rounding.rounded_block import round_products
from tests.bounds.influence.models import TOKENS, build, scaled_weights

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
# Of the roundoff and each layer, entry by entry.
MULTIPLE = 4.0
ONE = {"num_layers": 1, "mask": "none"}
GATED = {"layer_norm": "pre", "activation": "gelu", "gated": True}
CASES = {
    "one layer": {**ONE, "layer_norm": "post", "final_norm": True},
    "concatenated": {"mask": "future", "combine": "concat", "score": "dot_product"},
    "gated": {"num_layers": 3, "mask": "none", **GATED, "target": "logits"},
    "additive": {"mask": "past", "score": "additive", "temperature": "inverse_log"},
    "strict": {"num_layers": 3, "mask": "strict_future", "layer_norm": "post"},
}


def scan(case, **how):
    target = case.get("target", "activation")
    return bounds.scan(build(case), TOKENS, rows="all", target=target, **how)


@pytest.mark.parametrize("name", ROUNDOFF)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_entries_are_off_by_a_multiple_of_the_roundoff_for_each_layer(case, name):
    """And the sample, of so few substitutions all of them, says by how much."""
    exact = scan(case, method="incremental")
    found = scan(case, method=Incremental(name))
    moved, u = np.nan_to_num(exact.values) != 0, ROUNDOFF[name]
    off = np.abs(found.values - exact.values)[moved]
    error = off / np.abs(exact.values[moved])
    assert u / 100 < error.max() < MULTIPLE * u * case.get("num_layers", 2)
    np.testing.assert_array_equal(found.values[~moved], exact.values[~moved])
    told = found.measured_error
    assert (told.entries, told.reference) == (moved.sum(), "float64")
    assert told.substitutions == found.substitutions
    assert told.max == pytest.approx(error.max(), rel=1e-6)
    assert told.median == pytest.approx(np.median(error), rel=0.1)
    assert told.median <= told.percentile_99 <= told.max
    assert found.kind == "estimated"
    assert "[estimated]" in repr(found)
    assert "% in the median" in repr(found)
    assert found.method == "incremental"
    assert found.reason == "asked for"
    for end in (found.lower, found.upper):
        np.testing.assert_array_equal(end, found.values)


@pytest.mark.slow
def test_a_sample_says_about_what_all_are_off_by(monkeypatch):
    case = {"num_layers": 2, "mask": "none", "layer_norm": "pre"}
    every = scan(case, method=Incremental("bfloat16")).measured_error
    monkeypatch.setattr(ranked, "SAMPLE", 8)
    some = scan(case, method=Incremental("bfloat16")).measured_error
    assert some.substitutions == 8 < every.substitutions
    for one in ("median", "percentile_99", "max"):
        assert 1 / 3 < getattr(some, one) / getattr(every, one) < 3


def round_everything(rounding, function, arguments):
    moves = jax.tree.map(lambda _: True, arguments)
    return round_products(rounding, function, arguments, moves)


def test_what_is_subtracted_in_half_precision_is_far_off():
    """So would be a change that came of two passes, or a base pass that was rounded."""
    tokens = np.random.default_rng(1).integers(0, 3, 48)
    model, name = build({**ONE, "layer_norm": "post"}), "bfloat16"
    position, symbol = 7, int(tokens[7] + 1) % 3
    question = {"positions": [position], "symbols": [symbol], "rows": "all"}
    exact = bounds.scan(model, tokens, method="exhaustive", **question).values
    found = bounds.scan(model, tokens, method=Incremental(name), **question)

    @jax.jit
    def rounded(tokens):
        forward = lambda model: jm.forward(model, tokens)[0]
        return round_everything(PRECISIONS[name], forward, (model,))

    changed = tokens.copy()
    changed[position] = symbol
    apart = np.linalg.norm(rounded(changed) - rounded(tokens), axis=-1)
    others = np.arange(48) != position
    wrong = np.abs(apart / exact[0, 0] - 1)[others]
    right = np.abs(found.values / exact - 1)[0, 0, others]
    assert np.median(wrong) > 10 * np.median(right)
    assert wrong.max() > 3 * MULTIPLE * ROUNDOFF[name]
    assert found.measured_error.max < MULTIPLE * ROUNDOFF[name]


@pytest.mark.slow
def test_what_the_base_pass_fixes_is_not_rounded(plant):
    """Sharp scores that were would move every weight; the measured error shows it."""
    scaled = scaled_weights(build(ONE), query=30.0)
    question = {"rows": "all", "positions": [3, 8]}
    question |= {"method": Incremental("bfloat16")}
    right = bounds.scan(scaled, TOKENS, **question).measured_error
    plant(
        change_block,
        "round_products",
        lambda rounding, function, arguments, moves: round_products(
            rounding, function, arguments, jax.tree.map(lambda _: True, moves)
        ),
    )
    wrong = bounds.scan(scaled, TOKENS, **question).measured_error
    assert wrong.median > 5 * right.median


def test_influences_are_estimated_and_never_exact():
    found = bounds.compute_influence(build(ONE), TOKENS, method=Incremental("bfloat16"))
    exact = bounds.compute_influence(build(ONE), TOKENS, method="incremental")
    assert (found.kind, found.exact, found.estimated) == ("estimated", False, True)
    assert found.max == found.max_lower == found.max_upper
    assert 0 < abs(found.max / exact.max - 1) <= found.measured_error.max
    assert exact.measured_error is None
    assert exact.hypotheses
    assert not found.hypotheses
    assert "[estimated]" in repr(found)
    assert "measured on 22" in repr(found)
    for kind in ("exact", "certified", "enclosure"):
        with pytest.raises(AssertionError):
            dataclasses.replace(found, kind=kind)


def test_nothing_substituted_has_no_error():
    asked = {"method": Incremental("bfloat16"), "positions": ()}
    found = bounds.compute_influence(build(ONE), TOKENS, **asked)
    assert (found.kind, found.max, found.measured_error) == ("estimated", 0.0, None)


def test_an_estimate_of_nothing_is_right_or_wholly_wrong():
    estimates, exact = np.array([[0.0, 1.0, 3.0], [0.0, 0.0, 2.0]])
    errors = ranked.relative_errors(estimates, exact)
    np.testing.assert_array_equal(errors, [0.0, np.inf, 0.5])
