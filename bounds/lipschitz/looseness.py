"""How far bounds are above what was observed, in decades.

A closed form bounds every influence at a distance D of two embeddings. Those that are
proportional to D bound the Lipschitz constant, by bound / D, and are compared with the
estimate of it; the corrected recursion saturates, so that it bounds influences only, and
is compared with the largest influence met. A certificate speaks of its own input, and
is compared with the exact ratios there.
"""

import math
from collections.abc import Mapping

from bounds.constants import ClosedForms

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
