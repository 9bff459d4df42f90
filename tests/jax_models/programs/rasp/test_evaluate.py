"""The evaluator against plain Python, and the library's programs against checkers."""

import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.languages.dyck import DyckPrefixes
from jax_models.programs.rasp import (
    PROGRAMS,
    check_program,
    dyck_program,
    evaluate_program,
    k_hop_program,
)
from tests.jax_models.programs.definitions import expected, hop_outputs
from tests.jax_models.programs.rasp import naive
from tests.jax_models.programs.rasp.cases import all_strings
from tests.jax_models.programs.rasp.random_programs import ALPHABET, random_program


def disagreements(program, strings):
    """How many strings the evaluator and plain Python read differently."""
    ours = evaluate_program(program, strings).tolist()
    return sum(
        one != naive.run(program, string)
        for one, string in zip(ours, strings, strict=True)
    )


@pytest.mark.parametrize("seed", range(0, 100, 4))
def test_random_programs_mean_what_plain_python_says(seed):
    program = check_program(random_program(seed, 3 + seed % 3), ALPHABET)
    for length in (1, 2, 4):
        assert not disagreements(program, all_strings(ALPHABET, length))


def test_plain_python_catches_a_lookup_of_the_wrong_side_mask_or_default():
    text = "x = right_j[j<i, in(j) = 'a'] pos(j) : 0\nreturn x"
    strings = all_strings(ALPHABET, 4)
    wanted = [naive.run(check_program(text, ALPHABET), one) for one in strings]
    for old, new in (("right", "left"), ("j<i", "j<=i"), (": 0", ": 1")):
        planted = check_program(text.replace(old, new), ALPHABET)
        assert evaluate_program(planted, strings).tolist() != wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_library_computes_its_task(name):
    text, alphabet = PROGRAMS[name]
    longest = {2: 8, 3: 6, 4: 6, 5: 5, 6: 4}[len(alphabet)]
    program = check_program(text, alphabet)
    strings = all_strings(alphabet, longest)
    answers = evaluate_program(program, strings)
    # Each position answers for the prefix that ends there.
    np.testing.assert_array_equal(answers, expected(name, alphabet, strings))
    assert len(np.unique(answers)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("num_types", [2, 3])
def test_the_dyck_programs_are_right_on_long_random_strings(num_types):
    """Prefixes of words, half of them with one symbol replaced, of length 60."""
    import jax

    alphabet = PROGRAMS[f"dyck{num_types}"][1]
    draw = np.random.default_rng(num_types)
    strings = np.array(
        DyckPrefixes(num_types).sample(jax.random.key(num_types), 60, 500)
    )
    broken = np.arange(0, 500, 2)
    strings[broken, draw.integers(0, 60, 250)] = draw.integers(0, 2 * num_types, 250)
    program = check_program(dyck_program(num_types), alphabet)
    answers = evaluate_program(program, strings)
    np.testing.assert_array_equal(
        answers, expected(f"dyck{num_types}", alphabet, strings)
    )
    assert answers.any()


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_k_hop_follows_the_chain(hops):
    program = check_program(k_hop_program(hops), "abc")
    draw = np.random.default_rng(hops)
    for length in (1, 7, 40):
        strings = draw.integers(0, 3, (4, length))
        wanted = np.array([*"abc#"])[hop_outputs(strings, hops)]
        np.testing.assert_array_equal(evaluate_program(program, strings), wanted)


@pytest.mark.parametrize(
    ("tokens", "says"),
    [([0, 2], "the alphabet has the ids 0 to 1"), ([], "n >= 1"), ([0.5], "integers")],
)
def test_tokens_that_are_none_of_the_alphabet_are_refused(tokens, says):
    program = check_program("return in", ALPHABET)
    with pytest.raises(InputError, match=says):
        evaluate_program(program, tokens)


def test_an_integer_beyond_64_bits_is_refused_where_it_may_occur():
    program = check_program("x = 461168601842738790 * pos\nreturn x", ALPHABET)
    assert evaluate_program(program, [0] * 10)[-1] == 4611686018427387900
    with pytest.raises(InputError, match="line 1, column 5: at n = 11"):
        evaluate_program(program, [0] * 11)


def test_numbers_of_types_and_hops_are_checked():
    with pytest.raises(InputError, match="got 5"):
        dyck_program(5)
    with pytest.raises(InputError, match="got 0"):
        k_hop_program(0)
