"""Parts of models decoded from and encoded as config entries; see docs/model-format.md.

An entry is an object with the fields of the part's class, by name, and the word of the class
as `kind` where there are several.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from jax import Array
from jaxtyping import Float

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_keys,
    expect_kind,
    expect_number,
    show,
)
from jax_models.errors import InputError, errors_of
from jax_models.model.attention import Schedule
from jax_models.model.position import (
    Coordinates,
    PairTable,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.model.readout import Head, Readout
from jax_models.model.relative import (
    Alibi,
    DistanceBias,
    DistanceBuckets,
    LinearScaling,
    ListedFrequencies,
    Llama3Scaling,
    Rotary,
)
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Norm
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)

LINEAR, EMBEDDING = "linear", "embedding"
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


def _kind(where: str, entry: Any, kinds: Collection[str]) -> str:
    """The `kind` of a config entry, or the entry itself if it is a word; in `kinds`."""
    named = entry.get("kind") if isinstance(entry, dict) else entry
    return choose_name(f"{where}.kind", named, kinds)


def _word(kinds: Mapping[str, type], part: Any) -> str:
    """Word of a part's class in files; the class's name if there is none."""
    # A class of a caller's own has no word: its name is refused, by name, as unknown.
    words = (word for word, kind in kinds.items() if kind is type(part))
    return next(words, type(part).__name__)


def norm_word(norm: Norm) -> str:
    """Name of a norm in files; the class's name if files have none for it."""
    return _word(NORMS, norm)


def read_fields(where: str, entry: Any, kind: type, *more: str) -> dict[str, Any]:
    """Fields of a class in an entry, which may have the keys `more`; defaults, or None."""
    fields = {x.name: x.default for x in dataclasses.fields(kind)}
    expect_keys(where, entry, [*more, *fields])
    # A field without a default is refused by the class, which names it.
    none = {x: None for x, value in fields.items() if value is dataclasses.MISSING}
    return {name: entry.get(name, value) for name, value in (fields | none).items()}


def decode_temperature(where: str, entry: Any) -> Schedule | None:
    """Returns the schedule that a layer's `temperature` entry describes; None of None."""
    if entry is None:
        return None
    kind: Any = SCHEDULES[_kind(where, entry, SCHEDULES)]
    said = read_fields(where, entry, kind, "kind")
    for name in {"value", "scale"} & said.keys():
        said[name] = expect_number(f"{where}.{name}", said[name], 0, above=True)
    return kind(**said)


def encode_temperature(temperature: Schedule | None) -> dict[str, Any] | None:
    """Returns the config entry of a schedule."""
    if type(temperature) not in SCHEDULES.values():
        return None
    entry = {"kind": _word(SCHEDULES, temperature), **vars(temperature)}
    return entry | {x: _number(entry[x]) for x in ("value", "scale") if x in entry}


def _number(value: Any) -> Any:
    """A scalar as a float; other values unchanged, which a later check refuses."""
    # An array with axes, or text, is no number: it is passed on to be refused by name.
    scalar = isinstance(value, int | float) or getattr(value, "shape", None) == ()
    try:
        return float(value) if scalar and not isinstance(value, bool) else value
    except OverflowError:
        return value


def decode_position(where: str, entry: Any) -> Sinusoidal | Coordinates | int:
    """Returns the formula of a config's `position`; the separator symbol of "pairs"."""
    kind = _kind(where, entry, ("sinusoidal", "coordinates", "pairs"))
    if kind == "pairs":
        expect_keys(where, entry, ["kind", "separator"])
        return expect_integer(f"{where}.separator", entry.get("separator"), 0)
    if kind == "sinusoidal":
        return Sinusoidal(**read_fields(where, entry, Sinusoidal, "kind"))
    expect_keys(where, entry, ["kind", "terms"])
    expect_kind(f"{where}.terms", entry.get("terms"), list, "a list of terms")
    return Coordinates(
        tuple(map(_decode_term, range(len(entry["terms"])), entry["terms"]))
    )


