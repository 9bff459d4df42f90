"""Layouts in which checkpoints are published are one model, in every family."""

import functools
import json

import pytest

import jax_models as jm
from jax_models.format.pretrained import load
from tests.bounds.influence.expect import refused
from tests.jax_models.format.pretrained.folders import (
    INDEX,
    WEIGHTS,
    assert_says,
    copied,
    refusal,
    sharded,
    weights_of,
)
from tests.jax_models.format.pretrained.layouts import (
    CONTACTS,
    DECODERS,
    ENCODERS,
    LAYOUTS,
    NAMES,
    Checkpoint,
    decoder_alone,
    put_before,
    tied,
)


def read(one, place, finish=None):
    place.mkdir()
    folder = one.write(place)
    if finish is not None:
        finish(folder)
    model, skipped = load.read_folder(folder, head=one.head)
    return jm.model_bytes(model), skipped


plain_tensors = functools.cache(weights_of)


def pairs(cases, of_every):
    """Every case with an encoder and a decoder in turn, some with every family."""
    found = []
    for at, case in enumerate(cases):
        two = ENCODERS[at % len(ENCODERS)], DECODERS[at % len(DECODERS)]
        found += [(case, name) for name in (NAMES if case in of_every else two)]
    return found


# What goes by names that each family has of its own.
BY_NAMES = {"no prefix", "model. for the prefix", "gamma", "left behind", "other heads"}
BY_NAMES |= {"decoder alone", "embedding alone", "a compiled layer"}


@pytest.mark.parametrize(("layout", "name"), pairs(LAYOUTS, BY_NAMES))
def test_a_layout_is_the_model_of_the_plain_checkpoint(layout, name, tmp_path):
    kind = LAYOUTS[layout]
    plain, changed = (Checkpoint(name, dict(plain_tensors(name))) for _ in range(2))
    if kind.plain is not None:
        kind.plain(plain)
    left = kind.change(changed)
    expected, _ = read(plain, tmp_path / "plain")
    found, skipped = read(changed, tmp_path / "changed", kind.finish)
    assert found == expected
    if left is not None:
        contacts = {x for x in changed.tensors if x.endswith(CONTACTS)}
        assert set(left) <= set(skipped) <= {*left, *contacts}


def untied(change):
    def untie(one):
        change(one)
        one.said["tie_word_embeddings"] = False

    return untie


def adding(name, head=None):
    """What puts a tensor beside the others, of a checkpoint read with a head."""

    def change(one):
        one.head = head
        one.add(name.format(one.prefix))

    return change


def of_architectures(listed):
    return lambda one: one.said.update(architectures=listed)


ADAPTER = ("adapter", "merge_and_unload")
UNTIED = ("tie_word_embeddings", "is false")
# What is done to a checkpoint, and what the error says of it.
REFUSED = {
    "not merged": (put_before("base_model.model."), ("base_model.model.", *ADAPTER)),
    "an adapter within": (adding("{}x.lora_A.weight"), ("lora_A", *ADAPTER)),
    "untied without embedding": (
        untied(decoder_alone),
        (*UNTIED, "alone, no embedding '{table}'"),
    ),
    "untied without decoder": (
        untied(tied),
        (*UNTIED, "embedding alone, no tensor '{decoder}'"),
    ),
    "an unknown head": (adding("my_head.0.bias"), ("'my_head.0.bias'", "--head=none")),
    "an unknown part": (adding("{}my_own.weight", "none"), ("my_own", "does not have")),
    "no architectures": (
        of_architectures(...),
        ("architectures", "give --head (head=): one of none, {head}"),
    ),
    "another architecture": (
        of_architectures(["MyForQuestionAnswering"]),
        ("MyForQuestionAnswering", "give --head=none (head=)"),
    ),
}
NAMED = {"untied without embedding", "untied without decoder", "no architectures"}


@pytest.mark.parametrize(("case", "name"), pairs(REFUSED, NAMED))
def test_a_layout_that_is_no_model_is_named(case, name, tmp_path):
    change, parts = REFUSED[case]
    one = Checkpoint(name, dict(plain_tensors(name)))
    change(one)
    line = refusal(lambda: read(one, tmp_path / "changed"))
    head = "causal_lm" if name in DECODERS else "masked_lm"
    names = {"table": one.table, "decoder": one.decoder, "head": head}
    assert_says(line, *(part.format(**names) for part in parts))


@pytest.mark.parametrize("name", DECODERS)
def test_a_bias_of_logits_that_have_none_is_named_where_they_are_read(name, tmp_path):
    one = Checkpoint(name, dict(plain_tensors(name)))
    one.add("lm_head.bias")
    with refused(r"'lm_head\.bias'"):
        read(one, tmp_path / "logits")
    one.head = "none"
    assert "lm_head.bias" in read(one, tmp_path / "rows")[1]


def forget_index(folder):
    sharded(
        folder, ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    )
    (folder / INDEX).unlink()


def keep_adapter(folder):
    (folder / WEIGHTS).rename(folder / "adapter_model.safetensors")


def keep_adapter_alone(folder):
    keep_adapter(folder)
    (folder / "config.json").rename(folder / "adapter_config.json")


def two_files(folder):
    (folder / "first.pt").write_bytes(b"")
    (folder / WEIGHTS).rename(folder / "second.pt")


FOLDERS = [
    (two_files, ("none of model.safetensors", "first.pt, second.pt; name the one")),
    (keep_adapter_alone, ("no config.json, but adapter_config.json, adap", "merge")),
    (keep_adapter, ("but adapter_model.safetensors, config", "adapter alone is no")),
    (forget_index, ("model-00002-of-00002.safetensors", "NAME.index.json; fetch it")),
]


@pytest.mark.parametrize(("change", "parts"), FOLDERS)
def test_a_folder_that_is_not_whole_is_listed(change, parts, tmp_path):
    folder = copied("gpt2", tmp_path)
    change(folder)
    assert_says(refusal(lambda: jm.from_pretrained(folder)), *parts)


def test_byte_pairs_without_a_tokenizer_are_listed(tmp_path):
    folder = copied("gpt2", tmp_path)
    (folder / "vocab.json").write_text(json.dumps({"a": 0}))
    (folder / "merges.txt").write_text("")
    line = refusal(lambda: jm.read_tokenizer(folder))
    assert_says(
        line, "but config.json, merges.txt, model", "vocab.json with merges.txt"
    )
    assert_says(line, "write tokenizer.json where transformers is")
