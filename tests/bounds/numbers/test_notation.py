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


def test_an_amount_of_memory_reads_back():
    for size in (1, 1000, 2**10, 2**31, 3 * 2**40):
        assert parse_bytes(bytes_label(size).removesuffix(" bytes")) == size


READ = [
    (parse_temperature, " 1e0 ", None),
    (parse_temperature, "1.0", None),
    (parse_bytes, "1", 1),
    (parse_bytes, "1e3", 1000),
    (parse_bytes, " 512MiB ", 2**29),
    (parse_bytes, "2.5 GiB", 5 * 2**29),
    (parse_bytes, "1TiB", 2**40),
    (parse_lengths, "16,20,100", (16, 20, 100)),
    (parse_lengths, "1", (1,)),
    (parse_lengths, "16:4096:9", tuple(2**k for k in range(4, 13))),
]


@pytest.mark.parametrize(("parse", "text", "value"), READ)
def test_a_text_is_read_as_what_it_says(parse, text, value):
    assert parse(text) == value


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


REFUSED = [
    (
        parse_temperature,
        "not a temperature",
        ["", "warm", "power:1:2:time", "inverse_log:x"],
    ),
    (parse_temperature, "positive", ["0", "inverse_log:0"]),
    (parse_temperature, "not finite", ["power:1:inf"]),
    (
        parse_bytes,
        "no amount of memory; expected bytes, or",
        ["", "MiB", "5MB", "0", "-1GiB", "nan", "inf", "1iB"],
    ),
    (parse_lengths, "outside 1", ["0", "-4", "0:16:3", "3000000000", "8:16:0"]),
    (parse_lengths, "8 follows 16", ["16,8"]),
    (parse_lengths, "16 follows 16", ["16,16"]),
    (parse_lengths, "before the start", ["16:8:3"]),
    (parse_lengths, "count of 1", ["8:16:1"]),
    (parse_lengths, "start:stop:count", ["8:16", "8:16:3:4"]),
    (parse_lengths, "not a whole number", ["", "8,", "8.5", "ten"]),
]


@pytest.mark.parametrize(("parse", "complaint", "texts"), REFUSED)
def test_other_texts_are_refused_with_a_reason(parse, complaint, texts):
    for text in texts:
        with pytest.raises(ValueError, match=complaint):
            parse(text)
