"""Theorems 26 and 26-T on random networks: softmax at their temperature is within ε.

All inputs of length 5, and the oracle in NumPy of `networks`. At 30 times a temperature
the error is beyond ε for some: the temperatures are not so low that nothing could fail.
"""

import dataclasses

import numpy as np
import pytest

from bounds.simulation.certificate import certified_error, certified_temperature
from bounds.simulation.measure import measure_hard_model
from bounds.simulation.paper_shape import theorem_temperature
from tests.bounds.simulation.networks import INPUTS, draw_networks

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
        layers = tuple(
            dataclasses.replace(
                layer,
                heads=tuple(
                    dataclasses.replace(head, gap=8 * head.gap) for head in layer.heads
                ),
            )
            for layer in measure.layers
        )
        planted = dataclasses.replace(measure, layers=layers)
        wrong.append(certified_temperature(planted, EPSILON)[0])
    assert networks.errors(wrong).max() > EPSILON
