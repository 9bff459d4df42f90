"""Claims of a certificate, read into types: every entry checked for its form alone.

A certificate (docs/certificates-of-restrictions.md) shows that a restriction rho, which
fixes some tokens and leaves a free bit at the other positions, makes the output of a
hard-attention model constant. A position has a table of its activations, a row for each
assignment of the free bits that it depends on; a possible set holds the positions that a row
may attend to, and its witness is a position that wins against every position outside.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jax_models import InputError
from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_kind,
    expect_number,
    read_json_file,
    show,
)
from jax_models.languages import RegularLanguage

FORMAT = "attention-bounds restriction certificate 1"
FREE = -1
TIES = {"leftmost_hard": "L", "rightmost_hard": "R", "average_hard": "avg"}
MODES = ("exact", "floating")
KEYS = (
    "format n L H tie mask model_digest symbols rho query mode layers output pair "
    "language members free log2_misclassified"
).split()

T = TypeVar("T")
# Checked value of an entry, given its place in the file and its JSON.
Reader = Callable[[str, Any], T]


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

    heads: tuple[int, ...]
    ties: tuple[str, ...]
    masks: tuple[str, ...]
    model_digest: str
    symbols: tuple[int, ...]  # two
    rho: tuple[int, ...]
    query: int
    mode: str
    layers: tuple[Mapping[int, PositionClaim], ...]
    output: tuple[float, ...]
    pair: tuple[tuple[int, ...], ...] | None  # two
    language: str | None
    members: tuple[bool, ...] | None  # of the pair
    free: int
    log2_misclassified: int | None
    automaton: RegularLanguage | None = None  # of a language that has no name

    @property
    def length(self) -> int:
        """Number of tokens, n."""
        return len(self.rho)


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
            f"{show(kind)}; expected {FORMAT!r}"
        )
    return found


def decode_claim(certificate: Mapping[str, Any]) -> Claim:
    """Decodes the claims of a certificate; raises `InputError` for a malformed entry."""
    expect_kind("the certificate", certificate, Mapping, "a JSON object")
    for key in KEYS:
        if key not in certificate:
            raise InputError(f"the certificate has no entry {key!r}")
    entry = {key: certificate[key] for key in KEYS}
    if entry["format"] != FORMAT:
        raise InputError(f"format = {show(entry['format'])}; expected {FORMAT!r}")
    length = expect_integer("n", entry["n"], 1)
    depth = expect_integer("L", entry["L"], 0)
    position = functools.partial(expect_integer, least=0, most=length - 1)
    token = functools.partial(expect_integer, least=0)
    or_free = functools.partial(expect_integer, least=FREE)
    rho = _list("rho", entry["rho"], or_free, length)
    names = {str(i): i for i in range(length)}

    def per_layer(key: str, read: Reader[T]) -> tuple[T, ...]:
        value = entry[key]
        shared = not isinstance(value, list | tuple)
        return _list(key, [value] * depth if shared else value, read, depth)

    def positions(where: str, value: Any) -> tuple[int, ...]:
        found = _list(where, value, position)
        if any(a >= b for a, b in itertools.pairwise(found)):
            raise InputError(f"{where} = {show(value)}; expected ascending positions")
        return found

    def row(where: str, value: Any) -> RowClaim:
        possible, witness = _object(where, value, "poss", "witness")
        claimed = _optional(f"{where}.witness", witness, position)
        return RowClaim(positions(f"{where}.poss", possible), claimed)

    def listed(where: str, value: Any) -> PositionClaim:
        deps, heads = _object(where, value, "deps", "heads")
        rows = _list(f"{where}.heads", heads, functools.partial(_list, read=row))
        return PositionClaim(positions(f"{where}.deps", deps), rows)

    def layer(where: str, value: Any) -> dict[int, PositionClaim]:
        expect_kind(where, value, Mapping, "an object of positions")
        found = {}
        for key, claims in value.items():
            if key not in names:
                raise InputError(
                    f"{where} has the key {show(key)}; expected a position, 0 to "
                    f"{length - 1}"
                )
            found[names[key]] = listed(f"{where}[{key!r}]", claims)
        return found

    automaton, language = None, entry["language"]
    # A language without a name stands in the file as its automaton.
    if isinstance(language, Mapping):
        automaton = RegularLanguage.decode(dict(language))
        language = automaton.name
    string = functools.partial(_list, read=token, length=length)
    pair = functools.partial(_list, read=string, length=2)
    two = functools.partial(_list, read=_boolean, length=2)
    return Claim(
        layers=_list("layers", entry["layers"], layer, depth),
        heads=per_layer("H", functools.partial(expect_integer, least=1)),
        ties=per_layer("tie", _text),
        masks=per_layer("mask", _text),
        model_digest=_text("model_digest", entry["model_digest"]),
        symbols=_list("symbols", entry["symbols"], token, 2),
        rho=rho,
        query=position("query", entry["query"]),
        mode=choose_name("mode", entry["mode"], MODES),
        output=_list("output", entry["output"], expect_number),
        pair=_optional("pair", entry["pair"], pair),
        language=_optional("language", language, _text),
        automaton=automaton,
        members=_optional("members", entry["members"], two),
        free=token("free", entry["free"]),
        log2_misclassified=_optional(
            "log2_misclassified", entry["log2_misclassified"], token
        ),
    )


def _list(
    where: str, value: Any, read: Reader[T], length: int | None = None
) -> tuple[T, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} = {show(value)}; expected a list")
    if length not in (None, len(value)):
        raise InputError(f"{where} has {len(value)} entries; expected {length}")
    return tuple(read(f"{where}[{at}]", one) for at, one in enumerate(value))


def _object(where: str, value: Any, *keys: str) -> list[Any]:
    if not isinstance(value, Mapping) or not set(keys) <= value.keys():
        raise InputError(f"{where} = {show(value)}; expected {' and '.join(keys)}")
    return [value[key] for key in keys]


def _optional(where: str, value: Any, read: Reader[T]) -> T | None:
    return None if value is None else read(where, value)


def _text(where: str, value: Any) -> str:
    expect_kind(where, value, str, "a text")
    return value


def _boolean(where: str, value: Any) -> bool:
    expect_kind(where, value, bool, "true or false")
    return value
