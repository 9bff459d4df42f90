"""One layer's parameters in the proof by decision trees."""

import dataclasses
from fractions import Fraction

from bounds.closed_form.domain import probability, whole


@dataclasses.dataclass(frozen=True)
class Step:
    """What is done to one layer: a random restriction, then repairs.

    Attributes:
        star_probability: p, with which a free bit stays free; exact.
        depth: t, of the decision trees that compute the layer afterwards.

    Raises:
        ValueError: p is not an exact number in (0, 1), or t not an integer >= 1.
    """

    star_probability: Fraction
    depth: int

    def __post_init__(self) -> None:
        exact = probability("star_probability", self.star_probability)
        object.__setattr__(self, "star_probability", exact)
        whole("depth", self.depth, 1)

    def __str__(self) -> str:
        return f"p = {self.star_probability}, t = {self.depth}"
