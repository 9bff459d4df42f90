"""Activations: maps of each entry, with the facts about them that bounds rest on."""

import abc
import math
from typing import Any, ClassVar

from jax import Array

from jax_models.model.rows.base import Operation


class Activation(Operation):
    """A function of each entry. Finals state proved bounds."""

    # The largest |second derivative|, rounded up.
    curvature: ClassVar[float] = math.inf
    # How many roundings its evaluation adds to those of a product.
    roundings: ClassVar[int] = 0

    @abc.abstractmethod
    def slope(self, z: Array) -> Array:
        """Returns the derivative; for ReLU at 0 the slope 0."""

    @abc.abstractmethod
    def exact(self, z: Any, context: Any) -> Any:
        """Returns the value of a number of an mpmath context."""


class Steady(Activation):
    """One whose slopes are bounded: constants over all inputs rest on that."""

    # The largest slope s, rounded up, at least 1/2; no slope is below 1 - s.
    steepest: ClassVar[float]
