"""Planted corruptions of certificates: what is false is rejected, and nothing else is.

A mutant may still be true: a position that is never attended to may leave a possible
set, a superfluous bit may be freed. Whatever is accepted is confirmed by enumeration.
"""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.restriction.checker import check_certificate
from bounds.restriction.checking import layer as checked_layer
from tests.bounds.restriction.drawn_models import HARD, integer_model, real_model
from tests.bounds.restriction.enumerated import (
    TIES,
    certified,
    changed,
    forged,
    is_true,
)

SEEDS = (3, 6, 9)


@pytest.fixture(scope="module")
def cases():
    """Enumerations and certificates of each weighting."""
    found = {weighting: [] for weighting in HARD}
    for seed, weighting in itertools.product(SEEDS, HARD):
        model = jm.with_weighting(integer_model(seed, mask="future"), weighting)
        found[weighting].append(certified(model, seed))
        assert found[weighting][-1][1]["free"] >= 1
    return found


@pytest.fixture
def case(cases):
    """The first of leftmost-hard attention."""
    return cases["leftmost_hard"][0]


of_each_weighting = pytest.mark.parametrize("weighting", HARD)


def rejected(enumeration, certificate):
    found = check_certificate(enumeration.model, certificate)
    assert found.reasons
    return not found.accepted


def rows_of(certificate):
    """Every row of every table, with its layer, position, head and number."""
    for k, layer in enumerate(certificate["layers"]):
        for i, entry in layer.items():
            for h, rows in enumerate(entry["heads"]):
                for a, row in enumerate(rows):
                    yield (k, i, h, a), row


def with_row(certificate, at, **entries):
    """The certificate with other entries of one row."""
    mutant, (k, i, h, a) = changed(certificate), at
    mutant["layers"][k][i]["heads"][h][a] |= entries
    return mutant


def removals(enumeration, certificate):
    """Each certificate that lacks one possible position, and whether it was attended."""
    for at, row in rows_of(certificate):
        attended = enumeration.attended(certificate, at)
        for j in row["poss"]:
            kept = [other for other in row["poss"] if other != j]
            yield with_row(certificate, at, poss=kept), j in attended


@of_each_weighting
def test_an_attended_position_cannot_be_left_out(cases, weighting):
    attended_ones = 0
    for enumeration, certificate in cases[weighting]:
        for mutant, was_attended in removals(enumeration, certificate):
            attended_ones += was_attended
            assert rejected(enumeration, mutant) or not was_attended
    assert attended_ones > 50


def test_the_removals_notice_a_checker_that_takes_the_wrong_side_of_ties(
    cases, monkeypatch
):
    monkeypatch.setattr(checked_layer, "BEFORE", {"L": np.greater, "R": np.less})
    leftmost = cases["leftmost_hard"]
    accepted = [
        was_attended
        for one in leftmost
        for mutant, was_attended in removals(*one)
        if not rejected(one[0], mutant)
    ]
    assert any(accepted) or any(rejected(*one) for one in leftmost)


@of_each_weighting
def test_a_witness_outside_the_mask_is_rejected(cases, weighting):
    for enumeration, certificate in cases[weighting]:
        for at, row in rows_of(certificate):
            unseen = int(at[1]) + 1
            if unseen < enumeration.length:
                for entries in (
                    {"witness": unseen},
                    {"witness": None},
                    {"poss": [*row["poss"], unseen]},
                ):
                    assert rejected(enumeration, with_row(certificate, at, **entries))


def test_a_wrong_output_is_rejected_to_the_last_bit(case):
    enumeration, certificate = case
    outputs = [certificate["output"][1:]]
    for c, value in enumerate(certificate["output"]):
        for wrong in (value + 1, np.nextafter(value, 99), -value - 1):
            outputs.append(list(certificate["output"]))
            outputs[-1][c] = float(wrong)
    for output in outputs:
        assert rejected(enumeration, changed(certificate, output=output))


