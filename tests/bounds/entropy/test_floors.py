"""No floor lies above the cross-entropy of any model, and some models touch theirs.

The stages of a training are among the models; there everything is enumerated.
"""

import dataclasses
import json
import math
from typing import Any, cast

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds.entropy import (
    Population,
    entropy_levels,
    enumerate_prefixes,
    floor_theorem,
    measure,
    measure_entropy,
    predict,
)
from bounds.entropy.measure import averaged_floor, exact_closeness
from bounds.entropy.predictions import Predictions
from jax_models.languages import DyckSource, RegularLanguage, get_source
from jax_models.training import Training, run_training
from tests.architecture import small_model
from tests.bounds.entropy.floor_models import SOURCES, P, blind_model, random_model
from tests.jax_models.languages.test_sources import (
    cross_entropy,
    dyck_follows,
    parity_follows,
)

every_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
both_readings = pytest.mark.parametrize("reading", ["last", "query"])
# A mean of at most 2^18 losses is off by far less.
ROUNDED = 1e-12


@every_source
@both_readings
def test_the_models_cross_entropy_is_that_of_the_definition(source, reading):
    n, model = 3, random_model(source)
    follows = (parity_follows if source.name == "parity" else dyck_follows)(P)

    def guess(string):
        tokens = [*string, source.end] if reading == "query" else list(string)
        logits = np.asarray(jm.apply_logits(model, tokens))[-1]
        return np.exp(logits - np.logaddexp.reduce(logits))

    wanted = cross_entropy(follows, n, guess)
    found = measure_entropy(model, source, n, reading=reading)
    assert found.cross_entropy == pytest.approx(wanted, rel=1e-12)
    assert found.standard_error == 0
    # Averaging over pairs leaves the mean as it was.
    population = enumerate_prefixes(source, n)
    losses = predict(model, source, population.strings, reading).losses
    assert population.mean(losses) == pytest.approx(wanted, rel=1e-12)


def check_floors(model, source, lengths, reading):
    """Check exact and closed-form floors, and their order; return the least slack."""
    slack = math.inf
    for n in lengths:
        exact = measure_entropy(model, source, n, reading=reading)
        uniform = measure_entropy(
            model, source, n, reading=reading, closeness="closed_form"
        )
        levels = source.levels(n)
        assert exact.floor.kind == "exact"
        assert uniform.floor.kind == "certified"
        assert levels.optimal - ROUNDED <= uniform.floor.value
        assert uniform.floor.value <= exact.floor.value + ROUNDED
        assert exact.floor.value <= exact.cross_entropy + ROUNDED
        slack = min(slack, exact.cross_entropy - exact.floor.value)
    return slack


@every_source
@both_readings
def test_no_floor_lies_above_random_models(source, reading):
    assert check_floors(random_model(source), source, [3], reading) > 0


@pytest.mark.slow
@every_source
@both_readings
def test_no_floor_lies_above_deeper_models_at_any_length(source, reading):
    assert check_floors(random_model(source), source, range(1, 10), reading) > 0
    deep = random_model(source, 1, mask="none", num_layers=2)
    check_floors(deep, source, range(1, 10), reading)


@every_source
def test_a_model_that_sees_its_own_token_alone_touches_the_levels(source):
    for n, reading in ((4, "last"), (3, "query")):
        found = measure_entropy(
            blind_model(source, n, reading), source, n, reading=reading
        )
        levels, limits = source.levels(n), entropy_levels(source, n)
        seen = levels.last_symbol if reading == "last" else levels.unigram
        assert found.cross_entropy == pytest.approx(seen, rel=1e-13)
        limit = limits["floor_r1" if reading == "last" else "floor_r2"]
        # ε is its rounding alone, and the slope of the floor is below 1.
        assert limit - 1e-9 < found.floor.value <= limit
        assert found.floor.closeness < 1e-9
        # A floor that were 10^-9 higher would be caught here.
        if source.name == "parity" or (n, reading) == (3, "query"):
            assert found.cross_entropy < limit + 1e-9


