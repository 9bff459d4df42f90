"""Languages and automata against definitions and enumeration; what they refuse."""

import itertools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jax_models.languages import (
    LANGUAGES,
    AnBn,
    Automaton,
    AutomatonSource,
    DyckPrefixes,
    DyckSource,
    DyckWords,
    FlipFlop,
    Ones,
    Parity,
    RegularLanguage,
    UniformStrings,
    get_language,
    get_source,
    ones_automaton,
    parity_automaton,
    threshold_automaton,
    word_automaton,
)
from tests.bounds.influence.expect import refused
from tests.jax_models.languages.automata import AB, PARITY, ROWS, TOMITA7


def unmatched(string):
    """Open brackets left by a string, or None if it closes one wrongly."""
    stack = []
    for token in string:
        if token % 2 == 0:
            stack.append(token)
        elif not stack or stack.pop() != token - 1:
            return None
    return stack


def is_flip_flop(string):
    """Blocks of a written bit, bits ignored, and the bit read; the last bit is read."""
    text = "".join("wri01"[token] for token in string)
    blocks = re.fullmatch("(w0(i[01]|r0)*|w1(i[01]|r1)*)+", text)
    return blocks is not None and text[-2] == "r"


DEFINITIONS = {
    "parity": lambda string: string.count(1) % 2 == 0,
    "flip_flop": is_flip_flop,
    "majority": lambda string: string.count(1) > string.count(0),
    "dyck1": lambda string: unmatched(string) == [],
    "dyck2": lambda string: unmatched(string) == [],
    "dyck1_prefix": lambda string: unmatched(string) is not None,
    "dyck2_prefix": lambda string: unmatched(string) is not None,
    "ones": lambda string: 0 not in string,
    "anbn": lambda string: string == (0,) * string.count(0) + (1,) * string.count(0),
}
CASES = {name: (LANGUAGES[name], DEFINITIONS[name]) for name in LANGUAGES} | {
    "an automaton of parity": (parity_automaton(), DEFINITIONS["parity"]),
    "an automaton of ones": (ones_automaton(), DEFINITIONS["ones"]),
    "at least 3": (threshold_automaton(3), lambda string: sum(string) >= 3),
    "at least 0": (threshold_automaton(0), lambda string: True),
    "0011": (word_automaton([0, 0, 1, 1]), lambda string: string == (0, 0, 1, 1)),
    "empty word": (word_automaton([]), lambda string: string == ()),
    "a file of parity": (RegularLanguage.decode(PARITY), DEFINITIONS["parity"]),
    "a file of (ab)*": (
        RegularLanguage.decode(AB),
        lambda string: string == (0, 1) * (len(string) // 2),
    ),
    "a file of Tomita 7": (
        RegularLanguage.decode(TOMITA7),
        lambda string: re.fullmatch("0*1*0*1*", "".join(map(str, string))) is not None,
    ),
}


def strings_of(language, length):
    """All strings of a length, as tuples and as an array."""
    strings = list(itertools.product(range(language.end), repeat=length))
    return strings, np.array(strings, np.int32).reshape(len(strings), length)


@pytest.mark.parametrize("name", CASES)
def test_membership_equals_the_definition_on_every_string(name):
    language, holds = CASES[name]
    for length in range({2: 11, 4: 8, 5: 7}[language.end]):
        strings, rows = strings_of(language, length)
        expected = np.array([holds(string) for string in strings])
        assert (language.contains(rows) == expected).all()
        ended = np.pad(rows, ((0, 0), (0, 1)), constant_values=language.end)
        assert (language.contains(ended) == expected).all()
        for at in (0, -1):
            found = language.contains(rows[at])
            assert found.shape == ()
            assert found == expected[at]


@pytest.mark.parametrize("name", ["dyck2", "dyck2_prefix"])
def test_the_oracle_sees_a_missing_type_check(name):
    # Planted: DYCK-2 read as DYCK-1. A membership test that forgets the types would
    # pass every length below 3 of one type only.
    forgetful = {"dyck2": DyckWords(1), "dyck2_prefix": DyckPrefixes(1)}[name]
    strings, rows = strings_of(LANGUAGES[name], 4)
    expected = np.array([DEFINITIONS[name](string) for string in strings])
    assert (forgetful.contains(rows % 2) != expected).any()


def test_an_end_token_inside_makes_a_non_member():
    assert UniformStrings(3).contains([2, 2, 0])
    assert not Parity().contains([1, 2, 1])
    assert not DyckWords(1).contains([2, 0, 1])
    assert Parity().contains([[1, 2, 1, 2], [1, 0, 1, 2]]).tolist() == [False, True]


DRAWS = 20_000


def expected_distribution(language, length):
    """Probability of every string in the support, from the language's own words."""
    strings, rows = strings_of(language, length)
    members = [strings[at] for at in np.flatnonzero(language.contains(rows))]
    if isinstance(language, DyckWords | RegularLanguage):
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
    probabilities = np.array(list(expected.values()), float)
    observed = np.array(list(counts.values()))
    return scipy.stats.chisquare(observed, observed.sum() * probabilities).pvalue


SAMPLED = [
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
    (RegularLanguage.decode(TOMITA7), 6),
]
IDS = [f"{language.name}-{length}" for language, length in SAMPLED]


@pytest.mark.parametrize(("language", "length"), SAMPLED, ids=IDS)
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
    if name != "flip_flop":  # which has no short strings
        empty = language.sample(jax.random.key(0), 1, 2, end=True)
        assert np.asarray(empty).tolist() == [[language.end]] * 2


def decode(**changed):
    return RegularLanguage.decode(PARITY | changed)


def source_of(chance, end):
    """The source of an automaton of one state and one symbol."""
    return AutomatonSource(((0,),), ((chance,),), (end,))


KEY, STATE = jax.random.key(0), {"0": "odd"}
TWO = {"0": "odd", "1": ["odd", "even"]}
REFUSED = [
    # Strings.
    (lambda: Parity().contains([0, 3]), r"token 3 at \(1,\) .* parity; .* are 0 to 2"),
    (
        lambda: Parity().contains([[0, 1], [-1, 1]]),
        r"token -1 at \(1, 0\) is no symbol",
    ),
    (lambda: Parity().contains([[[0]]]), r"of shape \(1, 1, 1\)"),
    (lambda: Parity().contains([[0, 1], [0, 2]]), "1 of 2 strings end with"),
    (lambda: parity_automaton().contains([0, 2, 1]), "no symbol of the automaton"),
    # Automata.
    (lambda: Automaton(((0, 2), (1, 0)), frozenset()), "state 2 does not exist"),
    (lambda: Automaton(((0,),), frozenset(), start=1), "state 1 does not exist"),
    (lambda: Automaton(((0, 0), (1,)), frozenset()), "one row per state"),
    (lambda: Automaton(((0, 0),), frozenset(), end=1), "end = 1 is a symbol"),
    (lambda: threshold_automaton(-1), "least = -1; expected"),
    (lambda: word_automaton([0, 2]), "leaves the 2 symbols"),
    # Languages and samples.
    (lambda: get_language("random"), "need the number of symbols"),
    (lambda: DyckPrefixes(5), "1 to 4 bracket types, got 5"),
    (lambda: DyckWords(1).sample(KEY, 7, 1), "dyck1 has no word of odd length"),
    (lambda: FlipFlop().sample(KEY, 2, 1), "no member of 2 symbols"),
    (lambda: FlipFlop().sample(KEY, 8, 1, end=True), "no member of 7 symbols"),
    (lambda: Parity().sample(KEY, 0, 1), "length n = 0; expected"),
    (lambda: Parity().sample(KEY, 5, 0), "number of strings = 0; expected"),
    (lambda: RegularLanguage.decode(AB).sample(KEY, 7, 1), "no word of 7 symbols"),
    # Sources.
    (lambda: get_source("palindromes", 0.5), "source = 'palindromes'; expected one"),
    (lambda: get_source("dyck2", 1.0), "bracket probability p = 1.0"),
    (lambda: get_source("parity", 0.0), "end probability p = 0.0"),
    (lambda: DyckSource(0.3, 9), "k = 1 to 4"),
    (lambda: source_of(0.5, 0.4), "add to 1"),
    (lambda: AutomatonSource(((0, 0),), ((0.5,),), (0.5,)), "as transitions have"),
    (lambda: source_of(0.0, 1.0).levels(1), "no prefix of length n = 1"),
    (lambda: source_of(0.0, 1.0).sample(KEY, 1, 1), "no word of automaton"),
    (lambda: decode(accepting=[]).source(0.5), "is empty"),
    (
        lambda: get_source("dyck2_depth4", 0.25).levels(2**31 - 1),
        r"2147483647 symbols: this takes .* operations",  # hours
    ),
    # What a file may not hold.
    (lambda: decode(transitions={**ROWS, "odd": STATE}), "lack '1'"),
    (lambda: decode(transitions={**ROWS, "odd": STATE | {"2": "odd"}}), "key '2'"),
    (lambda: decode(start="one"), "start is 'one'"),
    (
        lambda: decode(transitions={**ROWS, "odd": TWO}),
        r"by '1' is \['odd', 'even'\]",
    ),
    (lambda: decode(alphabet=["0", "$"]), "the end token"),
    (lambda: decode(accepting="even"), "accepting = 'even'"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(call, message):
    with refused(message):
        call()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        ("{}", "alphabet is missing"),
        ('{"start": "a", "start": "b"}', "'start' stands twice"),
        (json.dumps(PARITY | {"start": "one"}), "start is 'one'"),
    ],
)
def test_a_file_that_holds_no_automaton_is_named(tmp_path, text, complaint):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with refused(f"^'{path}'.*{complaint}"):
        RegularLanguage.read(path)
