"""Languages from files: their names, words without underflow, their sources."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.languages import RegularLanguage, get_source
from tests.jax_models.languages.automata import PARITY, TOMITA7
from tests.jax_models.programs.definitions import all_strings


def test_the_order_of_keys_and_of_accepting_states_is_no_other_language():
    accepting = [*reversed(TOMITA7["accepting"]), TOMITA7["accepting"][0]]
    other = dict(reversed((TOMITA7 | {"accepting": accepting}).items()))
    first, second = (RegularLanguage.decode(x) for x in (TOMITA7, other))
    assert first.text == second.text
    assert len(TOMITA7["accepting"]) > 1


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


def test_the_source_of_parity_is_the_one_that_commands_name():
    found, named = RegularLanguage.decode(PARITY).source(0.3), get_source("parity", 0.3)
    strings = jnp.asarray(all_strings(2, 5))
    np.testing.assert_allclose(
        found.next_symbol(strings), named.next_symbol(strings), rtol=1e-15
    )
    for length in (1, 2, 5):
        levels = [dataclasses.astuple(x.levels(length)) for x in (found, named)]
        assert levels[0] == pytest.approx(levels[1], rel=1e-14)
    assert found.symbols == named.symbols


def test_every_prefix_of_the_source_begins_a_word():
    source = RegularLanguage.decode(TOMITA7).source(0.5)
    strings = all_strings(2, 6)
    words = RegularLanguage.decode(TOMITA7).contains(strings)  # closed under prefixes
    begins = np.isfinite(source.log_probability(jnp.asarray(strings)))
    assert begins.tolist() == words.tolist()
