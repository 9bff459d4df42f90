"""Estimates of Lipschitz constants: ratios that were observed, so lower estimates.

The constant is at least as large, up to rounding, and may be larger. An estimate is neither
a `Bound` nor a `Claim` and never enters a certificate.
"""

import dataclasses
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from bounds.influence.targets.base import PlainTarget


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The largest ratio of output change to embedding change that one search met.

    Estimates have no order; compare `value` where that is meant.

    Attributes:
        value: The ratio, in units of the output per unit of the embedding.
        method: The search: "substitution", "local" or "ball".
        seed: Seed of the inputs and of everything random in the search.
        iterations: Substitutions, power iterations or ascent steps that were made,
            over all inputs and restarts.
        position: Position whose embedding changes, from 0; None where none may.
        symbol: The substitute, where the change is a substitution.
        input: Which of the inputs it was met on, or the ascent began at, from 0.
    """

    value: float
    method: str
    seed: int
    iterations: int
    position: int | None = None
    symbol: int | None = None
    input: int | None = None

    def _refuse_order(self, other: Any) -> NoReturn:
        raise TypeError(
            f"an Estimate has no order, not even with a {type(other).__name__}: an "
            "estimated and a certified number are different things; compare value or "
            "log_value where that is meant"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse_order

    def __repr__(self) -> str:
        """One line that says it is an estimate."""
        return (
            f"{type(self).__name__}({self.value:.6g} [estimated, a lower estimate], "
            f"method={self.method!r}, position={self.position}, seed={self.seed}, "
            f"iterations={self.iterations})"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class LipschitzEstimate(Estimate):
    """The largest ratio over all searches at one length: an estimate of K_n from below.

    K_n is the Lipschitz constant of the output at the query in the embedding of one
    other position, with every row y^(0) in the ball of the largest embedding.

    Attributes:
        length: n.
        query: Position of the output, from 0.
        target: "activation" or "logits".
        radius: Radius of the embedding ball, max |embedding + position encoding|.
        influence: The largest influence of a substitution that was met, rounding off.
        searches: The best of each search that could be made.
        position_norms: Largest local operator norm at each position over the inputs, NaN
            where the position may not change or none was computed.
    """

    _: dataclasses.KW_ONLY
    length: int
    query: int
    target: PlainTarget
    radius: float
    influence: float
    searches: tuple[Estimate, ...]
    position_norms: Float[np.ndarray, "tokens"] = dataclasses.field(compare=False)

    @property
    def scaled(self) -> float:
        """n K_n: constant in n where the influence falls like 1/n."""
        return self.length * self.value

    def find(self, method: str) -> Estimate | None:
        """The best estimate of one search; None where it was not made."""
        return next((one for one in self.searches if one.method == method), None)

    def row(self) -> dict[str, Any]:
        """The numbers as a row of a table, one column per search."""
        return {
            "n": self.length,
            "estimate": self.value,
            "scaled": self.scaled,
            "method": self.method,
            "position": self.position,
            "seed": self.seed,
            "iterations": self.iterations,
            "radius": self.radius,
            "influence": self.influence,
            **{search.method: search.value for search in self.searches},
        }
