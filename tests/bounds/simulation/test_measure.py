"""What is measured of a hard model is what its rows do, and exact where they are.

The oracle is `fractions`: networks of integer weights, every score and mean a rational.
"""

import dataclasses
import itertools
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.curves.inputs import SampledInputs
from bounds.simulation import measure
from bounds.simulation.certificate import certified_temperature, score_error
from bounds.simulation.compute import consider
from bounds.simulation.measure import measure_hard_model, measure_structure
from bounds.simulation.paper_shape import paper_shape, read_gains
from jax_models.model.layer import FeedForward
from jax_models.model.reweight import with_temperature
from tests.architecture import small_model, with_attention
from tests.bounds.simulation.networks import (
    INPUTS,
    LENGTH,
    draw_model,
    draw_networks,
    make_head,
    of_heads,
    wide_cell,
)

MASKS = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
}


def integer_model(seed, mask="none"):
    """One layer, two heads, integer weights of one digit; width 4."""
    drawn = np.random.default_rng(seed).integers
    integers = lambda *shape: jnp.asarray(drawn(-2, 3, shape), jnp.float64)
    return draw_model(integers, 1, 2, 2, mask=mask, score="dot_product")


def rational(array):
    return np.vectorize(Fraction, otypes=[object])(np.asarray(array))


def embed(model, tokens):
    places = model.position.encode(len(tokens), model.width)
    return rational(model.embedding)[list(tokens)] + rational(places)


def brute_force(model, visible, n):
    """Gaps, ties, odds and ranges of every head over all inputs, in rationals."""
    attention = model.layers[0].attention
    found = []
    for h in range(attention.num_heads):
        w = {
            name: (
                rational(getattr(attention, name))[h],
                rational(getattr(attention, f"{name}_bias"))[h],
            )
            for name in ("query", "key", "value")
        }
        width = w["value"][0].shape[0]
        output = rational(attention.output)[:, h * width : (h + 1) * width]
        gap, ties, odds, ranges = Fraction(10**9), 0, Fraction(0), []
        for tokens in itertools.product((0, 1), repeat=n):
            rows = embed(model, tokens)
            q, k, v = (rows @ w[x][0].T + w[x][1] for x in ("query", "key", "value"))
            written = v @ output.T
            ranges.append((written.max(axis=0) - written.min(axis=0)) / 2)
            for i in range(n):
                scores = [q[i] @ k[j] for j in range(n) if visible(i, j)]
                if not scores:
                    continue
                best = max(scores)
                count = scores.count(best)
                ties += count > 1
                odds = max(odds, Fraction(len(scores) - count, count))
                if count < len(scores):
                    gap = min(gap, best - max(s for s in scores if s < best))
        found.append((gap, ties, odds, np.max(ranges, axis=0)))
    return found


@pytest.mark.parametrize("mask", MASKS)
def test_integer_models_are_measured_exactly(mask):
    n = 4
    model = integer_model(5, mask)
    inputs = np.array(list(itertools.product((0, 1), repeat=n)))
    measure = measure_hard_model(model, inputs)
    expected = brute_force(model, MASKS[mask], n)
    for head, (gap, ties, odds, half) in zip(measure.heads, expected, strict=True):
        assert head.gap == gap
        assert head.tied_rows == ties
        assert head.spread == 0
        assert float(odds) <= head.odds <= float(odds) * (1 + 1e-14)
        np.testing.assert_allclose(head.half_range, half.astype(float), rtol=1e-12)
        assert (head.half_range >= half.astype(float)).all()


def test_gaps_of_rounded_models_lie_below_the_true_ones():
    """Gaussian weights: rationals again, since every float is one."""
    network = draw_networks(11, 1, 1, ties=False)
    model = network.model(0)
    inputs = INPUTS[::5]
    head = measure_hard_model(model, inputs).heads[0]
    attention = model.layers[0].attention
    q, k = (rational(x)[0] for x in (attention.query, attention.key))
    gap = Fraction(10**9)
    for tokens in inputs:
        rows = embed(model, tokens)
        scores = (rows @ q.T) @ (rows @ k.T).T
        ordered = np.sort(scores, axis=1)
        gap = min(gap, *(ordered[:, -1] - ordered[:, -2]))
    assert head.gap <= gap
    assert head.gap == pytest.approx(float(gap), rel=1e-9)


