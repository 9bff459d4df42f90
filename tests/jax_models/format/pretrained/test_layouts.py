"""Layouts in which checkpoints are published are one model, in every family.

Each layout is made by renaming the tensors of a small checkpoint; what is read is byte by
byte the model of the checkpoint as it is, and the tensors that nothing reads are listed.
"""

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
from tests.jax_models.format.pretrained.folders import (
    INDEX,
    WEIGHTS,
    copied,
    sharded,
    weights_of,
)
from tests.jax_models.format.pretrained.torch_layout import save_torch

WORDS = "embeddings.word_embeddings.weight"
INV_FREQ = "layers.0.self_attn.rotary_emb.inv_freq"
CONTACTS = ("contact_head.regression.weight", "contact_head.regression.bias")
# The prefix of the base model, its embedding, the decoder, what its writers left behind.
NAMES = {
    "bert": ("bert.", WORDS, "cls.predictions.decoder.weight", ()),
    "roberta": ("roberta.", WORDS, "lm_head.decoder.weight", ()),
    "electra": ("electra.", WORDS, "generator_lm_head.weight", ()),
    "distilbert": ("distilbert.", WORDS, "vocab_projector.weight", ()),
    "albert": ("albert.", WORDS, "predictions.decoder.weight", ()),
    "esm": (
        "esm.",
        WORDS,
        "lm_head.decoder.weight",
        ("embeddings.position_embeddings.weight", *CONTACTS),
    ),
    "gpt2": (
        "transformer.",
        "wte.weight",
        "lm_head.weight",
        ("h.0.attn.bias", "h.2.attn.masked_bias"),
    ),
    **dict.fromkeys(
        ("llama", "mistral", "qwen2"),
        ("model.", "embed_tokens.weight", "lm_head.weight", (INV_FREQ,)),
    ),
}
ENCODERS = ("bert", "roberta", "electra", "distilbert", "albert", "esm")
DECODERS = ("gpt2", "llama", "mistral", "qwen2")


@dataclasses.dataclass
class Checkpoint:
    """A checkpoint on its way into another layout."""

    name: str
    tensors: dict
    said: dict = dataclasses.field(default_factory=dict)
    head: str | None = None

    def __post_init__(self):
        self.prefix, self.embedding, self.decoder, self.left = NAMES[self.name]

    @property
    def table(self):
        return self.prefix + self.embedding

    def name_all(self, rename):
        self.tensors = {rename(name): x for name, x in self.tensors.items()}

    def add(self, *names):
        self.tensors |= {name: np.ones((3, 2), np.float32) for name in names}
        return sorted(names)

    def write(self, place):
        return copied(self.name, place, self.tensors, **self.said)


def put_before(wrapper):
    def change(one):
        one.name_all(lambda name: wrapper + name)

    return change


def without_prefix(one):
    one.name_all(lambda name: name.removeprefix(one.prefix))


def under_model(one):
    """The base model alone is called `model`, heads are not."""
    one.name_all(lambda name: re.sub(rf"^{re.escape(one.prefix)}", "model.", name))


def compiled_in_part(one):
    one.name_all(lambda name: name.replace(".0.", ".0._orig_mod."))


def gamma(one):
    def rename(name):
        if "norm" not in name.lower() and "ln_" not in name:
            return name
        return name.replace(".weight", ".gamma").replace(".bias", ".beta")

    one.name_all(rename)


def left_behind(one):
    names = [one.prefix + name for name in one.left]
    if one.name in ENCODERS:
        names += [f"{one.prefix}embeddings.{x}" for x in ("position_ids",)]
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


def other_heads_without_prefix(one):
    found = other_heads(one)
    without_prefix(one)
    return found


def other_heads_beside_the_own(one):
    return one.add("multiple_choice_head.summary.weight", "v_head.summary.weight")


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
    for name in (
        "optimizer.pt",
        "scheduler.pt",
        "rng_state_0.pth",
        "training_args.bin",
    ):
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
    "bin of module.": Layout(put_before("module."), finish=to_torch),
    "_orig_mod.": Layout(put_before("_orig_mod.")),
    "module.": Layout(put_before("module.")),
    "model.": Layout(put_before("model.")),
    "transformer.": Layout(put_before("transformer.")),
    "module._orig_mod.": Layout(put_before("module._orig_mod.")),
    "a compiled layer": Layout(compiled_in_part),
    "no prefix": Layout(without_prefix),
    "model. for the prefix": Layout(under_model),
    "gamma": Layout(gamma),
    "left behind": Layout(left_behind),
    "decoder alone": Layout(decoder_alone, tied),
    "embedding alone": Layout(tied, tied),
    "embedding twice": Layout(embedding_twice, tied),
    "other heads": Layout(other_heads, body_alone),
    "other heads, no prefix": Layout(other_heads_without_prefix, body_alone),
    "another head beside": Layout(other_heads_beside_the_own),
    "no architectures": Layout(no_architectures),
}


