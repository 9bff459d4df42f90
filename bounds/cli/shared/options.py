"""Options of a command as frozen dataclasses, of whose fields absl flags are made.

A field states its type, default, help, range or words, when it applies, and whether it is
part of a result's key.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from absl import flags

from bounds.version import __version__
from jax_models.arguments import MAX_COUNT, MAX_LENGTH, ascii_number
from jax_models.errors import InputError


class CountParser(flags.IntegerParser):
    """Reads an integer in a range that has both ends."""

    def convert(self, argument: int | str) -> int:
        """Returns the integer that a text of ASCII digits names."""
        return _expect(self, int, argument)


class NumberParser(flags.FloatParser):
    """Reads a number."""

    def convert(self, argument: float | str) -> float:
        """Returns the float that an ASCII text names."""
        return _expect(self, float, argument)


def _expect(parser: flags.ArgumentParser, kind: Any, argument: Any) -> Any:
    """Number of a text; the ValueError for another names what the parser expects."""
    try:
        return kind(ascii_number(str(argument)))
    except (ValueError, OverflowError):
        raise ValueError(f"expected {parser.syntactic_help}") from None


class LengthsParser(flags.ArgumentParser):
    """Reads `16,32,64` or log-spaced `start:stop:count` as increasing lengths."""

    syntactic_help = "a comma-separated list, or start:stop:count (log-spaced)"

    def parse(self, argument: str | Sequence[int]) -> tuple[int, ...]:
        """The lengths; ValueError unless they are positive integers that increase."""
        if not isinstance(argument, str):
            return tuple(argument)
        try:
            return (_log_spaced if ":" in argument else _increasing)(argument)
        except ValueError as error:
            raise ValueError(f"{error}; expected {self.syntactic_help}") from None


class TextParser(flags.ArgumentParser):
    """Reads a text for which a check, if there is one, raises no ValueError."""

    def __init__(self, check: Callable[[str], object] | None = None):
        """Takes a check that raises `ValueError` for a wrong text, or None."""
        self._check = check

    def parse(self, argument: str) -> str:
        """Returns the text itself after the check."""
        if self._check is not None:
            self._check(argument)
        return argument


class ListParser(flags.ArgumentParser):
    """Reads texts between commas, each one of `words`, if any, and accepted by `check`."""

    def __init__(
        self, words: Sequence[str] = (), check: Callable[[str], object] | None = None
    ):
        """Takes the allowed words, if they are limited, and a check of each text."""
        self._words, self._check = words, check

    def parse(self, argument: str | Sequence[Any]) -> tuple[Any, ...]:
        """Returns the texts; `ValueError` without a text, or for one that is refused."""
        entries = argument
        if isinstance(argument, str):
            entries = [part.strip() for part in argument.split(",")] if argument else []
        among = f" of {', '.join(self._words)}" if self._words else ""
        if not entries:
            raise ValueError(f"name at least one{among}")
        return tuple(self._read(entry, among) for entry in entries)

    def _read(self, entry: Any, among: str) -> Any:
        if self._words and entry not in self._words:
            raise ValueError(f"{entry!r} is not one{among}")
        if self._check is not None:
            self._check(entry)
        return entry


class IntegersParser(ListParser):
    """Reads integers up to 2^31 - 1 between commas."""

    def __init__(self, what: str = "integers", least: int = 0):
        """Takes the integers' name in messages, `what`, and their least value."""
        super().__init__()
        self._least = least
        self.syntactic_help = f"{what} from {least} to {MAX_COUNT}, separated by commas"

    def _read(self, entry: Any, among: str) -> int:
        number = _expect(self, int, entry)
        if not self._least <= number <= MAX_COUNT:
            raise ValueError(f"expected {self.syntactic_help}")
        return number


def expect_name(what: str) -> Callable[[str], None]:
    """Function that raises `ValueError` for an empty text; `what` names what is expected."""

    def check(text: str) -> None:
        if not text:
            raise ValueError(f"it is empty; expected {what}")

    return check


def _expect_file(words: Sequence[str], text: str) -> None:
    if text not in words and not os.path.exists(text):
        raise ValueError(
            f"expected one of {', '.join(words)}, or a file: there is none of this name"
        )