def test_a_pair_that_differs_in_a_fixed_bit_is_rejected(cases):
    for enumeration, certificate in cases["leftmost_hard"]:
        for at in np.flatnonzero(np.array(certificate["rho"][:-1]) >= 0):
            mutant = changed(certificate)
            mutant["pair"][1] = list(mutant["pair"][0])
            mutant["pair"][1][at] = 1 - mutant["pair"][1][at]
            # What the model makes of a string that is no completion is moot.
            (reason,) = check_certificate(enumeration.model, mutant).reasons
            assert f"at position {at}, where rho allows" in reason


def test_what_is_said_of_the_pair_must_hold(case):
    enumeration, certificate = case
    first, second = certificate["pair"]
    for entries in (
        {"members": [not one for one in certificate["members"]]},
        {"members": [True, True]},
        {"members": None},
        {"pair": [first, first]},
        {"pair": [first, first], "members": [certificate["members"][0]] * 2},
        {"pair": [second, first]},
        {"pair": None},
        {"language": None},
        {"language": "dyck3"},
        {"language": "random"},
        {"language": "dyck1"},
        {"free": certificate["free"] + 1},
        {"log2_misclassified": None},
        {"log2_misclassified": certificate["free"]},
    ):
        assert rejected(enumeration, changed(certificate, **entries)), entries


def test_a_certificate_without_a_pair_is_of_the_restriction_alone(case):
    enumeration, certificate = case
    nothing = {"pair": None, "members": None, "log2_misclassified": None}
    for language in (None, "parity"):
        alone = changed(certificate, language=language, **nothing)
        assert not rejected(enumeration, alone)


@of_each_weighting
def test_a_freed_bit_is_accepted_only_where_it_was_superfluous(cases, weighting):
    outcomes = []
    for enumeration, certificate in cases[weighting]:
        for at in np.flatnonzero(np.array(certificate["rho"][:-1]) >= 0):
            mutant = changed(certificate)
            mutant["rho"][at] = -1
            mutant["free"] += 1
            mutant["log2_misclassified"] += 1
            # Its own first table now has two rows, whose possible sets stay as they were.
            entry = mutant["layers"][0][str(at)]
            entry["heads"] = [rows * 2 for rows in entry["heads"]]
            outcomes.append(rejected(enumeration, mutant))
            assert outcomes[-1] or is_true(enumeration, mutant)
    assert sum(outcomes) > len(outcomes) / 2


@of_each_weighting
def test_another_tie_rule_is_accepted_only_where_no_tie_matters(cases, weighting):
    others = [name for name in HARD if name != weighting]
    outcomes = []
    for enumeration, certificate in cases[weighting]:
        for other in others:
            mutant = changed(certificate, tie=TIES[other])
            assert rejected(enumeration, mutant)
            model = jm.with_weighting(enumeration.model, other)
            mutant = forged(mutant, model)
            accepted = check_certificate(model, mutant).accepted
            outcomes.append(accepted)
            assert not accepted or is_true(enumeration, mutant, model)
    assert not all(outcomes)


def test_another_model_is_rejected_and_a_forged_digest_helps_only_what_is_true(cases):
    outcomes = []
    others = [integer_model(seed, mask="future") for seed in range(20, 24)]
    for enumeration, certificate in cases["leftmost_hard"]:
        for model in others:
            assert not check_certificate(model, certificate).accepted
            mutant = forged(certificate, model)
            outcomes.append(check_certificate(model, mutant).accepted)
            assert not outcomes[-1] or is_true(enumeration, mutant, model)
    assert not all(outcomes)


