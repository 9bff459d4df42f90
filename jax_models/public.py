"""The public names of `jax_models`, imported from their modules."""

from jax_models.constructions import PRESETS, build_preset
from jax_models.errors import InputError, TieError
from jax_models.format.file import load, model_bytes, save
from jax_models.format.pretrained.from_torch import from_torch
from jax_models.format.pretrained.load import from_pretrained
from jax_models.format.pretrained.tokenizer import Tokenizer, read_tokenizer
from jax_models.languages import (
    LANGUAGES,
    SOURCES,
    get_language,
    get_source,
    read_text,
)
from jax_models.languages.parity import ParitySource
from jax_models.model.attention import Attention
from jax_models.model.entry import Padding
from jax_models.model.initialise import (
    Architecture,
    init_transformer,
    random_transformer,
)
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.model.readout import Accept, Head, Pooling, Readout
from jax_models.model.relative import (
    Alibi,
    DistanceBuckets,
    LinearScaling,
    ListedFrequencies,
    Llama3Scaling,
    Rotary,
)
from jax_models.model.reweight import with_dtype, with_temperature, with_weighting
from jax_models.model.rows import LayerNorm
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.model.transformer import Transformer, forward
from jax_models.programs.logic.compile import compile_formula
from jax_models.programs.rasp import compile_program
from jax_models.run.evaluate import accepts, apply, apply_logits
from jax_models.run.mesh import device_mesh
from jax_models.training import Training, train
from jax_models.weighting import (
    WEIGHTINGS,
    AverageHardmax,
    LeftmostHardmax,
    RightmostHardmax,
    Softmax,
    TieReport,
    Weighting,
    make_weighting,
)

__all__ = [
    "LANGUAGES",
    "PRESETS",
    "SOURCES",
    "WEIGHTINGS",
    "Accept",
    "Alibi",
    "Architecture",
    "Attention",
    "AverageHardmax",
    "ConstantTemperature",
    "Coordinates",
    "DistanceBuckets",
    "FeedForward",
    "Head",
    "InputError",
    "InverseLogTemperature",
    "Layer",
    "LayerNorm",
    "LeftmostHardmax",
    "LinearScaling",
    "ListedFrequencies",
    "Llama3Scaling",
    "Padding",
    "ParitySource",
    "Pooling",
    "PositionTable",
    "PowerTemperature",
    "PowerTerm",
    "Readout",
    "ResidueTerm",
    "RightmostHardmax",
    "Rotary",
    "Sinusoidal",
    "Softmax",
    "TieError",
    "TieReport",
    "Tokenizer",
    "Training",
    "Transformer",
    "Weighting",
    "accepts",
    "apply",
    "apply_logits",
    "build_preset",
    "compile_formula",
    "compile_program",
    "device_mesh",
    "forward",
    "from_pretrained",
    "from_torch",
    "get_language",
    "get_source",
    "init_transformer",
    "load",
    "make_weighting",
    "model_bytes",
    "random_transformer",
    "read_text",
    "read_tokenizer",
    "save",
    "train",
    "with_dtype",
    "with_temperature",
    "with_weighting",
]