@every_source
@both_readings
def test_pairs_are_of_prefixes_as_the_theorem_says(source, reading):
    theorem = floor_theorem(source)
    for n in (1, 2, 5):
        population = enumerate_prefixes(source, n)
        known = {
            tuple(x): (w, row)
            for row, (x, w) in enumerate(
                zip(population.strings.tolist(), population.weights, strict=True)
            )
        }
        pairs = theorem.pairs(population.strings, reading)
        share = 0.0
        for x, row in ((x, row) for x, (_, row) in known.items()):
            partner = tuple(pairs.partners[row].tolist())
            if pairs.kinds[row] < 0:
                assert partner == x
                continue
            differ = [i for i in range(n) if x[i] != partner[i]]
            assert differ == [pairs.positions[row]]
            assert differ[0] < n - (reading == "last")
            weight, back = known[partner]
            assert tuple(pairs.partners[back].tolist()) == x
            assert pairs.kinds[back] == pairs.kinds[row]
            mine = known[x][0]
            if source.name == "dyck2" or reading == "query":
                assert weight == pytest.approx(mine, rel=1e-13)
            share += mine
        kinds = dict.fromkeys(pairs.kinds.tolist(), 0.0)
        for row, kind in enumerate(pairs.kinds.tolist()):
            kinds[kind] += population.weights[row]
        stated = theorem.kind_shares(n, reading)
        assert {k: v for k, v in stated.items() if v} == pytest.approx(kinds, rel=1e-12)
        if isinstance(source, DyckSource):
            laws = source.step_law(n)
            open_ = laws[1, 1:].sum() if reading == "last" else laws[:, 1:].sum()
            assert share == pytest.approx(open_, abs=1e-13)
        else:
            assert share == pytest.approx(float(n > 1 or reading == "query"))


@pytest.mark.slow
@every_source
def test_pairwise_floors_are_no_lower_than_that_of_the_mean_epsilon(source):
    """Lemma E, and that taking pairs together only lowers a floor."""
    n, reading, model = 5, "query", random_model(source)
    theorem, population = floor_theorem(source), enumerate_prefixes(source, 5)
    pairs = theorem.pairs(population.strings, reading)
    members = [
        predict(model, source, x, reading) for x in (population.strings, pairs.partners)
    ]
    epsilons = exact_closeness(*members, theorem.class_pairs)
    epsilons[pairs.kinds < 0] = 0
    found = averaged_floor(theorem, reading, population, pairs, epsilons)
    mean = theorem.bound(n, reading, found.closeness).value
    assert mean <= found.value
    assert epsilons[pairs.kinds >= 0].std() > 0.01
    each = [
        theorem.pair_bound(n, reading, int(kind), float(epsilon)).value
        for kind, epsilon in zip(pairs.kinds, epsilons, strict=True)
    ]
    one_by_one = population.mean(np.array(each))
    assert found.value <= one_by_one
    assert found.value == pytest.approx(one_by_one, rel=1e-4)
    # Half the ε would be a floor that is not one; the mean ε shows the difference.
    wrong = averaged_floor(theorem, reading, population, pairs, epsilons / 2)
    assert wrong.value > found.value + 1e-3


@pytest.mark.slow
@every_source
def test_a_sample_estimates_what_the_enumeration_computes(source, monkeypatch):
    n, model = 5, random_model(source, 3)
    exact = measure_entropy(model, source, n)
    monkeypatch.setattr(measure, "ENUMERATED", 0)
    found = measure_entropy(model, source, n, num_inputs=1024, seed=5)
    assert found.floor.kind == "estimated"
    assert found.standard_error > 0
    off = abs(found.cross_entropy - exact.cross_entropy)
    assert off < 4 * found.standard_error
    off = abs(found.floor.value - exact.floor.value)
    assert off < 4 * found.floor.standard_error
    # How often each kind of pair was met is no part of it: ε = 0 is never passed.
    assert found.floor.value <= entropy_levels(source, n)["floor_r1"]
    # Each pair's loss is above its floor, so the estimates are ordered in any sample.
    tiny = measure_entropy(model, source, n, num_inputs=2, seed=1)
    assert tiny.floor.value <= tiny.cross_entropy


@pytest.mark.slow
@every_source
@both_readings
def test_certificates_lie_between_exact_and_closed_form(source, reading):
    model = random_model(source, 2)
    floors = [
        measure_entropy(model, source, 4, reading=reading, closeness=kind).floor
        for kind in ("exact", "certificate", "closed_form")
    ]
    values = [floor.value for floor in floors]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[1] < 0.5 * (values[0] - source.levels(4).optimal)
    assert [floor.kind for floor in floors] == ["exact", "certified", "certified"]
    epsilons = [floor.closeness for floor in floors]
    assert epsilons == sorted(epsilons)