def test_the_batches_of_a_measure_do_not_matter(monkeypatch):
    model = draw_networks(3, 1, 2, ties=True).model(0)
    whole = measure_hard_model(model, INPUTS)
    monkeypatch.setattr("bounds.simulation.measure.MOST_SCORES", 60)
    parts = measure_hard_model(model, INPUTS)
    assert parts.num_inputs == whole.num_inputs == len(INPUTS)
    for one, two in zip(whole.heads, parts.heads, strict=True):
        assert one.tied_rows == two.tied_rows
        assert one.gap == pytest.approx(two.gap, rel=1e-12)
        np.testing.assert_allclose(one.pull, two.pull, rtol=1e-12)
        np.testing.assert_allclose(one.half_range, two.half_range, rtol=1e-12)


def test_a_uniform_head_has_no_gap_and_an_ignored_temperature():
    model = jm.build_preset("average_parity", dtype="float64")
    measure = measure_hard_model(model, INPUTS)
    assert measure.kinds == (("uniform",),)
    assert measure.gap == np.inf
    assert measure.tied_rows == 0
    network = draw_networks(2, 1, 1, ties=False).model(0)
    warm = with_temperature(network, jm.PowerTemperature(3.0, 1.0))
    assert (
        measure_hard_model(warm, INPUTS).gap == measure_hard_model(network, INPUTS).gap
    )


def test_equal_rows_stay_equal_unless_each_has_a_temperature_of_its_own():
    tokens = np.array([[0, 0, 1, 1]])
    shared = jm.PowerTemperature(2.0, 0.5)
    own = jm.PowerTemperature(2.0, 0.5, "position")
    spreads = []
    for mask, schedule in (("none", shared), ("future", own)):
        form = {"weighting": "average_hard", "mask": mask, "temperature": schedule}
        model = small_model(num_layers=2, position=None, dtype="float64", **form)
        measure = measure_hard_model(model, tokens)
        spreads.append(measure.layers[1].heads[0])
    assert [head.tied_rows > 0 for head in spreads] == [True, True]
    assert spreads[0].spread == 0 < spreads[1].spread


SAMPLED = SampledInputs("random", (0, 1), None, 2, 0)
FIELDS = ("pull", "half_range", "odds", "score_size", "spread")


def by_structure(model):
    considered = consider(model, LENGTH, SAMPLED, 0)
    assert considered.unlisted is not None
    return measure_structure(model, considered.unlisted)


MEASURES = by_structure, lambda model: measure_hard_model(model, INPUTS)


def both(model, mask="none"):
    model = with_attention(model, {"mask": mask})
    return [measure(model) for measure in MEASURES]


@pytest.mark.parametrize("mask", ["none", "future", "strict_past"])
@pytest.mark.parametrize("ties", [False, True], ids=["tieless", "tied"])
def test_it_is_never_better_than_listing_and_often_the_same(ties, mask):
    networks = draw_networks(13, 8, 1, ties=ties)
    same = 0
    for index in range(networks.count):
        structure, listed = both(networks.model(index), mask)
        assert structure.num_inputs == listed.num_inputs == len(INPUTS)
        (one,), (two,) = structure.heads, listed.heads
        assert one.gap <= two.gap * (1 + 1e-12)
        same += one.gap == pytest.approx(two.gap, rel=1e-9)
        assert (one.tied_rows > 0) or not two.tied_rows
        for name in FIELDS:
            # Equal rows of one input tie exactly, of two inputs they need not.
            assert np.all(
                getattr(one, name) >= np.multiply(getattr(two, name), 1 - 1e-12)
            )
        certified = certified_temperature(structure, 0.01)
        assert certified is not None
        best = certified_temperature(listed, 0.01)
        assert best is not None
        assert certified[0] <= best[0] * (1 + 1e-6)
    assert same > networks.count / 2


def test_exact_scores_need_no_list_of_inputs():
    """ONES at n = 300: 2^300 inputs, gap 1."""
    model = jm.build_preset("ones", dtype="float64")
    considered = consider(model, 300, SAMPLED, 1000)
    measure = measure_structure(model, considered.unlisted)
    assert considered.all_inputs
    assert measure.gap == 1
    assert measure.num_inputs >= 2**299


