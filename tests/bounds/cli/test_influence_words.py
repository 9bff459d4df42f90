"""What `influence` says of a maximum that was proposed in a lower precision."""

import dataclasses
from collections import Counter

import pytest

from bounds.influence import METHODS
from bounds.influence.moved import read_blocks
from bounds.rounding import ranked
from tests.bounds.cli.outputs import read_csv, read_json


def widths():
    """The widths of the enclosures of all substitutions."""
    return [float(x["upper"]) - float(x["lower"]) for x in read_csv("influence")]


@pytest.fixture
def three_symbols(model_file):
    """Write a model over three symbols."""
    return model_file(vocab_size=3, mask="none")


def test_what_is_proposed_in_float32_has_the_same_maximum(run, three_symbols):
    flags = [f"--model={three_symbols}", "--length=9", "--method=incremental"]
    run("influence", *flags)
    plain = read_json("influence")
    result = run("influence", *flags, "--propose=float32")
    record = read_json("influence")
    assert (result.code, record["flags"]["propose"]) == (0, "float32")
    assert plain["decided"] is None
    assert f"({record['decided']} decided in float64 after float32)" in result.out
    for name in ("max", "position", "symbol", "kind"):
        assert record[name] == plain[name]
    assert sum(x > 1e-10 for x in widths()) == len(widths()) - record["decided"]


def planted(known, request, name):
    """Influences off by 0.1 %, in place of those in half precision, which compile."""
    found = read_blocks(request, METHODS["incremental"].blocks, 0)
    for block in found:
        known.add(dataclasses.replace(block, values=1.001 * block.values))


def test_what_is_ranked_in_half_precision_says_what_was_decided(
    run, three_symbols, monkeypatch
):
    monkeypatch.setattr(ranked, "_estimate", planted)
    flags = [f"--model={three_symbols}", "--length=30", "--method=incremental"]
    run("influence", *flags)
    plain = read_json("influence")
    result = run("influence", *flags, "--propose=bfloat16")
    record = read_json("influence")
    assert (result.code, record["kind"], record["exact"]) == (0, "estimated", False)
    for name in ("max", "position", "symbol"):
        assert record[name] == plain[name]
    error, decided = record["measured_error"], record["decided"]
    assert error["max"] == pytest.approx(0.001)
    assert record["uncertified"] == 58 - decided > 0
    assert len(record["hypotheses"]) == 2
    line = result.out.splitlines()[-2]
    assert f"largest influence of {decided} decided in float64 is " in line
    assert f"The {58 - decided} others are estimated in bfloat16, " in line
    assert f"measured on {error['entries']} changes" in line
    assert widths().count(0) == 58 - decided
    kinds = Counter(x["kind"] for x in read_csv("influence"))
    assert kinds == {"exact": decided, "estimated": 58 - decided}
    again = run("influence", *flags, "--propose=bfloat16")
    assert again.out.splitlines()[-2] == line
