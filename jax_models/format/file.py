"""Models as safetensors files: load, save, and the bytes that are hashed.

A file's metadata has one key, `config`, a JSON text; `format/config.py` reads it.
"""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Shaped

from jax_models.arguments import expect_file, expect_kind
from jax_models.atomic import write_atomically
from jax_models.errors import InputError, errors_of
from jax_models.format.build import build_model, name_tensors
from jax_models.format.config import decode_config, encode_config
from jax_models.format.model_check import check_model
from jax_models.model.transformer import Transformer
from jax_models.weighting import WEIGHTINGS

# What to do with GGUF, which is not read.
CONVERT = (
    "convert it where transformers is: AutoModelForCausalLM.from_pretrained(folder, "
    "gguf_file=NAME).save_pretrained(another)"
)


def model_bytes(model: Transformer) -> bytes:
    """Returns the bytes of the model's file, which are equal for equal models.

    Args:
        model: the transformer.

    Raises:
        InputError: for a model that is not valid, or that the format cannot hold. Only
            `save` also reads the file back and compares.
    """
    model = check_model(model)
    tensors = {
        name: np.ascontiguousarray(np.asarray(tensor))
        for name, tensor in name_tensors(model).items()
    }
    config = encode_config(model, tensors)
    decode_config(config, tensors)  # refuses what only a model in memory may have
    # Sorted: hashes of files are keys of results, and one model must have one.
    text = json.dumps(config, sort_keys=True)
    return safetensors.numpy.save(tensors, metadata={"config": text})


def save(model: Transformer, path: str | os.PathLike[str]) -> None:
    """Writes a model to one safetensors file, atomically.

    The file takes its name once `load` has read an equal model from it.

    Args:
        model: the transformer.
        path: the file; an existing one is replaced only by a complete new one.

    Raises:
        InputError: if `path` is no path, for a field that no model may have, or a model
            that the format cannot hold, such as one whose layers differ in what it holds
            once for all layers.
        OSError: if the file cannot be written.
    """
    model = check_model(model)
    expect_kind("model file", path, str | os.PathLike, "a path")

    def read_back(written: Path) -> None:
        # The file takes its name only once an equal model is read from it.
        if not same_model(model, load(written)):
            raise InputError(
                f"{os.fspath(path)!r} is not written: the format has no place for "
                "something in this model, so that another model would be read from it"
            )

    write_atomically(path, model_bytes(model), check=read_back)


def same_model(one: Transformer, other: Transformer) -> bool:
    """Whether two models have equal structure, and equal bits in the type of `one`."""

    def bits(leaf: Any) -> bytes:
        # A temperature may be a Python number in memory; a file holds it all the same.
        return np.asarray(leaf, one.dtype).tobytes()

    leaves, structure = jax.tree.flatten(one)
    others, another = jax.tree.flatten(other)
    return structure == another and list(map(bits, leaves)) == list(map(bits, others))


def load(path: str | os.PathLike[str]) -> Transformer:
    """Returns the model of a safetensors file, in the file's own float type.

    Args:
        path: the file.

    Raises:
        InputError: for anything in the file that the format does not allow, and for a
            float64 file without x64.
        OSError: if the file cannot be read.
    """
    path = expect_file("model file", path)
    tensors, metadata = read_safetensors(path)
    if "config" not in metadata:
        raise InputError(f"{str(path)!r} has no 'config' in its safetensors metadata")
    with errors_of(f"{str(path)!r}: config is not JSON", ValueError, RecursionError):
        config = json.loads(metadata["config"])
    with errors_of(repr(str(path))):
        return build_model(config, tensors)


def read_weightings(path: str | os.PathLike[str]) -> set[str] | None:
    """Names of the weightings in a model file, by its config; None for other files."""
    try:
        with safetensors.safe_open(path, framework="np") as file:
            layers = json.loads(file.metadata()["config"])["layers"]
        names = {layer["weighting"] for layer in layers if "same_as" not in layer}
        return names if names.issubset(WEIGHTINGS) else None
    except Exception:  # of many kinds: the file may be anyone's
        return None


def read_safetensors(
    path: Path,
) -> tuple[dict[str, Shaped[np.ndarray, "..."]], dict[str, str]]:
    """Returns the arrays of a safetensors file by name, and its metadata."""
    with open(path, "rb"):
        pass  # safetensors would call a file without permission a missing one
    try:
        with safetensors.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}, metadata
    except (safetensors.SafetensorError, TypeError, AttributeError) as error:
        advice = error if path.suffix != ".gguf" else f"GGUF is not read; {CONVERT}"
        raise InputError(
            f"{str(path)!r} is not a complete safetensors file: {advice}"
        ) from error
