"""What is a value of an argument is taken, what is none is an InputError that names it."""

import os

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.restriction import most_free_forced, reachable_classes
from jax_models import arguments, constructions, languages
from jax_models.arguments import (
    ascii_number,
    expect_integer,
    expect_sequence,
    read_alphabet,
    read_file,
)
from jax_models.constructions.rnn import init_elman
from jax_models.jax_arguments import expect_key
from jax_models.programs import logic, rasp
from jax_models.programs.logic.self_test import apply_eagerly
from jax_models.programs.rasp import check_program
from jax_models.run import device_memory
from tests.architecture import small_model
from tests.bounds.influence.expect import refused


def test_an_integer_has_32_bits_where_no_other_range_is_named():
    assert expect_integer("n", 2**31 - 1) == 2**31 - 1
    for value in (2**31, 10**23, -(2**40)):
        with refused("expected an integer from -2147483648"):
            expect_integer("n", value)
    with refused("from 1 to 2147483647"):
        expect_integer("n", 10**23, 1)
    assert expect_integer("n", 10**12, 1, 10**13) == 10**12


@pytest.mark.parametrize("text", ["1_6", "١٦", "1\u00a0", "𝟙"])
def test_a_number_is_of_ascii_digits(text):
    with pytest.raises(ValueError, match="expected the digits 0 to 9"):
        ascii_number(text)
    assert ascii_number("-1.5e3") == "-1.5e3"


def test_a_file_is_read_up_to_its_limit_and_only_if_it_is_regular(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 8)
    assert read_file("file", path, 8) == b"x" * 8
    with refused(r"file .* has more than 7 bytes"):
        read_file("file", path, 7)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, found in (("pipe", "a pipe"), ("zero", "a device"), (".", "a folder")):
        with refused(f"is {found}"):
            read_file("file", tmp_path / name, 8)


def test_text_names_characters_or_words_with_commas():
    assert read_alphabet("ab(") == ("a", "b", "(")
    assert read_alphabet("open, close") == ("open", "close")


@pytest.mark.parametrize(
    ("alphabet", "complaint"),
    [("", "is empty"), (["a", ""], "symbol 1"), (["a", 3], "3"), ("aba", "'a' twice")],
)
def test_what_is_no_alphabet_is_refused_by_formulas_and_programs(alphabet, complaint):
    always = logic.parse_formula("T")
    for call in (
        lambda: check_program("return in", alphabet),
        lambda: logic.parse_formula("T", alphabet),
        lambda: logic.evaluate_formula(always, [0], alphabet),
        lambda: jm.compile_formula(always, alphabet, "T"),
    ):
        with refused(complaint):
            call()


SIZES = {"num_layers": 1, "num_heads": 1, "d_model": 4, "d_ff": 4, "vocab_size": 2}
DRAWING = {
    "weights": lambda key: jm.random_transformer(key, **SIZES),
    "weights to train": lambda key: jm.init_transformer(key, **SIZES),
    "a recurrent network": lambda key: init_elman(
        key, width=2, vocab_size=2, num_classes=2
    ),
    "training": lambda key: jm.train(
        jm.init_transformer(
            jax.random.key(0), **SIZES, architecture=jm.Architecture(num_classes=3)
        ),
        SOURCE,
        TRAINING,
        key,
    ),
    "strings": lambda key: jm.get_language("dyck2").sample(key, 4, 1),
    "prefixes": lambda key: jm.get_source("dyck2", 0.25).sample(key, 4, 1),
}


@pytest.mark.parametrize("drawn", DRAWING)
def test_an_integer_is_no_key(drawn):
    with refused(r"key = 0; expected a JAX random key"):
        DRAWING[drawn](0)


@pytest.mark.parametrize(
    "key",
    [None, 1.5, "seed", [0, 1], np.array([0, 1]), jax.random.split(jax.random.key(0))],
)
def test_nor_are_these(key):
    with refused("expected a JAX random key"):
        expect_key(key)


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_a_key_of_either_form_is_taken(make):
    np.testing.assert_array_equal(expect_key(make(3)), [0, 3])
    assert jm.get_language("parity").sample(make(3), 4, 2).shape == (2, 4)


