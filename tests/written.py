"""What a model's file holds: the input of the reference transformer."""

import json
from typing import Any

import numpy as np
import safetensors.numpy

import jax_models as jm


def written(model: jm.Transformer) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the tensors of a model, as it is saved."""
    data = jm.model_bytes(model)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["config"]), safetensors.numpy.load(data)