@of_each_weighting
def test_tables_are_of_their_deps_alone(cases, weighting):
    dropped = added = 0
    inexact = real_model(5, weighting=weighting, mask="future", tie_resolution=1.0)
    for enumeration, certificate in [*cases[weighting], certified(inexact, 5)]:
        for i, entry in certificate["layers"][0].items():
            for b in entry["deps"]:
                mutant = changed(certificate)
                mutant["layers"][0][i]["deps"].remove(b)
                assert rejected(enumeration, mutant)
                dropped += 1
            stray = next(b for b in range(5) if b not in entry["deps"])
            mutant = changed(certificate)
            mutant["layers"][0][i]["deps"] = sorted([*entry["deps"], stray])
            # A table may be written with a bit that it does not depend on.
            refused = rejected(enumeration, mutant)
            assert refused or is_true(enumeration, mutant)
            added += refused
    assert min(dropped, added) > 4


def test_a_position_that_is_needed_must_be_listed(case):
    enumeration, certificate = case
    for i in certificate["layers"][0]:
        mutant = changed(certificate)
        del mutant["layers"][0][i]
        assert rejected(enumeration, mutant)
    mutant = changed(certificate)
    mutant["layers"][1] = {}
    assert rejected(enumeration, mutant)


def test_symbols_that_are_embedded_alike_are_one_row():
    model = integer_model(3, mask="future")
    alike = model.embedding.at[1].set(model.embedding[0])
    model = dataclasses.replace(model, embedding=alike)
    enumeration, certificate = certified(model, 0)
    assert certificate["free"] == 4
    assert not rejected(enumeration, certificate)
    for entry in certificate["layers"][0].values():
        entry["heads"] = [rows * 2 for rows in entry["heads"]]
    assert rejected(enumeration, certificate)


@pytest.mark.parametrize(
    "model",
    [
        lambda: real_model(0, mask="future", layer_norm="pre"),
        lambda: integer_model(0, score="additive"),
        lambda: integer_model(0, final_norm=True),
    ],
)
def test_an_exact_claim_is_of_numbers_of_scores_and_of_the_output(model):
    """All activations of the last two are exact; scores of tanh, a norm at the end not."""
    enumeration, certificate = certified(model(), 0)
    found = check_certificate(enumeration.model, certificate)
    assert "rounding is enclosed" in found.reasons[1]
    assert rejected(enumeration, changed(certificate, mode="exact"))


def test_a_machine_that_runs_otherwise_is_believed(case, monkeypatch):
    """The tables are a proof; a run of the model may still refute it."""
    enumeration, certificate = case
    run = jm.apply
    assert not rejected(enumeration, certificate)
    monkeypatch.setattr(jm, "apply", lambda *given, **more: run(*given, **more) + 1)
    found = check_certificate(enumeration.model, certificate)
    assert len(found.reasons) == 1
    assert "does not give the output of the certificate" in found.reasons[0]


@of_each_weighting
def test_a_tie_that_rounding_decides_is_rejected(weighting):
    """A model of one layer whose scores all stand on the edge between two cells."""
    options = {"num_layers": 1, "mask": "future", "tie_resolution": 1.0}
    model = real_model(0, weighting=weighting, **options)
    attention = model.layers[0].attention
    width = attention.key_width

    def with_scores(score):
        # q · k = score at every key, in real numbers; d_k = 2.
        flat = dataclasses.replace(
            attention,
            query=jnp.zeros_like(attention.query),
            key=jnp.zeros_like(attention.key),
            query_bias=jnp.full((2, width), score / 0.3 / width),
            key_bias=jnp.full((2, width), 0.3),
        )
        layer = dataclasses.replace(model.layers[0], attention=flat)
        return dataclasses.replace(model, layers=(layer,))

    enumeration, certificate = certified(with_scores(0.4), 1)
    assert not rejected(enumeration, certificate)
    edge = with_scores(0.5)
    certificate = forged(certificate, edge)
    (reason,) = check_certificate(edge, certificate).reasons
    assert weighting == "average_hard" or "its score cell may be" in reason
    for rows in certificate["layers"][0]["4"]["heads"]:
        rows[0]["poss"] = list(range(5))
    (reason,) = check_certificate(edge, certificate).reasons
    assert "rounding could decide between score cells" in reason
