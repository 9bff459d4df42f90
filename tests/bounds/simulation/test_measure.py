"""What is measured of a hard model is what its rows do, and exact where they are.

The oracle is `fractions`: networks of integer weights, every score and mean a rational.
"""

import dataclasses
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.simulation.measure import measure_hard_model
from jax_models.model.attention import Attention
from jax_models.model.feed_forward import FeedForward
from jax_models.model.layer import Layer
from jax_models.model.reweight import with_temperature
from tests.bounds.simulation.networks import INPUTS, draw_networks

MASKS = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
}


def integer_model(seed, mask="none", n=4):
    """One layer, two heads, integer weights of one digit; width 4."""
    rng = np.random.default_rng(seed)

    def integers(*shape):
        return jnp.asarray(rng.integers(-2, 3, shape), jnp.float64)

    attention = Attention(
        query=integers(2, 2, 4),
        key=integers(2, 2, 4),
        value=integers(2, 2, 4),
        output=integers(4, 4),
        query_bias=integers(2, 2),
        key_bias=integers(2, 2),
        value_bias=integers(2, 2),
        output_bias=integers(4),
        weighting=jm.AverageHardmax(),
        mask=mask,
        score="dot_product",
    )
    block = FeedForward(integers(2, 4), integers(2), integers(4, 2), integers(4))
    layer = Layer(attention, block)
    return jm.Transformer(integers(2, 4), (layer,), jm.PositionTable(integers(n, 4)))


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
    model = integer_model(5, mask, n)
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


def test_equal_rows_tie_exactly_whatever_is_rounded():
    """Without positions rows of one symbol are equal, in every layer without mask."""
    rng = np.random.default_rng(0)
    networks = draw_networks(4, 1, 2, ties=False)
    layers = tuple(
        {k: v + 0.1 * rng.normal() for k, v in w.items()} for w in networks.layers
    )
    networks = dataclasses.replace(
        networks, layers=layers, position=0 * networks.position
    )
    measure = measure_hard_model(networks.model(0), INPUTS)
    assert [head.kind for head in measure.heads] == ["tied", "tied"]
    assert measure.spread == 0
    assert not measure.exact


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


def test_a_winner_that_rounding_decides_is_an_error():
    model = draw_networks(2, 1, 1, ties=False).model(0)
    gap = measure_hard_model(model, INPUTS).gap
    layer = model.layers[0]
    attention = dataclasses.replace(
        layer.attention, weighting=jm.AverageHardmax(0.9 * gap)
    )
    coarse = dataclasses.replace(
        model, layers=(dataclasses.replace(layer, attention=attention),)
    )
    with pytest.raises(jm.TieError, match=r"layers\.0, head 0, row \d"):
        measure_hard_model(coarse, INPUTS)


def test_equal_rows_stay_equal_unless_each_has_a_temperature_of_its_own():
    tokens = np.array([[0, 0, 1, 1]])
    shared = jm.PowerTemperature(2.0, 0.5)
    own = jm.PowerTemperature(2.0, 0.5, "position")
    spreads = []
    for mask, schedule in (("none", shared), ("future", own)):
        model = jm.random_transformer(
            jax.random.key(0), num_layers=2, num_heads=1, d_model=4, d_ff=4, vocab_size=2,
            weighting="average_hard", position=None, mask=mask, temperature=schedule,
            dtype="float64",
        )  # fmt: skip
        spreads.append(measure_hard_model(model, tokens).layers[1].heads[0])
    assert [head.tied_rows > 0 for head in spreads] == [True, True]
    assert spreads[0].spread == 0 < spreads[1].spread
