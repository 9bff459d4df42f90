"""What is written of temperatures and enclosures says what they are."""

from fractions import Fraction

import numpy as np
import pytest

from bounds.batch.specification import typed
from bounds.numbers.notation import (
    enclosure_label,
    legend_label,
    parse_bytes,
    parse_lengths,
    parse_temperature,
    temperature_label,
)
from jax_models.format.pieces import decode_temperature, encode_temperature
from jax_models.run.device_memory import bytes_label

CASES = {
    "1": None,
    "0.25": {"kind": "constant", "value": 0.25},
    str(0.1 + 0.2): {"kind": "constant", "value": 0.1 + 0.2},
    "inverse_log:1": {"kind": "inverse_log", "scale": 1.0},
    "power:2:-0.5": {"kind": "power", "scale": 2.0, "exponent": -0.5, "of": "length"},
    "power:1:1:position": {
        "kind": "power",
        "scale": 1.0,
        "exponent": 1.0,
        "of": "position",
    },
}


@pytest.mark.parametrize(("text", "entry"), CASES.items())
def test_a_temperature_is_read_as_the_model_format_writes_it(text, entry):
    assert parse_temperature(text) == entry
    assert encode_temperature(decode_temperature("", entry)) == entry
    assert temperature_label(entry) == text


@pytest.mark.parametrize("text", ["1.0", " 1e0 "])
def test_one_is_the_default_however_it_is_written(text):
    assert parse_temperature(text) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a temperature"),
        ("warm", "not a temperature"),
        ("power:1:2:time", "not a temperature"),
        ("inverse_log:x", "not a temperature"),
        ("0", "positive"),
        ("inverse_log:0", "positive"),
        ("power:1:inf", "not finite"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_temperature(text)


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("softmax", "softmax"),
        ("leftmost_hard", "leftmost hard"),
        ("softmax@0.5", "softmax, τ = 0.5"),
        ("softmax@inverse_log:2", "softmax, τ = 2 / ln n"),
        ("softmax@power:2:-0.5", "softmax, τ = 2 n^-0.5"),
        ("softmax@power:1:1:position", "softmax, τ = 1 p^1"),
    ],
)
def test_a_figure_writes_a_temperature_as_a_formula(label, written):
    assert legend_label(label) == written


@pytest.mark.parametrize(
    ("enclosure", "written"),
    [
        ((0.0, 0.0, 0.0), "0"),
        ((0.0, 0.0, 1.2e-14), "0 (below 1.2e-14)"),
        ((1.0e-15, 0.0, 1.5601e-14), "0 (below 1.6e-14)"),
        ((0.5, 0.25, 0.75), "0.5 +- 0.25"),
        ((12.0, 11.9, 12.1), "12 +- 0.1"),
        ((2.0, 2.0, 2.0), "2 +- 0"),
    ],
)
def test_an_enclosure_is_its_value_and_radius_or_zero(enclosure, written):
    assert enclosure_label(*enclosure) == written


def test_a_written_enclosure_holds_the_computed_one():
    rng = np.random.default_rng(0)
    for size in 10.0 ** rng.integers(-30, 30, 300):
        value = float(size * rng.random())
        below, above = value * 10.0 ** rng.integers(-17, 0, 2) * rng.random(2)
        lower, upper = float(value - below), float(value + above)
        text = enclosure_label(value, lower, upper)
        shown, radius = map(Fraction, text.split(" +- "))
        assert shown - radius <= Fraction(lower)
        assert shown + radius >= Fraction(upper)
        widest = max(value - lower, upper - value)
        # To two digits each, so that the text is hardly wider than the enclosure.
        assert radius <= Fraction(widest) * Fraction(6, 5) + Fraction(np.spacing(value))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1e3", 1000),
        (" 512MiB ", 2**29),
        ("2.5 GiB", 5 * 2**29),
        ("1TiB", 2**40),
    ],
)
def test_an_amount_of_memory_is_read(text, size):
    assert parse_bytes(text) == size


def test_an_amount_of_memory_reads_back():
    for size in (1, 1000, 2**10, 2**31, 3 * 2**40):
        assert parse_bytes(bytes_label(size).removesuffix(" bytes")) == size


@pytest.mark.parametrize("text", ["", "MiB", "5MB", "0", "-1GiB", "nan", "inf", "1iB"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ValueError, match="no amount of memory; expected bytes, or"):
        parse_bytes(text)


def test_a_list_is_taken_as_it_stands():
    assert parse_lengths("16,20,100") == (16, 20, 100)
    assert parse_lengths("1") == (1,)


def test_the_default_range_is_the_powers_of_two():
    assert parse_lengths("16:4096:9") == tuple(2**k for k in range(4, 13))


@pytest.mark.parametrize("text", ["1:100000:50", "10:1000:7", "3:4:9", "5:5:1"])
def test_a_range_has_both_ends_increases_and_is_even_in_the_logarithm(text):
    start, stop, count = map(int, text.split(":"))
    lengths = parse_lengths(text)
    assert (lengths[0], lengths[-1]) == (start, stop)
    assert all(np.diff(lengths) > 0)
    assert len(lengths) <= count
    exact = np.geomspace(start, stop, count)
    assert all(np.abs(exact - n).min() <= 0.5 + 1e-9 for n in lengths)
    assert all(np.abs(np.array(lengths) - x).min() <= 0.5 + 1e-9 for x in exact)


def test_lengths_are_written_as_they_are_read():
    lengths = parse_lengths("1:1000:10")
    assert parse_lengths(typed(lengths, "lengths")) == lengths


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
def test_other_lengths_are_refused_with_a_reason(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_lengths(text)
