"""Parts of models decoded from and encoded as config entries; see docs/model-format.md.

A schedule gives the temperature of a layer by length or position. A distance bias is added
to the scores of attention. An absent part is None, and so is its entry.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

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
from jax_models.errors import InputError
from jax_models.model.attention import Schedule
from jax_models.model.mask import SIGHTS
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
from jax_models.model.scores import SCORES
from jax_models.model.temperature import (
    ConstantTemperature,
    InverseLogTemperature,
    PowerTemperature,
)

LINEAR, EMBEDDING = "linear", "embedding"


def _kind(where: str, entry: Any, kinds: Iterable[str]) -> str:
    """The `kind` of a config entry, or the entry itself if it is a word; in `kinds`."""
    named = entry.get("kind") if isinstance(entry, dict) else entry
    return choose_name(f"{where}.kind", named, tuple(kinds))


def norm_word(norm: Norm) -> str:
    """Name of a norm in files; the class's name if files have none for it."""
    # A norm of a caller's own has no word: its class's name is refused, by name, as unknown.
    return _word(NORMS, norm)


def _word(kinds: Mapping[str, type], part: Any) -> str:
    """Word of a part's class in files; the class's name if there is none."""
    words = (word for word, kind in kinds.items() if kind is type(part))
    return next(words, type(part).__name__)


SCHEDULES = {
    "constant": ConstantTemperature,
    "inverse_log": InverseLogTemperature,
    "power": PowerTemperature,
}


def decode_temperature(where: str, entry: Any, mask: str) -> Schedule | None:
    """Returns the schedule that a layer's `temperature` entry describes."""
    if entry is None:
        return None
    kind = _kind(where, entry, SCHEDULES)
    fields = dataclasses.fields(SCHEDULES[kind])
    expect_keys(where, entry, ["kind", *(field.name for field in fields)])
    if kind == "constant":
        return ConstantTemperature(
            expect_number(f"{where}.value", entry.get("value"), 0, above=True)
        )
    scale = expect_number(f"{where}.scale", entry.get("scale"), 0, above=True)
    if kind == "inverse_log":
        return InverseLogTemperature(scale)
    exponent = expect_number(f"{where}.exponent", entry.get("exponent"))
    of = choose_name(f"{where}.of", entry.get("of", "length"), ("length", "position"))
    if of == "position" and SIGHTS[mask].after:
        raise InputError(
            f'{where}.of = "position" needs a future mask, the layer has {mask!r}'
        )
    return PowerTemperature(scale, exponent, cast(Any, of))


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


POWER_KEYS = "coordinate scale position_power length_power alternating offset".split()
RESIDUE_KEYS = "coordinate modulus residues offset".split()


def decode_position(entry: Any) -> Sinusoidal | Coordinates | int | None:
    """Returns the formula of a config's `position`; the separator symbol of "pairs"."""
    if entry is None:
        return None
    kind = _kind("position", entry, ("sinusoidal", "coordinates", "pairs"))
    if kind == "pairs":
        expect_keys("position", entry, ["kind", "separator"])
        return expect_integer("position.separator", entry.get("separator"), 0)
    if kind == "sinusoidal":
        expect_keys("position", entry, ["kind", "base", "scale"])
        return Sinusoidal(entry.get("base", 10000), entry.get("scale", 1))
    expect_keys("position", entry, ["kind", "terms"])
    terms = entry.get("terms")
    expect_kind("position.terms", terms, list, "a list of terms")
    return Coordinates(tuple(map(_decode_term, range(len(terms)), terms)))


def _decode_term(at: int, entry: Any) -> PowerTerm | ResidueTerm:
    where = f"position.terms[{at}]"
    residue = isinstance(entry, dict) and "modulus" in entry
    expect_keys(where, entry, RESIDUE_KEYS if residue else POWER_KEYS)
    coordinate = expect_integer(f"{where}.coordinate", entry.get("coordinate"), 0)
    offset = expect_number(f"{where}.offset", entry.get("offset", 1))
    if residue:
        modulus = expect_integer(f"{where}.modulus", entry["modulus"], 1, math.inf)
        residues: Any = entry.get("residues")
        expect_kind(f"{where}.residues", residues, list, "a list")
        found = tuple(
            expect_integer(f"{where}.residues", r, 0, math.inf) for r in residues
        )
        return ResidueTerm(coordinate, modulus, found, offset)
    alternating = entry.get("alternating", False)
    expect_kind(f"{where}.alternating", alternating, bool, "true or false")
    defaults = {"scale": 1, "position_power": 0, "length_power": 0}
    numbers = {
        name: expect_number(f"{where}.{name}", entry.get(name, default))
        for name, default in defaults.items()
    }
    return PowerTerm(coordinate, **numbers, alternating=alternating, offset=offset)


