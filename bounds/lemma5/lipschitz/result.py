"""What the searches return: estimates, which no bound can be compared with.

An estimate is a ratio that was observed, hence a *lower* estimate of the Lipschitz
constant: the constant is at least as large, up to rounding, and may be larger. It is
neither a `Bound` nor a `Claim` and never enters a certificate.

How far bounds are above what was observed, in decades.

A closed form bounds every influence at a distance D of two embeddings. Those that are
proportional to D bound the Lipschitz constant, by bound / D, and are compared with the
estimate of it; the corrected recursion saturates, so that it bounds influences only, and
is compared with the largest influence met. A certificate speaks of its own input, and
is compared with the exact ratios there.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from bounds.influence.problem import Target
from bounds.lemma5.constants import ClosedForms

# Closed forms that are proportional to D, in the order in which they are derived.
PROPORTIONAL = ("linear", "c1", "c2", "causal", "printed_tight", "printed")
SATURATING = "corrected"
CERTIFICATES = ("centred", "base")
# All of them, those that speak of one input first.
NAMES = (*CERTIFICATES, SATURATING, *PROPORTIONAL)


def log10_lipschitz(forms: ClosedForms) -> dict[str, float]:
    """Returns what the closed forms say of the Lipschitz constant at i != j.

    Args:
        forms: The closed forms of a model at one length.

    Returns:
        log10 of bound / D by name, for the forms that are proportional to D and apply;
        nothing where D = 0, where no symbol changes anything.
    """
    distance = forms.constants.embedding.distance
    if distance == 0:
        return {}
    found = {}
    for name in PROPORTIONAL:
        form = getattr(forms, name)
        if form is not None:
            found[name] = form.others.log10_value - math.log10(distance)
    return found


def log10_influence(forms: ClosedForms) -> dict[str, float]:
    """Returns what the saturating recursion says of the influence at i != j.

    Args:
        forms: The closed forms of a model at one length.

    Returns:
        log10 of the bound, by name.
    """
    return {SATURATING: forms.corrected.others.log10_value}


def looseness(log10_bounds: Mapping[str, float], observed: float) -> dict[str, float]:
    """Returns how many decades bounds are above an observed number.

    Args:
        log10_bounds: Decimal logarithms of the bounds, by name.
        observed: What they bound, as observed; not negative.

    Returns:
        log10 bound - log10 observed by name; infinite where nothing was observed.

    Raises:
        ValueError: The observed number is negative or NaN.
    """
    if not observed >= 0:
        raise ValueError(f"observed = {observed}; expected a number that is at least 0")
    if observed == 0:
        return dict.fromkeys(log10_bounds, math.inf)
    return {name: bound - math.log10(observed) for name, bound in log10_bounds.items()}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The largest ratio of output change to embedding change that one search met.

    Estimates have no order; compare `value` where that is meant.

    Attributes:
        value: The ratio, in units of the output per unit of the embedding.
        method: The search: "substitution", "local", "ball", "simplex" or "tokens".
        seed: Seed of the inputs and of everything random in the search.
        iterations: Substitutions, power iterations, ascent steps or rounds that were
            made, over all inputs and restarts.
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
        position_norms: Largest local operator norm at each position over the inputs
            [n], NaN where the position may not change or none was computed.
    """

    length: int = dataclasses.field(kw_only=True)
    query: int = dataclasses.field(kw_only=True)
    target: Target = dataclasses.field(kw_only=True)
    radius: float = dataclasses.field(kw_only=True)
    influence: float = dataclasses.field(kw_only=True)
    searches: tuple[Estimate, ...] = dataclasses.field(kw_only=True)
    position_norms: np.ndarray = dataclasses.field(kw_only=True, compare=False)

    @property
    def scaled(self) -> float:
        """n K_n: constant in n where the influence falls like 1/n."""
        return self.length * self.value

    def find(self, method: str) -> Estimate | None:
        """Returns what one search met; None where it was not made."""
        for search in self.searches:
            if search.method == method:
                return search
        return None

    def row(self) -> dict[str, Any]:
        """Returns the numbers as a row of a table, one column per search."""
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
