"""Records of a piece of one input's influences in the store."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from bounds.cli.shared.packed import pack, unpack
from bounds.cli.shared.precision import ERROR, ERROR_FORM, split_error
from bounds.influence import InfluenceRequest
from bounds.influence.result import Enclosures, Found, Level
from bounds.influence.ties import Ties
from bounds.store.forms import COUNT, SIZE, fields

# Arrays over all substitutions of a piece; the first array has no NaN.
GATHERED = ("values", "moves")
ENCLOSED = ("lower", "upper", "enclosed", *GATHERED)
_OF_ALL = fields("max position ambiguous", count=COUNT)
GATHERED_FORM = {
    **_OF_ALL,
    **dict.fromkeys(GATHERED, str),
    **{"magnitude": SIZE, "ties": (dict, None)},
}
ENCLOSED_FORM = {
    **_OF_ALL,
    **dict.fromkeys(ENCLOSED, str),
    **fields("reason", left=[COUNT], levels=[dict], magnitude=SIZE),
    ERROR: ERROR_FORM,
}


def record_gathered(request: InfluenceRequest, found: Found) -> dict[str, Any]:
    """Record of influences."""
    ties = found.ties
    return {
        **_summary(request, found.values),
        **{name: pack(getattr(found, name)) for name in GATHERED},
        "magnitude": found.magnitude,
        "ties": None if ties is None else dataclasses.asdict(ties),
        "ambiguous": ties is not None and ties.ambiguous,
    }


def record_enclosed(
    request: InfluenceRequest, found: Enclosures, reason: str
) -> dict[str, Any]:
    """Record of enclosures, with the reason of the method."""
    return {
        **_summary(request, found.values),
        **{name: pack(getattr(found, name)) for name in ENCLOSED},
        "ambiguous": False,
        "magnitude": found.magnitude,
        "reason": reason,
        "left": found.left,
        "levels": [dataclasses.asdict(level) for level in found.levels],
        ERROR: None if found.error is None else dataclasses.asdict(found.error),
    }


def _summary(
    request: InfluenceRequest, values: Float[np.ndarray, "substitutions"]
) -> dict[str, Any]:
    """The largest value, its position, and the number of values."""
    if not np.isfinite(values).any():
        return {"count": values.size, "max": 0.0, "position": None}
    best = int(np.nanargmax(values))
    position = int(request.position[best])
    return {"count": values.size, "max": float(values[best]), "position": position}


def has_numbers(found: Mapping[str, Any], count: int) -> bool:
    """True if the record has a number for each of `count` substitutions."""
    names = ENCLOSED if ENCLOSED[0] in found else GATHERED
    try:
        first, second, *_ = (unpack(found[name], count) for name in names)
    except ValueError:
        return False
    if found["count"] != count or not (np.isfinite(first) & (first >= 0)).all():
        return False
    if ENCLOSED[0] not in found:  # moves, where runs were made
        return bool((np.isnan(second) | (second >= 0)).all())
    return bool((first <= second).all())


def gathered(found: Mapping[str, Any]) -> Found:
    """Influences of a record."""
    values, moves = (unpack(found[name], found["count"]) for name in GATHERED)
    ties = None
    if (told := found["ties"]) is not None:  # infinity is recorded as null
        known: dict[str, Any] = {
            k: math.inf if x is None else x for k, x in told.items()
        }
        known["scores"] = tuple(known["scores"])
        ties = Ties(**known)
    return Found(values, moves, found["magnitude"], ties)


def enclosures(found: Mapping[str, Any]) -> Enclosures:
    """Enclosures of a record."""
    arrays = [unpack(found[name], found["count"]) for name in ENCLOSED]
    lower, upper, enclosed, values, moves = arrays
    levels = tuple(Level(**level) for level in found["levels"])
    left = np.asarray(found["left"], np.int64)
    ends = lower, upper, enclosed.astype(bool)
    _, error = split_error([found])
    computed = values, moves, found["magnitude"], None
    return Enclosures(*computed, *ends, left, levels, error)
