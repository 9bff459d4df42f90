"""Lengths as typed are lengths that increase."""

import numpy as np
import pytest
from absl import flags

from bounds.cli.main import COMMANDS
from bounds.cli.shared.values import (
    CountParser,
    LengthsParser,
    NumberParser,
    TupleSerializer,
)

parse = LengthsParser().parse


def test_a_list_is_taken_as_it_stands():
    assert parse("16,20,100") == (16, 20, 100)
    assert parse("1") == (1,)


def test_the_default_range_is_the_powers_of_two():
    assert parse("16:4096:9") == tuple(2**k for k in range(4, 13))


@pytest.mark.parametrize("text", ["1:100000:50", "10:1000:7", "3:4:9", "5:5:1"])
def test_a_range_has_both_ends_increases_and_is_even_in_the_logarithm(text):
    start, stop, count = map(int, text.split(":"))
    lengths = parse(text)
    assert (lengths[0], lengths[-1]) == (start, stop)
    assert all(np.diff(lengths) > 0)
    assert len(lengths) <= count
    exact = np.geomspace(start, stop, count)
    assert all(np.abs(exact - n).min() <= 0.5 + 1e-9 for n in lengths)
    assert all(np.abs(np.array(lengths) - x).min() <= 0.5 + 1e-9 for x in exact)


def test_lengths_are_written_as_they_are_read():
    lengths = parse("1:1000:10")
    assert parse(TupleSerializer().serialize(lengths)) == lengths


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0", "outside 1"),
        ("-4", "outside 1"),
        ("0:16:3", "outside 1"),
        ("3000000000", "outside 1"),
        ("16,8", "8 follows 16"),
        ("16,16", "16 follows 16"),
        ("16:8:3", "before the start"),
        ("8:16:1", "count of 1"),
        ("8:16:0", "outside 1"),
        ("8:16", "start:stop:count"),
        ("8:16:3:4", "start:stop:count"),
        ("", "not a whole number"),
        ("8,", "not a whole number"),
        ("8.5", "not a whole number"),
        ("ten", "not a whole number"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(text)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.name)
def test_every_count_declares_its_range_and_every_number_is_of_ascii_digits(command):
    options = command.define_flags()
    for name in options:
        parser = options[name].parser
        if isinstance(parser, flags.IntegerParser):
            assert isinstance(parser, CountParser), name
            assert None not in (parser.lower_bound, parser.upper_bound), name
        if isinstance(parser, flags.FloatParser):
            assert isinstance(parser, NumberParser), name


@pytest.mark.parametrize("text", ["1_6", "١٦"])
@pytest.mark.parametrize(
    "parser", [CountParser(1, 99), NumberParser(), LengthsParser()]
)
def test_digits_of_other_scripts_and_underscores_are_no_numbers(parser, text):
    with pytest.raises(ValueError, match="number"):
        parser.parse(text)
    assert parser.parse("16") in (16, (16,))
