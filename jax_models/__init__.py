"""Transformers as pytrees and pure functions, with any attention weighting.

A model is data (`Transformer`); `apply` runs it, `load` and `save` exchange it as one
safetensors file, `random_transformer` draws one.
"""

from jax_models.attention import Attention
from jax_models.checkpoint import load, model_bytes, save
from jax_models.constructions import PRESETS, build_preset
from jax_models.errors import InputError, TieError
from jax_models.evaluate import accepts, apply, apply_logits
from jax_models.initialise import init_transformer, random_transformer
from jax_models.languages import (
    LANGUAGES,
    SOURCES,
    get_language,
    get_source,
    read_text,
)
from jax_models.languages.parity import ParitySource
from jax_models.layer import Layer
from jax_models.layers import Accept, FeedForward, Readout
from jax_models.logic.compile import compile_formula
from jax_models.mesh import device_mesh
from jax_models.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.rasp import compile_program
from jax_models.reweight import with_dtype, with_temperature, with_weighting
from jax_models.rows import LayerNorm
from jax_models.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)
from jax_models.training import Training, train
from jax_models.transformer import Transformer, forward
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
    "Attention",
    "AverageHardmax",
    "ConstantTemperature",
    "Coordinates",
    "FeedForward",
    "InputError",
    "InverseLogTemperature",
    "Layer",
    "LayerNorm",
    "LeftmostHardmax",
    "ParitySource",
    "PositionTable",
    "PowerTemperature",
    "PowerTerm",
    "Readout",
    "ResidueTerm",
    "RightmostHardmax",
    "Sinusoidal",
    "Softmax",
    "TieError",
    "TieReport",
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
    "get_language",
    "get_source",
    "init_transformer",
    "load",
    "make_weighting",
    "model_bytes",
    "random_transformer",
    "read_text",
    "save",
    "train",
    "with_dtype",
    "with_temperature",
    "with_weighting",
]