def test_a_sample_is_weighted_by_its_strata():
    strings = np.zeros((4, 3), np.int32)
    sample = Population(strings, np.full(4, 0.25), False, np.zeros(4, int))
    values = np.array([1.0, 3.0, 5.0, 9.0])
    assert sample.standard_error(values) == pytest.approx(values.std(ddof=1) / 2)
    strata = np.array([0, 0, 1, 1])
    weighted = sample.stratified(strata, {0: 0.9, 1: 0.1, 2: 0.0})
    assert weighted.mean(values) == pytest.approx(0.9 * 2 + 0.1 * 7)
    # Variances 2 and 8 of single values, 1 and 4 of the means.
    error = math.sqrt(0.9**2 * 1 + 0.1**2 * 4)
    assert weighted.standard_error(values) == pytest.approx(error)
    assert sample.stratified(strata, {0: 0.5, 1: 0.4, 2: 0.1}) is sample
    everything = dataclasses.replace(sample, is_complete=True)
    assert everything.stratified(strata, {0: 0.9, 1: 0.1}) is everything
    assert everything.standard_error(values) == 0


@pytest.mark.parametrize("closeness", ["exact", "certificate", "closed_form"])
def test_the_floor_of_an_automaton_is_the_optimum_by_every_method(tmp_path, closeness):
    states = {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}
    automaton = {"alphabet": ["0", "1"], "start": "even", "accepting": ["even"]}
    path = tmp_path / "automaton.json"
    path.write_text(json.dumps({**automaton, "transitions": states}))
    source = RegularLanguage.read(path).source(0.5)
    found = measure_entropy(random_model(source), source, 3, closeness=closeness)
    assert found.floor.value == pytest.approx(source.levels(3).optimal, rel=1e-12)


def test_what_cannot_be_measured_is_refused():
    source, dyck, name = SOURCES["parity"], SOURCES["dyck2"], cast(Any, "parity")
    model, depth4 = random_model(source), jm.get_source("dyck2_depth4", 0.3)
    hard = random_model(source, weighting="leftmost_hard")
    no_end = small_model(vocab_size=2)
    for given, about, length, options, message in (
        (model, dyck, 3, {}, r"needs 5: \( \) \[ \] END"),
        (model, name, 3, {}, "source = 'parity'; expected one such as"),
        (model, depth4, 3, {}, "no theorem"),
        (model, DyckSource(0.3, 1), 3, {}, "two types of brackets"),
        (model, source, 3, {"reading": "first"}, "reading"),
        (model, source, 3, {"closeness": "guess"}, "closeness"),
        (model, source, 0, {}, "length n = 0; expected"),
        (model, source, 20, {"num_inputs": 1}, "at least 2"),
        (hard, source, 3, {"closeness": "closed_form"}, "hard"),
        (no_end, source, 3, {}, "read-out"),
    ):
        with pytest.raises(jm.InputError, match=message):
            measure_entropy(given, about, length, **options)


def test_a_distance_of_log_odds_includes_what_rounding_may_hide():
    losses = np.zeros(1)
    own = Predictions(np.array([[0.0, 1.0, 5.0]]), losses, np.array([0.25]))
    other = Predictions(np.array([[0.5, 0.0, 9.0]]), losses, np.array([0.125]))
    assert exact_closeness(own, other, [(0, 1)]) == 1.5 + 0.25 + 0.125


@pytest.mark.slow
def test_no_floor_is_above_the_loss_of_a_model_that_learns_parity():
    source, n, stages, losses = get_source("parity", 0.5), 5, [], []
    shape = {"num_layers": 1, "num_heads": 2, "d_model": 8, "d_ff": 16, "vocab_size": 2}
    model = jm.init_transformer(
        jax.random.key(0),
        **shape,
        mask="future",
        dtype="float64",
        architecture=jm.Architecture(num_classes=3),
    )
    training = Training(
        n, 240, 32, learning_rate=1e-2, all_positions=True, checkpoint_every=80
    )
    run_training(
        model,
        source,
        training,
        jax.random.key(1),
        progress=lambda standing: stages.append(standing.state[0]),
    )
    level = source.levels(n)
    for stage in stages:
        found = measure_entropy(stage, source, n)
        assert level.optimal - ROUNDED <= found.floor.value <= found.cross_entropy
        losses.append(found.cross_entropy)
    # The stages differ: from no better than a constant to what needs the whole prefix,
    # where the floor of ε = 0, the last-symbol level, would be above the loss.
    assert losses[0] > level.unigram
    assert losses[-1] < level.last_symbol - 0.01
