"""Theorems 26 and 26-T on random networks: softmax at their temperature is within ε.

All inputs of length 5, and the oracle in NumPy of `networks`. At 30 times a temperature
the error is beyond ε for some: the temperatures are not so low that nothing could fail.
"""

import dataclasses
import math

import mpmath
import numpy as np
import pytest

from bounds.simulation.certificate import (
    HardMeasure,
    HeadMeasure,
    LayerMeasure,
    certified_error,
    certified_temperature,
    weight_distance,
)
from bounds.simulation.closed_form import (
    NetworkShape,
    activation_bound,
    layer_error,
    perturbed_distance,
    perturbed_ties_distance,
)
from bounds.simulation.measure import measure_hard_model
from bounds.simulation.paper_shape import theorem_temperature
from tests.bounds.simulation.networks import (
    HIDDEN,
    INPUTS,
    LENGTH,
    WIDTH,
    average_hard,
    draw_networks,
    edit_heads,
)

EPSILON = 0.01


def temperatures(networks):
    """Returns the measures, and the temperatures of theorem and certificate [M].

    NaN where no temperature is certified: tied scores of deep layers that float64 does
    not know to be equal well enough.
    """
    measures, formula, certificate, theorems = [], [], [], []
    for index in range(networks.count):
        model = networks.model(index)
        measure = measure_hard_model(model, INPUTS)
        applies = theorem_temperature(model, measure, EPSILON)
        assert applies is not None
        theorem, bound = applies
        measures.append(measure)
        theorems.append(theorem)
        formula.append(bound.value)
        certificate.append((certified_temperature(measure, EPSILON) or [np.nan])[0])
    return measures, theorems, np.array(formula), np.array(certificate)


def check(seed, count, layers, ties):
    networks = draw_networks(seed, count, layers, ties=ties)
    measures, theorems, formula, certificate = temperatures(networks)
    with_ties = [measure.tied_rows > 0 for measure in measures]
    assert [theorem == "26-T" for theorem in theorems] == with_ties
    assert np.mean(with_ties) > 0.9 if ties else not any(with_ties)
    assert networks.errors(formula).max() <= EPSILON
    known = np.isfinite(certificate)
    assert np.mean(~known) <= (0.04 if ties and layers > 2 else 0)
    certificate = np.where(known, certificate, formula)
    assert networks.errors(certificate).max() <= EPSILON
    assert (certificate >= formula).all()
    too_hot = networks.errors(30 * certificate) > EPSILON
    assert too_hot.mean() > 0.5
    return networks, measures, formula, certificate


@pytest.mark.parametrize("ties", [False, True], ids=["tieless", "tied"])
def test_softmax_at_the_temperature_is_within_epsilon(ties):
    check(1, 10, 2, ties)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("ties", [False, True], ids=["tieless", "tied"])
def test_a_hundred_networks_of_each_kind(ties, layers):
    networks, _, formula, _ = check(2, 104, layers, ties)
    # For some even the theorem's temperature is within a factor 30 of too hot.
    if layers == 2 and not ties:
        assert (networks.errors(30 * formula) > EPSILON).any()


@pytest.mark.parametrize("ties", [False, True], ids=["tieless", "tied"])
def test_the_certified_error_is_at_least_the_true_one_at_any_temperature(ties):
    networks = draw_networks(3, 8, 2, ties=ties)
    measures, _, _, certificate = temperatures(networks)
    ratios = []
    for factor in (0.5, 1, 2, 8, 100):
        errors = networks.errors(factor * certificate)
        bounds = [
            certified_error(measure, factor * tau)
            for measure, tau in zip(measures, certificate, strict=True)
        ]
        # What float64 adds to the truth, of activations up to some tens.
        ratios.append((errors - 1e-12) / bounds)
    assert np.max(ratios) <= 1
    assert np.max(ratios) > 1e-3


def test_a_gap_that_is_too_wide_would_be_caught():
    """The certificate with 8 times the gap: its temperatures break ε."""
    networks = draw_networks(1, 12, 2, ties=False)
    wrong = []
    for index in range(networks.count):
        measure = measure_hard_model(networks.model(index), INPUTS)
        planted = edit_heads(measure, lambda x: dataclasses.replace(x, gap=8 * x.gap))
        wrong.append(certified_temperature(planted, EPSILON)[0])
    assert networks.errors(wrong).max() > EPSILON


def head(gap, n, k, spread=0.0, averages=True):
    zero = np.zeros(1)
    return HeadMeasure(
        uniform=False,
        averages=averages,
        tied_rows=int(k > 1),
        gap=gap,
        spread=spread,
        odds=(n - k) / k * (1 + 2.0**-50),
        pull=zero,
        curvature=zero[None],
        half_range=zero,
        gain=zero[None],
        score_size=1.0,
        score_error=0.0,
    )


