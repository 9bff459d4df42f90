"""Options of a command as frozen dataclasses, of whose fields absl flags are made.

A field states its type, default, help, range or words, when it applies, and whether it is
part of a result's key. Groups that commands share are base classes, so that an option is
spelled once. Words and checks are named as `module:NAME` and loaded where flags are defined:
modules of options import no JAX.
"""

import contextlib
import dataclasses
import functools
import importlib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from absl import flags

from bounds.cli.shared.values import (
    CountParser,
    ListParser,
    NumberParser,
    TextParser,
    TupleSerializer,
    WordOrFileParser,
)
from bounds.version import __version__
from jax_models.arguments import MAX_COUNT
from jax_models.errors import InputError

Words = str | tuple[str, ...]
NAMED = re.compile(r"\{([\w.]+:[\w.]+)\}")


@dataclasses.dataclass(frozen=True)
class Declared:
    """Declaration of an option beside its name, type and default."""

    help: str = ""  # `{words}` and `{module:NAME}` in it are replaced
    words: tuple[Words, ...] = ()  # allowed, each a word, words, or the name of some
    check: Callable[[str], Any] | str | None = None  # raises ValueError for other text
    least: float | None = None
    most: float | str | None = None  # or the name of a number
    parser: flags.ArgumentParser | None = None
    repeated: bool = False  # may be given several times
    key: bool = True  # part of the key of a stored result
    export: bool = True  # another value makes other exports
    file: bool = False  # names a file, whose content is part of the key
    # Whether the option applies, given the others, and the message where it does not.
    used_if: Callable[[Any], bool] | None = None
    otherwise: str = "does not apply"


def option(default: Any = None, help: str = "", *words: Words, **declared: Any) -> Any:
    """A field that is a flag, declared as `Declared` says."""
    made = Declared(help, words, **declared)
    return dataclasses.field(default=default, metadata={"option": made})


def find(name: str) -> Any:
    """Value of `module:NAME`."""
    module, _, attribute = name.partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(module))


