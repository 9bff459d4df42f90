"""`from_torch`: the state of a torch module, its arrays by name, as a model."""

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from jax_models.arguments import expect_integer, expect_kind, expect_number, show
from jax_models.errors import InputError
from jax_models.format.pretrained.families import gpt2
from jax_models.format.pretrained.load import finish, float_type
from jax_models.format.pretrained.parts import ALL, Parts, Source, kind_of
from jax_models.model.transformer import Transformer

# Begin of all names that torch.compile and DistributedDataParallel add.
WRAPPERS = re.compile(r"(?:_orig_mod\.|module\.)*")
CONVERT = "{k: v.numpy() for k, v in module.state_dict().items()}"


class State(Source):
    """The arrays of a state dict by name, without the prefixes of wrappers."""

    called = "the state"
    shapes = "the other tensors say"
    missing = "give all that state_dict() returns"
    unknown = "say what they are by embedding=, position=, readout=, or leave them out"
    keys = MappingProxyType({"num_attention_heads": "heads"})

    def __init__(self, state: Any, config: dict[str, Any]) -> None:
        """Checks that `state` maps names to NumPy arrays; removes wrappers' prefixes."""
        if not isinstance(state, Mapping):
            raise InputError(
                f"state is {type(state).__name__}; expected arrays by name: {CONVERT}"
            )
        for name, array in state.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                raise InputError(
                    f"state[{name!r}] is {type(array).__name__}; expected NumPy arrays "
                    f"by name: {CONVERT}"
                )
        begins = (WRAPPERS.findall(name)[0] for name in state)
        begin = min(begins, key=len, default="")
        is_common = all(name.startswith(begin) for name in state)
        self.config, self.wrapper = config, begin if is_common else ""
        self.held = {k.removeprefix(self.wrapper): x for k, x in state.items()}
        self.left = set(self.held)

    def where(self, key: str) -> str:
        """Words for a configuration key in messages: the key, an argument of `from_torch`."""
        return key

    def header(self, name: str) -> tuple[tuple[int, ...], str]:
        """Returns the shape of an array, and its type in safetensors' words ("F32")."""
        return self.held[name].shape, kind_of(self.held[name])

    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """Returns a copy of an array of the state, which the caller may change later."""
        return self.held[name].copy()

    def rows_of(self, what: str, given: Any) -> Float[np.ndarray, "rows width"]:
        """Returns the table [rows, d] of argument `what`, an array or a tensor's name."""
        if isinstance(given, str):
            name = given.removeprefix(self.wrapper)
            if name not in self:
                raise InputError(
                    f"{what} = {given!r} is no tensor of the state; it has "
                    f"{show(sorted(self.left))}"
                )
        else:
            name = f"{what}="
            wanted = "the name of a tensor of the state, or a NumPy array"
            expect_kind(what, given, np.ndarray, wanted)
            self.held[name] = given
        shape, _ = self.header(name)
        tensor = self.take(name, *shape)
        if len(shape) == 3 and 1 in shape[:2]:
            tensor = tensor.reshape(-1, shape[2])
        if tensor.ndim != 2 or not tensor.size:
            raise InputError(
                f"{what} has shape {shape}; expected [rows, d], one row or more"
            )
        return tensor


@dataclasses.dataclass(frozen=True)
class Module:
    """Names of tensors and default settings of a kind of torch module."""

    layers: str
    layer: Mapping[str, str]  # names in one layer, see `Parts.names`
    final_norm: str
    norm_first: bool = False
    activation: str = "relu"
    causal: bool = False
    embedding: str | None = None
    position: str | None = None
    readout: str | None = None  # name's end; the module may be part of another
    ends_in_norm: bool = False  # whether the final norm must be there


MODULES = {
    "torch.nn.TransformerEncoder": Module(
        layers="layers.",
        layer={
            "fused": "self_attn.in_proj_{}",
            "output": "self_attn.out_proj",
            "norm1": "norm1",
            "w1": "linear1",
            "w2": "linear2",
            "norm2": "norm2",
        },
        final_norm="norm",
    ),
    "nanoGPT": Module(
        layers="h.",
        layer=gpt2.LAYER,
        final_norm="ln_f",
        norm_first=True,
        activation="gelu",
        causal=True,
        embedding="wte.weight",
        position="wpe.weight",
        readout="lm_head.weight",
        ends_in_norm=True,
    ),
}


