"""The published PARITY and FIRST with layer norm, and their margins without a run."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.constructions import build_preset, largest_epsilon, measure_published
from tests.bounds.influence.expect import refused
from tests.written import written

UNIT = 2.0**-52
LIMITS = {"parity": math.sqrt(10), "first": math.sqrt(6)}
languages = pytest.mark.parametrize("language", LIMITS)


def logits(language, rows, epsilon, c=1.0):
    """Signed logits at the query: positive where the answer is right."""
    model = build_preset(f"published_{language}", epsilon=epsilon, c=c, dtype="float64")
    assert model.readout is not None
    tokens = jnp.asarray(np.pad(rows, ((0, 0), (0, 1)), constant_values=2), jnp.int32)
    query = jnp.array([tokens.shape[1] - 1], jnp.int32)
    run = jax.jit(
        lambda rows: jax.lax.map(lambda x: jm.forward(model, x, query)[0], rows)
    )
    found = np.asarray(model.readout(run(tokens)))[:, 0, 0]
    right = rows[:, 0] == 1 if language == "first" else rows.sum(1) % 2 == 0
    return np.where(right, found, -found)


def tolerance(length):
    """The hat stands at its kinks: a mark of 1/N is rounded like 1, and N of them add up."""
    return 64 * length**2 * UNIT


@languages
@pytest.mark.parametrize("epsilon", [0.0, 1e-5])
def test_long_strings_are_decided_rightly_and_the_worst_has_the_margin(
    language, epsilon
):
    n = 200
    rng = np.random.default_rng(n)
    rows = (rng.random((24, n)) < rng.random((24, 1))).astype(int)
    rows[0] = 1
    found = logits(language, rows, epsilon)
    margin = measure_published(language, n + 1, epsilon=epsilon).margin
    assert found.min() >= margin * (1 - tolerance(n + 1))
    assert found[0] == pytest.approx(margin, rel=tolerance(n + 1))


@languages
@pytest.mark.parametrize(
    ("length", "epsilon"), [(2, 1e-5), (4, 1e-2), (5, 1e-3), (8, 1e-3)]
)
def test_margin_and_bits_are_those_of_all_strings(language, length, epsilon):
    model = build_preset(f"published_{language}", epsilon=epsilon, dtype="float64")
    config, tensors = written(model)
    exact = reference.multiprecision(40)
    found = [
        abs(reference.logits(config, tensors, (*bits, 2), exact)[-1, 0])
        for bits in itertools.product((0, 1), repeat=length - 1)
    ]
    bits = sum(mpmath.log(1 + mpmath.exp(-x), 2) for x in found) / len(found)
    expected = float(min(found)), float(bits)
    assert measure_published(language, length, epsilon=epsilon) == pytest.approx(
        expected, rel=1e-13
    )


@languages
def test_without_epsilon_the_margin_is_the_same_at_every_length(language):
    limit = LIMITS[language]
    expected = limit, math.log2(1 + math.exp(-limit))
    for length in (2, 3, 64, 1001):
        found = measure_published(language, length, epsilon=0)
        assert found == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("language", "power"), [("parity", 2), ("first", 1)])
def test_margins_fall_with_their_power_of_the_length(language, power):
    short, long = (measure_published(language, n, epsilon=1) for n in (512, 1024))
    assert short.margin / long.margin == pytest.approx(2**power, rel=0.01)
    assert short.bits < long.bits < 1


@languages
@pytest.mark.parametrize(
    ("c", "length", "margin"),
    # Any two values of two of them meet.
    [
        *((0.3, 2, 0.01), (0.3, 5, 1.0), (0.3, 32, 2.4)),
        *((1.0, 2, 1.0), (1.0, 5, 2.4), (1.0, 32, 0.01)),
        *((20.0, 2, 2.4), (20.0, 5, 0.01), (20.0, 32, 1.0)),
    ],
)
def test_no_epsilon_beyond_the_largest_has_the_margin(language, c, length, margin):
    largest = largest_epsilon(language, length, margin, c=c)
    found = measure_published(language, length, epsilon=largest, c=c).margin
    assert found == pytest.approx(margin, rel=1e-6)
    above = np.geomspace(largest * (1 + 1e-5), LIMITS[language] ** 2 / margin**2, 50)
    for epsilon in above:
        found = measure_published(language, length, epsilon=epsilon, c=c).margin
        assert found < margin


@pytest.mark.parametrize("c", [30.0, 50.0])
@pytest.mark.parametrize("length", [2, 3])
def test_the_sharpest_heads_have_a_largest_epsilon(length, c):
    """Exponentials of hundreds leave an interval of 1e-9 of epsilon open for ever."""
    largest = largest_epsilon("parity", length, 1.0, c=c)
    found = measure_published("parity", length, epsilon=largest, c=c).margin
    assert found == pytest.approx(1.0, rel=1e-6)


def test_a_margin_of_sharp_heads_may_rise_with_epsilon():
    """Why no bisection finds the largest epsilon."""
    found = [
        measure_published("parity", 16, epsilon=x, c=10.0).margin for x in (0.1, 0.46)
    ]
    assert found[0] < found[1]
    rows = np.ones((1, 15), int)
    for epsilon, margin in zip((0.1, 0.46), found, strict=True):
        assert logits("parity", rows, epsilon, c=10.0)[0] == pytest.approx(margin)


def test_a_mark_of_another_height_is_noticed():
    model = build_preset("published_parity", epsilon=1e-3, dtype="float64")
    config, tensors = written(model)
    bits = np.ones(8, int)
    expected = measure_published("parity", 9, epsilon=1e-3).margin
    for factor in (1.0, 1.001):
        moved = {**tensors, "layers.0.ffn.w2": factor * tensors["layers.0.ffn.w2"]}
        found = abs(reference.logits(config, moved, [*bits, 2])[-1, 0])
        same = found == pytest.approx(expected, rel=tolerance(9))
        assert same == (factor == 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure_published("dyck", 4), "language"),
        (lambda: measure_published("first", 4, c=51), "c = 51; expected at most 50"),
        (lambda: largest_epsilon("parity", 4, 3.2), "3.2; expected less than sqrt.10."),
    ],
)
def test_what_has_no_margin_is_refused_on_one_line(call, message):
    with refused(message):
        call()
