"""The sizes of the model and the inputs that a cell's flags name, without computing.

Sizes only decide estimates: where a file or the flags are wrong the defaults are taken, and
the cell itself says what is wrong when it is run.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import safetensors
from absl import flags

from bounds.cli.flags import SHAPE_FLAGS
from bounds.cli.input_source import num_symbols, read_tokens
from jax_models.constructions import PRESETS, build_preset, preset_parameters
from jax_models.errors import InputError
from jax_models.languages import read_text
from jax_models.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model; those of the largest layer."""

    num_layers: int = 1
    num_heads: int = 2
    d_model: int = 16
    d_ff: int = 64
    vocab_size: int = 2


def model_shape(options: flags.FlagValues, config: Mapping[str, Any]) -> Shape:
    """Returns the sizes of the model that flags name: a file, a construction, or random.

    Args:
        options: Parsed flags of any of the swept commands.
        config: The cell's configuration, with the hashes of its files.

    Returns:
        The sizes; the defaults for what is not said or cannot be read.
    """
    try:
        if config.get("model"):
            return _file_shape(config["model"], config["model_sha256"])
        if config.get("preset") in PRESETS:
            taken = preset_parameters(config["preset"])
            given = {
                name: config[name]
                for name in SHAPE_FLAGS
                if name in taken and options[name].present
            }
            return _preset_shape(config["preset"], tuple(given.items()))
    except (InputError, OSError):
        return Shape()
    sizes = {
        field.name: config[field.name]
        for field in dataclasses.fields(Shape)
        if config.get(field.name) is not None
    }
    if "vocab_size" not in sizes and "inputs" in config and not given_lengths(config):
        with contextlib.suppress(InputError, OSError):
            sizes["vocab_size"] = num_symbols(options)
    return Shape(**sizes)


def given_lengths(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the lengths of the inputs in the file that flags name, none without one.

    Args:
        config: The cell's configuration, with the hashes of its files.
    """
    for name in ("tokens", "text"):
        if config.get(name):
            with contextlib.suppress(InputError, OSError):
                return _lengths(name, config[name], config[f"{name}_sha256"])
    return ()


@functools.lru_cache
def _lengths(name: str, path: str, sha256: str) -> tuple[int, ...]:
    """Returns lengths; the hash names the content that they are of."""
    del sha256
    if name == "text":
        return (len(read_text(path, None)),)
    return tuple(len(sequence) for sequence in read_tokens(path))


@functools.lru_cache
def _file_shape(path: str, sha256: str) -> Shape:
    """Returns the sizes that the head of a model file tells."""
    del sha256
    try:
        with safetensors.safe_open(path, framework="np") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
        symbols, width = shapes["embedding"]
        heads = [s[0] for name, s in shapes.items() if name.endswith("attention.query")]
        hidden = [s[0] for name, s in shapes.items() if name.endswith("ffn.w1")]
        return Shape(len(heads), max(heads), width, max(hidden), symbols)
    except (safetensors.SafetensorError, KeyError, IndexError, ValueError) as error:
        raise InputError(f"{path} is no model file ({error})") from error


@functools.lru_cache
def _preset_shape(name: str, parameters: tuple[tuple[str, Any], ...]) -> Shape:
    model: Transformer = build_preset(name, dtype="float32", **dict(parameters))
    return Shape(
        len(model.layers),
        max(layer.attention.num_heads for layer in model.layers),
        model.width,
        max(len(layer.feed_forward.w1) for layer in model.layers),
        model.vocab_size,
    )
