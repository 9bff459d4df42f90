"""Samplers against enumeration: every distribution is tested by its own counts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jax_models.languages import (
    LANGUAGES,
    AnBn,
    DyckPrefixes,
    DyckWords,
    FlipFlop,
    Ones,
    Parity,
    UniformStrings,
    get_language,
)
from jax_models.languages.base import Language
from tests.bounds.influence.expect import refused

DRAWS = 20_000


def expected_distribution(language, length):
    """Probability of every string in the support, from the language's own words."""
    strings = list(itertools.product(range(len(language.symbols)), repeat=length))
    members = [strings[at] for at in np.flatnonzero(language.contains(strings))]
    if isinstance(language, DyckWords):
        return dict.fromkeys(members, 1 / len(members))
    if isinstance(language, DyckPrefixes):
        # Nestings are uniform, and types of opening brackets fair.
        opens = {
            string: [symbol % 2 for symbol in string].count(0) for string in members
        }
        nestings = {tuple(symbol % 2 for symbol in string) for string in members}
        return {x: 1 / len(nestings) / language.num_types ** opens[x] for x in members}
    if isinstance(language, FlipFlop):
        # Instructions are fair but for the first and last, bits but for those read.
        free = {string: length // 2 - string[::2].count(1) for string in members}
        return {x: 3.0 ** (2 - length // 2) / 2 ** free[x] for x in members}
    if isinstance(language, Ones | AnBn):
        word = [1] * length
        if isinstance(language, AnBn):
            word[: length // 2] = [0] * (length // 2)
        turned = {
            tuple(w ^ (i == at) for i, w in enumerate(word)): 1 / (2 * length)
            for at in range(length)
        }
        return {tuple(word): 1 / 2, **turned}
    return dict.fromkeys(strings, 1 / len(strings))


def p_value(tokens, expected):
    """Chi-square p-value of the draws; 0 if one lies outside the support."""
    counts = dict.fromkeys(expected, 0)
    for row in np.asarray(tokens).tolist():
        if tuple(row) not in counts:
            return 0.0
        counts[tuple(row)] += 1
    probabilities = np.array(list(expected.values()))
    observed = np.array(list(counts.values()))
    return scipy.stats.chisquare(observed, observed.sum() * probabilities).pvalue


CASES = [
    (Parity(), 6),
    (UniformStrings(3), 4),
    (DyckWords(1), 8),
    (DyckWords(2), 6),
    (DyckPrefixes(1), 7),
    (DyckPrefixes(1), 8),
    (DyckPrefixes(2), 5),
    (Ones(), 5),
    (AnBn(), 6),
    (AnBn(), 7),
    (FlipFlop(), 8),
]
IDS = [f"{language.name}-{length}" for language, length in CASES]


@pytest.mark.parametrize(("language", "length"), CASES, ids=IDS)
def test_samples_follow_the_stated_distribution(language, length):
    tokens = language.sample(jax.random.key(1), length, DRAWS)
    assert tokens.shape == (DRAWS, length)
    assert tokens.dtype == jnp.int32
    assert p_value(tokens, expected_distribution(language, length)) > 1e-3


def fair_walk(rng, length):
    """The sampler one writes first: fair steps, except where one is forced."""
    height, steps = 0, []
    for _ in range(length):
        step = 1 if height == 0 else rng.choice((1, -1))
        height += step
        steps.append((1 - step) // 2)
    return steps


def test_the_test_rejects_a_fair_walk_held_at_zero():
    rng, language = np.random.default_rng(0), DyckPrefixes(1)
    draws = np.array([fair_walk(rng, 8) for _ in range(4000)])
    assert language.contains(draws).all()
    assert p_value(draws, expected_distribution(language, 8)) < 1e-6


@pytest.mark.parametrize("name", [*LANGUAGES, "random"])
def test_long_samples_are_members_and_end_on_request(name):
    language = get_language(name, 5 if name == "random" else None)
    tokens = language.sample(jax.random.key(3), 1001, 4, end=True)
    assert tokens.shape == (4, 1001)
    assert (tokens[:, -1] == language.end).all()
    assert (np.asarray(tokens[:, :-1]) < language.end).all()
    if name not in ("parity", "majority", "ones", "anbn"):
        assert language.contains(tokens).all()


HAVE_SHORT_STRINGS = [
    language for language in LANGUAGES.values() if language.name != "flip_flop"
]


@pytest.mark.parametrize("language", [*HAVE_SHORT_STRINGS, UniformStrings(2)])
def test_the_end_token_alone_is_the_empty_string(language: Language):
    tokens = language.sample(jax.random.key(0), 1, 2, end=True)
    assert np.asarray(tokens).tolist() == [[language.end]] * 2


@pytest.mark.parametrize(
    ("language", "arguments", "message"),
    [
        (DyckWords(1), {"length": 7, "count": 1}, "dyck1 has no word of odd length"),
        (FlipFlop(), {"length": 2, "count": 1}, "no member of 2 symbols"),
        (FlipFlop(), {"length": 8, "count": 1, "end": True}, "no member of 7 symbols"),
        (Parity(), {"length": 0, "count": 1}, "length n = 0; expected"),
        (Parity(), {"length": 5, "count": 0}, "number of strings = 0; expected"),
    ],
)
def test_impossible_samples_are_refused(language, arguments, message):
    with refused(message):
        language.sample(jax.random.key(0), **arguments)


def test_a_random_language_is_of_so_many_symbols_and_brackets_of_few_types():
    with refused("need the number of symbols"):
        get_language("random")
    with refused("1 to 4 bracket types, got 5"):
        DyckPrefixes(5)
