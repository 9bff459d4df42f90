"""Row programs and their operations, the maps of a layer on single rows.

A new activation is one file with an `Activation` and one row in `ACTIVATIONS`, a new
norm one with a `Norm` and one row in `NORMS`.
"""

from jax_models.model.rows.gelu import Gelu
from jax_models.model.rows.gelu_tanh import GeluTanh
from jax_models.model.rows.layer_norm import LayerNorm
from jax_models.model.rows.program import (
    Activation,
    Affine,
    Join,
    Norm,
    Operation,
    Product,
    Program,
    Steady,
    Step,
    Sum,
    linear,
)
from jax_models.model.rows.relu import Relu
from jax_models.model.rows.relu_squared import ReluSquared
from jax_models.model.rows.rms_norm import RmsNorm
from jax_models.model.rows.silu import Silu
from jax_models.model.rows.tanh import Tanh

ACTIVATIONS: dict[str, Activation] = {
    "relu": Relu(),
    "gelu": Gelu(),
    "gelu_tanh": GeluTanh(),
    "silu": Silu(),
    "relu_squared": ReluSquared(),
    "tanh": Tanh(),
}
NORMS: dict[str, type[Norm]] = {"layer_norm": LayerNorm, "rms_norm": RmsNorm}

__all__ = [
    "ACTIVATIONS",
    "NORMS",
    "Activation",
    "Affine",
    "Gelu",
    "Join",
    "LayerNorm",
    "Norm",
    "Operation",
    "Product",
    "Program",
    "Relu",
    "Steady",
    "Step",
    "Sum",
    "Tanh",
    "linear",
]
