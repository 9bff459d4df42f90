"""Constants of a head: distances of its outputs, over all inputs."""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Float

from bounds.lemma5.constants.row_form import read_norm
from bounds.numbers.interval import interval, upper
from bounds.numbers.spectral import norm_upper
from bounds.readings.rules import no_rule
from jax_models.model.rows import Affine, Norm, Operation, Steady
from jax_models.model.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class HeadConstants:
    """Constants of a head over all inputs, rounded up.

    Attributes:
        lipschitz: Its Lipschitz constant; of a read-out the norm of its map.
        change_cap: On the distance of any two outputs; infinite where unknown.
    """

    lipschitz: float
    change_cap: float

    def moved(
        self, before: Float[np.ndarray, "substitutions"]
    ) -> Float[np.ndarray, "substitutions"]:
        """Bounds on its changes, from those of the final activation's."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.nextafter(self.lipschitz * before, np.inf)
        found = np.where(before == 0, 0.0, np.where(np.isnan(found), np.inf, found))
        return np.minimum(found, self.change_cap)


def is_one_map(model: Transformer) -> bool:
    """Whether a model's logits are one affine map of its final activation."""
    operations = [step.operation for step in model.head.steps]
    return len(operations) == 1 and isinstance(operations[0], Affine)


def read_head(model: Transformer) -> HeadConstants:
    """Constants of a model's head; an InputError for ε = 0 or an operation without a rule."""
    gain, cap = interval(1), math.inf
    for step in model.head.steps:
        steep, most = lipschitz(step.operation, step.name)
        gain *= interval(steep)
        if cap < math.inf:
            cap = upper(interval(cap) * interval(steep))
        cap = min(cap, most)
    return HeadConstants(upper(gain), cap)


@functools.singledispatch
def lipschitz(operation: Operation, name: str) -> tuple[float, float]:
    """A Lipschitz constant, and the largest distance of two outputs; `name` is for errors."""
    raise no_rule("lipschitz", operation)


@lipschitz.register
def _(operation: Affine, name: str) -> tuple[float, float]:
    return norm_upper(np.asarray(operation.weight, np.float64)), math.inf


@lipschitz.register
def _(operation: Steady, name: str) -> tuple[float, float]:
    return operation.steepest, math.inf


@lipschitz.register
def _(operation: Norm, name: str) -> tuple[float, float]:
    known = read_norm(operation, name)
    return known.lipschitz, known.change_cap