def list_words(words: Iterable[Words]) -> tuple[str, ...]:
    """All words, those named `module:NAME` loaded."""
    found: list[str] = []
    for one in words:
        if isinstance(one, str):
            named = find(one) if ":" in one else [one]
            found += get_args(named) or named
        else:
            found += one
    return tuple(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Options of a command, or a group that commands share."""

    COMMAND: ClassVar[str] = ""
    # Names of the options that were given, with their default too.
    given: frozenset[str] = dataclasses.field(default=None, compare=False, repr=False)  # pyright: ignore

    def __post_init__(self) -> None:
        """Reads defaults and texts as flags are read, and refuses what flags refuse."""
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
        """Options of parsed flags."""
        found: dict[str, Any] = {name: values[name].value for name in values}
        own = {name: found.pop(name) for name in fields_of(cls) if name in found}
        beside = {"beside": found} if found else {}
        given = frozenset(name for name in values if values[name].present)
        return cls(**own, **beside, given=given)

    def key(self, *names: str) -> dict[str, Any]:
        """Key of stored results that depend on some options."""
        own = {name: getattr(self, name) for name in names}
        return {"command": self.COMMAND, "version": __version__, **own}

    def values(self) -> dict[str, Any]:
        """All options by name."""
        return {name: getattr(self, name) for name in fields_of(type(self))}

    def declared(self) -> dict[str, Declared]:
        """Declarations of all options by name."""
        return {name: one.about for name, one in fields_of(type(self)).items()}

    def is_given(self, name: str) -> bool:
        """True if an option was given, with its default too."""
        return name in self.given

    def running(self) -> frozenset[str]:
        """Names of the options that change no export."""
        return frozenset(x for x, one in self.declared().items() if not one.export)

    def refuse_unused(self) -> None:
        """Raises `InputError` for an option that was given and does not apply."""
        for one in fields_of(type(self)).values():
            used_if = one.about.used_if
            if used_if is not None and one.name in self.given and not used_if(self):
                raise InputError(f"--{one.name} {one.about.otherwise}")


@dataclasses.dataclass(frozen=True)
class Field:
    """One option of a class."""

    name: str
    about: Declared
    hint: Any  # its type, without None
    raw: Any  # its default as it is written
    command: str

    @property
    def words(self) -> tuple[str, ...]:
        """The allowed words."""
        return list_words(self.about.words)

    @property
    def parser(self) -> flags.ArgumentParser:
        """Parser of the flag's text."""
        about = self.about
        if about.parser is not None:
            return about.parser
        if self.hint is bool:
            return flags.BooleanParser()
        least: Any = about.least
        most: Any = find(about.most) if isinstance(about.most, str) else about.most
        if self.hint is int:
            return CountParser(least, MAX_COUNT if most is None else most)
        if self.hint is float:
            return NumberParser(least, most)
        check = find(about.check) if isinstance(about.check, str) else about.check
        if get_origin(self.hint) is tuple:
            return ListParser(self.words, check)
        if self.words and about.file:
            return WordOrFileParser(self.words)
        return flags.EnumParser(self.words) if self.words else TextParser(check)

    @property
    def default(self) -> Any:
        """The default as it is read."""
        raw = self.raw
        if isinstance(raw, str):
            is_named = NAMED.fullmatch(f"{{{raw}}}") and "." in raw
            raw = find(raw) if is_named else raw.format(command=self.command)
        return self.read(raw)

    def read(self, value: Any) -> Any:
        """The value of a text or of a value; an `InputError` for another."""
        if value is None or self.hint is bool:
            return value
        if self.about.repeated:
            return tuple(value)
        try:
            return self.parser.parse(value)
        except (ValueError, TypeError) as error:
            raise InputError(f"--{self.name}={value}: {error}") from error


@functools.cache
def fields_of(options: type[Group]) -> Mapping[str, Field]:
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
        about, raw = every[name].metadata["option"], every[name].default
        found[name] = Field(name, about, hint, raw, options.COMMAND)
    return found


def again(
    group: type[Group], name: str, default: Any, more: str = "", **other: Any
) -> Any:
    """An option of a group with another default, more help, or another declaration."""
    about = fields_of(group)[name].about
    made = dataclasses.replace(about, **{"help": about.help + more, **other})
    return dataclasses.field(default=default, metadata={"option": made})


def define(
    values: flags.FlagValues, options: type[Group], names: Iterable[str] | None = None
) -> None:
    """Adds the flags of options, or some of them."""
    found = fields_of(options)
    for one in map(found.__getitem__, found if names is None else names):
        text = NAMED.sub(lambda name: _listed(find(name[1])), one.about.help)
        text = text.replace("{words}", ", ".join(one.words))
        common: dict[str, Any] = {"name": one.name, "help": text, "flag_values": values}
        if one.about.repeated:
            flags.DEFINE_multi_string(default=list(one.raw), **common)
        elif isinstance(one.parser, flags.EnumParser):
            flags.DEFINE_enum(default=one.default, enum_values=one.words, **common)
        elif one.hint is bool:
            flags.DEFINE_boolean(default=one.default, **common)
        else:
            writer = TupleSerializer()
            flags.DEFINE(one.parser, default=one.default, serializer=writer, **common)


def _listed(found: Any) -> str:
    return str(found) if isinstance(found, int | str) else ", ".join(found)


def peek(arguments: Iterable[str], *names: str) -> dict[str, str | None]:
    """Texts of some flags among arguments that may hold any others."""
    named = flags.FlagValues()
    # A value may stand apart from its flag, which absl would take for the end of flags.
    named.set_gnu_getopt(True)
    for name in names:
        flags.DEFINE_string(name, None, "", flag_values=named)
    with contextlib.suppress(flags.Error):
        named(["", *arguments], known_only=True)
    return {name: named[name].value for name in names}


def flags_of(
    options: type[Group], names: Iterable[str] | None = None
) -> flags.FlagValues:
    """Flags of options, or of some of them."""
    values = flags.FlagValues()
    define(values, options, names)
    return values
