"""Layouts in which checkpoints are published are one model, in every family."""

import dataclasses
import functools
import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from jax_models.format.pretrained import load
from jax_models.format.pretrained.families import FAMILIES
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
from tests.jax_models.format.pretrained.torch_layout import save_torch

INV_FREQ = "layers.0.self_attn.rotary_emb.inv_freq"
CONTACTS = ("contact_head.regression.weight", "contact_head.regression.bias")
# Families, without those that are called otherwise alone.
NAMES = [name for name in FAMILIES if name not in ("xlm-roberta", "camembert")]
DECODERS = [name for name in NAMES if "causal_lm" in FAMILIES[name].heads]
ENCODERS = [name for name in NAMES if name not in DECODERS]
# What writers left behind in files of some families.
LEFT = {
    "esm": ("embeddings.position_embeddings.weight", *CONTACTS),
    "gpt2": ("h.0.attn.bias", "h.2.attn.masked_bias"),
    "gpt_neox": ("layers.0.attention.bias", "layers.1.attention.masked_bias"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), (INV_FREQ,)),
}


@dataclasses.dataclass
class Checkpoint:
    """A checkpoint on its way into another layout."""

    name: str
    tensors: dict
    said: dict = dataclasses.field(default_factory=dict)
    head: str | None = None

    def __post_init__(self):
        family = FAMILIES[self.name]
        self.decoder, self.left = family.decoder, LEFT.get(self.name, ())
        # The embedding, and the prefix of the base model that it has in the plain files.
        (self.table,) = (x for x in self.tensors if x.endswith(family.embedding))
        self.prefix = self.table.removesuffix(family.embedding)

    def name_all(self, rename):
        self.tensors = {rename(name): x for name, x in self.tensors.items()}

    def add(self, *names):
        self.tensors |= {name: np.ones((3, 2), np.float32) for name in names}
        return sorted(names)

    def write(self, place):
        return copied(self.name, place, self.tensors, **self.said)


def renamed(rename):
    """What renames all tensors by a function of the checkpoint and a name."""
    return lambda one: one.name_all(lambda name: rename(one, name))


def put_before(wrapper):
    return renamed(lambda one, name: wrapper + name)


def gamma(one, name):
    if "norm" not in name.lower() and "ln_" not in name:
        return name
    return name.replace(".weight", ".gamma").replace(".bias", ".beta")


def left_behind(one):
    names = [one.prefix + name for name in one.left]
    if one.name in ENCODERS:
        names.append(f"{one.prefix}embeddings.position_ids")
    return one.add(*names)


def tied(one):
    one.said["tie_word_embeddings"] = True
    one.tensors.pop(one.decoder, None)


def decoder_alone(one):
    tied(one)
    one.tensors[one.decoder] = one.tensors.pop(one.table)


def embedding_twice(one):
    tied(one)
    one.tensors[one.decoder] = one.tensors[one.table].copy()


def body_alone(one):
    one.head = "none"


def other_heads(one):
    body_alone(one)
    own = [x for x in one.tensors if not x.startswith(one.prefix)]
    more = ("qa_outputs.weight", "v_head.summary.weight", "my_head.0.bias")
    return sorted([*own, *one.add(*more)])


def no_architectures(one):
    one.head = "causal_lm" if one.name in DECODERS else "masked_lm"
    one.said["architectures"] = ...


def to_torch(folder):
    """The folder with its safetensors, and their index, as torch's files."""
    for path in sorted(folder.glob("*.safetensors")):
        save_torch(load_file(path), folder / f"pytorch_{path.stem}.bin")
        path.unlink()
    index = folder / INDEX
    if index.is_file():
        listed = json.loads(index.read_text())["weight_map"]
        renamed = {k: f"pytorch_{x.partition('.')[0]}.bin" for k, x in listed.items()}
        (folder / f"pytorch_{index.name}".replace("safetensors", "bin")).write_text(
            json.dumps({"weight_map": renamed})
        )
        index.unlink()


def to_torch_shards(folder):
    sharded(folder)
    to_torch(folder)


def to_pt(folder):
    """One file of weights, beside what a trainer writes."""
    to_torch(folder)
    (folder / "pytorch_model.bin").rename(folder / "checkpoint.pt")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth"):
        (folder / name).write_bytes(b"\x80\x02.")


@dataclasses.dataclass(frozen=True)
class Layout:
    """What changes a checkpoint, of which families, and what the plain one is."""

    change: Callable
    plain: Callable | None = None  # done to the checkpoint that it is compared with
    finish: Callable | None = None  # done to the folder


LAYOUTS = {
    "shards": Layout(lambda one: None, finish=sharded),
    "bin": Layout(lambda one: None, finish=to_torch),
    "shards of bin": Layout(lambda one: None, finish=to_torch_shards),
    "pt": Layout(lambda one: None, finish=to_pt),
    "module.": Layout(put_before("module.")),
    "module._orig_mod.": Layout(put_before("module._orig_mod.")),
    "a compiled layer": Layout(
        renamed(lambda one, name: name.replace(".0.", ".0._orig_mod."))
    ),
    "no prefix": Layout(renamed(lambda one, name: name.removeprefix(one.prefix))),
    # The base model alone is called so, heads are not.
    "model. for the prefix": Layout(
        renamed(lambda one, x: re.sub(rf"^{re.escape(one.prefix)}", "model.", x))
    ),
    "gamma": Layout(renamed(gamma)),
    "left behind": Layout(left_behind),
    "decoder alone": Layout(decoder_alone, tied),
    "embedding alone": Layout(tied, tied),
    "embedding twice": Layout(embedding_twice, tied),
    "other heads": Layout(other_heads, body_alone),
    "another head beside": Layout(lambda one: one.add("v_head.summary.weight")),
    "no architectures": Layout(no_architectures),
}


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