def _increasing(argument: str) -> tuple[int, ...]:
    lengths = tuple(_whole(part, argument) for part in argument.split(","))
    for shorter, longer in itertools.pairwise(lengths):
        if longer <= shorter:
            raise ValueError(f"lengths must increase, but {longer} follows {shorter}")
    return lengths


def _log_spaced(argument: str) -> tuple[int, ...]:
    parts = argument.split(":")
    if len(parts) != 3:
        raise ValueError(f"expected start:stop:count, got {argument!r}")
    start, stop, count = (_whole(part, argument) for part in parts)
    if stop < start:
        raise ValueError(f"the stop {stop} lies before the start {start}")
    if count == 1 and start != stop:
        raise ValueError("both ends are included, so a count of 1 needs start = stop")
    lengths = np.rint(np.geomspace(start, stop, count)).astype(np.int64)
    return tuple(int(length) for length in np.unique(lengths))


def _whole(text: str, argument: str) -> int:
    try:
        number = int(ascii_number(text))
    except ValueError:
        raise ValueError(f"{text!r} in {argument!r} is not a whole number") from None
    if not 1 <= number <= MAX_LENGTH:
        raise ValueError(f"{number} is outside 1 … {MAX_LENGTH}")
    return number


@dataclasses.dataclass(frozen=True)
class Declared:
    """One option: its declaration, then what `fields_of` adds."""

    help: str = ""  # `{words}` in it is replaced
    allowed: tuple[Any, ...] = ()  # each a word or a collection of words
    check: Callable[[str], Any] | None = None  # raises ValueError for other text
    least: Any = None
    most: Any = None
    parser: flags.ArgumentParser | None = None
    repeated: bool = False  # may be given several times
    key: bool = True  # part of the key of a stored result
    export: bool = True  # another value makes other exports
    file: bool = False  # names a file, whose content is part of the key
    # Whether the option applies, given the others, and the message where it does not, in
    # which {0} stands for all options.
    used_if: Callable[[Any], bool] | None = None
    otherwise: str = "does not apply"
    name: str = ""
    hint: Any = None  # its type, without None
    raw: Any = None  # its default as it is written
    command: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The allowed words; empty if any text is allowed."""
        return list_words(self.allowed)

    @property
    def reader(self) -> flags.ArgumentParser:
        """Parser of the flag's text, by declaration, type and words."""
        if self.parser is not None:
            return self.parser
        if self.hint is bool:
            return flags.BooleanParser()
        if self.hint is int:
            most = MAX_COUNT if self.most is None else self.most
            return CountParser(self.least, most)
        if self.hint is float:
            return NumberParser(self.least, self.most)
        if get_origin(self.hint) is tuple:
            return ListParser(self.words, self.check)
        if self.words and self.file:
            return TextParser(functools.partial(_expect_file, self.words))
        return flags.EnumParser(self.words) if self.words else TextParser(self.check)

    @property
    def default(self) -> Any:
        """The default, read as a flag's text is."""
        is_text = isinstance(self.raw, str)
        return self.read(self.raw.format(command=self.command) if is_text else self.raw)

    def read(self, value: Any) -> Any:
        """Returns the checked value of a text or value; raises `InputError` for another."""
        if value is None or self.hint is bool:
            return value
        if self.repeated:
            return tuple(value)
        try:
            return self.reader.parse(value)
        except (ValueError, TypeError) as error:
            raise InputError(f"--{self.name}={value}: {error}") from error


def option(default: Any = None, help: str = "", *words: Any, **declared: Any) -> Any:
    """Dataclass field that is a flag; `declared` are further fields of `Declared`."""
    made = Declared(help, words, **declared)
    return dataclasses.field(default=default, metadata={"option": made})


