"""Sources of checkpoints' tensors, and their conversion to this package's model format.

A `Source` gives a checkpoint's configuration and tensors; each tensor is taken by name, so
that unread ones are known. `Parts` collects the config and tensors of the model format,
which docs/model-format.md defines and `build_model` checks.
"""

import abc
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float, Shaped

from jax_models.arguments import (
    choose_name,
    choose_names,
    expect_integer,
    expect_kind,
    not_finite_at,
    show,
)
from jax_models.errors import InputError
from jax_models.model.attention import Attention
from jax_models.model.layer import FeedForward
from jax_models.model.pytree import array_fields

# Float types by their names in safetensors files, and the types that they are read as.
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float32, "BF16": np.float32}
KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def kind_of(array: Shaped[np.ndarray, "..."]) -> str:
    """Returns the name of an array's type in safetensors files ("F32")."""
    return KINDS.get(str(array.dtype), str(array.dtype))


class Source(abc.ABC):
    """A checkpoint's configuration and tensors: of a folder, or arrays in memory."""

    config: dict[str, Any]
    held: dict[str, Any]  # by the names of all tensors, where or what they are
    left: set[str]  # names of tensors that were not taken
    # A family's own names of keys, and its defaults by the common names, those of BERT.
    keys: Mapping[str, str] = MappingProxyType({})
    defaults: Mapping[str, Any] = MappingProxyType({})
    called: str  # name of the source in messages
    # Ends of messages: where an expected shape comes from; the remedy for a missing tensor,
    # and for tensors that were not read.
    shapes: ClassVar[str]
    missing: ClassVar[str]
    unknown: ClassVar[str]

    @abc.abstractmethod
    def where(self, key: str) -> str:
        """Name of a configuration key in messages, with its source."""

    @abc.abstractmethod
    def header(self, name: str) -> tuple[tuple[int, ...], str]:
        """Returns the shape of a tensor, and its type in safetensors' words ("F32")."""

    @abc.abstractmethod
    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """Returns a tensor of the source, in memory that nothing else writes to."""

    def __contains__(self, name: str) -> bool:
        return name in self.held

    def name(self, key: str) -> str:
        """The checkpoint's own name of the configuration key that BERT calls `key`."""
        return self.keys.get(key, key)

    def get(self, key: str, default: Any = None) -> Any:
        """Configuration value by BERT's name of its key; a default if missing or null."""
        found = self.config.get(self.name(key))
        return self.defaults.get(key, default) if found is None else found

    def number(self, key: str, default: Any = None) -> int:
        """Returns a configuration value that must be an integer >= 1."""
        where = self.where(self.name(key))
        return expect_integer(where, self.get(key, default), 1, math.inf)

    def flag(self, key: str, default: bool) -> bool:
        """Returns a configuration value that must be a boolean."""
        found = self.get(key, default)
        expect_kind(self.where(key), found, bool, "true or false")
        return found

    def rows(self, name: str) -> int:
        """Number of rows of a tensor; 1 if it is missing or a scalar."""
        shape = self.header(name)[0] if name in self else ()
        return shape[0] if shape else 1

    def take(self, name: str, *shape: int) -> Float[np.ndarray, "..."]:
        """Returns a tensor, its shape and entries checked; half precision as float32."""
        if name not in self:
            raise InputError(
                f"{self.called} has no tensor {name!r}; expected shape {shape}, as "
                f"{self.shapes}; {self.missing}"
            )
        found, kind = self.header(name)
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
        """First of `names` that is stored, else `names[0]`; refuses unequal stored copies."""
        stored = [name for name in names if name in self] or [names[0]]
        for other in stored[1:]:
            shape, _ = self.header(other)
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
# Weights and biases of a layer's maps in the format.
MAPS = {
    **{
        name: (f"attention.{name}", f"attention.{name}_bias")
        for name in (*QKV, "output")
    },
    "w1": ("ffn.w1", "ffn.b1"),
    "w2": ("ffn.w2", "ffn.b2"),
    "gate": ("ffn.gate", "ffn.gate_bias"),
}
# Several maps that are stored as one, one after another or ("by_head") for each head.
JOINED = {"fused": QKV, "by_head": QKV, "gated": ("gate", "w1")}


