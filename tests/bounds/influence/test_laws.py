"""Every method gives the influence of the definition, on every architecture."""

import dataclasses

import numpy as np
import pytest

from benchmarks import reference
from bounds.influence import compute_influence
from bounds.influence.build import build_request
from bounds.influence.methods import bucket
from bounds.influence.methods.bucket import bucket_length
from tests.bounds.influence.expect import encloses
from tests.bounds.influence.models import (
    FACTORS,
    TOKENS,
    allowed,
    build,
    widest_query,
)
from tests.covering import cover
from tests.written import written

# What a change may differ from a subtraction by, beside the radius of the subtraction.
RELATIVE = 1e-10


def expected_influence(model, tokens, **question):
    question = {"include_query": True, "ties": "error", **question}
    return reference.influence(*written(model), tokens, **question)


def assert_encloses(result, expected, relative=0.0):
    """The result's enclosure holds the expected values, up to their own rounding."""
    # The expected value is a difference of outputs too, of as many roundings.
    size = np.nanmax(result.upper - result.lower)
    assert encloses(result, expected, relative * expected + max(size, 1e-14))


def assert_agree(changes, exhaustive, *, hard):
    """Change propagation and the definition agree on every pair."""
    width = exhaustive.upper - exhaustive.lower
    asked = ~np.isnan(width)
    np.testing.assert_array_equal(~np.isnan(changes.upper), asked)
    difference = np.abs(changes.upper - exhaustive.upper)
    assert (difference <= RELATIVE * exhaustive.upper + width)[asked].all()
    if hard:
        assert ((changes.lower == 0) == (exhaustive.lower == 0))[asked].all()
        assert not changes.ties.ambiguous
        assert not exhaustive.ties.ambiguous


def asked_of(case):
    """The model, the expected influences, and the question they answer."""
    model = build(case)
    question = {"query": widest_query(case["mask"]), "target": case["target"]}
    expected = expected_influence(model, TOKENS, **question)
    assert np.nanmax(expected) > 1e-3
    return model, expected, {**question, "include_query": True}


def name(case):
    return "-".join(str(case[factor]) for factor in ("weighting", "mask", "num_layers"))


@pytest.fixture(params=[False, True], ids=["as it is", "padded"])
def padded(request, monkeypatch):
    monkeypatch.setattr(bucket, "SHORTEST", 2 if request.param else 16)
    return request.param


# Methods, and how many features meet in their cases.
TOGETHER = {"incremental": 2, "exhaustive": 1, "partial": 2}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("method", "case"),
    [(m, x) for m, k in TOGETHER.items() for x in cover(FACTORS, k, allowed)],
    ids=lambda x: x if isinstance(x, str) else name(x),
)
def test_every_method_is_the_definition_where_features_meet(method, case, padded):
    model, expected, question = asked_of(case)
    pads = padded and case["temperature"] != "inverse_log"
    request = build_request(model, TOKENS, **question)
    assert bucket_length(request) == (16 if pads else None)
    result = compute_influence(model, TOKENS, method=method, **question)
    assert_encloses(result, expected, RELATIVE if method == "incremental" else 0.0)
    assert result.ties is None or not result.ties.ambiguous


@pytest.mark.slow
@pytest.mark.parametrize("case", cover(FACTORS, 3, allowed), ids=name)
def test_all_methods_agree_where_any_three_features_meet(case):
    model, expected, question = asked_of(case)
    exhaustive = compute_influence(model, TOKENS, method="exhaustive", **question)
    assert_encloses(exhaustive, expected)
    changes = compute_influence(model, TOKENS, method="incremental", **question)
    assert_agree(changes, exhaustive, hard=case["weighting"] != "softmax")


@pytest.mark.parametrize(
    ("case", "query"),
    [
        ({"weighting": "softmax", "mask": "future", "num_layers": 1}, 5),
        ({"weighting": "leftmost_hard", "mask": "past", "num_layers": 1}, 7),
        # A row that sees nothing, not even the value bias of what it would see.
        ({"weighting": "softmax", "mask": "strict_past", "layer_norm": "pre"}, 11),
    ],
    ids=str,
)
def test_any_row_may_be_the_query(case, query):
    model = build(case)
    question = {"query": query, "include_query": True}
    result = compute_influence(model, TOKENS, method="incremental", **question)
    expected = expected_influence(model, TOKENS, query=query)
    assert_encloses(result, expected, RELATIVE)
    # What the query does not see changes nothing, exactly.
    hidden = {"future": slice(query + 1, None), "past": slice(0, query)}
    if case["mask"] in hidden:
        at = hidden[case["mask"]]
        assert np.nanmax(result.upper[at]) == 0


def test_layers_may_differ():
    sizes = {"num_layers": 1, "num_heads": 4, "d_ff": 40, "mask": "past"}
    parts = {"weighting": "average_hard", "combine": "concat", "biases": False}
    below = build({**sizes, **parts}, seed=1)
    kinds = {"num_layers": 1, "score": "additive", "temperature": "inverse_log"}
    above = build(kinds, seed=2)
    model = dataclasses.replace(above, layers=(*below.layers, *above.layers))
    question = {"query": 4, "include_query": True}
    result = compute_influence(model, TOKENS, method="incremental", **question)
    expected = expected_influence(model, TOKENS, query=4)
    assert_encloses(result, expected, RELATIVE)


# More rows than a tile of them, and substitutions than a block.
LONG = np.random.default_rng(1).integers(0, 2, 150)


def test_tiles_and_blocks_change_nothing():
    model = build({"mask": "future", "vocab_size": 2})
    question = {"query": 149, "include_query": True}
    exhaustive = compute_influence(model, LONG, method="exhaustive", **question)
    result = compute_influence(model, LONG, **question)
    assert result.method == "incremental"
    assert_agree(result, exhaustive, hard=False)
