"""The rounding radii hold what rounding does, and are no wider than they say."""

import dataclasses
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.influence import compute_influence
from bounds.numbers import interval
from bounds.numbers.rounding import (
    certificate_roundoff,
    gamma,
    gamma_upper,
    layer_roundoff,
    rounding_steps,
    summation_depth,
    term_roundoff,
    tiled_summation,
    unit_roundoff,
)
from tests.architecture import small_model, with_attention
from tests.written import written

SIZES = {"num_layers": 2, "num_heads": 2, "d_model": 4, "d_ff": 6, "vocab_size": 2}


def compared(model, tokens, method, digits=40, **more) -> Any:
    """Both ends and the true influence of each substitution."""
    numbers = reference.multiprecision(digits)
    exact = reference.influence(*written(model), tokens, arithmetic=numbers, **more)
    found: Any = compute_influence(model, tokens, method=method, **more)
    asked = ~np.isnan(exact)
    return [x[asked] for x in (found.lower, found.upper, exact)]


def beyond(model, tokens, method) -> float:
    """How many radii the truth is outside of what is stated at most, below 0 if inside."""
    lower, upper, exact = compared(model, tokens, method, digits=60)
    outside = np.maximum(lower - exact, exact - upper)
    return float((outside / ((upper - lower) / 2)).max())


def draw(seed=0, **options):
    return small_model(seed, **{**SIZES, "dtype": "float64", **options})


def shapes(**options):
    """The model without its numbers: rounding is counted from shapes alone."""
    return jax.eval_shape(lambda: draw(**options))


def test_the_unit_roundoff_is_half_the_distance_of_neighbours():
    assert unit_roundoff(np.float64) == 2.0**-53
    assert unit_roundoff(np.float32) == 2.0**-24
    for dtype in (np.float32, np.float64):
        u = dtype(unit_roundoff(dtype))
        assert dtype(1) + u == dtype(1)
        assert dtype(1) + 2 * u > dtype(1)


def test_gamma_is_rounded_up_to_the_next_float_and_no_further():
    """Against k u/(1 - k u) in rationals."""
    for count in [*range(1, 200), 10**4 + 1, 10**9 + 7, 2**52]:
        ku = Fraction(count, 2**53)
        found = gamma_upper(count)
        below = Fraction(float(np.nextafter(found, 0)))
        assert below < ku / (1 - ku) <= Fraction(found)


def test_the_steps_of_a_certificate_are_those_counted_by_hand():
    """Two heads of width 2 at d = 4, six neurons, a score of 3, 100 keys, two layers."""
    model = shapes()
    assert summation_depth(100) == 101
    assert summation_depth(3 * 8192) == 8195
    # A layer: keys, scalars, projections to and from d, queries, heads, neurons.
    layer = 101 + 16 + 2 * 4 + 2 + 4 + 6
    assert rounding_steps(model, 100) == 2 * layer + 16
    twice = 2.0**-52
    found = float(layer_roundoff(model.layers[0], 101, 3.0))
    assert found == pytest.approx(twice * (layer + 3), rel=1e-12, abs=0)
    assert term_roundoff(10) == gamma_upper(36)
    # A radius: weights twice and their sums, an exponential, norms by squaring.
    each = 3 + 300 + 3 * 101 + (8 + 2 * 4) * 4 + 64
    steps = 3 * each + rounding_steps(model, 100)
    assert certificate_roundoff(model, 100, 3.0, 300.0) == twice * steps


def test_a_sum_in_tiles_is_as_deep_as_counted_by_hand():
    """A tile of √(6 n) additions, and six for each of the tiles."""
    found = [tiled_summation(n) for n in (1, 2, 100, 10**5)]
    assert found == [(1, 7), (2, 8), (25, 49), (775, 1555)]


# Numbers whose sums round in any order.
ROOTS = 1e5 * np.sqrt([2, 3, 5, 7, 11, 13])