def name_projections(pattern: str) -> dict[str, str]:
    """Names of the query, key and value maps: "query" is {0} in `pattern`, "q" {1}."""
    return {name: pattern.format(name, name[0]) for name in QKV}


NORMS = {"norm1": "norm1", "norm2": "norm2"}
NORMS |= {name: f"attention.{name}" for name in ("query_norm", "key_norm")}
# Maps and norms of a layer that may have biases.
ALL = frozenset({*MAPS, *JOINED, "norm1", "norm2"})


@dataclasses.dataclass
class Parts:
    """Config and tensors of a model in the making; `move` adds one of the source `folder`."""

    folder: Source
    dtype: Any
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    tensors: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Names of each map and norm of a layer in the source, without weight or bias; of
    # `JOINED` for maps that are one.
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads: int = 0
    groups: int = 0  # of heads that share keys and values
    head_width: int = 0  # of queries, keys and values
    inner: int = 0  # width of the block
    turned: bool = False  # whether the source stores the maps of layers as (in, out)
    biases: Collection[str] = ALL  # the maps and norms of layers that have biases
    decoder: str = ""  # name in the source of the map to symbols, the decoder
    tied: bool = True  # whether the decoder is the embedding
    second: Float[np.ndarray, "width"] | None = (
        None  # the second token type's row less the first's
    )

    def put(self, name: str, tensor: Float[np.ndarray, "..."]) -> None:
        """Adds a tensor, not written to elsewhere, under its name in the format."""
        tensor = np.ascontiguousarray(tensor, self.dtype)
        self.tensors[name] = jax.device_put(tensor, may_alias=True)

    @property
    def width(self) -> int:
        """Model width d, from the embedding and entry, which must have been added."""
        projected = self.tensors.get("entry.projection")
        if projected is None:
            return self.tensors["embedding"].shape[1]
        return projected.shape[0]

    def move_readout(self, source: str, bias: bool = True) -> None:
        """Adds the source's map `source` as the read-out, with one class for each row."""
        classes = self.folder.rows(f"{source}.weight")
        self.move_affine("readout", source, classes, self.width, bias)

    def move(self, name: str, source: str, *shape: int) -> None:
        """Adds the checkpoint's tensor `source` under its name in the format, `name`."""
        self.put(name, self.folder.take(source, *shape))

    def move_affine(
        self, name: str, source: str, out: int, width: int, bias: bool = True
    ) -> None:
        """Adds the `weight` and, if `bias`, the `bias` of a head's affine map."""
        self.move(f"{name}.weight", f"{source}.weight", out, width)
        if bias:
            self.move(f"{name}.bias", f"{source}.bias", out)

    def move_norm(self, name: str, source: str, width: int, bias: bool = True) -> None:
        """Adds a norm's scale and, of a layer norm, bias; zeros if `bias` is false."""
        self.move(f"{name}.scale", f"{source}.weight", width)
        if self.config.get("norm") == "rms_norm":
            return
        if bias:
            self.move(f"{name}.bias", f"{source}.bias", width)
        else:
            self.put(f"{name}.bias", np.zeros(width))

    def read_heads(self, d: int) -> None:
        """Sets the number of attention heads, and their width to `d` over that number."""
        heads = self.heads = self.groups = self.folder.number("num_attention_heads")
        if d % heads:
            key = self.folder.name("num_attention_heads")
            raise InputError(
                f"{self.folder.where(f'{key} = {heads}')} does not divide the width {d}"
            )
        self.head_width = d // heads

    def move_layer(self, layer: int, source: str) -> None:
        """Adds a layer, whose tensors' names begin with `source`: maps, biases, norms."""
        for name, whence in self.names.items():
            bias, whence = name in self.biases, f"{source}{whence}"
            if name in NORMS:
                width = self.width if name in ("norm1", "norm2") else self.head_width
                self.move_norm(f"layers.{layer}.{NORMS[name]}", whence, width, bias)
                continue
            whence = whence if "{}" in whence else f"{whence}.{{}}"
            joined = JOINED.get(name, (name,))
            shapes = [self._shape(part) for part in joined]
            rows = [math.prod(shape[:-1]) for shape in shapes]
            stored = (sum(rows), shapes[0][-1])[:: -1 if self.turned else 1]
            weight = self.folder.take(whence.format("weight"), *stored)
            tensors = [weight.T if self.turned else weight]
            if bias:
                tensors.append(self.folder.take(whence.format("bias"), sum(rows)))
            for at, tensor in enumerate(tensors):
                rest = tensor.shape[1:]
                if name == "by_head":
                    of_heads = tensor.reshape(self.heads, len(joined), -1, *rest)
                    tensor = of_heads.swapaxes(0, 1).reshape(tensor.shape)
                pieces = np.split(tensor, np.cumsum(rows)[:-1])
                for part, shape, piece in zip(joined, shapes, pieces, strict=True):
                    to = f"layers.{layer}.{MAPS[part][at]}"
                    self.put(to, piece.reshape(*shape[:-1], *rest))

    def _shape(self, name: str) -> tuple[int, ...]:
        """Shape of a layer's weight matrix `name` in the model format."""
        sizes = {"heads": self.heads, "key_heads": self.groups, "d_ff": self.inner}
        sizes |= dict.fromkeys(("d_k", "d_v"), self.head_width)
        sizes |= dict.fromkeys(("width", "read"), self.width)
        sizes["concatenated"] = self.heads * self.head_width
        axes, _ = (array_fields(Attention) | array_fields(FeedForward))[name]
        return tuple(sizes[axis] for axis in axes.split())


