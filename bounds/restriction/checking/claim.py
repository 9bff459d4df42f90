"""Claims of a certificate, read into types: every entry checked for its form alone.

A certificate shows that a restriction rho, which fixes some tokens and leaves a free bit at
the other positions, makes the output of a hard-attention model constant.

The file is JSON (docs/certificates-of-restrictions.md). A position has a table of its
activations, a row for each assignment of the free bits that it depends on; a possible set
holds the positions that a row may attend to, and its witness is a position that wins
against every position outside. The other modules decide whether the claims are true.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Mapping
from typing import Any

from jax_models import InputError
from jax_models.arguments import read_json_file
from jax_models.languages import RegularLanguage

FORMAT = "attention-bounds restriction certificate 1"
FREE = -1
# No position, token or count of a model is beyond it.
LARGEST = 2**31 - 1
TIES = {"leftmost_hard": "L", "rightmost_hard": "R", "average_hard": "avg"}
MODES = ("exact", "floating")
KEYS = (
    "format n L H tie mask model_digest symbols rho query mode layers output pair "
    "language members free log2_misclassified"
).split()


@dataclasses.dataclass(frozen=True)
class RowClaim:
    """Claimed possible set of one table row and head; without witness if nothing is seen."""

    possible: tuple[int, ...]
    witness: int | None


@dataclasses.dataclass(frozen=True)
class PositionClaim:
    """Claims about a position's activation: its free bits, and its possible sets."""

    deps: tuple[int, ...]
    heads: tuple[tuple[RowClaim, ...], ...]  # [head][row of the table below]


@dataclasses.dataclass(frozen=True)
class Claim:
    """The decoded entries of a certificate."""

    num_layers: int
    heads: tuple[int, ...]
    ties: tuple[str, ...]
    masks: tuple[str, ...]
    model_digest: str
    symbols: tuple[int, int]
    rho: tuple[int, ...]
    query: int
    mode: str
    layers: tuple[Mapping[int, PositionClaim], ...]
    output: tuple[float, ...]
    pair: tuple[tuple[int, ...], tuple[int, ...]] | None
    language: str | None
    members: tuple[bool, bool] | None
    free: int
    log2_misclassified: int | None
    automaton: RegularLanguage | None = None  # of a language that has no name

    @property
    def length(self) -> int:
        """Number of tokens, n."""
        return len(self.rho)

    @property
    def free_positions(self) -> tuple[int, ...]:
        """The positions that rho leaves free, ascending."""
        return tuple(i for i, token in enumerate(self.rho) if token == FREE)


