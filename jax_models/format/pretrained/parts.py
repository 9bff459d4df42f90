"""A folder in this project's format: configuration and tensors, as a family makes them.

docs/model-format.md says what they mean; `build_model` checks them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax_models.arguments import choose_name, choose_names, show
from jax_models.errors import InputError
from jax_models.format.pretrained.source import Source

# Activations by their names in other libraries. Names whose formula is another one,
# however little (gelu_fast writes sqrt(2/pi) to ten digits), are not among them.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
QKV = ("query", "key", "value")


@dataclasses.dataclass
class Parts:
    """A model on its way from a folder, in the words of the format."""

    folder: Source
    dtype: Any
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    tensors: dict[str, Any] = dataclasses.field(default_factory=dict)
    head_width: int = 0  # of queries, keys and values
    turned: bool = False  # whether the folder has the maps of layers (in, out)
    biases: bool = True  # whether maps and norms of layers have some
    decoder: str = ""  # the folder's name for the map to symbols
    tied: bool = True  # whether that is the embedding
    second: np.ndarray | None = None  # the second token type's row less the first's

    def put(self, name: str, tensor: np.ndarray) -> None:
        """Holds a tensor under its name in the format, in the model's float type.

        Without another copy: a source's tensors are nobody else's.
        """
        tensor = np.ascontiguousarray(tensor, self.dtype)
        self.tensors[name] = jax.device_put(tensor, may_alias=True)

    @property
    def width(self) -> int:
        """d of the model whose embedding and entry are held."""
        projected = self.tensors.get("entry.projection")
        if projected is None:
            return self.tensors["embedding"].shape[1]
        return projected.shape[0]

    def move_readout(self, source: str, bias: bool = True) -> None:
        """Holds a map to classes, as many as the folder's tensor has rows."""
        classes = self.folder.rows(f"{source}.weight")
        self.move("readout.weight", f"{source}.weight", classes, self.width)
        if bias:
            self.move("readout.bias", f"{source}.bias", classes)

    def move(self, name: str, source: str, *shape: int) -> None:
        """Holds a tensor of the folder under its name in the format."""
        self.put(name, self.folder.take(source, *shape))

    def move_affine(self, name: str, source: str, out: int, width: int) -> None:
        """Holds the `weight` and `bias` of a map of a head."""
        self.move(f"{name}.weight", f"{source}.weight", out, width)
        self.move(f"{name}.bias", f"{source}.bias", out)

    def move_norm(self, name: str, source: str, width: int, bias: bool = True) -> None:
        """Holds a layer norm's scale and bias, zeros where it has none."""
        self.move(f"{name}.scale", f"{source}.weight", width)
        if bias:
            self.move(f"{name}.bias", f"{source}.bias", width)
        else:
            self.put(f"{name}.bias", np.zeros(width))

    def move_heads(
        self, layer: int, name: str, source: str, heads: int, d: int, bias: bool = True
    ) -> None:
        """Holds the query, key or value map of all heads [h e, d] by heads [h, e, d]."""
        to = f"layers.{layer}.attention.{name}"
        rows = heads * self.head_width
        weight = self.folder.take(f"{source}.weight", rows, d)
        self.put(to, weight.reshape(heads, -1, d))
        if bias:
            offset = self.folder.take(f"{source}.bias", rows)
            self.put(f"{to}_bias", offset.reshape(heads, -1))

    def move_layer(
        self,
        layer: int,
        # first part of the names of its tensors in the folder
        source: str,
        # name of each map and norm there, up to weight or bias; "fused" is query, key and
        # value in one, "by_head" with the three of a head side by side
        names: Mapping[str, str],
        heads: int,
        # width of the block
        inner: int,
    ) -> None:
        """Holds a layer: attention and two maps, with biases or all without, two norms."""
        d, to = self.width, f"layers.{layer}."
        one_map = {"fused", "by_head"} & names.keys()
        for kind in one_map:
            self.split_heads(layer, f"{source}{names[kind]}", heads, kind == "by_head")
        for name in () if one_map else QKV:
            self.move_heads(layer, name, f"{source}{names[name]}", heads, d)
        for name, weight, bias, shape in (
            ("output", "attention.output", "attention.output_bias", (d, d)),
            ("w1", "ffn.w1", "ffn.b1", (inner, d)),
            ("w2", "ffn.w2", "ffn.b2", (d, inner)),
        ):
            whence = f"{source}{names[name]}"
            self.put(f"{to}{weight}", self._take_map(f"{whence}.weight", *shape))
            if self.biases:
                self.move(f"{to}{bias}", f"{whence}.bias", shape[0])
        for name in ("norm1", "norm2"):
            self.move_norm(f"{to}{name}", f"{source}{names[name]}", d, self.biases)

    def _take_map(self, name: str, out: int, width: int) -> np.ndarray:
        if self.turned:
            return self.folder.take(name, width, out).T
        return self.folder.take(name, out, width)

    def split_heads(
        self, layer: int, source: str, heads: int, by_head: bool = False
    ) -> None:
        """Holds queries, keys and values that the folder has in one map, in this order.

        All heads' queries first, then keys, then values; or the three of each head.
        """
        d, to = self.width, f"layers.{layer}.attention."
        parts = {"": self._take_map(source.format("weight"), 3 * d, d)}
        if self.biases:
            parts["_bias"] = self.folder.take(source.format("bias"), 3 * d)
        for end, joined in parts.items():
            shape = (heads, 3, -1) if by_head else (3, heads, -1)
            split = joined.reshape(*shape, *joined.shape[1:])
            for at, name in enumerate(QKV):
                self.put(f"{to}{name}{end}", split[:, at] if by_head else split[at])


