"""Heads of several operations in a file, both ways: docs/model-format.md, section 4."""

from typing import Any, Protocol

from jax import Array
from jaxtyping import Float

from jax_models.arguments import choose_name, expect_keys, expect_number, show
from jax_models.errors import InputError
from jax_models.model.readout import Head, Readout
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Norm

LINEAR, EMBEDDING = "linear", "embedding"


class Reader(Protocol):
    """Takes tensors by name, each checked."""

    def take(self, name: str, *shape: int | str) -> Array:
        """Returns a required tensor."""
        ...

    def take_optional(self, name: str, *shape: int | str) -> Array | None:
        """Returns the tensor or None."""
        ...


def decode_head(entry: Any) -> list[Any] | None:
    """Returns the checked config entry of a head, None where there is none."""
    if entry is None:
        return None
    if not isinstance(entry, list) or not entry:
        raise InputError(f"head = {show(entry)}; expected a list of its operations")
    for at, one in enumerate(entry):
        where = f"head[{at}]"
        if isinstance(one, dict):
            expect_keys(where, one, ["norm", "epsilon"])
            choose_name(f"{where}.norm", one.get("norm"), tuple(NORMS))
            expect_number(f"{where}.epsilon", one.get("epsilon"), 0)
            continue
        choose_name(where, one, (LINEAR, EMBEDDING, *ACTIVATIONS))
        if one == EMBEDDING and at != len(entry) - 1:
            raise InputError(f"{where} = {one!r} comes last, or not at all")
    return entry


def read_head(
    reader: Reader,
    entry: list[Any],
    # d, of what the head reads
    width: int,
    embedding: Float[Array, "symbols d_embedding"],
) -> Head:
    """Returns the head that a checked entry and tensors describe."""
    steps, tied, bias = [], False, None
    for at, one in enumerate(entry):
        name = f"head.{at}"
        if isinstance(one, dict):
            kind = NORMS[one["norm"]]
            tensors = [reader.take(f"{name}.{x}", width) for x in kind.tensors()]
            steps.append(kind(*tensors, one["epsilon"]))
        elif one == LINEAR:
            weight = reader.take(f"{name}.weight", "c", width)
            width = weight.shape[0]
            steps.append(Affine(weight, reader.take_optional(f"{name}.bias", width)))
        elif one == EMBEDDING:
            if embedding.shape[1] != width:
                raise InputError(
                    f"head[{at}] = {one!r} reads rows of width {embedding.shape[1]}; "
                    f"what comes before it has width {width}"
                )
            tied = True
            bias = reader.take_optional(f"{name}.bias", embedding.shape[0])
        else:
            steps.append(ACTIVATIONS[one])
    return Head(tuple(steps), bias, tied)


def encode_head(readout: Readout | Head | None) -> list[Any] | None:
    """Returns the config entry of a head; None of a read-out, or where there is none."""
    if not isinstance(readout, Head):
        return None
    entry: list[Any] = []
    for operation in readout.steps:
        if isinstance(operation, Norm):
            names = (word for word, kind in NORMS.items() if kind is type(operation))
            name = next(names, type(operation).__name__)
            entry.append({"norm": name, "epsilon": operation.epsilon})
        elif isinstance(operation, Affine):
            entry.append(LINEAR)
        else:
            words = (word for word, one in ACTIVATIONS.items() if one == operation)
            entry.append(next(words, type(operation).__name__))
    return [*entry, EMBEDDING] if readout.tied else entry


def name_head(readout: Readout | Head | None) -> dict[str, Array | None]:
    """Returns the tensors of a head by their names in the file, None where there is none."""
    if readout is None:
        return {}
    if isinstance(readout, Readout):
        return {"readout.weight": readout.weight, "readout.bias": readout.bias}
    named: dict[str, Array | None] = {}
    for at, operation in enumerate(readout.steps):
        if isinstance(operation, Norm):
            for tensor in operation.tensors():
                named[f"head.{at}.{tensor}"] = getattr(operation, tensor)
        elif isinstance(operation, Affine):
            named[f"head.{at}.weight"] = operation.weight
            named[f"head.{at}.bias"] = operation.bias
    if readout.tied or readout.bias is not None:  # else the reader refuses it
        named[f"head.{len(readout.steps)}.bias"] = readout.bias
    return named