def encode_position(position: Any) -> dict[str, Any] | None:
    """Returns the config entry of a position formula or pair table; None of a table."""
    if isinstance(position, PairTable):
        return {"kind": "pairs", "separator": position.separator}
    if position is None or isinstance(position, PositionTable):
        return None
    if isinstance(position, Sinusoidal):
        return {"kind": "sinusoidal", "base": position.base, "scale": position.scale}
    terms = [dataclasses.asdict(term) for term in position.terms]
    for term in terms:
        # Lists, as JSON has them and the decoder takes them.
        if "residues" in term:
            term["residues"] = list(term["residues"])
    return {"kind": "coordinates", "terms": terms}


# By kind in a config: the class, and the axes of its tensor after that of heads.
DISTANCES: dict[str, tuple[type[DistanceBias], tuple[str, ...]]] = {
    "alibi": (Alibi, ()),
    "buckets": (DistanceBuckets, ("buckets",)),
}


def check_distance(where: str, entry: Any) -> dict[str, Any] | None:
    """Returns the `distance_bias` entry of a layer, checked."""
    if entry is None:
        return None
    kind = _kind(where, entry, DISTANCES)
    expect_keys(where, entry, ["kind", *_options(DISTANCES[kind][0])])
    if kind == "buckets":
        both = entry.get("bidirectional", True)
        expect_kind(f"{where}.bidirectional", both, bool, "true or false")
    return entry


def decode_distance(entry: dict[str, Any], tensor: Float[Array, "..."]) -> DistanceBias:
    """Returns the distance bias with a checked entry's options and the tensor."""
    options = {name: value for name, value in entry.items() if name != "kind"}
    return DISTANCES[entry["kind"]][0](tensor, **options)


def encode_distance(bias: DistanceBias | None) -> dict[str, Any] | None:
    """Returns the config entry of a distance bias."""
    if bias is None:
        return None
    kind = _word({word: one for word, (one, _) in DISTANCES.items()}, bias)
    return {"kind": kind} | {name: getattr(bias, name) for name in _options(type(bias))}


def tensor_of(bias: DistanceBias | None) -> Any:
    """The slopes or table that a file holds as the tensor of a distance bias."""
    if bias is None:
        return None
    return bias.slopes if isinstance(bias, Alibi) else bias.table


def _options(kind: type[DistanceBias]) -> list[str]:
    fields = dataclasses.fields(kind)
    return [field.name for field in fields if field.metadata.get("static")]


SCALINGS = {
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "listed": ListedFrequencies,
}


def decode_rotary(where: str, entry: Any, score: str) -> Rotary | None:
    """Returns the rotary positions that a layer's `rotary` entry describes."""
    if entry is None:
        return None
    expect_keys(where, entry, [field.name for field in dataclasses.fields(Rotary)])
    # A rotation makes inner products depend on the distance; an additive score has none.
    if score in SCORES and not SCORES[score].bilinear:
        raise InputError(f"{where} goes only with dot-product scores, found {score!r}")
    scaling = entry.get("scaling")
    if scaling is not None:
        kind = SCALINGS[_kind(f"{where}.scaling", scaling, SCALINGS)]
        names = [field.name for field in dataclasses.fields(kind)]
        expect_keys(f"{where}.scaling", scaling, ["kind", *names])
        scaling = kind(*(scaling.get(name) for name in names))
    return Rotary(
        entry.get("dims"),
        entry.get("theta", 10000),
        entry.get("pairing", "half"),
        scaling,
    )


def encode_rotary(rotary: Rotary | None) -> dict[str, Any] | None:
    """Returns the config entry of rotary positions."""
    if rotary is None:
        return None
    entry = dataclasses.asdict(rotary)
    if rotary.scaling is not None:
        entry["scaling"]["kind"] = _word(SCALINGS, rotary.scaling)
    return entry


def decode_head(entry: Any) -> list[Any] | None:
    """Returns the config entry of a head after checking it; None if there is none."""
    if entry is None:
        return None
    if not isinstance(entry, list) or not entry:
        raise InputError(f"head = {show(entry)}; expected a list of its operations")
    for at, one in enumerate(entry):
        where = f"head[{at}]"
        if isinstance(one, dict):
            expect_keys(where, one, ["norm", "epsilon"])
            choose_name(f"{where}.norm", one.get("norm"), tuple(NORMS))
            expect_number(f"{where}.epsilon", one.get("epsilon"), 0)
            continue
        choose_name(where, one, (LINEAR, EMBEDDING, *ACTIVATIONS))
        if one == EMBEDDING and at != len(entry) - 1:
            raise InputError(f"{where} = {one!r} comes last, or not at all")
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