def read_activation(folder: Source, key: str, default: str | None = None) -> str:
    """Returns the format's word for an activation of the configuration."""
    where, found = folder.where(folder.name(key)), folder.get(key, default)
    return ACTIVATIONS[choose_name(where, found, ACTIVATIONS)]


def read_layer_types(
    folder: Source, default: Sequence[str], known: Sequence[str]
) -> list[str]:
    """Returns `layer_types` of the configuration, or `default`; all must be `known`."""
    where, types = folder.where("layer_types"), folder.get("layer_types", default)
    choose_names(where, types, known)
    if len(types) != len(default):
        raise InputError(f"{where} lists {len(types)} layers; expected {len(default)}")
    return list(types)


def expect_default(folder: Source, key: str, allowed: Sequence[Any], why: str) -> None:
    """Refuses a value of a configuration, for the reason `why`, unless in `allowed`."""
    found = folder.get(key)
    if found is not None and found not in allowed:
        raise InputError(
            f"{folder.where(f'{key} = {show(found)}')} is not supported; {why}"
        )


# Default padding symbols by model type, for configurations without `pad_token_id`.
PADDING = {
    **dict.fromkeys(("bert", "electra", "albert", "distilbert"), 0),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), 1),
}


def padding_of(folder: Source) -> int | None:
    """Returns the padding symbol of a configuration; None if there is none."""
    default = PADDING.get(folder.config["model_type"])
    found = folder.config.get("pad_token_id", default)
    if found is not None and type(found) is not int:
        raise InputError(
            f"{folder.where('pad_token_id')} is {show(found)}; expected a symbol's number "
            "or null"
        )
    return found


def put_padding(parts: Parts) -> None:
    """Adds the padding to `parts.config`, and all other symbols as substitutable."""
    folder, vocab_size = parts.folder, parts.tensors["embedding"].shape[0]
    padding = padding_of(folder)
    others = [symbol for symbol in range(vocab_size) if symbol != padding]
    parts.config["substitutable"] = others
    marks = []
    for key in ("bos_token_id", "eos_token_id"):
        found = folder.get(key)
        marks += found if isinstance(found, list) else [found]
    # A padding symbol that also begins or ends texts is not hidden from rows.
    if len(others) < vocab_size and padding not in marks:
        parts.config["padding"] = padding