def list_words(words: Iterable[Any]) -> tuple[str, ...]:
    """All of several words, collections of words and `Literal` types."""
    each = ([x] if isinstance(x, str) else get_args(x) or x for x in words)
    return tuple(itertools.chain.from_iterable(each))


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Options of a command, or a group that commands share."""

    def __init_subclass__(cls) -> None:
        """Makes a frozen dataclass of a class, and names the command of `NameOptions`."""
        if cls.__name__.endswith("Options"):
            cls.COMMAND = cls.__name__.removesuffix("Options").lower()
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    COMMAND: ClassVar[str] = ""
    # Names of the options that were given, with their default too.
    given: frozenset[str] = dataclasses.field(default=None, compare=False, repr=False)  # pyright: ignore

    def __post_init__(self) -> None:
        """Reads defaults and texts with the flags' parsers, and notes what was given."""
        found = fields_of(type(self))
        for one in found.values():
            value = getattr(self, one.name)
            value = one.default if value == one.raw else one.read(value)
            object.__setattr__(self, one.name, value)
        if self.given is None:
            changed = (
                x.name for x in found.values() if getattr(self, x.name) != x.default
            )
            object.__setattr__(self, "given", frozenset(changed))

    @classmethod
    def parse(cls, values: flags.FlagValues) -> Self:
        """Options whose values were parsed as absl flags."""
        found: dict[str, Any] = {name: values[name].value for name in values}
        own = {name: found.pop(name) for name in fields_of(cls) if name in found}
        beside = {"beside": found} if found else {}
        given = frozenset(name for name in values if values[name].present)
        return cls(**own, **beside, given=given)

    def key(self, *names: str) -> dict[str, Any]:
        """Key of stored results that depend on the options `names`."""
        own = {name: getattr(self, name) for name in names}
        return {"command": self.COMMAND, "version": __version__, **own}

    def values(self) -> dict[str, Any]:
        """All options by name."""
        return {name: getattr(self, name) for name in fields_of(type(self))}

    def declared(self) -> dict[str, Declared]:
        """Declarations of all options by name."""
        return dict(fields_of(type(self)))

    def refuse_unused(self) -> None:
        """Raises `InputError` for an option that was given and does not apply."""
        for one in fields_of(type(self)).values():
            if one.used_if and one.name in self.given and not one.used_if(self):
                raise InputError(f"--{one.name} {one.otherwise.format(self)}")


@functools.cache
def fields_of(options: type[Group]) -> Mapping[str, Declared]:
    """Options of a class by name: its own first, then those of its groups in order."""
    hints = get_type_hints(options)
    order = (
        name for one in options.__mro__ for name in vars(one).get("__annotations__", ())
    )
    every = {one.name: one for one in dataclasses.fields(options) if one.metadata}
    found = {}
    for name in filter(every.__contains__, dict.fromkeys(order)):
        kind = next(
            (x for x in get_args(hints[name]) if x is not type(None)), hints[name]
        )
        of = get_origin(hints[name])
        hint = hints[name] if of is tuple else str if of is Literal else kind
        about = every[name].metadata["option"]
        known = {"name": name, "hint": hint, "raw": every[name].default}
        found[name] = dataclasses.replace(about, command=options.COMMAND, **known)
    return found


def again(
    group: type[Group], name: str, default: Any, more: str = "", **other: Any
) -> Any:
    """Dataclass field of an option of `group` with a changed default or declaration."""
    about = fields_of(group)[name]
    made = dataclasses.replace(about, **{"help": about.help + more, **other})
    return dataclasses.field(default=default, metadata={"option": made})


def flags_of(
    options: type[Group],
    names: Iterable[str] | None = None,
    values: flags.FlagValues | None = None,
) -> flags.FlagValues:
    """Adds to `values`, if given, absl flags of the options `names`, or of all options."""
    found = fields_of(options)
    values = flags.FlagValues() if values is None else values
    for one in map(found.__getitem__, found if names is None else names):
        text = one.help.replace("{words}", ", ".join(one.words))
        common: dict[str, Any] = {"name": one.name, "help": text, "flag_values": values}
        if one.repeated:
            flags.DEFINE_multi_string(default=list(one.raw), **common)
        elif one.hint is bool:
            flags.DEFINE_boolean(default=one.default, **common)
        else:
            is_tuple = isinstance(one.reader, ListParser | LengthsParser)
            writer = (
                flags.ListSerializer(",") if is_tuple else flags.ArgumentSerializer()
            )
            flags.DEFINE(one.reader, default=one.default, serializer=writer, **common)
    return values


def peek(arguments: Iterable[str], *names: str) -> dict[str, str | None]:
    """Texts of the flags `names` among arguments; None for a flag that is not there."""
    named = flags.FlagValues()
    # A value may stand apart from its flag, which absl would take for the end of flags.
    named.set_gnu_getopt(True)
    for name in names:
        flags.DEFINE_string(name, None, "", flag_values=named)
    with contextlib.suppress(flags.Error):
        named(["", *arguments], known_only=True)
    return {name: named[name].value for name in names}
