"""Models that do compute something: the search finds no fault where there is none."""

import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import (
    check_certificate,
    find_counterexample,
    find_restriction,
)
from jax_models.languages import ones_automaton, threshold_automaton
from tests.bounds.restriction.drawn_models import is_constant, random_model


def preset(name, **parameters):
    return jm.build_preset(name, dtype="float64", **parameters)


def only_ones(tokens):
    return bool((tokens == 1).all())


def halves(tokens):
    """Decide a^m b^m with a = 0, b = 1."""
    half = len(tokens) // 2
    return len(tokens) == 2 * half and tokens.tolist() == [0] * half + [1] * half


@pytest.mark.parametrize(
    ("name", "length", "member"),
    [
        ("ones", 20, only_ones),
        ("anbn", 100, halves),
        ("anbn_one_layer", 20, halves),
    ],
)
def test_one_symbol_and_the_querys_own_decide_what_is_recognised(name, length, member):
    """n - 2 positions free, and no contradiction.

    The final activation holds the query's own token, so that is fixed too.
    """
    found = find_counterexample(
        preset(name),
        length,
        name.removesuffix("_one_layer"),
        method="greedy",
        attempts=1,
        reverse_pass=False,
    )
    assert len(found.free) == length - 2
    assert found.pair is None
    assert "all are classified alike by the language too" in found.reasons[-2]
    assert found.reasons[-1] == "the model rejects them, rightly"
    assert check_certificate(preset(name), found.certificate).accepted
    assert not any(
        member(found.partial.complete(bits)) for bits in drawn_bits(length - 2)
    )


def test_a_model_that_rejects_what_it_should_not_is_said_to_be_wrong():
    """The constant output says no, and every completion is in the language."""
    found = find_counterexample(preset("ones"), 20, lambda tokens: True, attempts=1)
    assert found.pair is None
    assert "drawn ones and their neighbours are classified alike" in found.reasons[-2]
    assert found.reasons[-1] == "the model rejects them, wrongly"


def test_an_automaton_is_decided_by_its_states():
    """1* is misclassified by a model that looks for a 1, and MAJORITY by that of 1*."""
    model = preset("ones")
    majority = threshold_automaton(11)
    found = find_counterexample(model, 20, majority, attempts=1)
    assert found.pair is not None
    assert sorted(sum(tokens) >= 11 for tokens in found.pair) == [False, True]
    assert found.certificate["pair"] is None
    alike = find_counterexample(model, 20, ones_automaton(), attempts=1)
    assert alike.pair is None
    assert alike.reasons[-2].startswith("of the 2^18 completions all are classified")


def drawn_bits(count):
    generator = np.random.default_rng(0)
    return [
        np.zeros(count, int),
        np.ones(count, int),
        *generator.integers(0, 2, (50, count)),
    ]


def test_ones_is_decided_by_the_query_alone_where_it_is_the_one_attended_to():
    assert len(find_restriction(preset("ones"), 20, query=0).free) == 19
    rightmost = jm.with_weighting(preset("ones"), "rightmost_hard")
    assert len(find_restriction(rightmost, 20).free) == 19


@pytest.mark.parametrize(
    ("layers", "heads"), [(2, 1), (1, 1), (1, 3), (1, 8), (2, 2), (3, 1)]
)
def test_a_model_of_parity_leaves_no_bit_free(layers, heads):
    """docs/theory/hard-attention.md, section 3, Theorem 5."""
    model = preset("hard_parity", num_layers=layers, num_heads=heads)
    n = (heads + 1) ** layers
    found = find_counterexample(model, n, "parity", query=-1)
    assert found.free == ()
    assert found.pair is None
    assert "no bit is left free" in found.reasons[0]


def test_average_hard_parity_depends_on_every_position():
    """docs/theory/hard-attention.md, section 3: no false constant."""
    found = find_counterexample(preset("average_parity"), 8, "parity")
    assert found.free == ()
    assert "leave 8 that matter" in found.reasons[0]


def test_alteration_closes_what_the_greedy_search_closes():
    for seed in range(2):
        model = random_model(seed, num_heads=2)
        found = find_restriction(model, 8, method="alteration")
        assert found.method == "alteration"
        assert is_constant(model, found.rho, 7)
