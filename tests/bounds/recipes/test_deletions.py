"""Deletions are brute force: a pass of each shorter input, its rows matched by token."""

import dataclasses
import functools

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability, LogProbabilitySum
from jax_models.model.readout import Pooling
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.models import build
from tests.bounds.influence.test_scan import log_softmax

pytestmark = pytest.mark.usefixtures("small_tiles")
TOKENS = np.array([2, 0, 1, 1, 2, 0, 1])
N = len(TOKENS)
MODELS = {
    "all": {"num_layers": 2, "head": "masked_lm"},
    "causal": {"num_layers": 3, "head": "masked_lm", "mask": "future"},
    "pre-norm": {"num_layers": 2, "mask": "future", "layer_norm": "pre"},
    "hard": {"num_layers": 2, "weighting": "average_hard", "mask": "future"},
}
BOTH = [(name, way) for name in MODELS for way in ("exhaustive", "partial")]
BOTH.remove(("all", "partial"))


@functools.cache
def model_of(name):
    return build(MODELS[name], seed=1)


def by_brute_force(model, function):
    """Changes [n, n, ...] of all rows by each deletion; NaN of the deleted token's."""
    base = np.asarray(function(model, TOKENS))
    found = np.full((N, *base.shape), np.nan)
    for i in range(N):
        shorter = np.asarray(function(model, np.delete(TOKENS, i)))
        for j in set(range(N)) - {i}:
            found[i, j] = shorter[j - (j > i)] - base[j]
    return found


def assert_is(scan, exact):
    np.testing.assert_allclose(scan.values, exact, rtol=0, atol=1e-9)
    assert encloses(scan, exact, 1e-13 * np.nanmax(np.abs(exact)))
    assert np.nanmax(scan.upper - scan.lower) < 1e-9


@pytest.mark.parametrize(("name", "method"), BOTH)
def test_all_rows_are_brute_force(name, method):
    model = model_of(name)
    asked = {"method": method, "ties": "ignore"}
    ask = functools.partial(bounds.recipes.deletions, model, TOKENS, **asked)
    moved = by_brute_force(model, jm.apply)
    found = ask(rows="all")
    assert_is(found, np.linalg.norm(moved, axis=-1))
    assert found.axes == ("position", "row")
    assert_is(ask(rows=[5, 2], reduce="none"), moved[:, [5, 2]])
    if "mask" in MODELS[name]:
        before = np.arange(N) < np.arange(N)[:, None]
        assert (found.upper[before] == 0).all()
    one = ask(rows=-1, target=LogProbability(1), positions=[6, 0, 3])
    logits = by_brute_force(model, lambda *asked: log_softmax(jm.apply_logits(*asked)))
    assert_is(one, logits[[6, 0, 3], -1, 1])
    assert one.axes == ("position",)


@pytest.mark.parametrize(
    ("name", "method", "kind"),
    [("all", "exhaustive", "mean"), ("causal", "partial", "last")],
)
def test_pooled_vectors_are_compared_as_they_are(name, method, kind):
    model = dataclasses.replace(model_of(name), pooling=Pooling(kind))

    def pooled(tokens):
        rows = np.asarray(jm.apply(model, tokens))
        return rows.mean(axis=0) if kind == "mean" else rows[-1]

    base = pooled(TOKENS)
    others = [pooled(np.delete(TOKENS, i)) for i in range(N)]
    ask = functools.partial(bounds.recipes.deletions, model, TOKENS, method=method)
    norms = [np.linalg.norm(x - base) for x in others]
    assert_is(ask(target="pooled"), np.array(norms))
    cosines = [x @ base / np.linalg.norm(x) / np.linalg.norm(base) for x in others]
    assert_is(ask(target="cosine_distance"), 1 - np.array(cosines))


def test_an_input_that_grows_out_of_its_bucket_keeps_its_lengths():
    tokens = np.resize(TOKENS, 17)
    model = model_of("causal")
    asked = {"rows": "all", "reduce": "none", "rounding": "none"}
    found = bounds.recipes.deletions(model, tokens, **asked)
    i = 11
    moved = np.asarray(jm.apply(model, np.delete(tokens, i)))
    base = np.asarray(jm.apply(model, tokens))
    kept = np.delete(np.arange(17), i)
    np.testing.assert_allclose(found.values[i][kept], moved - base[kept], atol=1e-12)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"method": "incremental"}, "a deletion moves the rows behind it"),
        ({"method": "partial"}, "only under a causal mask"),
        ({"reduce": "max"}, "a deletion has no substitutes"),
        ({"rows": "own"}, "no row of its own"),
        ({"target": LogProbabilitySum((1,), (0,))}, "positions by number"),
        ({"dtype": "float32"}, "dtype = float32 but the model is float64"),
        ({"tokens": TOKENS[:1]}, "would leave none"),
    ],
)
def test_what_cannot_be_deleted_is_refused(more, complaint):
    with refused(complaint):
        bounds.recipes.deletions(model_of("all"), **{"tokens": TOKENS, **more})


@pytest.mark.parametrize("name", ["symbols", "keep", "diagonal"])
def test_options_that_deletions_lack_are_refused_in_their_name(name):
    with pytest.raises(TypeError, match=rf"^deletions\(\) got .* argument '{name}'$"):
        bounds.recipes.deletions(model_of("all"), TOKENS, **{name: [0]})
