"""Ranges of integers, digits of numbers, and files that are read: each has a limit."""

import os

import pytest

import jax_models as jm
from jax_models import arguments
from jax_models.arguments import ascii_number, expect_integer, read_file


def test_an_integer_has_32_bits_where_no_other_range_is_named():
    assert expect_integer("n", 2**31 - 1) == 2**31 - 1
    for value in (2**31, 10**23, -(2**40)):
        with pytest.raises(jm.InputError, match="expected an integer from -2147483648"):
            expect_integer("n", value)
    with pytest.raises(jm.InputError, match="from 1 to 2147483647"):
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
    with pytest.raises(jm.InputError, match=r"file .* has more than 7 bytes"):
        read_file("file", path, 7)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, found in (("pipe", "a pipe"), ("zero", "a device"), (".", "a folder")):
        with pytest.raises(jm.InputError, match=f"is {found}"):
            read_file("file", tmp_path / name, 8)


def test_a_hook_is_a_function():
    arguments.expect_hook("progress", None)
    arguments.expect_hook("progress", print)
    with pytest.raises(jm.InputError, match="progress = 3; expected a function"):
        arguments.expect_hook("progress", 3)
