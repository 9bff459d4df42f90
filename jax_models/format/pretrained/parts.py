"""A source of tensors, and the configuration and tensors that a family makes of them.

Each tensor is taken by name, so that those left over are known. docs/model-format.md says
what the words of `Parts` mean; `build_model` checks them.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from jax_models.arguments import choose_name, choose_names, not_finite_at, show
from jax_models.errors import InputError

# Float types by their names in a file, and what they become.
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float32, "BF16": np.float32}
KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def kind_of(array: np.ndarray) -> str:
    """Returns an array's type by its name in a file."""
    return KINDS.get(str(array.dtype), str(array.dtype))


class Source(abc.ABC):
    """A configuration and tensors: a folder's, or arrays that are held."""

    config: dict[str, Any]
    left: set[str]  # names of tensors that were not taken
    called: str  # what messages call it
    # Ends of messages: what a shape was read from, of a tensor that is missing, and of
    # tensors that nothing was made of.
    shapes: ClassVar[str]
    missing: ClassVar[str]
    unknown: ClassVar[str]

    @abc.abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abc.abstractmethod
    def where(self, key: str) -> str:
        """The name of a configuration key in messages."""

    @abc.abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor that is there."""

    @abc.abstractmethod
    def kind(self, name: str) -> str:
        """Returns the type of a tensor that is there, by its name in a file."""

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Returns a tensor that is there, in memory that nobody changes later."""

    @property
    @abc.abstractmethod
    def kinds(self) -> set[str]:
        """The types of all tensors, by their names in a file."""

    def get(self, key: str, default: Any = None) -> Any:
        """The configuration's value, or the default where it has none."""
        found = self.config.get(key)
        return default if found is None else found

    def number(self, key: str, default: Any = None) -> int:
        """Returns a whole number of the configuration that is at least 1."""
        found = self.get(key, default)
        if type(found) is not int or found < 1:
            raise InputError(
                f"{self.where(key)} is {show(found)}; expected a whole number that is at "
                "least 1"
            )
        return found

    def flag(self, key: str, default: bool) -> bool:
        """Returns true or false of the configuration."""
        found = self.get(key, default)
        if type(found) is not bool:
            raise InputError(
                f"{self.where(key)} is {show(found)}; expected true or false"
            )
        return found

    def rows(self, name: str) -> int:
        """Number of rows of a tensor, 1 where it is missing."""
        shape = self.shape(name) if name in self else ()
        return shape[0] if shape else 1

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a tensor of a shape, half precision as float32."""
        if name not in self:
            raise InputError(
                f"{self.called} has no tensor {name!r}; expected shape {shape}, as "
                f"{self.shapes}; {self.missing}"
            )
        found, kind = self.shape(name), self.kind(name)
        if found != shape:
            raise InputError(
                f"tensor {name!r} of {self.called} has shape {found}; expected {shape}, "
                f"as {self.shapes}; one of the two is another model's"
            )
        if kind not in FLOATS:
            raise InputError(
                f"tensor {name!r} of {self.called} has type {kind}; expected one of "
                f"{', '.join(FLOATS)}; a quantised checkpoint has to be turned back first"
            )
        self.left.discard(name)
        tensor = self.read(name).astype(FLOATS[kind], copy=False)
        if (at := not_finite_at(tensor)) is not None:
            raise InputError(
                f"tensor {name!r} of {self.called} has the value {tensor[at]} at {at}; "
                "every parameter must be finite"
            )
        return tensor

    def same(self, *names: str) -> str:
        """Returns the first of a tensor's names that is stored; all that are, agree."""
        stored = [name for name in names if name in self] or [names[0]]
        for other in stored[1:]:
            shape = self.shape(other)
            if not np.array_equal(
                self.take(stored[0], *shape), self.take(other, *shape)
            ):
                raise InputError(
                    f"tensors {stored[0]!r} and {other!r} of {self.called} differ; they "
                    "are two names of one, leave one of them out"
                )
        return stored[0]


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
