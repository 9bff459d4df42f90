"""Specification of a sweep: a command, flags held fixed, and flags that take several values.

A cell is one run of the command, with one value of each swept flag. Everything is text,
as it would be typed after `--flag=`; the command's own flags read it.
"""

import collections
import dataclasses
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax_models.arguments import (
    SPEC_BYTES,
    expect_keys,
    expect_kind,
    once_each,
    read_file,
)
from jax_models.errors import InputError

KEYS = ("command", "fixed", "sweep")
# The plan alone of a larger sweep would fill memory.
MOST_CELLS = 100_000
# Python's reader of TOML takes memory with the square of a key's parts; two are enough.
MOST_PARTS = 16
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"?+|'[^'\n]*+'?+)"""
_NEXT = rf"[ \t]*+\.[ \t]*+{_PART}"
NESTED = re.compile(rf"{_PART}(?:{_NEXT}){{0,{MOST_PARTS - 1}}}+({_NEXT})?")


@dataclasses.dataclass(frozen=True)
class Specification:
    """A sweep of a command over the cross product of values of its flags."""

    command: str
    fixed: Mapping[str, str]  # values of the flags that all cells share
    sweep: Mapping[str, tuple[str, ...]]  # values of each swept flag, in order

    def __post_init__(self) -> None:
        """Refuse empty or repeated values, flags given twice, and too many cells."""
        for name, values in self.sweep.items():
            if name in self.fixed:
                raise InputError(
                    f"--{name} is both fixed and swept; give one of the two"
                )
            if not values or "" in values:
                found = ",".join(values)
                raise InputError(f"--sweep {name}: a value is empty, found {found!r}")
            ((value, count),) = collections.Counter(values).most_common(1)
            if count > 1:
                raise InputError(f"--sweep {name}: the value {value} is named twice")
        size = math.prod(map(len, self.sweep.values()))
        if size > MOST_CELLS:
            raise InputError(
                f"{size} cells in the cross product; at most {MOST_CELLS} go into "
                "one sweep, divide it"
            )

    def cells(self) -> Iterator[dict[str, str]]:
        """Yields the swept flags' values in each cell, the last flag varying fastest."""
        for values in itertools.product(*self.sweep.values()):
            yield dict(zip(self.sweep, values, strict=True))


def read_sweep(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Swept flags and their values, from texts `flag=a,b,c` or `flag=a,b;c`."""
    swept: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix("--")
        if not (equals and name):
            raise InputError(f"--sweep {text}: expected flag=a,b,c, as in seed=1,2")
        if name in swept:
            raise InputError(f"--sweep {text}: {name} is swept twice")
        parts = values.split(";" if ";" in values else ",")
        swept[name] = tuple(value.strip() for value in parts)
    return swept


def read_specification(path: str) -> Specification:
    """Reads a sweep from a TOML or JSON file: an object of command, fixed and sweep.

    A list within these is the value of a flag that takes several.
    """
    if not path.endswith((".toml", ".json")):
        raise InputError(f"--spec={path}: expected a file ending in .toml or .json")
    content = read_file("--spec", path, SPEC_BYTES)
    try:
        if path.endswith(".json"):
            return _specified(json.loads(content, object_pairs_hook=once_each))
        text = content.decode()
        if any(key[1] for key in NESTED.finditer(text)):
            raise InputError(f"a key of more than {MOST_PARTS} parts")
        return _specified(tomllib.loads(text))
    except InputError as error:
        raise InputError(f"--spec={path}: {error}") from error
    # ValueError is what both readers and the decoding raise; the other, deep nesting.
    except (ValueError, RecursionError) as error:
        raise InputError(f"--spec={path}: cannot be read ({error})") from error


def _specified(read: Any) -> Specification:
    """Specification of a file's decoded content."""
    expect_keys("the specification", read, KEYS)
    expect_kind("command", command := read.get("command"), str, "a name")
    for name in ("fixed", "sweep"):
        expect_kind(name, read.get(name, {}), dict, "an object")
    swept = {}
    for name, values in read.get("sweep", {}).items():
        expect_kind(f"sweep.{name}", values, list, "a list of values")
        swept[name] = tuple(typed(value, name) for value in values)
    fixed = {name: typed(value, name) for name, value in read.get("fixed", {}).items()}
    return Specification(command, fixed, swept)


def typed(value: Any, name: str) -> str:
    """Text of an option's value, as it would be typed after `--name=`."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() | tuple():
            return ",".join(typed(one, name) for one in value)
    raise InputError(
        f"the value {value!r} of {name} is no text, number, boolean or list"
    )