def read_certificate(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the certificate in a file, as the JSON object that it is.

    Args:
        path: the file.

    Raises:
        InputError: if there is no such file, it is not JSON, or it is no certificate.
        OSError: if it cannot be read.
    """
    found = read_json_file("certificate file", path)
    kind = found.get("format") if isinstance(found, dict) else found
    if kind != FORMAT:
        raise InputError(
            f"{os.fspath(path)!r} is no certificate of a restriction: its format is "
            f"{_short(kind)}; expected {FORMAT!r}"
        )
    return found


def decode_claim(certificate: Mapping[str, Any]) -> Claim:
    """Decodes the claims of a certificate; raises `InputError` for a malformed entry."""
    if not isinstance(certificate, Mapping):
        raise InputError(f"a certificate is a JSON object, got {_short(certificate)}")
    for key in KEYS:
        if key not in certificate:
            raise InputError(f"the certificate has no entry {key!r}")
    entry = {key: certificate[key] for key in KEYS}
    if entry["format"] != FORMAT:
        raise InputError(f"format = {_short(entry['format'])}; expected {FORMAT!r}")
    length = _integer("n", entry["n"], 1)
    depth = _integer("L", entry["L"], 0)
    symbols = _integers("symbols", entry["symbols"], 0)
    rho = _integers("rho", entry["rho"], FREE)
    _expect_length("symbols", symbols, 2)
    _expect_length("rho", rho, length)
    layers = _list("layers", entry["layers"])
    _expect_length("layers", layers, depth)
    automaton = None
    # A language without a name stands in the file as its automaton.
    if isinstance(entry["language"], Mapping):
        automaton = RegularLanguage.decode(dict(entry["language"]))
        entry["language"] = automaton.name
    for name, allowed in (("mode", MODES), ("model_digest", None), ("language", None)):
        value = entry[name]
        if value is None and name == "language":
            continue
        if not isinstance(value, str) or (allowed and value not in allowed):
            wanted = "a text" if allowed is None else f"one of {', '.join(allowed)}"
            raise InputError(f"{name} = {_short(value)}; expected {wanted}")
    misclassified = entry["log2_misclassified"]
    return Claim(
        num_layers=depth,
        heads=tuple(
            _integer("H", heads, 1) for heads in _per_layer("H", entry["H"], depth)
        ),
        ties=_names("tie", entry["tie"], depth),
        masks=_names("mask", entry["mask"], depth),
        model_digest=entry["model_digest"],
        symbols=(symbols[0], symbols[1]),
        rho=rho,
        query=_below("query", entry["query"], length),
        mode=entry["mode"],
        layers=tuple(
            _layer(f"layers[{at}]", layer, length) for at, layer in enumerate(layers)
        ),
        output=tuple(
            _number(f"output[{at}]", value)
            for at, value in enumerate(_list("output", entry["output"]))
        ),
        pair=_pair(entry["pair"], length),
        language=entry["language"],
        automaton=automaton,
        members=_members(entry["members"]),
        free=_integer("free", entry["free"], 0),
        log2_misclassified=(
            None
            if misclassified is None
            else _integer("log2_misclassified", misclassified, 0)
        ),
    )


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} = {_short(value)}; expected a list")
    return list(value)


def _expect_length(where: str, value: Any, length: int) -> None:
    if len(value) != length:
        raise InputError(f"{where} has {len(value)} entries; expected {length}")


def _integer(where: str, value: Any, least: int) -> int:
    # True is an integer of Python, but not of JSON.
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= LARGEST:
        raise InputError(
            f"{where} = {_short(value)}; expected an integer from {least} to {LARGEST}"
        )
    return value


def _below(where: str, value: Any, length: int) -> int:
    if _integer(where, value, 0) >= length:
        raise InputError(f"{where} = {value}; positions are 0 to {length - 1}")
    return value


def _number(where: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Integers of any size compare with floats, but not all of them become one.
    if not number or not abs(value) <= sys.float_info.max:
        raise InputError(f"{where} = {_short(value)}; expected a finite number")
    return float(value)


def _integers(where: str, value: Any, least: int) -> tuple[int, ...]:
    return tuple(_integer(where, one, least) for one in _list(where, value))


def _ascending(where: str, value: Any, length: int) -> tuple[int, ...]:
    found = tuple(_below(where, one, length) for one in _list(where, value))
    if any(a >= b for a, b in itertools.pairwise(found)):
        raise InputError(f"{where} = {_short(value)}; expected ascending positions")
    return found


def _per_layer(where: str, value: Any, depth: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        return [value] * depth
    _expect_length(where, value, depth)
    return list(value)


def _names(where: str, value: Any, depth: int) -> tuple[str, ...]:
    found = _per_layer(where, value, depth)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"{where} = {_short(name)}; expected a name")
    return tuple(found)


def _layer(where: str, value: Any, length: int) -> dict[int, PositionClaim]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} = {_short(value)}; expected an object of positions")
    found = {}
    for key, entry in value.items():
        if not (isinstance(key, str) and key.isascii() and key.isdecimal()):
            raise InputError(f"{where} has the key {key!r}; expected a position")
        # A longer number is no position, and Python refuses to read thousands of
        # digits.
        position = _below(f"{where} key", int(key) if len(key) < 19 else -1, length)
        at = f"{where}[{key!r}]"
        if not isinstance(entry, Mapping) or not {"deps", "heads"} <= entry.keys():
            raise InputError(f"{at} = {_short(entry)}; expected deps and heads")
        # "1" and "01" are two keys, and one position.
        if position in found:
            raise InputError(f"{where} lists position {position} twice")
        found[position] = PositionClaim(
            deps=_ascending(f"{at}.deps", entry["deps"], length),
            heads=tuple(
                tuple(
                    _row(f"{at}.heads[{h}][{a}]", row, length)
                    for a, row in enumerate(_list(f"{at}.heads[{h}]", rows))
                )
                for h, rows in enumerate(_list(f"{at}.heads", entry["heads"]))
            ),
        )
    return found


def _row(where: str, value: Any, length: int) -> RowClaim:
    if not isinstance(value, Mapping) or not {"poss", "witness"} <= value.keys():
        raise InputError(f"{where} = {_short(value)}; expected poss and witness")
    witness = value["witness"]
    return RowClaim(
        _ascending(f"{where}.poss", value["poss"], length),
        None if witness is None else _below(f"{where}.witness", witness, length),
    )


def _pair(value: Any, length: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if value is None:
        return None
    strings = [_integers("pair", one, 0) for one in _list("pair", value)]
    _expect_length("pair", strings, 2)
    for string in strings:
        _expect_length("a string of the pair", string, length)
    return strings[0], strings[1]


def _members(value: Any) -> tuple[bool, bool] | None:
    if value is None:
        return None
    found = _list("members", value)
    _expect_length("members", found, 2)
    if not all(isinstance(one, bool) for one in found):
        raise InputError(f"members = {_short(value)}; expected two of true and false")
    return found[0], found[1]
