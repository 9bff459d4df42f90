"""Checks of plain arguments: names, integers, numbers, arrays, paths, alphabets.

One check serves the arguments of functions, the entries of files and the values of flags.
Its first argument `what` is the name of the checked thing in the message of `InputError`,
which also states the value that was found and the expected one. `BriefRepr` prints results
in one line.
"""

import collections
import contextlib
import dataclasses
import errno
import functools
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Int, Shaped

from jax_models.errors import InputError

# Characters of a value that a message shows.
SHOWN = 80
# Counts, sizes and positions are 32-bit in the kernels.
MAX_COUNT = MAX_LENGTH = 2**31 - 1
# The most bytes of a file, by its kind: specifications of sweeps; configurations,
# tokenizers, records and certificates; inputs.
SPEC_BYTES, CONFIG_BYTES, INPUT_BYTES = 2**20, 2**26, 2**30


def show(value: Any) -> str:
    """Returns the `repr` of a value on one line, the middle of a long one left out."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]} ... {text[-15:]}"


def choose_name(what: str, name: Any, allowed: Collection[str]) -> str:
    """Returns `name`, or raises `InputError` if it is not one of `allowed`."""
    if not isinstance(name, str) or name not in allowed:
        raise InputError(f"{what} = {show(name)}; expected one of {', '.join(allowed)}")
    return name


def choose_names(what: str, names: Any, allowed: Collection[str]) -> list[str]:
    """Returns `names` as a list; raises `InputError` if one of them is not in `allowed`."""
    some = expect_sequence(what, names, f"some of {', '.join(allowed)}, in a list")
    return [choose_name(what, name, allowed) for name in some]


def expect_sequence(what: str, values: Any, expected: str) -> list[Any]:
    """Returns the entries of an iterable or array; refuses text, bytes and scalars."""
    single = getattr(values, "shape", None) == ()
    if isinstance(values, str | bytes) or single or not isinstance(values, Iterable):
        raise InputError(f"{what} = {show(values)}; expected {expected}")
    return list(values)


def not_finite_at(array: Shaped[np.ndarray, "..."]) -> tuple[int, ...] | None:
    """Returns the index of the first entry that is not finite, None if all are finite."""
    flat = array.reshape(-1)
    # If the sum of squares is finite, so are all entries: this test takes half the time.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.vdot(flat, flat)):
            return None
    places = np.argwhere(~np.isfinite(array))
    return tuple(int(i) for i in places[0]) if len(places) else None


def expect_kind(what: str, value: Any, kind: Any, expected: str) -> None:
    """Raises `InputError` unless `value` is an instance of `kind`, a type or several."""
    if not isinstance(value, kind):
        raise InputError(f"{what} = {show(value)}; expected {expected}")


def expect_hook(what: str, value: Any) -> None:
    """Raises `InputError` unless `value` is None or callable."""
    if value is not None and not callable(value):
        raise InputError(f"{what} = {show(value)}; expected a function, or None")


def expect_array(what: str, value: Any) -> Shaped[np.ndarray, "..."]:
    """Returns a value as a NumPy array of any type and shape."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} = {show(value)}; expected an array") from error


def refuse_empty(what: str, tokens: Any) -> None:
    """Raises `InputError` if `tokens` [..., n] have length n = 0."""
    if tokens.ndim and not tokens.shape[-1]:
        raise InputError(
            f"{what}: the empty word (n = 0) has no position to be read at; expected "
            "n >= 1 symbols"
        )


def expect_strings(what: str, value: Any) -> Int[np.ndarray, "... tokens"]:
    """Returns symbol ids as an array [n] or [count, n] with n >= 1; refuses all else."""
    array = expect_array(what, value)
    refuse_empty(what, array)
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu" or not array.size:
        raise InputError(
            f"{what} = {show(value)} of type {array.dtype} and shape {array.shape}; "
            "expected integers, the ids of symbols, [n] or [count, n]"
        )
    return array


