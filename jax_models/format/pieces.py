"""Parts of models decoded from and encoded as config entries; see docs/model-format.md.

A part is a small object of a model, such as a temperature schedule; its word is its
class's name in files. An entry is an object with the fields of the part's class that
are no arrays, by name, and the word of the class as `kind` where there are several.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from jax_models.arguments import choose_name, expect_keys, expect_kind, expect_number
from jax_models.errors import errors_of
from jax_models.model.attention import Schedule
from jax_models.model.position import (
    Coordinates,
    PairTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.model.pytree import array_fields
from jax_models.model.relative import (
    Alibi,
    DistanceBias,
    DistanceBuckets,
    LinearScaling,
    ListedFrequencies,
    Llama3Scaling,
    Rotary,
)
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)

LINEAR, EMBEDDING = "linear", "embedding"  # operations of heads
# Classes of parts by their words in files.
SCHEDULES = {
    "constant": ConstantTemperature,
    "inverse_log": InverseLogTemperature,
    "power": PowerTemperature,
}
SCALINGS = {
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "listed": ListedFrequencies,
}
DISTANCES: dict[str, type[DistanceBias]] = {
    "alibi": Alibi,
    "buckets": DistanceBuckets,
}
POSITIONS = {
    "sinusoidal": Sinusoidal,
    "coordinates": Coordinates,
    "pairs": PairTable,
}
KINDS: dict[str, type] = SCHEDULES | SCALINGS | DISTANCES | POSITIONS


def word_of(kinds: Mapping[str, type], part: Any) -> str:
    """Name in files of a part's class; the class's own name if there is none."""
    # A class of a caller's own has no word: its name is refused, by name, as unknown.
    words = (word for word, kind in kinds.items() if kind is type(part))
    return next(words, type(part).__name__)


@functools.cache
def _keys(kind: type) -> dict[str, dataclasses.Field[Any]]:
    """Fields of a part's class that are no arrays, by their keys in a config entry."""
    fields = (x for x in dataclasses.fields(kind) if x.name not in array_fields(kind))
    # `class_`: the key is a keyword of Python.
    return {field.name.rstrip("_"): field for field in fields}


def read_fields(where: str, entry: Any, kind: type, *more: str) -> dict[str, Any]:
    """Field values of class `kind` in an entry, or defaults; allows the keys `more`."""
    keys = _keys(kind)
    expect_keys(where, entry, [*more, *keys])
    # A field without a default is refused by the class, which names it.
    absent = {
        x: None if y.default is dataclasses.MISSING else y.default
        for x, y in keys.items()
    }
    return {keys[x].name: entry.get(x, default) for x, default in absent.items()}


def read_part(kind: type) -> Callable[[str, Any], Any]:
    """Function that makes a `kind` from its config key, for messages, and its entry."""
    return lambda where, entry: kind(**read_fields(where, entry, kind))


def read_kind(
    where: str, entry: Any, kinds: Mapping[str, type]
) -> tuple[Any, dict[str, Any]]:
    """Class named by an entry's `kind` or by the entry, a word; its field values."""
    named = entry.get("kind") if isinstance(entry, dict) else entry
    kind = kinds[choose_name(f"{where}.kind", named, kinds)]
    return kind, read_fields(where, entry, kind, "kind")


def write_part(part: Any) -> Any:
    """Config entry of a model's part (dataclass) or tuple of parts; else the value."""
    if isinstance(part, tuple):
        return list(map(write_part, part))
    if not dataclasses.is_dataclass(part):
        return part
    keys = _keys(type(part)).items()
    entry = {key: write_part(getattr(part, field.name)) for key, field in keys}
    is_one = isinstance(part, tuple(KINDS.values()))
    return {"kind": word_of(KINDS, part)} | entry if is_one else entry


def decode_temperature(where: str, entry: Any) -> Schedule | None:
    """Returns the schedule that a layer's `temperature` entry describes; None of None."""
    if entry is None:
        return None
    kind, said = read_kind(where, entry, SCHEDULES)
    for name in {"value", "scale"} & said.keys():
        said[name] = expect_number(f"{where}.{name}", said[name], 0, above=True)
    return kind(**said)


def encode_temperature(temperature: Schedule | None) -> dict[str, Any] | None:
    """Config entry of a layer's temperature schedule."""
    entry = write_part(temperature)
    return entry and {name: _number(value) for name, value in entry.items()}


def _number(value: Any) -> Any:
    """A scalar as a float; other values unchanged, which a later check refuses."""
    # An array with axes, or text, is no number: it is passed on to be refused by name.
    scalar = isinstance(value, int | float) or getattr(value, "shape", None) == ()
    try:
        return float(value) if scalar and not isinstance(value, bool) else value
    except OverflowError:
        return value


def decode_position(where: str, entry: Any) -> Any:
    """Returns a config's position formula; of "pairs" {"separator": symbol} alone."""
    kind, said = read_kind(where, entry, POSITIONS)
    if kind is PairTable:
        return said
    if kind is Coordinates:
        terms = entry.get("terms")
        expect_kind(f"{where}.terms", terms, list, "a list of terms")
        said["terms"] = tuple(map(_decode_term, range(len(terms)), terms))
    return kind(**said)


def _decode_term(at: int, entry: Any) -> PowerTerm | ResidueTerm:
    where = f"position.terms[{at}]"
    residue = isinstance(entry, dict) and "modulus" in entry
    kind: Any = ResidueTerm if residue else PowerTerm
    said = read_fields(where, entry, kind)
    with errors_of(where):
        return kind(**said)


def decode_rotary(where: str, entry: Any) -> Rotary:
    """Returns the rotary positions that a layer's `rotary` entry describes."""
    said = read_fields(where, entry, Rotary)
    if said["scaling"] is not None:
        kind, own = read_kind(f"{where}.scaling", said["scaling"], SCALINGS)
        said["scaling"] = kind(**own)
    return Rotary(**said)
