"""Layouts of published checkpoints, made of a small one by renaming its tensors."""

import dataclasses
import json
import re
from collections.abc import Callable

import numpy as np
from safetensors.numpy import load_file

from jax_models.format.pretrained.families import FAMILIES
from tests.jax_models.format.pretrained.folders import INDEX, copied, sharded
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
