"""The certificate's arithmetic: never below the closed forms, which round outwards."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest

from bounds.simulation.certificate import certified_error, weight_distance
from bounds.simulation.closed_form import (
    NetworkShape,
    activation_bound,
    layer_error,
    perturbed_distance,
    perturbed_ties_distance,
)
from bounds.simulation.measured import HardMeasure, HeadMeasure, LayerMeasure
from tests.bounds.simulation.networks import (
    HIDDEN,
    LENGTH,
    WIDTH,
    average_hard,
    draw_networks,
)


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
    layer = LayerMeasure((head(1.0, 8, 1),), one, one * np.inf, 1.0)
    with np.errstate(invalid="ignore"):
        found = certified_error(HardMeasure(8, (layer,), 1, True), 1.0)
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
