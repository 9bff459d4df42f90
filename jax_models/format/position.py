"""Position formulas as entries of a config, both ways: docs/model-format.md, section 5."""

import dataclasses
import math
from typing import Any

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_keys,
    expect_number,
    show,
)
from jax_models.errors import InputError
from jax_models.model.position import (
    Coordinates,
    PairTable,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)

POWER_KEYS = "coordinate scale position_power length_power alternating offset".split()
RESIDUE_KEYS = "coordinate modulus residues offset".split()


def decode_position(entry: Any) -> Sinusoidal | Coordinates | int | None:
    """Returns the position formula that the config names, of pairs the separator."""
    if entry is None:
        return None
    kind = choose_name(
        "position.kind",
        entry.get("kind") if isinstance(entry, dict) else entry,
        ("sinusoidal", "coordinates", "pairs"),
    )
    if kind == "pairs":
        expect_keys("position", entry, ["kind", "separator"])
        return expect_integer("position.separator", entry.get("separator"), 0)
    if kind == "sinusoidal":
        expect_keys("position", entry, ["kind", "base", "scale"])
        return Sinusoidal(entry.get("base", 10000), entry.get("scale", 1))
    expect_keys("position", entry, ["kind", "terms"])
    terms = entry.get("terms")
    if not isinstance(terms, list):
        raise InputError(f"position.terms = {show(terms)}; expected a list of terms")
    return Coordinates(tuple(map(_decode_term, range(len(terms)), terms)))


def _decode_term(at: int, entry: Any) -> PowerTerm | ResidueTerm:
    where = f"position.terms[{at}]"
    residue = isinstance(entry, dict) and "modulus" in entry
    expect_keys(where, entry, RESIDUE_KEYS if residue else POWER_KEYS)
    coordinate = expect_integer(f"{where}.coordinate", entry.get("coordinate"), 0)
    offset = expect_number(f"{where}.offset", entry.get("offset", 1))
    if residue:
        modulus = expect_integer(f"{where}.modulus", entry["modulus"], 1, math.inf)
        residues = entry.get("residues")
        if not isinstance(residues, list):
            raise InputError(f"{where}.residues = {show(residues)}; expected a list")
        found = tuple(
            expect_integer(f"{where}.residues", r, 0, math.inf) for r in residues
        )
        return ResidueTerm(coordinate, modulus, found, offset)
    alternating = entry.get("alternating", False)
    if not isinstance(alternating, bool):
        raise InputError(
            f"{where}.alternating = {show(alternating)}; expected true or false"
        )
    return PowerTerm(
        coordinate,
        expect_number(f"{where}.scale", entry.get("scale", 1)),
        expect_number(f"{where}.position_power", entry.get("position_power", 0)),
        expect_number(f"{where}.length_power", entry.get("length_power", 0)),
        alternating,
        offset,
    )


def encode_position(position: Any) -> dict[str, Any] | None:
    """Returns the config entry of a position formula; None for a table or none."""
    if isinstance(position, PairTable):
        return {"kind": "pairs", "separator": position.separator}
    if position is None or isinstance(position, PositionTable):
        return None
    if isinstance(position, Sinusoidal):
        return {"kind": "sinusoidal", "base": position.base, "scale": position.scale}
    terms = [dataclasses.asdict(term) for term in position.terms]
    for term in terms:
        if "residues" in term:
            term["residues"] = list(term["residues"])
    return {"kind": "coordinates", "terms": terms}
