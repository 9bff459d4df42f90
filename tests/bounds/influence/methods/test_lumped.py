"""Lumping equal rows changes nothing: the influences of the definition, at any length.

Against `exhaustive` where that is possible, and beyond against the reference transformer
with 50 digits, run over the classes with a weight of `count` each.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.influence import compute_influence, request
from bounds.influence.inputs import classes
from bounds.influence.methods import lumped
from jax_models.model.position import Coordinates, PositionTable, ResidueTerm
from jax_models.weighting import WEIGHTINGS
from tests.architecture import with_attention
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import FACTORS, allowed, build, scaled_weights
from tests.bounds.influence.test_laws import assert_agree
from tests.covering import cover
from tests.written import written


def periodic(period, width=8):
    """Positions that repeat, all residues different."""
    terms = tuple(ResidueTerm(c % width, period, (c,)) for c in range(period))
    return Coordinates(terms)


PLACES = {"none": None, "period 2": periodic(2), "period 3": periodic(3)}
LUMPABLE: dict[str, tuple[Any, ...]] = {
    **FACTORS,
    "mask": ("none",),
    "num_layers": (1, 2, 3, 4, 5),
    "temperature": ("none", "inverse_log"),
    "position": tuple(PLACES),
    "vocab_size": (2, 3, 4, 5),
    "length": (3, 29, 96),
    "query": ("last", "first", "middle"),
    # All keys tie, and only the tie order decides.
    "tied": (False, True),
}


def check_case(case, seed=0):
    case = dict(case)
    length, places = case.pop("length"), PLACES[case.pop("position")]
    query = {"last": -1, "first": 0, "middle": length // 2}[case.pop("query")]
    tied = case.pop("tied")
    model = dataclasses.replace(
        build({**case, "position": None}, seed), position=places
    )
    if tied:
        model = scaled_weights(model, query=0.0, query_bias=0.0)
    tokens = np.random.default_rng(seed).integers(0, case["vocab_size"], length)
    hard = case["weighting"] != "softmax"
    compare(model, tokens, hard=hard, query=query, target=case["target"])


def compare(model, tokens, *, hard=True, **question) -> Any:
    """Influences by classes, after comparing them with those of all rows."""
    question["include_query"] = True
    exhaustive = compute_influence(model, tokens, method="exhaustive", **question)
    result = compute_influence(model, tokens, method="lumped", **question)
    assert (result.method, result.exact) == ("lumped", True)
    assert exhaustive.max > 1e-3
    assert_agree(result, exhaustive, hard=hard)
    return result


FEW = [
    {"weighting": "softmax", "num_layers": 3, "layer_norm": "post", "length": 96},
    {"weighting": "leftmost_hard", "num_layers": 2, "tied": True},
    {"weighting": "average_hard", "num_layers": 2, "position": "period 3"},
]
USUAL = {"length": 29, "position": "none", "query": "last", "target": "activation"}
USUAL |= {"vocab_size": 3, "temperature": "inverse_log", "tied": False}


@pytest.mark.parametrize("case", FEW, ids=lambda case: case["weighting"])
def test_lumping_equals_unlumped(case):
    check_case({**USUAL, **case})


@pytest.mark.slow
@pytest.mark.parametrize("case", cover(LUMPABLE, 2, allowed), ids=str)
def test_lumping_equals_unlumped_where_any_two_features_meet(case):
    check_case(case, 1)


def test_layers_may_read_ties_from_either_side():
    model = build({"num_layers": 2, "position": None, "weighting": "leftmost_hard"})
    right = {"weighting": WEIGHTINGS["rightmost_hard"]()}
    above = with_attention(model, right).layers[1]
    model = dataclasses.replace(model, layers=(model.layers[0], above))
    model = scaled_weights(model, query=0.0, query_bias=0.0)
    tokens = np.random.default_rng(2).integers(0, 3, 29)
    # All keys tie, so that the ends alone are read, and by the query its own row.
    largest = compare(model, tokens, query=11).position_upper
    assert (largest[[0, 11, 28]] > 1e-3).all()
    assert (np.delete(largest, [0, 11, 28]) < 1e-9).all()


LONG = 1_000_000
NARROW = {"num_layers": 3, "d_model": 4, "d_ff": 8, "position": None}


def counted_weights(counts):
    """The reference's weights of one row, every column standing for `count` rows."""

    def weights(row, weighting, tie_resolution, ties, ar):
        counted = ar.numbers(counts)
        if weighting == "softmax":
            mass = counted * ar.exp(row - row.max())
        else:
            assert weighting == "average_hard"
            cells = ar.nearest_integer(row / tie_resolution)
            mass = np.where(cells == cells[counts > 0].max(), counted, 0 * counted)
        return mass / mass.sum()

    return weights


