"""Integers, numbers, files, alphabets and random keys: each has a range or a form."""

import os

import jax
import numpy as np
import pytest

import jax_models as jm
from jax_models import arguments
from jax_models.arguments import ascii_number, expect_integer, read_alphabet, read_file
from jax_models.constructions.rnn import init_elman
from jax_models.jax_arguments import expect_key
from jax_models.programs import logic
from jax_models.programs.rasp import check_program
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


def test_a_hook_is_a_function():
    arguments.expect_hook("progress", None)
    arguments.expect_hook("progress", print)
    with refused("progress = 3; expected a function"):
        arguments.expect_hook("progress", 3)


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
SETTINGS = jm.Training(length=4, steps=1, batch_size=1)
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
        jm.get_source("parity", 0.25),
        SETTINGS,
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