@pytest.mark.parametrize("which", [0, 1], ids=["structure", "listed"])
def test_a_winner_that_rounding_decides_in_some_input_is_an_error(which):
    model = draw_networks(13, 1, 1, ties=False).model(0)
    gap = both(model)[which].gap
    coarse = with_attention(model, {"weighting": jm.AverageHardmax(0.9 * gap)})
    with pytest.raises(jm.TieError, match=r"layers\.0, head 0, row \d"):
        MEASURES[which](coarse)


def test_where_positions_tie_one_of_them_may_stand_lower():
    """Positions 1 and 2 can share the maximum, and 1 can hold another symbol instead."""
    scores, at = np.array([2.0, 2.0, 1.5, 0.0]), np.array([1, 2, 1, 3])
    gap, spread = measure._levels(
        scores, np.rint(scores / 1e-3), at, np.arange(4), -np.inf, 0.0, "row 0"
    )
    assert (gap, spread) == (0.5, 0.0)
    # Alone at the top, a position cannot stand below itself.
    gap, spread = measure._levels(
        scores[1:], np.rint(scores[1:] / 1e-3), np.array([1, 1, 3]), np.arange(3),
        -np.inf, 0.0, "row 0",
    )  # fmt: skip
    assert (gap, spread) == (1.5, None)


@pytest.mark.parametrize("error", [0.5, 2.0])
def test_the_score_error_is_attained_with_its_query_key_and_joint_terms(error):
    """q = 3x + 5 and k = 7x + 11 in four components, x = 0, scores over √4."""
    four = np.ones((4, 1))
    attention = make_head(
        3 * four,
        7 * four,
        [[1.0]],
        query_bias=np.full(4, 5.0),
        key_bias=np.full(4, 11.0),
        score="scaled_dot_product",
    )
    measure = measure_hard_model(of_heads([[0.0]], attention), np.zeros((1, 2), int))
    (one,) = measure.heads
    moved = 4 * ((3 * error + 5) * (7 * error + 11) - 5 * 11) / 2
    found = score_error(one, np.array([error]))
    assert moved <= found <= moved * (1 + 1e-12)


def test_rows_that_a_mask_made_different_are_not_known_to_tie():
    """The first row sees nothing, the others ones: their later scores are 0 and 1."""
    first = make_head(
        [[0, 0]],
        [[1, 0]],
        [[0, 0], [1, 0]],
        query_bias=[1],
        mask="strict_future",
        score="dot_product",
    )
    second = make_head(
        [[0, 0]],
        [[0, 1]],
        [[0, 0], [0, 1]],
        query_bias=[1],
        cell=4.0,
        score="dot_product",
    )
    measure = measure_hard_model(
        of_heads([[1, 0]], first, second), np.zeros((1, 3), int)
    )
    assert [one.spread for one in measure.heads] == [0, pytest.approx(1)]


def test_without_a_list_of_inputs_a_wide_cell_ties_what_is_apart():
    considered = consider(wide_cell(), 4, SAMPLED, 0)
    measure = measure_structure(wide_cell(), considered.unlisted)
    assert 0.25 <= measure.spread <= 0.25 * (1 + 1e-12)


def test_gelu_is_steeper_than_relu():
    block = FeedForward(
        jnp.ones((1, 2)), jnp.zeros(1), jnp.ones((2, 1)), jnp.zeros(2), "gelu"
    )
    # Its slope is largest at √2: Φ(√2) + √2 φ(√2).
    steepest = 1.1289041
    gain = read_gains(block)[1]
    assert (gain >= steepest).all()
    assert (gain <= 1.01 * steepest).all()


def test_biases_are_weights_of_one_coordinate_more():
    options = {"score": "dot_product"}
    attention = make_head([[1]], [[1]], [[1]], query_bias=[9], **options)
    shape = paper_shape(of_heads([[0]], attention))
    assert (shape.width, shape.parameter) == (2, pytest.approx(9))


def test_the_output_bias_is_added_to_one_head_alone():
    """Two heads write 20 each, and -10 is added: 10 and 20, or 20 and 10."""
    one = make_head([[1]], [[1]], [[1]], query_bias=[1], score="dot_product")
    names = ("query", "key", "value", "query_bias")
    two = {name: jnp.concatenate([getattr(one, name)] * 2) for name in names}
    attention = dataclasses.replace(
        one,
        **two,
        output=jnp.ones((1, 2)),
        value_bias=jnp.full((2, 1), 20.0),
        output_bias=jnp.asarray([-10.0]),
    )
    assert paper_shape(of_heads([[0]], attention)).parameter == pytest.approx(20)