MODEL = constructions.ones_transformer()
EVEN = languages.parity_automaton()
SOURCE = jm.get_source("parity", 0.5)
TRAINING = jm.Training(3, 1)
# By what the message names: calls of which one argument is given.
CALLS = {
    "alphabet": lambda x: logic.read_alphabet(x),
    "formula = .*expected one": lambda x: logic.format_formula(x),
    "formula = .*expected its text": lambda x: logic.parse_formula(x),
    "model": lambda x: logic.truth_values(x, [0, 1]),
    "formula": lambda x: jm.compile_formula(x, "ab", "T"),
    "progress = .*a function": lambda x: arguments.expect_hook("progress", x),
    "num_devices": lambda x: jm.device_mesh(x),
    "num_hops": lambda x: logic.hops("ab", "a", x),
    "program": lambda x: jm.compile_program(x, "ab"),
    "max_length": lambda x: constructions.average_parity_transformer(max_length=x),
    "mesh": lambda x: jm.apply(MODEL, [0, 1], mesh=x),
    "model file": lambda x: jm.save(MODEL, x),
    "query": lambda x: jm.accepts(MODEL, [0, 1, 1], query=x),
    "text file": lambda x: jm.read_text(x),
    "preset": lambda x: jm.build_preset(x),
    "language = ": lambda x: jm.get_language(x),
    "sharpness c": lambda x: constructions.parity_transformer(c=x),
    "score c": lambda x: constructions.first_transformer(c=x),
    "sharpness B": lambda x: constructions.rnn_parity(0.5, x),
    "end probability p": lambda x: constructions.rnn_parity(x, 1.0),
    "epsilon": lambda x: constructions.normalised_parity_transformer(epsilon=x),
    "margin": lambda x: constructions.largest_epsilon("first", 4, x),
    "length n": lambda x: constructions.measure_published("parity", x),
    "num_heads": lambda x: constructions.hard_parity_transformer(num_heads=x),
    "num_layers": lambda x: constructions.hard_parity_transformer(num_layers=x),
    "num_types": lambda x: languages.DyckWords(x),
    "num_symbols": lambda x: languages.UniformStrings(x),
    "depth": lambda x: languages.BoundedDyckSource(depth=x),
    "least": lambda x: languages.threshold_automaton(x),
    "word": lambda x: languages.word_automaton(x),
    "transitions": lambda x: languages.Automaton(x, frozenset()),
    "accepting": lambda x: languages.Automaton(((0,),), x),
    "start": lambda x: languages.Automaton(((0,),), frozenset(), x),
    "(probabilities|rows of)": lambda x: languages.AutomatonSource(((0,),), x, (0.5,)),
    "batch_size": lambda x: jm.Training(3, 1, batch_size=x),
    "learning_rate": lambda x: jm.Training(3, 1, learning_rate=x),
    "growth": lambda x: jm.Training(3, 1, growth=x),
    "source": lambda x: jm.train(MODEL, x, TRAINING, jax.random.key(0)),
    "training": lambda x: jm.train(MODEL, SOURCE, x, jax.random.key(0)),
    "automaton": lambda x: most_free_forced(x, [-1, 0]),
    "symbols": lambda x: most_free_forced(EVEN, [-1, 0], symbols=x),
    "language": lambda x: reachable_classes(x, [-1, 0]),
}
# None of them is a value of these arguments.
WRONG = [-0.5, 1j, {}, object(), np.zeros((2, 2)), jax.random.key(0), [[0, 1], [2]]]
# But nothing is a sequence of no states or symbols, and c may be any number.
GOOD = {"accepting": dict, "word": dict, "score c": float}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_value_is_named_on_one_line(name):
    for value in WRONG:
        if isinstance(value, GOOD.get(name, ())):
            continue
        with refused(rf"^{name}.{{0,290}}$"):
            CALLS[name](value)