@pytest.fixture(autouse=True)
def compared_by_bytes(monkeypatch):
    """The plain pass is left out: models are compared byte by byte."""
    monkeypatch.setattr(load, "compare_spellings", lambda model: None)


def read(one, place, finish=None):
    place.mkdir()
    folder = one.write(place)
    if finish is not None:
        finish(folder)
    model, skipped = load.read_folder(folder, head=one.head)
    return jm.model_bytes(model), skipped


@functools.cache
def plain_tensors(name):
    return weights_of(name)


def test_every_family_is_in_the_table():
    kinds = {"xlm-roberta": "roberta", "camembert": "roberta"}
    assert {kinds.get(name, name) for name in FAMILIES} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
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


def not_merged(one):
    put_before("base_model.model.")(one)


def with_adapter(one):
    one.add(f"{one.prefix}x.lora_A.default.weight")


def untied_without_embedding(one):
    decoder_alone(one)
    one.said["tie_word_embeddings"] = False


def untied_without_decoder(one):
    tied(one)
    one.said["tie_word_embeddings"] = False


def unknown_head(one):
    one.add("my_head.0.bias")


def unknown_body(one):
    one.head = "none"
    one.add(f"{one.prefix}layers_of_my_own.weight")


def two_bodies(one):
    one.head = "none"
    one.add(f"other.{one.embedding}")


def unnamed_head(one):
    one.said["architectures"] = ...


def unread_head(one):
    one.said["architectures"] = ["MyForQuestionAnswering"]


# What is done to a checkpoint, and what the error says of it.
REFUSED = {
    "not merged": (not_merged, ("base_model.model.", "adapter", "merge_and_unload")),
    "an adapter within": (with_adapter, ("lora_A", "adapter", "merge_and_unload")),
    "untied without embedding": (
        untied_without_embedding,
        ("tie_word_embeddings", "is false", "alone, no embedding '{table}'"),
    ),
    "untied without decoder": (
        untied_without_decoder,
        ("tie_word_embeddings", "is false", "embedding alone, no tensor '{decoder}'"),
    ),
    "an unknown head": (unknown_head, ("'my_head.0.bias'", "--head=none")),
    "an unknown part": (unknown_body, ("layers_of_my_own", "does not have")),
    "two bodies": (two_bodies, ("other.", "does not have")),
    "no architectures": (
        unnamed_head,
        ("architectures", "give --head (head=): one of none, {head}"),
    ),
    "another architecture": (
        unread_head,
        ("MyForQuestionAnswering", "give --head=none (head=)"),
    ),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", REFUSED)
def test_a_layout_that_is_no_model_is_named(case, name, tmp_path):
    change, parts = REFUSED[case]
    one = Checkpoint(name, dict(plain_tensors(name)))
    change(one)
    with pytest.raises(jm.InputError) as caught:
        read(one, tmp_path / "changed")
    (line,) = str(caught.value).splitlines()
    head = "causal_lm" if name in DECODERS else "masked_lm"
    for part in parts:
        said = part.format(table=one.table, decoder=one.decoder, head=head)
        assert said in line, line


def forget_index(folder):
    sharded(
        folder,
        ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    )
    (folder / INDEX).unlink()


def keep_adapter(folder):
    (folder / WEIGHTS).rename(folder / "adapter_model.safetensors")
    (folder / "config.json").rename(folder / "adapter_config.json")


def two_files(folder):
    for name in ("first.pt", "second.pt"):
        (folder / name).write_bytes((folder / WEIGHTS).read_bytes())
    (folder / WEIGHTS).unlink()


FOLDERS = {
    "two files of weights": (
        two_files,
        ("no model.safetensors", "first.pt, second.pt; name the one file"),
    ),
    "an adapter alone": (
        keep_adapter,
        ("no config.json, but adapter_config.json, adapter_model.safetensors", "merge"),
    ),
    "an adapter without weights": (
        lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.safetensors"),
        ("but adapter_model.safetensors, config.json", "adapter alone is no model"),
    ),
    "shards without an index": (
        forget_index,
        ("model-00002-of-00002.safetensors", "NAME.index.json; fetch it"),
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_is_not_whole_is_listed(case, tmp_path):
    change, parts = FOLDERS[case]
    folder = copied("gpt2", tmp_path)
    change(folder)
    with pytest.raises(jm.InputError) as caught:
        jm.from_pretrained(folder)
    (line,) = str(caught.value).splitlines()
    for part in parts:
        assert part in line, line


def test_byte_pairs_without_a_tokenizer_are_listed(tmp_path):
    folder = copied("gpt2", tmp_path)
    (folder / "vocab.json").write_text(json.dumps({"a": 0}))
    (folder / "merges.txt").write_text("")
    with pytest.raises(
        jm.InputError, match=r"but config\.json, merges\.txt, model"
    ) as said:
        jm.read_tokenizer(folder)
    assert "vocab.json with merges.txt" in str(said.value)
    assert "write tokenizer.json where transformers is" in str(said.value)
