"""Distance of Lemma 5's corrected constant from the exact influence, and from falling.

No constant of the lemma falls before its bound on an attention weight does: in a row of n
logits that differ by at most 2A it is 1/(1 + (n - 1) e^{-2A}), which is near 1 until n is
about e^{2A} and falls like 1/n from there. Trained or random, A is soon so large that this
n is beyond any length that can be run, and the constant flat within all of them.
"""

import dataclasses
import math
from typing import TYPE_CHECKING

from bounds.curves.columns import HALF_WEIGHT
from bounds.curves.measurement import influence_value

if TYPE_CHECKING:
    from bounds.curves.curve import BoundCurve

CORRECTED = "log10_corrected"


@dataclasses.dataclass(frozen=True)
class Gap:
    """Corrected constant against one curve; all but lengths are decimal logarithms.

    Attributes:
        last: Longest n that was measured and has a constant.
        exact: Largest influence at `last`; None where it is zero.
        corrected: The constant at `last`.
        half_weight: n at which the bound on a weight is 1/2, at the longest length known.
        bend: `half_weight` where a known length reaches it and the constant begins to
            fall; else None.
        end: Longest n at which the constant is known.
        at_end: The constant at `end`.
    """

    last: int
    exact: float | None
    corrected: float
    half_weight: float
    bend: float | None
    end: int
    at_end: float

    @property
    def decades(self) -> float | None:
        """Decades from the exact influence to the constant, at the last length measured."""
        return None if self.exact is None else self.corrected - self.exact


def corrected_gap(curve: "BoundCurve") -> Gap | None:
    """Gap between a curve and its closed forms; None without closed forms."""
    measured = [row for row in curve if row.get(CORRECTED) is not None]
    known = [*measured, *(r for r in curve.beyond if r[CORRECTED] is not None)]
    known = [row for row in known if row[HALF_WEIGHT] is not None]
    if not measured or not known:
        return None
    reached = [r[HALF_WEIGHT] for r in known if math.log10(r["n"]) >= r[HALF_WEIGHT]]
    last, end = measured[-1], known[-1]
    value = influence_value(last)
    return Gap(
        last=last["n"],
        exact=math.log10(value) if value > 0 else None,
        corrected=last[CORRECTED],
        half_weight=end[HALF_WEIGHT],
        bend=reached[0] if reached else None,
        end=end["n"],
        at_end=end[CORRECTED],
    )


def describe_gap(curve: "BoundCurve") -> list[str]:
    """Sentences on the length where the corrected constant falls, and on its gap."""
    gap = corrected_gap(curve)
    if gap is None:
        return []
    bend = gap.half_weight if gap.bend is None else gap.bend
    trivial = (
        f"{curve.label}: the bound on an attention weight is 1/2 at n_half = 1 + e^(2A) = "
        f"10^{bend:.3g}"
    )
    where = f"10^{gap.at_end:.3g} at n = {gap.end}"
    if gap.bend is None:
        beyond = f"beyond n = {gap.end}: the corrected constant does not fall"
        said = f"{trivial}, {beyond}, {where}."
    else:
        said = f"{trivial}: from about there the corrected constant falls, to {where}."
    if gap.decades is None:
        return [said]
    return [
        f"{said} At n = {gap.last} it is {gap.decades:.1f} decades above the exact "
        "influence."
    ]
