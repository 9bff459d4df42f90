"""Forms of stored results: schemas of their JSON, checked whenever a row is read.

A form is a type (`float` takes whole numbers too, `dict` any content), None, `SIZE`
(finite, not negative), a range of whole numbers, a tuple of alternatives, a list of the
form of its entries and, where fixed, their number, or a dict of the forms of its keys:
those that end in ? may be missing, and the key = holds a predicate of the whole dict.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from jax_models.arguments import show

Form = Any
COUNT = range(2**63)
MOST_DEPTH = 32
SIZE = "size"


def each(names: str, form: Form) -> dict[str, Form]:
    """Maps each of several names, which spaces separate, to `form`."""
    return dict.fromkeys(names.split(), form)


# By name, which means the same wherever it stands; others are numbers or null.
_KINDS = {
    **each("n input evaluated uncertified iterations layer query row ties", COUNT),
    **each("ties_simulated inputs_run substitutions entries", COUNT),
    **each("position symbol decided inputs prefixes", (COUNT, None)),
    **each("block_substitutions block_rows", (COUNT, None)),
    **each(
        "method weighting kind eps_kind floor_kind heads measured_on reference", str
    ),
    **each("reason theorem", (str, None)),
    **{"parameters": dict, "source": str},
    **each("exact ambiguous all_inputs exact_scores enumerated", bool),
    **each("max max_lower max_upper influence_lower influence_upper estimate", SIZE),
    **each("epsilon substitution influence optimal unigram last_symbol model", SIZE),
    "model_stderr": SIZE,
    **each("notes hypotheses", [str]),
}


def fields(*names: str, **own: Form) -> dict[str, Form]:
    """Form of an object: keys `names` in their usual forms, keys of `own` in those given."""
    listed = " ".join(names).split()
    return {x: _KINDS.get(x.rstrip("?"), (float, None)) for x in listed} | own


def only(number: int) -> Form:
    """Form that admits one whole number only."""
    return range(number, number + 1)


def ordered(lower: str, upper: str) -> Callable[[Mapping[str, Any]], bool]:
    """Predicate of an object: entry `lower` <= entry `upper`, or one of them is None."""
    return lambda one: None in (one[lower], one[upper]) or one[lower] <= one[upper]


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether the entries of a row that `_KINDS` names have these forms or are None."""
    return all(
        _fit([x], (_KINDS[name], None)) for name, x in row.items() if name in _KINDS
    )


def decode(text: str, form: Form = dict) -> Any:
    """Value of a JSON text that has the form; a ValueError for any other text."""
    try:
        value = json.loads(text)
        if _fit([value], form):
            return value
    except (ValueError, OverflowError, RecursionError):
        pass
    raise ValueError(f"{show(text)} is no result of this command")


def _fit(values: list[Any], form: Form) -> bool:
    """Whether all values have the form; may raise `OverflowError` if one has not."""
    match form:
        case dict():
            known = {name.rstrip("?"): one for name, one in form.items() if name != "="}
            needed = {name for name in form if name[-1] not in "?="}
            return (
                all(isinstance(one, dict) for one in values)
                and all(needed <= one.keys() <= known.keys() for one in values)
                and all(
                    _fit([one[name] for one in values if name in one], known[name])
                    for name in known
                )
                and all(map(form.get("=", lambda _: True), values))
            )
        case list():
            return (
                all(isinstance(one, list) for one in values)
                and all(form[1:] in ([], [len(one)]) for one in values)
                and _fit([x for one in values for x in one], form[0])
            )
        case tuple():
            return all(any(_fit([value], one) for one in form) for value in values)
        case str():
            return _fit(values, float) and min(values, default=0) >= 0
        case range():
            return {*map(type, values)} <= {int} and all(map(form.__contains__, values))
        case type() if form is float:
            return {*map(type, values)} <= {int, float} and all(
                map(math.isfinite, values)
            )
        case type():
            return {*map(type, values)} <= {form} and all(map(_is_plain, values))
    return all(value is form for value in values)


def _is_plain(value: Any, depth: int = MOST_DEPTH) -> bool:
    """Whether a JSON value has finite numbers, encodable text and at most `depth` levels."""
    match value:
        case dict():
            return _is_plain([*value, *value.values()], depth)
        case list():
            return depth > 0 and all(_is_plain(one, depth - 1) for one in value)
        case str():
            return bool(value.encode()) or not value  # half a character raises
    return value is None or math.isfinite(value)