def expect_integer(
    what: str,
    value: Any,
    # by default -2^31
    least: int | None = None,
    # by default 2^31 - 1; inf for any
    most: float | None = None,
) -> int:
    """Returns an integer from `least` to `most` as an `int`; refuses booleans and 1.0."""
    found = _item(value)
    whole = isinstance(found, int) and not isinstance(found, bool)
    low = -MAX_COUNT - 1 if least is None else least
    high = MAX_COUNT if most is None else most
    if not whole or not low <= found <= high:
        # A number beyond 32 bits: the message has to state both ends, given or not.
        if whole and not -MAX_COUNT <= found <= MAX_COUNT:
            least, most = low, high
        most = None if most == math.inf else most
        if least is None:
            expected = "an integer" if most is None else f"an integer <= {most}"
        elif most is None:
            expected = f"an integer >= {least}"
        else:
            expected = f"an integer from {least} to {most}"
        raise InputError(f"{what} = {show(value)}; expected {expected}")
    return found


def expect_length(value: Any) -> int:
    """Returns a length n from 1 to 2^31 - 1, the range of 32-bit positions."""
    return expect_integer("length n", value, 1, MAX_LENGTH)


def expect_integers(
    what: str, values: Any, least: int | None = None, most: float | None = None
) -> list[int]:
    """Returns a sequence of integers as a list of `int`, each checked by `expect_integer`."""
    if isinstance(values, np.ndarray):
        values = values.tolist() if values.ndim else [values]
    return [
        expect_integer(f"{what}[{at}]", value, least, most)
        for at, value in enumerate(
            expect_sequence(what, values, "a sequence of integers")
        )
    ]


def expect_number(
    what: str,
    value: Any,
    least: float = -math.inf,
    *,
    # whether `least` itself is refused
    above: bool = False,
) -> float:
    """Returns a finite number, `least` or more, as a Python float; refuses booleans."""
    found = _item(value)
    # A comparison with the largest float: an integer beyond it cannot become one.
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if not number or not abs(found) <= sys.float_info.max:
        raise InputError(f"{what} = {show(value)}; expected a finite number")
    if found < least or (above and found == least):
        bound = f"at least {least:g}"
        if above:
            bound = "a positive number" if least == 0 else f"more than {least:g}"
        raise InputError(f"{what} = {show(value)}; expected {bound}")
    return float(found)


def ascii_number(text: str) -> str:
    """Returns `text`; raises `ValueError` if it has a non-ASCII character or underscore."""
    if not text.isascii() or "_" in text:
        raise ValueError(f"{show(text)} is no number; expected the digits 0 to 9")
    return text


def refuse_unread(what: str, value: Any, default: Any, why: str) -> None:
    """Raises `InputError` if an argument that has no effect differs from its default."""
    same = value is default or value == default
    if not isinstance(same, bool | np.bool_) or not same:  # arrays compare by entry
        raise InputError(f"{what} = {show(value)} has no effect: {why}; leave it out")


