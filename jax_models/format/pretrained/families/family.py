"""Declaration of a family of checkpoints, and the conversion of their bodies.

The body, or base model, is all of a checkpoint but its head, the map to logits; `parts`
collects tensors and config entries of this package's model format.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax_models.format.pretrained.parts import Parts, expect_default, read_activation

Put = Callable[[Parts, str], None]  # adds to parts, with the base model's prefix


def plain_layers(parts: Parts, source: str) -> list[dict[str, Any]]:
    """Adds tensors of layers 0, 1, 2, ...; returns an empty config entry for each."""
    count = parts.folder.number("num_hidden_layers")
    for k in range(count):
        parts.move_layer(k, f"{source}{k}.")
    return [{} for _ in range(count)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """Names of a family's tensors, without the base model's prefix, and config keys."""

    # The table that a decoder may be tied to; one row for each position.
    embedding: str = "embeddings.word_embeddings.weight"
    position: str = ""
    decoder: str = "lm_head.weight"  # the tensor that maps rows to logits of symbols
    heads: Mapping[str, Put]  # functions that add a head, by its name (`head=`)
    layers: str = (
        "layers."  # begin of the names of a layer's tensors, before its number
    )
    layer: Mapping[str, str]  # its maps and norms, see `Parts.names`
    norms: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # other norms, by their names in the format
    norm: str = "layer_norm"
    layer_norm: str = "pre"
    # Other keys of the configuration than BERT's, by these.
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    epsilon: float = 1e-12  # default
    activation: str = "gelu"  # default
    # Values that keys must have, if they are there, and why.
    only: Mapping[str, tuple[Any, str]] = dataclasses.field(default_factory=dict)
    narrow: bool = False  # whether embeddings may have another width than the model
    read_heads: Callable[[Parts, int], None] = Parts.read_heads
    # What the declaration cannot say, before other tensors than the embedding.
    prepare: Put = lambda parts, prefix: None
    # Adds the layers, whose tensors' names begin with its argument; their entries.
    put_layers: Callable[[Parts, str], list[dict[str, Any]]] = plain_layers
    tied: bool = True  # default: whether the decoder is the embedding
    others: tuple[str, ...] = ()  # first parts of other names of the base model
    # Names of stored tensors that are not needed; # stands for a number.
    left_behind: tuple[str, ...] = (
        "embeddings.position_ids",
        "embeddings.token_type_ids",
    )

    @property
    def body(self) -> tuple[str, ...]:
        """First dotted parts of the base model's tensor names, without its prefix."""
        # All of them: what is outside the base model is taken for a head.
        tables = self.embedding, self.position, self.layers, *self.norms.values()
        firsts = (name.partition(".")[0] for name in tables if name)
        return (*dict.fromkeys(firsts), *self.others)

    def find_prefix(self, names: Iterable[str]) -> str:
        """Most frequent prefix of the base model's tensor names, as "bert."; may be empty."""
        parts = "|".join(map(re.escape, self.body))
        pattern = re.compile(rf"((?:\w+\.)*?)(?:{parts})\.")
        found = Counter(m[1] for m in map(pattern.match, names) if m)
        return max(found, key=lambda prefix: (found[prefix], prefix), default="")

    def put_body(self, parts: Parts, prefix: str) -> None:
        """Adds config and tensors of the base model, all but the head, to `parts`."""
        folder, parts.names = parts.folder, self.layer
        folder.keys = self.keys
        folder.defaults = {
            "layer_norm_eps": self.epsilon,
            "hidden_act": self.activation,
        }
        for key, (value, why) in self.only.items():
            expect_default(folder, key, [value], why)
        d, vocab_size = folder.number("hidden_size"), folder.number("vocab_size")
        parts.config |= {
            "norm": self.norm,
            "layer_norm": self.layer_norm,
            "layer_norm_epsilon": folder.get("layer_norm_eps"),
            "activation": read_activation(folder, "hidden_act"),
        }
        self.read_heads(parts, d)
        width = folder.number("embedding_size", 128) if self.narrow else d
        parts.move("embedding", f"{prefix}{self.embedding}", vocab_size, width)
        self.prepare(parts, prefix)
        parts.inner = folder.number("intermediate_size")
        if self.position:
            length = folder.number("max_position_embeddings")
            parts.move("position", f"{prefix}{self.position}", length, d)
        bias = "norm1" in parts.biases
        for name, source in self.norms.items():
            size = width if name == "entry.norm" else d
            parts.move_norm(name, f"{prefix}{source}", size, bias)
        entries = self.put_layers(parts, f"{prefix}{self.layers}")
        own = {"weighting": "softmax"}
        own |= {"mask": "future"} if "causal_lm" in self.heads else {}
        parts.config["layers"] = [x if "same_as" in x else own | x for x in entries]