def from_torch(
    state: Mapping[str, Shaped[np.ndarray, "..."]],
    heads: int,
    *,
    embedding: str | Float[np.ndarray, "symbols width"] | None = None,
    position: str | Float[np.ndarray, "tokens width"] | None = None,
    readout: str | None = None,
    norm_first: bool | None = None,
    activation: str | None = None,
    layer_norm_eps: float = 1e-5,
    causal: bool | None = None,
    dtype: Any = None,
) -> Transformer:
    """Returns the model of a torch module's state.

    Reads `torch.nn.TransformerEncoder`, which may be part of a larger module, and modules
    that call their tensors as nanoGPT does. What is None is as the module is by default:
    the encoder is post-norm, has ReLU and no mask; nanoGPT is pre-norm, has gelu and a
    future mask, and names its embedding, positions and read-out.

    Args:
        state: `{k: v.numpy() for k, v in module.state_dict().items()}`. Names may begin
            with `_orig_mod.` or `module.`.
        heads: number of attention heads in each layer.
        embedding: the table, an array or its name in the state; an encoder needs it.
        position: what is added to the embedding: a table [n, d], an array or its name in
            the state. None is nothing for an encoder.
        readout: the name of the map that logits are read with. None is the map that
            nanoGPT names, if it is in the state, and no map for an encoder.
        norm_first: whether the norm stands before attention and before the block.
        activation: "relu", "gelu" or another word of docs/model-format.md.
        layer_norm_eps: the epsilon of all norms, at least 0.
        causal: whether a row sees only itself and what is before it.
        dtype: float32 or float64; None keeps the state's, half precision as float32.

    Returns:
        The model.

    Raises:
        InputError: for a state that is not whole, has more than a model is made of, or
            does not fit the arguments.
    """
    heads = expect_integer("heads", heads, 1)
    source = State(state, {"heads": heads})
    kind, prefix = _find(source)
    said = {"norm_first": norm_first, "activation": activation, "causal": causal}
    said = {k: getattr(kind, k) if x is None else x for k, x in said.items()}
    for name in ("norm_first", "causal"):
        expect_kind(name, said[name], bool, "True or False")
    if readout is not None:
        expect_kind("readout", readout, str, "the name of a map of the state")
    parts = Parts(source, float_type(source, dtype))
    if kind.embedding is not None and embedding is None:
        embedding = f"{prefix}{kind.embedding}"
    parts.put("embedding", source.rows_of("embedding", embedding))
    parts.read_heads(parts.width)
    if kind.position is not None and position is None:
        position = f"{prefix}{kind.position}"
    if position is not None:
        parts.put("position", source.rows_of("position", position))
    count = _put_layers(parts, kind, prefix)
    mask = "future" if said["causal"] else "none"
    parts.config |= {
        "layer_norm": "pre" if said["norm_first"] else "post",
        "layer_norm_epsilon": expect_number("layer_norm_eps", layer_norm_eps, 0),
        "activation": said["activation"],
        "layers": [{"weighting": "softmax", "mask": mask}] * count,
    }
    tied = [x for x in source.left if kind.readout and x.endswith(kind.readout)]
    if readout is None and tied:
        readout = min(tied, key=len)
    if readout is not None:
        _put_readout(parts, source, readout)
    return finish(parts, (x for x in source.left if not _is_mask(x)))


def _is_mask(name: str) -> bool:
    """Whether a tensor is, by name, GPT-2's stored attention mask or mask score."""
    return name.endswith((".attn.bias", ".attn.masked_bias"))


def _find(source: State) -> tuple[Module, str]:
    """Kind of torch module in the state, and the prefix of its tensors' names."""
    found, firsts = [], []
    for kind in MODULES.values():
        first = f"{kind.layers}0.{kind.layer['fused'].format('weight')}"
        firsts.append(first)
        found += [
            (kind, name.removesuffix(first))
            for name in sorted(source.left)
            if name == first or name.endswith(f".{first}")
        ]
    if len(found) != 1:
        places = [f"{prefix}{kind.layers}" for kind, prefix in found]
        raise InputError(
            f"the state has {f'layers at {places}' if found else 'no layers'}; expected "
            f"one tensor {' or '.join(firsts)}, alone or behind a prefix, of "
            f"{' or '.join(MODULES)}"
        )
    return found[0]


def _put_layers(parts: Parts, kind: Module, prefix: str) -> int:
    """Adds all layers, and any norm after them, to `parts`; returns their number."""
    source, begin = parts.folder, f"{prefix}{kind.layers}"
    of_layers = [x.removeprefix(begin) for x in source.left if x.startswith(begin)]
    numbers = {x.partition(".")[0] for x in of_layers}
    count = 1 + max(int(x) for x in numbers if x.isdecimal())
    some = any(x.endswith("bias") and not _is_mask(x) for x in of_layers)
    parts.names, parts.biases = kind.layer, ALL if some else ()
    for k in range(count):
        w1, w2 = (f"{begin}{k}.{kind.layer[name]}.weight" for name in ("w1", "w2"))
        told_by_w2 = w1 not in source and w2 in source
        inner = (1, *source.header(w2)[0])[-1] if told_by_w2 else source.rows(w1)
        parts.inner = inner
        parts.move_layer(k, f"{begin}{k}.")
    norm = f"{prefix}{kind.final_norm}"
    biased = f"{norm}.bias" in source
    if kind.ends_in_norm or biased or f"{norm}.weight" in source:
        parts.move_norm("final_norm", norm, parts.width, biased or some)
    return count


def _put_readout(parts: Parts, source: State, readout: str) -> None:
    """Adds the read-out `readout` to `parts`, as the tied embedding if the two are equal."""
    name = readout.removeprefix(source.wrapper).removesuffix(".weight")
    weight = source.rows_of("readout", f"{name}.weight").astype(parts.dtype)
    tied = np.array_equal(weight, parts.tensors["embedding"])
    if tied:
        parts.config["head"] = ["embedding"]
    else:
        parts.put("readout.weight", weight)
    if f"{name}.bias" in source:
        to = "head.0.bias" if tied else "readout.bias"
        parts.move(to, f"{name}.bias", len(weight))
