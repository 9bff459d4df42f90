"""Flags become values once: what is asked, and where results go."""

import dataclasses

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.cli.main import COMMANDS
from bounds.cli.shared.groups import has_attention
from bounds.cli.shared.subject import (
    model_sha256,
    read_method,
    read_subject,
    weighted_model,
)
from bounds.curves.inputs import sampled_inputs
from bounds.curves.measurement import Question
from jax_models.constructions import PRESETS, build_preset

SHAPE = ["--num_layers=1", "--num_heads=1", "--d_model=4", "--d_ff=4"]


def parse(name, *given):
    command = COMMANDS[name]
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
    assert len(set(subject.config(6)["tokens_sha256"])) == 2


def read(*given):
    influence = COMMANDS["influence"]
    return read_method(influence.read(given))


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ([], "auto"),
        (["--method=partial"], "partial"),
        (["--method=screened"], bounds.Screened()),
        (["--method=screened", "--rtol=0.1", "--budget=0"], bounds.Screened(0.1, None)),
        (["--precision=bfloat16"], bounds.Incremental("bfloat16")),
        (["--propose=float32"], bounds.Proposed("float32")),
        (
            ["--propose=float16", "--method=partial"],
            bounds.Proposed("float16", "partial"),
        ),
    ],
    ids=str,
)
def test_flags_make_the_value(given, method):
    assert read(*given) == method


def test_hard_attention_is_known_without_the_weights(tmp_path):
    models = {f"--preset={name}": build_preset(name) for name in PRESETS}
    for word, of in (("hard", "leftmost_hard"), ("soft", "softmax")):
        model = weighted_model(parse("sensitivity", f"--weighting={of}"), max_length=4)
        jm.save(model, tmp_path / f"{word}.safetensors")
        models[f"--model={tmp_path}/{word}.safetensors"] = model
    assert {model.is_hard for model in models.values()} == {True, False}
    command = COMMANDS["sensitivity"]
    for given, model in models.items():
        asked = command.read([given])
        assert has_attention(asked, hard=True) == model.is_hard, given
        assert has_attention(asked, hard=False) != model.is_hard, given
        for name in ("softmax", "average_hard"):
            options = command.read([given, f"--weighting={name}"])
            assert has_attention(options, hard=True) == (name != "softmax")
            assert has_attention(options, hard=False) == (name == "softmax")


def test_defaults_are_those_of_the_methods():
    influence = COMMANDS["influence"]
    options = influence.read([])
    for method in (bounds.Screened(), bounds.Incremental()):
        for field in dataclasses.fields(method):
            assert getattr(options, field.name) == getattr(method, field.name)
