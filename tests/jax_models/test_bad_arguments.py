"""What is no value for an argument is an InputError that names it, whatever it is."""

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.restriction import most_free_forced, reachable_classes
from jax_models import constructions, languages
from jax_models.arguments import expect_integer, expect_sequence
from jax_models.programs import logic, rasp
from jax_models.programs.logic.self_test import apply_eagerly
from jax_models.run import device_memory
from tests.architecture import small_model
from tests.bounds.influence.expect import refused

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
        with pytest.raises(jm.InputError, match=rf"^{name}") as caught:
            CALLS[name](value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("rows", [[[0, 1], [2]], object(), "01"])
def test_what_is_no_array_of_integers_is_none(rows):
    for call in (
        lambda: jm.apply(MODEL, rows),
        lambda: logic.evaluate_formula(logic.parse_formula("Q_a"), rows, "ab"),
        lambda: reachable_classes(EVEN, rows),
    ):
        with pytest.raises(jm.InputError):
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


def test_sizes_may_be_numpys():
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
