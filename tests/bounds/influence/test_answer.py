"""Tables and maxima of positions are those of the whole list of influences."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from bounds import Run
from bounds.influence.answer import (
    MOVED_OF_BOTH,
    MOVED_OF_INFLUENCE,
    by_position,
    tabulate,
)
from bounds.influence.result import Found, Ties
from bounds.influence.rounding import top_of
from bounds.influence.substitution import list_substitutions
from bounds.influence.targets.log_probability_sum import LogProbabilitySum
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import build

N, V = 7, 4
TOKENS = np.random.default_rng(0).integers(0, V, N)
PAIRS = list_substitutions(TOKENS, V, query=3)


@pytest.mark.parametrize("kind", ["drawn", "equal", "zeros", "wide"])
def test_tables_have_every_pair_and_positions_their_maxima(kind):
    rng = np.random.default_rng(1)
    value = rng.integers(0, 4, len(PAIRS)) / 4  # so that there are equal ones
    radius = rng.random(len(PAIRS))
    if kind == "equal":
        value[:] = 0.5
    if kind == "zeros":
        value[:], radius[:] = 0.0, 0.0
    if kind != "wide":
        radius *= 1e-3
    lower, upper = np.maximum(value - radius, 0), value + radius
    enclosed = rng.random(len(PAIRS)) < 0.8
    given = PAIRS, value, lower, upper, enclosed
    found = tabulate(given[0], *given[2:]) | by_position(*given)
    for table, ends in ((found["lower"], lower), (found["upper"], upper)):
        np.testing.assert_array_equal(table, PAIRS.scatter(ends))
    assert found["enclosed"].sum() == enclosed.sum()
    for i in range(N):
        at = PAIRS.position == i
        ends = [found[f"position_{end}"][i] for end in ("lower", "upper")]
        if i == 3:
            assert not at.any()
            assert np.isnan(ends).all()
            assert found["position_symbol"][i] == -1
            continue
        assert ends == [lower[at].max(), upper[at].max()]
        first = np.flatnonzero(value[at] == value[at].max())[0]
        assert found["position_symbol"][i] == PAIRS.symbol[at][first]
        assert found["position_enclosed"][i] == enclosed[at][first]


def test_no_pair_is_no_influence():
    none = np.zeros(0)
    empty = by_position(PAIRS.only(np.zeros(0, int)), none, none, none, none > 0)
    assert np.isnan(empty["position_upper"]).all()


@pytest.mark.parametrize("count", [16, 64, 1000])
def test_the_top_is_the_largest_and_a_quarter_spread_over_all(count):
    values = np.random.default_rng(2).permutation(500).astype(float)
    chosen = top_of(values, count)
    assert chosen.size == np.unique(chosen).size == min(count, 500)
    assert (np.diff(chosen) > 0).all()
    largest = np.argsort(-values)[: chosen.size - count // 4]
    assert np.isin(largest, chosen).all()
    if count < 500:
        assert chosen[0] == 0
        assert chosen[-1] == 499


def test_parts_are_joined_in_order_with_the_worst_of_their_ties():
    worse = Ties(0.25, 0.0, True, 4, (1.0, 0.75))
    parts = [
        Found(np.empty(0), np.empty(0), 1.0, None),
        Found(np.ones(2), np.zeros(2), 3.0, Ties(0.5, 0.0, False, 1, (1.0, 0.5))),
        Found(np.full(1, 2.0), np.full(1, np.nan), 2.0, worse),
    ]
    whole = Found.join(parts)
    assert whole.values.tolist() == [1, 1, 2]
    assert (whole.magnitude, whole.ties) == (3.0, worse)
    moved = whole.with_moves(np.array([2]), np.array([0.5]))
    assert moved.moves.tolist() == [0, 0, 0.5]


pytestmark = pytest.mark.usefixtures("quick_compilation")
INPUTS = ([0, 1, 1, 0], [1, 1, 0, 1])


MODEL = build({"num_layers": 1, "vocab_size": 2})


@pytest.mark.parametrize(
    ("ask", "tokens"),
    [
        (bounds.compute_influence, jnp.array(INPUTS)),
        (bounds.compute_influence, list(INPUTS)),
        (bounds.scan, np.array(INPUTS)),
        (bounds.scan, (INPUTS[0], np.array([1, 0]))),
    ],
    ids=["JAX's", "lists", "array", "of different lengths"],
)
def test_each_answer_is_that_of_the_input_alone(ask, tokens):
    found = ask(MODEL, tokens=tokens, positions=[0])
    assert isinstance(found, list)
    assert len(found) == len(tokens)
    for one, own in zip(found, tokens, strict=True):
        alone = ask(MODEL, own, positions=[0])
        np.testing.assert_array_equal(one.lower, alone.lower)
        np.testing.assert_array_equal(one.upper, alone.upper)


def test_a_checkpoint_is_of_one_input(tmp_path):
    with refused("checkpoint keeps the state of one input"):
        bounds.compute_influence(
            MODEL, INPUTS, method="screened", run=Run(checkpoint=tmp_path / "kept.npz")
        )


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (np.zeros((2, 2, 2), int), r"shape \(2, 2, 2\); expected one .*, or many"),
        ([[0, 1], [0, [1]]], r"tokens = \[0, \[1\]\]"),
        ("01", r"tokens = '01'; expected integers, one for each symbol"),
        (None, r"tokens = None; expected integers"),
        ([[0, 1], [0.5, 1]], "tokens have type float64; expected integers"),
        (3, r"tokens have shape \(\); expected one sequence"),
    ],
)
def test_what_is_no_batch_is_refused(tokens, told):
    with refused(told):
        bounds.scan(MODEL, tokens)


@pytest.mark.parametrize("name", ["compute_influence", "scan", "certify_influence"])
@pytest.mark.parametrize("wrong", ["exchanged", "model.safetensors", None])
def test_what_is_no_model_is_told_what_was_expected(name, wrong):
    tokens = np.array(INPUTS[0])
    given = (tokens, MODEL) if wrong == "exchanged" else (wrong, tokens)
    with refused(r"of a Transformer|expected a Transformer"):
        getattr(bounds, name)(*given)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((bounds.compute_influence, name) for name in MOVED_OF_INFLUENCE),
        *((bounds.scan, name) for name in MOVED_OF_BOTH),
    ],
)
def test_a_keyword_that_moved_names_its_new_place(name, call):
    with pytest.raises(
        TypeError, match=re.escape(f"{name!r} since 0.2: it is ")
    ) as told:
        call(MODEL, INPUTS[0], **{name: None})
    assert MOVED_OF_INFLUENCE[name] in str(told.value)


def test_a_scan_does_not_advise_methods_that_it_refuses():
    with pytest.raises(TypeError, match="unexpected keyword argument 'budget'"):
        bounds.scan(MODEL, INPUTS[0], budget=3)  # pyright: ignore[reportCallIssue]


def test_a_value_of_any_way_may_be_the_method():
    for call, more in (
        (bounds.compute_influence, ", Proposed, Screened"),
        (bounds.scan, ""),
    ):
        with refused(f"one of Exhaustive, Incremental, .*Partial{more}$"):
            call(MODEL, INPUTS[0], method=None)


@pytest.mark.parametrize("given", [{"query": 1}, {"include_query": True}])
def test_a_target_of_several_rows_has_no_query(given):
    target = LogProbabilitySum((0, 1), (0, 1))
    with refused(f"{next(iter(given))} = .*reads rows of its own"):
        bounds.compute_influence(MODEL, INPUTS[0], target=target, **given)