def read_activation(folder: Source, key: str, default: str | None = None) -> str:
    """Returns the format's word for an activation of the configuration."""
    found = folder.get(key, default)
    return ACTIVATIONS[choose_name(folder.where(key), found, tuple(ACTIVATIONS))]


def heads_of(folder: Source, d: int, key: str) -> tuple[int, int]:
    """The number of heads, and the width of one where they share d."""
    heads = folder.number(key)
    if d % heads:
        raise InputError(
            f"{folder.where(f'{key} = {heads}')} does not divide the width {d}"
        )
    return heads, d // heads


def read_layer_types(
    folder: Source, default: Sequence[str], known: Sequence[str]
) -> list[str]:
    """The type of each layer, as the configuration lists them."""
    where, types = folder.where("layer_types"), folder.get("layer_types", default)
    choose_names(where, types, tuple(known))
    if len(types) != len(default):
        raise InputError(f"{where} lists {len(types)} layers; expected {len(default)}")
    return list(types)


def expect_default(
    folder: Source,
    key: str,
    # values of the key; its absence is allowed
    allowed: Sequence[Any],
    # what is supported
    why: str,
) -> None:
    """Refuses a setting of the configuration that nothing here does."""
    found = folder.get(key)
    if found is not None and found not in allowed:
        raise InputError(
            f"{folder.where(f'{key} = {show(found)}')} is not supported; {why}"
        )


# Families whose padding is known where the configuration does not speak of it.
PADDING = {
    **dict.fromkeys(("bert", "electra", "albert", "distilbert"), 0),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), 1),
}


def padding_of(folder: Source) -> int | None:
    """Returns the symbol of padding; None where there is none."""
    default = PADDING.get(folder.config["model_type"])
    found = folder.config.get("pad_token_id", default)
    if found is not None and type(found) is not int:
        raise InputError(
            f"{folder.where('pad_token_id')} is {show(found)}; expected a symbol's number "
            "or null"
        )
    return found


def put_padding(parts: Parts) -> None:
    """Holds the padding, which rows do not see, and all other symbols as substitutable.

    A symbol that also ends or begins texts, as some decoders pad with, is seen.
    """
    folder, vocab_size = parts.folder, parts.tensors["embedding"].shape[0]
    padding = padding_of(folder)
    others = [symbol for symbol in range(vocab_size) if symbol != padding]
    parts.config["substitutable"] = others
    marks = []
    for key in ("bos_token_id", "eos_token_id"):
        found = folder.get(key)
        marks += found if isinstance(found, list) else [found]
    if len(others) < vocab_size and padding not in marks:
        parts.config["padding"] = padding