# Tests of a file's mode, and the words for a path that is no ordinary file.
KINDS = (
    (stat.S_ISDIR, "is a folder; name the file in it"),
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def expect_file(what: str, path: str | os.PathLike[str]) -> Path:
    """Returns `path` as a `Path`; refuses all but an ordinary file or a link to one."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{what} = {show(path)}; expected a path")
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        found = "does not exist"
    except ValueError:
        found = "is no path"  # a null byte
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        found = "is a link that leads back to itself"
    else:
        if stat.S_ISREG(mode):
            return Path(path)
        found = next(name for holds, name in KINDS if holds(mode))
    raise InputError(f"{what} {os.fspath(path)!r} {found}")


def has_file(what: str, path: Path) -> bool:
    """Whether `path` exists; raises `InputError` if it exists and is no ordinary file."""
    return os.path.lexists(path) and bool(expect_file(what, path))


def read_file(what: str, path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the content of an ordinary file; refuses one of more than `most` bytes."""
    with open(expect_file(what, path), "rb") as file:
        # One byte more than allowed: enough to refuse, however long the file is.
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(
            f"{what} {os.fspath(path)!r} has more than {most} bytes, which no such file "
            "needs; name another, or shorten it"
        )
    return content


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object as a dict; raises `InputError` for a repeated key."""
    for name, count in collections.Counter(name for name, _ in pairs).items():
        if count > 1:
            raise InputError(
                f"{name!r} stands twice in one object; expected one entry for each key"
            )
    return dict(pairs)


def read_json_file(
    what: str,
    path: str | os.PathLike[str],
    pairs: Callable[[Any], Any] | None = None,
    remedy: str = "",
) -> Any:
    """Returns the value of a JSON file; `pairs` makes objects of lists of pairs."""
    content = read_file(what, path, CONFIG_BYTES)
    try:
        return json.loads(content, object_pairs_hook=pairs)
    except InputError as error:
        raise InputError(f"{os.fspath(path)!r}: {error}") from error
    except (ValueError, RecursionError) as error:
        said = f"{os.fspath(path)!r} is not JSON: {error}{remedy}"
        raise InputError(said) from error


def _item(value: Any) -> Any:
    """Returns a scalar of NumPy or JAX as a Python number; other values unchanged."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        with contextlib.suppress(NotImplementedError):  # a random key has none
            return value.item()
    return value


def read_alphabet(text: str) -> tuple[str, ...]:
    """Returns the symbols that a text names, in the order of their ids.

    Args:
        text: one character per symbol ("ab"), or names with commas ("open,close").

    Raises:
        InputError: if there is no symbol, an empty name, or one twice.
    """
    expect_kind("alphabet", text, str, "text, as in ab")
    names = [name.strip() for name in text.split(",")] if "," in text else list(text)
    return check_alphabet(names)


def check_alphabet(alphabet: Sequence[str]) -> tuple[str, ...]:
    """Returns an alphabet as a tuple; its symbols must be distinct names, not empty."""
    if not isinstance(alphabet, str):
        alphabet = expect_sequence("alphabet", alphabet, "symbols, as in ab")
    symbols = tuple(alphabet)
    if not symbols:
        raise InputError("the alphabet is empty; give at least one symbol, as in ab")
    for place, name in enumerate(symbols):
        if not isinstance(name, str) or not name:
            raise InputError(
                f"symbol {place} of the alphabet is {name!r}; expected a name that is "
                "not empty: one character per symbol, or names with commas between them"
            )
        if name in symbols[:place]:
            raise InputError(
                f"the alphabet has {name!r} twice, with ids {symbols.index(name)} and "
                f"{place}; its symbols must be different"
            )
    return symbols


def expect_keys(where: str, entry: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Returns `entry` if it is a dictionary whose keys are all in `allowed`."""
    if not isinstance(entry, dict):
        raise InputError(
            f"{where} is {type(entry).__name__}; expected an object with "
            f"{', '.join(allowed)}"
        )
    for key in entry:
        if key not in allowed:
            raise InputError(
                f"{where} has the unknown key {key!r}; expected one of "
                f"{', '.join(allowed)}"
            )
    return entry


P = ParamSpec("P")
T = TypeVar("T")


def refuse_moved(function: str, given: Iterable[str], moved: Mapping[str, str]) -> None:
    """Raises `TypeError` for a keyword in `given` whose new place stands in `moved`."""
    for name in given:
        if name in moved:
            raise TypeError(
                f"{function}() has no keyword {name!r} since 0.2: it is {moved[name]}"
            )


def refusing_moved(
    moved: Mapping[str, str],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Returns a decorator that makes a function refuse the keywords in `moved`."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> T:
            refuse_moved(function.__name__, keywords, moved)
            return function(*arguments, **keywords)

        return checked

    return decorate


class BriefRepr:
    """Base of dataclasses, declared with `repr=False`, that print long fields abbreviated."""

    def __repr__(self) -> str:
        """Class name and fields; fields with `repr=False` are left out."""
        fields: Any = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        shown = [f"{x.name}={_brief(getattr(self, x.name))}" for x in fields if x.repr]
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    """`repr` of a value; of arrays and long values only the type, and the size if any."""
    if getattr(value, "shape", ()):
        return f"{value.dtype}{list(value.shape)}"
    text = repr(value)
    if len(text) <= SHOWN and "\n" not in text:
        return text
    if isinstance(value, tuple | list | dict | frozenset):
        return f"<{len(value)} entries>"
    return f"{type(value).__name__}(...)"
