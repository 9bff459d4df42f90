"""Languages from files: membership, uniform words, sources, and what files may not hold."""

import dataclasses
import itertools
import json
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.languages import RegularLanguage, get_language, get_source
from tests.bounds.influence.expect import refused
from tests.jax_models.languages.automata import AB, PARITY, ROWS, TOMITA7


def all_strings(length):
    return np.array(list(itertools.product((0, 1), repeat=length)), np.int32)


@pytest.mark.parametrize("length", [1, 4, 7])
def test_membership_by_enumeration(length):
    strings = all_strings(length)
    runs = [[bit for bit, _ in itertools.groupby(row)] for row in strings.tolist()]
    expected = {
        "parity": get_language("parity").contains(strings).tolist(),
        "ab": [
            "".join("ab"[b] for b in row) == "ab" * (length // 2) for row in strings
        ],
        "tomita": [len(run) <= 4 - (run[0] == 1) for run in runs],
    }
    for name, entry in (("parity", PARITY), ("ab", AB), ("tomita", TOMITA7)):
        found = RegularLanguage.decode(entry).contains(strings)
        assert found.tolist() == expected[name]


def test_the_order_of_keys_and_of_accepting_states_is_no_other_language():
    accepting = [*reversed(TOMITA7["accepting"]), TOMITA7["accepting"][0]]
    other = dict(reversed((TOMITA7 | {"accepting": accepting}).items()))
    first, second = (RegularLanguage.decode(x) for x in (TOMITA7, other))
    assert first.text == second.text
    assert len(TOMITA7["accepting"]) > 1


def test_samples_are_uniform_over_the_words():
    language, strings = RegularLanguage.decode(TOMITA7), all_strings(6)
    words = {tuple(row) for row in strings[language.contains(strings)].tolist()}
    drawn = np.asarray(language.sample(jax.random.key(0), 6, 12000)).tolist()
    counts = Counter(map(tuple, drawn))
    assert counts.keys() == words
    # Each count is binomial: 5 standard deviations.
    mean = len(drawn) / len(words)
    assert max(abs(count - mean) for count in counts.values()) < 5 * mean**0.5


def test_a_long_chain_before_many_words_does_not_underflow():
    chain = {f"{i:03}": {"a": f"{i + 1:03}", "b": "no"} for i in range(400)}
    rows = {**chain, "400": {"a": "400", "b": "400"}, "no": {"a": "no", "b": "no"}}
    entry = {"alphabet": ["a", "b"], "start": "000", "accepting": ["400"]}
    language = RegularLanguage.decode({**entry, "transitions": rows})
    words = language.sample(jax.random.key(0), 500, 50)
    assert language.contains(words).all()
    assert 0.4 < float(words[:, 400:].mean()) < 0.6


def test_states_that_no_prefix_reaches_do_not_set_the_scale():
    # From u words go on nearly for ever, and from s with probability 0.1 a symbol.
    rows = {"s": "sd", "u": "us", "d": "dd"}
    moves = {state: dict(zip("ab", to, strict=True)) for state, to in rows.items()}
    entry = {"alphabet": ["a", "b"], "start": "s", "accepting": ["s"]}
    language = RegularLanguage.decode({**entry, "transitions": moves})
    for length in (5, 500):
        drawn = language.source(0.9).draw(jax.random.key(0), length, 3)
        np.testing.assert_array_equal(drawn, 0)


def test_no_word_of_a_length():
    language = RegularLanguage.decode(AB)
    with refused("no word of 7 symbols"):
        language.sample(jax.random.key(0), 7, 1)
    assert language.sample(jax.random.key(0), 1, 1, end=True).tolist() == [[2]]


def test_the_source_of_parity_is_the_one_that_commands_name():
    found, named = RegularLanguage.decode(PARITY).source(0.3), get_source("parity", 0.3)
    strings = jnp.asarray(all_strings(5))
    np.testing.assert_allclose(
        found.next_symbol(strings), named.next_symbol(strings), rtol=1e-15
    )
    for length in (1, 2, 5):
        levels = [dataclasses.astuple(x.levels(length)) for x in (found, named)]
        assert levels[0] == pytest.approx(levels[1], rel=1e-14)
    assert found.symbols == named.symbols


def test_every_prefix_of_the_source_begins_a_word():
    source = RegularLanguage.decode(TOMITA7).source(0.5)
    strings = all_strings(6)
    words = RegularLanguage.decode(TOMITA7).contains(strings)  # closed under prefixes
    begins = np.isfinite(source.log_probability(jnp.asarray(strings)))
    assert begins.tolist() == words.tolist()


BAD = {
    "lack '1'": {"transitions": {**ROWS, "odd": {"0": "odd"}}},
    "unknown key '2'": {"transitions": {**ROWS, "odd": {"0": "odd", "2": "odd"}}},
    "start is 'one'": {"start": "one"},
    "by '1' is ['odd', 'even']": {
        "transitions": {**ROWS, "odd": {"0": "odd", "1": ["odd", "even"]}}
    },
    "the end token": {"alphabet": ["0", "$"]},
    "accepting = 'even'": {"accepting": "even"},
}


@pytest.mark.parametrize("complaint", BAD)
def test_a_bad_automaton_is_refused_in_one_line(tmp_path, complaint):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(PARITY | BAD[complaint]))
    with pytest.raises(jm.InputError) as error:
        RegularLanguage.read(path)
    message = str(error.value)
    assert message.startswith(f"'{path}': ")
    assert complaint in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        ("{}", "alphabet is missing"),
        ('{"start": "a", "start": "b"}', "'start' stands twice"),
    ],
)
def test_a_file_that_holds_no_automaton_is_refused(tmp_path, text, complaint):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with refused(complaint):
        RegularLanguage.read(path)


def test_an_empty_language_has_no_source():
    with refused("is empty"):
        RegularLanguage.decode(PARITY | {"accepting": []}).source(0.5)