def exact_influence(monkeypatch, model, tokens, position, symbol):
    """The influence on the last row with 50 digits, equal rows as one."""
    ar = reference.multiprecision(50)
    counts = np.bincount(tokens[:-1], minlength=3)
    counts[tokens[position]] -= 1
    classes = [0, 1, 2, tokens[position], tokens[-1]]
    weights = counted_weights(np.asarray([*counts, 1, 1]))
    monkeypatch.setattr(reference, "row_weights", weights)
    before = reference.forward(*written(model), classes, ar)[-1]
    classes[3] = symbol
    change = reference.forward(*written(model), classes, ar)[-1] - before
    return float(ar.sqrt((change * change).sum()))


@pytest.mark.parametrize(
    ("weighting", "layer_norm"),
    [("softmax", "pre"), ("average_hard", "none"), ("average_hard", "pre")],
)
def test_a_million_tokens_keep_their_digits(monkeypatch, weighting, layer_norm):
    case = {"weighting": weighting, "layer_norm": layer_norm}
    model = build({**NARROW, **case}, seed=5)
    if weighting == "average_hard":
        # All keys tie, else no single row among so many would matter.
        model = scaled_weights(model, query=0.0, query_bias=0.0)
    tokens = np.random.default_rng(0).choice(3, LONG, p=[0.9, 0.0999, 0.0001])
    at = [int(np.flatnonzero(tokens == symbol)[5]) for symbol in range(3)]
    result = compute_influence(model, tokens, positions=at)
    assert result.method == "lumped"
    for position in at:
        for symbol in {0, 1, 2} - {tokens[position]}:
            exact = exact_influence(monkeypatch, model, tokens, position, symbol)
            lower, upper = (x[position, symbol] for x in (result.lower, result.upper))
            assert lower <= exact <= upper
            assert 0 < exact < 1e-4
            relative = {"softmax": 1e-12, "average_hard": 1e-9}[weighting]
            assert (lower + upper) / 2 == pytest.approx(exact, rel=relative, abs=0)


def test_the_oracle_notices_one_row_too_many(monkeypatch):
    """It tells a class of m rows from one of m - 1, which the digits above do not hide."""
    model = build(NARROW, seed=5)
    tokens = np.random.default_rng(0).choice(3, 10_000, p=[0.5, 0.3, 0.2])
    position, symbol = 4, (tokens[4] + 1) % 3
    more = np.append(tokens[4], tokens)
    result = compute_influence(model, more, positions=[position + 1], symbols=[symbol])
    exact = exact_influence(monkeypatch, model, tokens, position, symbol)
    assert not result.max_lower <= exact <= result.max_upper


def test_it_says_why_it_cannot():
    tokens = np.random.default_rng(0).integers(0, 3, 300)
    table = np.repeat(np.arange(100.0), 3)[:, None] * np.ones(8)
    places = PositionTable(jnp.asarray(table))
    many = dataclasses.replace(build({}), position=places)
    for model, given, said in (
        (build({"mask": "past", "position": None}), tokens, "layer 0 has mask 'past'"),
        (build({"num_layers": 0}), tokens, "the model has none"),
        (build({}), tokens, "300 positions have more than 256"),
        (many, np.tile([0, 1, 2], 100), f"299, more than {classes.MAX_CLASSES}"),
    ):
        with refused(said):
            compute_influence(model, given, method="lumped")
    half = build({"position": None, "dtype": "float32"})
    assert lumped.refuse_length(half, 2**24) is None
    assert "float32 holds exactly" in str(lumped.refuse_length(half, 2**24 + 1))


@pytest.mark.parametrize("position", [periodic(3), None], ids=["periodic", "none"])
def test_position_encodings_are_formed_once(position, monkeypatch):
    lengths, form = [], request.distinct_places

    def counted(model, length):
        lengths.append(length)
        return form(model, length)

    monkeypatch.setattr(request, "distinct_places", counted)
    model = dataclasses.replace(build({}), position=position)
    found = compute_influence(model, np.tile([0, 1, 2], 100))
    assert (found.method, lengths) == ("lumped", [300])
