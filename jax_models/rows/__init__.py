"""Row programs, their operations, and how the parts of a layer are placed in them.

A new activation is one file with an `Operation` and one row in `ACTIVATIONS`.
"""

from jax_models.rows.affine import Affine, linear
from jax_models.rows.base import Operation
from jax_models.rows.gelu import Gelu
from jax_models.rows.joining import Join, Sum
from jax_models.rows.layer_norm import LayerNorm
from jax_models.rows.program import Program, Step
from jax_models.rows.relu import Relu

ACTIVATIONS: dict[str, Operation] = {"relu": Relu(), "gelu": Gelu()}

__all__ = [
    "ACTIVATIONS",
    "Affine",
    "Gelu",
    "Join",
    "LayerNorm",
    "Operation",
    "Program",
    "Relu",
    "Step",
    "Sum",
    "linear",
]