def _decode_term(at: int, entry: Any) -> PowerTerm | ResidueTerm:
    where = f"position.terms[{at}]"
    residue = isinstance(entry, dict) and "modulus" in entry
    kind: Any = ResidueTerm if residue else PowerTerm
    said = read_fields(where, entry, kind)
    with errors_of(where):
        return kind(**said)


def encode_position(position: Any) -> dict[str, Any] | None:
    """Returns the config entry of a position formula or pair table; None of a table."""
    if isinstance(position, PairTable):
        return {"kind": "pairs", "separator": position.separator}
    if isinstance(position, PositionTable):
        return None
    if isinstance(position, Sinusoidal):
        return {"kind": "sinusoidal", **vars(position)}
    terms = [dataclasses.asdict(term) for term in position.terms]
    return {"kind": "coordinates", "terms": terms}


def check_distance(where: str, entry: Any) -> dict[str, Any]:
    """Returns the `distance_bias` entry of a layer, checked."""
    kind = _kind(where, entry, DISTANCES)
    expect_keys(where, entry, ["kind", *_options(DISTANCES[kind])])
    both = entry.get("bidirectional", True)
    expect_kind(f"{where}.bidirectional", both, bool, "true or false")
    return entry


def decode_distance(entry: dict[str, Any], tensor: Float[Array, "..."]) -> DistanceBias:
    """Returns the distance bias with a checked entry's options and the tensor."""
    options = {name: value for name, value in entry.items() if name != "kind"}
    return DISTANCES[entry["kind"]](tensor, **options)


def encode_distance(bias: DistanceBias) -> dict[str, Any]:
    """Returns the config entry of a distance bias."""
    options = {name: getattr(bias, name) for name in _options(type(bias))}
    return {"kind": _word(DISTANCES, bias)} | options


def _options(kind: type[DistanceBias]) -> list[str]:
    fields = dataclasses.fields(kind)
    return [field.name for field in fields if field.metadata.get("static")]


def decode_rotary(where: str, entry: Any) -> Rotary:
    """Returns the rotary positions that a layer's `rotary` entry describes."""
    said = read_fields(where, entry, Rotary)
    if (scaling := said["scaling"]) is not None:
        where = f"{where}.scaling"
        kind: Any = SCALINGS[_kind(where, scaling, SCALINGS)]
        said["scaling"] = kind(**read_fields(where, scaling, kind, "kind"))
    return Rotary(**said)


def encode_rotary(rotary: Rotary) -> dict[str, Any]:
    """Returns the config entry of rotary positions."""
    entry = dataclasses.asdict(rotary)
    if rotary.scaling is not None:
        entry["scaling"]["kind"] = _word(SCALINGS, rotary.scaling)
    return entry


def check_head(where: str, entry: Any) -> list[Any]:
    """Returns the config entry of a head, checked."""
    if not isinstance(entry, list) or not entry:
        raise InputError(f"{where} = {show(entry)}; expected a list of its operations")
    for at, one in enumerate(entry):
        place = f"{where}[{at}]"
        if isinstance(one, dict):
            expect_keys(place, one, ["norm", "epsilon"])
            choose_name(f"{place}.norm", one.get("norm"), NORMS)
            expect_number(f"{place}.epsilon", one.get("epsilon"), 0)
            continue
        choose_name(place, one, (LINEAR, EMBEDDING, *ACTIVATIONS))
        if one == EMBEDDING and at != len(entry) - 1:
            raise InputError(f"{place} = {one!r} comes last, or not at all")
    return entry


def encode_head(readout: Readout | Head | None) -> list[Any] | None:
    """Returns the config entry of a `Head`; None for a `Readout` or no read-out."""
    if not isinstance(readout, Head):
        return None
    entry: list[Any] = []
    for operation in readout.steps:
        if isinstance(operation, Norm):
            entry.append({"norm": norm_word(operation), "epsilon": operation.epsilon})
        elif isinstance(operation, Affine):
            entry.append(LINEAR)
        else:
            # As for norms: an unknown operation is named, and refused when it is decoded.
            words = (word for word, one in ACTIVATIONS.items() if one == operation)
            entry.append(next(words, type(operation).__name__))
    return [*entry, EMBEDDING] if readout.tied else entry