@pytest.mark.parametrize("rows", [[[0, 1], [2]], object(), "01"])
def test_what_is_no_array_of_integers_is_none(rows):
    for call in (
        lambda: jm.apply(MODEL, rows),
        lambda: logic.evaluate_formula(logic.parse_formula("Q_a"), rows, "ab"),
        lambda: reachable_classes(EVEN, rows),
    ):
        with refused("."):
            call()


@pytest.mark.parametrize("query", [3, -4])
def test_a_position_beyond_the_string_is_not_the_last_one(query):
    assert jm.accepts(MODEL, [1, 1, 1], query=2) == jm.accepts(MODEL, [1, 1, 1])
    with refused(f"query = {query}; .* from -3 to 2"):
        jm.accepts(MODEL, [1, 1, 1], query=query)


@pytest.mark.parametrize(
    "call",
    [
        lambda n: languages.threshold_automaton(n),
        lambda n: languages.word_automaton([0], n),
        lambda n: logic.hops("ab", "a", n),
        lambda n: constructions.average_parity_transformer(max_length=n),
        lambda n: constructions.hard_parity_transformer(num_heads=n),
        lambda n: constructions.hard_parity_transformer(num_layers=n),
    ],
)
def test_what_cannot_fit_the_memory_is_refused_at_once(call, monkeypatch):
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 2**33)
    with refused("of memory, and there"):
        call(2**31 - 1)


@pytest.mark.parametrize("name", ["final_norm", "biases"])
@pytest.mark.parametrize("value", [np.zeros(2), None, "no"], ids=str)
def test_what_is_asked_for_or_not_is_true_or_false(name, value):
    with refused(f"{name} = .*; expected True or False"):
        small_model(**{name: value})


def test_values_of_other_kinds_are_taken():
    assert arguments.expect_hook("progress", None) is None
    assert arguments.expect_hook("progress", print) is None
    model = small_model(vocab_size=np.int64(2))
    assert model.vocab_size == 2
    assert expect_integer("n", np.array(3)) == 3
    assert expect_sequence("n", iter("ab"), "letters") == ["a", "b"]


FUNCTION = bounds.Callable(lambda _, x: x * 1.0, None, vocab_size=2, batched=True)
FORMULA = logic.parse_formula("Q_a")
SOFT = jm.with_weighting(MODEL, "softmax")
PROGRAM = rasp.check_program(*rasp.PROGRAMS["majority"])
# Whatever takes an input, by name.
ENTRANCES = {
    "apply": lambda x: jm.apply(MODEL, x),
    "apply_logits": lambda x: jm.apply_logits(MODEL, x),
    "accepts": lambda x: jm.accepts(MODEL, x),
    "compute_influence": lambda x: bounds.compute_influence(MODEL, x),
    "influence of a function": lambda x: bounds.compute_influence(FUNCTION, x),
    "scan": lambda x: bounds.scan(MODEL, x),
    "certify_influence": lambda x: bounds.certify_influence(SOFT, x),
    "simulate": lambda x: bounds.simulate(MODEL, x),
    "evaluate_formula": lambda x: logic.evaluate_formula(FORMULA, x, "ab"),
    "satisfies": lambda x: logic.satisfies(FORMULA, x, "ab"),
    "truth_values": lambda x: logic.truth_values(
        jm.compile_formula(FORMULA, "ab", "T"), x
    ),
    "self_test": lambda x: apply_eagerly(MODEL, x),
    "padding alone": lambda x: jm.Padding(0).leave(np.zeros(3, int)),
    "evaluate_program": lambda x: rasp.evaluate_program(PROGRAM, x),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    "empty", [[], [[]], np.zeros((3, 0), int)], ids=["0", "1", "3"]
)
def test_the_empty_word_is_called_so_wherever_it_enters(entrance, empty):
    with refused(r"the empty word \(n = 0\)"):
        ENTRANCES[entrance](empty)