def averaging(values, num_layers):
    """Symbols of these values, averaged over all keys but those of the last symbol.

    The last has the value of the one before, which for it leaves the mean and no more.
    """
    model = draw(
        num_heads=1,
        d_model=2,
        vocab_size=len(values),
        num_layers=num_layers,
        weighting="average_hard",
        position=None,
        mask="none",
    )
    model = jax.tree.map(jnp.zeros_like, model)
    embedding = model.embedding.at[:, 0].set(jnp.asarray(values)).at[-1, 1].set(-1e-3)

    def parts(attention):
        return {
            "query_bias": attention.query_bias.at[0, 0].set(1),
            "key": attention.key.at[0, 0, 1].set(1),
            "value": attention.value.at[0, 0, 0].set(1),
            "output": attention.output.at[0, 0].set(1),
        }

    return with_attention(dataclasses.replace(model, embedding=embedding), parts)


BOTH = ["incremental", pytest.param("lumped", marks=pytest.mark.slow)]


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(
    ("values", "num_layers"),
    [
        ([*ROOTS, ROOTS.sum(), ROOTS.sum() / 3.5 + 1e-4], 1),
        ([*ROOTS, 1e-3 - ROOTS.sum(), 1e-3 / 7 + 1e-10], 1),
        ([1e6 + 1e-5 * x for x in (*ROOTS, 0, 1e5)], 2),
    ],
    ids=["near the mean", "cancelling", "carried"],
)
def test_the_radius_holds_what_a_hard_mean_rounds(values, num_layers, method):
    """A key leaves the best cell, whose value is near the mean or far below the others'."""
    model, tokens = (
        averaging([*values, values[-1]], num_layers),
        [3, 6, 1, 5, 0, 4, 2, 7, 7, 8],
    )
    assert beyond(model, tokens, method) <= 0


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("bias", ["value_bias", "output_bias"])
def test_the_radius_holds_what_cancels_in_rows(bias, method):
    """The first layer writes a million where the embedding holds minus a million."""
    model, size = draw(mask="none", position=None), 1e6
    first: Any = model.layers[0].attention
    first = dataclasses.replace(
        first,
        query=first.query.at[:, :, 0].set(0),
        key=first.key.at[:, :, 0].set(0),
        value=first.value.at[:, :, 0].set(0),
        output=first.output.at[:, 0].set(0).at[0, 0].set(1),
    )
    offset = jnp.zeros_like(getattr(first, bias)).ravel().at[0].set(size)
    offset = offset.reshape(getattr(first, bias).shape)
    first = dataclasses.replace(first, **{bias: offset})
    layer = dataclasses.replace(model.layers[0], attention=first)
    embedding = model.embedding.at[:, 0].add(-size)
    model = dataclasses.replace(
        model, embedding=embedding, layers=(layer, model.layers[1])
    )
    tokens = [0, 1, 1, 0, 1, 0]
    assert beyond(model, tokens, method) <= 0


def test_gamma_bounds_a_sum_that_loses_all_it_can():
    """1 + u rounds to 1 every time, so that k steps lose k u and no less holds."""
    count, u = 1000, Fraction(1, 2**53)
    total = 1.0
    for _ in range(count):
        total += float(u)
    lost = Fraction(1 + count * u - Fraction(total)) / (1 + count * u)
    bound = Fraction(interval.upper(gamma(count)))
    assert lost <= bound <= lost * (1 + 3 * count * u)


@pytest.mark.parametrize(
    ("method", "num_layers"),
    [
        ("incremental", 1),
        ("incremental", 2),
        ("exhaustive", 2),
        pytest.param("exhaustive", 1, marks=pytest.mark.slow),
    ],
)
def test_an_offset_of_all_values_that_drops_out_costs_no_digits(method, num_layers):
    """A thousand is added to every value, and the output matrix takes it away again."""

    def parts(attention):
        mean = attention.output.mean(axis=1, keepdims=True)
        offset = jnp.full(attention.value.shape[:2], 1000.0)
        return {"value_bias": offset, "output": attention.output - mean}

    model = with_attention(draw(mask="future", num_layers=num_layers), parts)
    tokens = [0, 1, 1, 0, 1, 0]
    lower, upper, exact = compared(model, tokens, method)
    assert (lower <= exact).all()
    assert (exact <= upper).all()
    if method == "incremental" and num_layers == 1:
        assert np.abs(upper / exact - 1).max() < 1e-12
