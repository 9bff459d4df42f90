"""Flags become values once: what is asked, and where results go."""

import numpy as np
import pytest

import jax_models as jm
from bounds.cli.main import COMMANDS
from bounds.cli.shared.exports import Output
from bounds.cli.shared.model_source import model_sha256, weighted_model
from bounds.cli.shared.subject import read_subject
from bounds.curves.inputs import sampled_inputs
from bounds.curves.measurement import Question

SHAPE = ["--num_layers=1", "--num_heads=1", "--d_model=4", "--d_ff=4"]


def parse(name, *given):
    (command,) = (one for one in COMMANDS if one.name == name)
    return command.read([*SHAPE, *given])


def test_a_subject_is_what_the_flags_ask():
    given = ["--num_inputs=2", "--query=1", "--ties=warn", "--memory_limit=2MiB"]
    options = parse("curve", *given, "--seed=3", "--lengths=4,6")
    model = weighted_model(options, vocab_size=2, max_length=6)
    subject = read_subject(options, model, [4, 6])
    assert subject.question == Question(query=1, ties="warn", memory_limit=2**21)
    assert subject.model_sha256 == model_sha256(options, model)
    assert subject.named["weighting"] == "softmax"
    expected = sampled_inputs(model, "parity", 2, 3)
    assert list(subject.inputs) == [(4, 0), (4, 1), (6, 0), (6, 1)]
    for (n, index), tokens in subject.inputs.items():
        np.testing.assert_array_equal(tokens, expected.draw(n, index))
    assert len(set(subject.tokens_sha256(6))) == 2


def test_a_command_without_a_flag_asks_what_is_asked_elsewhere():
    options = parse("simulate", "--lengths=4")
    model = weighted_model(
        options, vocab_size=2, max_length=4, weighting="average_hard"
    )
    assert model.is_hard
    assert read_subject(options, model, [4]).question == Question()


def test_one_input_of_several_is_read_alone():
    options = parse("influence", "--input=2", "--length=5")
    model = weighted_model(options, vocab_size=2, max_length=5)
    assert list(read_subject(options, model, [5]).inputs) == [(5, 2)]
    options = parse("influence", "--input=2", "--length=5", "--query=5")
    with pytest.raises(jm.InputError, match="query = 5 is out of range"):
        read_subject(options, model, [5])


def test_an_output_says_what_it_was_asked(tmp_path):
    options = parse("curve", "--lengths=4", f"--out={tmp_path}", "--fresh", "--seed=7")
    output = Output.of("curve", options)
    assert output.fresh
    assert output.path("x.csv") == tmp_path / "x.csv"
    record = output.record()
    assert (record["command"], record["seed"]) == ("curve", 7)
    assert tuple(record["flags"]["lengths"]) == (4,)
    with output.open_store() as store:
        assert store.path.parent == tmp_path
