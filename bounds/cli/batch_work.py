"""How much a run of a command does, as far as its flags tell: what estimates rest on.

    tokens    = Σ_n k_n n
    passes    = Σ_n k_n L (n² d + n (4 d² + 2 d d_ff))
    positions = Σ_n k_n n L (n² d + n (4 d² + 2 d d_ff))

over the lengths n, with k_n inputs times weightings; `simulate` runs all inputs of a length
where its budget allows. Sizes are those of the model and the inputs that the flags name.

The sizes of the model and the inputs that a cell's flags name, without computing.

Sizes only decide estimates: where a file or the flags are wrong the defaults are taken, and
the cell itself says what is wrong when it is run.
"""

import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Mapping
from typing import Any

import safetensors
from absl import flags

from bounds.batch.cells import Work
from bounds.cli.shared.flags import SHAPE_FLAGS
from bounds.cli.shared.input_source import num_symbols, read_tokens
from bounds.figures.sweep import LENGTH_FLAGS
from jax_models.constructions import PRESETS, build_preset, preset_parameters
from jax_models.errors import InputError
from jax_models.languages import read_text
from jax_models.model.transformer import Transformer
from jax_models.run.blocks import MAX_KEY_TILE

# Flags that choose among data of one form: cells that differ in these alone share what
# is compiled.
DATA_FLAGS = ("seed", "input")
# Weightings that a curve compares where none is named.
MAIN_WEIGHTINGS = 4
DEFAULT_LENGTH = 64
# Rows of activations that a layer holds beside its scores: values, keys, queries, sums.
ROWS_HELD = 6
# Scores of one tile on a CPU, which are held three times over: scores, exponentials, mask.
TILE_SCORES = 3 * 2**19


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
    sampled = {"language", "text"} <= set(options) and not given_lengths(config)
    if sampled and "vocab_size" not in sizes:
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
                return _swept_lengths(name, config[name], config[f"{name}_sha256"])
    return ()


@functools.lru_cache
def _swept_lengths(name: str, path: str, sha256: str) -> tuple[int, ...]:
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
            layers = len(json.loads(file.metadata()["config"])["layers"])
        symbols, width = shapes["embedding"]
        heads = [s[0] for name, s in shapes.items() if name.endswith("attention.query")]
        hidden = [s[0] for name, s in shapes.items() if name.endswith("ffn.w1")]
        return Shape(layers, max(heads), width, max(hidden), symbols)
    except (safetensors.SafetensorError, LookupError, ValueError, TypeError) as error:
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


def estimate_cell_work(shape: Shape, config: Mapping[str, Any]) -> Work:
    """Returns how much a run of a cell does.

    Args:
        shape: The sizes of its model.
        config: The cell's configuration, with the hashes of its files.

    Returns:
        The terms of the module's formulas, and the bytes of the arrays of the longest
        input: activations of every layer, and a tile of scores.
    """
    lengths = _lengths(config)
    layers, width, hidden = shape.num_layers, shape.d_model, shape.d_ff
    weighting = config.get("weighting")
    if isinstance(weighting, list) or "bounds" in config:
        series = len(weighting or range(MAIN_WEIGHTINGS))
    else:
        series = 1
    each = series * (1 + config.get("restarts", 0) * config.get("steps", 1))
    counts = {n: each * _num_inputs(config, shape.vocab_size, n) for n in lengths}

    def one_pass(n: int) -> float:
        return layers * (n**2 * width + n * (4 * width**2 + 2 * width * hidden))

    itemsize = 8 if config.get("dtype", "float64") == "float64" else 4
    longest = max(lengths)
    scores = min(
        TILE_SCORES, 3 * shape.num_heads * longest * min(longest, MAX_KEY_TILE)
    )
    held = layers * longest * (ROWS_HELD * width + hidden) + scores
    terms = {
        "runs": sum(counts.values()),
        "tokens": sum(k * n for n, k in counts.items()),
        "passes": sum(k * one_pass(n) for n, k in counts.items()),
        "positions": sum(k * n * one_pass(n) for n, k in counts.items()),
        "programs": series * len(lengths) * layers,
    }
    return Work(
        {name: _as_float(term) for name, term in terms.items()},
        _as_float(itemsize * held),
    )


def _as_float(count: int) -> float:
    """Returns a count, the largest float of one beyond all floats."""
    return float(min(count, int(sys.float_info.max)))


def shape_name(config: Mapping[str, Any]) -> str:
    """Returns what names a cell but for its data: its configuration without them."""
    return json.dumps({k: v for k, v in config.items() if k not in DATA_FLAGS})


def program_names(shape: Shape, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what names the programs of a cell: its shape, for each length and weighting.

    Args:
        shape: The sizes of its model.
        config: The cell's configuration, with the hashes of its files.

    Returns:
        A name for each of the two, whatever other lengths and weightings it has. How many
        inputs there are is part of it for `simulate` alone, which runs them at once.
    """
    apart = (*DATA_FLAGS, *LENGTH_FLAGS, "given", "weighting", "num_inputs")
    alike = json.dumps({k: v for k, v in config.items() if k not in apart})
    at_once = "epsilon" in config
    weighting = config.get("weighting")
    weightings = weighting if isinstance(weighting, list) else [weighting]
    return tuple(
        f"{alike} {n} {_num_inputs(config, shape.vocab_size, n) if at_once else ''} {one}"
        for n in _lengths(config)
        for one in weightings
    )


def _lengths(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the lengths of a run."""
    if config.get("lengths"):
        return tuple(config["lengths"])
    if config.get("length"):
        return (config["length"],)
    return (max(given_lengths(config), default=DEFAULT_LENGTH),)


def _num_inputs(config: Mapping[str, Any], symbols: int, n: int) -> int:
    """Returns how many inputs a run has at a length."""
    if given := given_lengths(config):
        return len(given)
    if "epsilon" in config and symbols**n <= config["max_inputs"]:
        return symbols**n
    return config.get("num_inputs", 1)