def test_it_is_lemma_33_and_its_form_with_ties_rounded_up():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, gap = int(rng.integers(2, 50)), rng.uniform(0.01, 5)
        k = int(rng.integers(1, n + 1))
        rho, tau = rng.uniform(0, 0.49) * gap, gap * 10 ** rng.uniform(-3, 1)
        found = weight_distance(head(gap, n, k), rho, tau)
        bound = perturbed_ties_distance(gap, rho, tau, n, k)
        if k == 1:
            bound = perturbed_distance(gap, rho, tau, n)
        assert found == pytest.approx(min(bound.value, 2), rel=1e-11, abs=1e-300)
        with mpmath.workdps(40):
            narrow = mpmath.mpf(gap) - 2 * mpmath.mpf(rho)
            odds = mpmath.mpf(n - k) / k * mpmath.exp(-narrow / mpmath.mpf(tau))
            within = mpmath.tanh(mpmath.mpf(rho) / (2 * mpmath.mpf(tau))) * (k > 1)
            assert found >= min(2, 2 * within + 2 * odds / (1 + odds))


def test_what_is_not_known_costs_the_whole_distance():
    assert weight_distance(head(1.0, 8, 2, averages=False), 0.0, 1e-9) == 2
    assert weight_distance(head(1.0, 8, 1), 1e6, 1e-6) == 2
    # Tied scores that are known to within w: half of it either way.
    apart = weight_distance(head(1.0, 8, 8, spread=1e-3), 0.0, 1e-3)
    assert apart == pytest.approx(2 * math.tanh(0.25), rel=1e-14)


def test_an_error_that_is_no_number_is_no_certificate():
    """Infinite weights times no error: a NaN, which every comparison would pass over."""
    one = np.ones((1, 1))
    layer = LayerMeasure((head(1.0, 8, 1),), one, one * np.inf)
    with np.errstate(invalid="ignore"):
        found = certified_error(HardMeasure(8, (layer,), 1), 1.0)
    assert found == np.inf


def shapes(networks):
    """P, x(n) and the shape of each network, as Theorem 26 has them."""
    for index in range(networks.count):
        entries = [np.abs(v[index]).max() for w in networks.layers for v in w.values()]
        start = networks.embedding[index][:, None] + networks.position[index]
        yield (
            NetworkShape(WIDTH, WIDTH, HIDDEN, len(networks.layers), max(1, *entries)),
            max(1.0, float(np.abs(start).max())),
        )


@pytest.mark.parametrize("ties", [False, True])
def test_activations_stay_below_lemma_29(ties):
    networks = draw_networks(6, 130, 2, ties=ties)
    out = np.abs(networks.hard()).max(axis=(1, 2, 3))
    for (shape, x), size in zip(shapes(networks), out, strict=True):
        assert size <= activation_bound(shape, x, 2).value


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_equal_positive_weights_come_near_lemma_29(layers):
    """A row of equal entries x and weights P: x + H d P x, then + m P (d P x + P) + P."""
    shape, size = NetworkShape(6, 1, 5, layers, 1.5, heads=2), 8.0
    bound = activation_bound(shape, size, layers).value
    for _ in range(layers):
        size += 2 * 6 * 1.5 * size
        size += 5 * 1.5 * (6 * 1.5 * size + 1.5) + 1.5
    assert size <= bound
    # G adds m P² + P for each unit of the block's input; the row adds them once.
    assert bound <= size * (1 + (5 * 1.5**2 + 1.5) / (5 * 6 * 1.5**2)) ** layers


def smallest_gaps(networks):
    """The gap of the only layer of each network, over all inputs [M]."""
    found = []

    def weights(scores, depth):
        top = np.sort(scores, axis=-1)
        found.append((top[..., -1] - top[..., -2]).min(axis=(1, 2)))
        return average_hard(scores)

    networks.run(weights)
    return found[0]


def one_layer_errors(networks, eps, tau, rng):
    """Error after one layer of softmax whose input is moved by eps [M]."""
    noise = eps * rng.choice([-1.0, 1.0], networks.position.shape)
    moved = dataclasses.replace(networks, position=networks.position + noise)
    return np.abs(moved.soft(tau) - networks.hard()).max(axis=(1, 2, 3))


def test_one_layer_is_within_lemma_25():
    rng = np.random.default_rng(8)
    networks = draw_networks(9, 80, 1, ties=False)
    listed = list(shapes(networks))
    gap = smallest_gaps(networks)
    eps, cases = 1e-6, 0
    for factor in (1, 5, 30):
        tau = gap / factor
        errors = one_layer_errors(networks, eps, tau, rng)
        for index, (shape, x) in enumerate(listed):
            try:
                bound = layer_error(
                    shape,
                    embedding=x + eps,
                    gap=float(gap[index]),
                    length=LENGTH,
                    temperature=float(tau[index]),
                    error=eps,
                )
            except ValueError:  # the gap is too small for this ε
                continue
            cases += 1
            assert errors[index] <= bound.value
    assert cases > 100
