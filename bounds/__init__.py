"""Bounds on what attention can and cannot compute: exact, certified, estimated.

`compute_influence` gives the exact influence of every single-symbol substitution.
"""

from bounds.curves import BoundCurve, bound_curve
from bounds.influence import Influence, compute_influence
from bounds.store import read_store

__all__ = [
    "BoundCurve",
    "Influence",
    "bound_curve",
    "compute_influence",
    "read_store",
]
