"""Options of a command as frozen dataclasses, of whose fields absl flags are made.

A field states its type, default, help, range or words, when it applies, and whether it is
part of a stored result's key. absl divides the command line; the fields read texts.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import re
import types
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

from absl import flags

from bounds.version import __version__
from jax_models.arguments import MAX_COUNT, ascii_number, show
from jax_models.errors import InputError


def expect_name(what: str) -> Callable[[str], None]:
    """Function that raises `ValueError` for an empty text; `what` names what is expected."""

    def check(text: str) -> None:
        if not text:
            raise ValueError(f"it is empty; expected {what}")

    return check


@dataclasses.dataclass(frozen=True)
class Declared:
    """Declaration of one option; `fields_of` adds its name, type and default."""

    help: str = ""  # `{words}` in it is replaced
    allowed: tuple[Any, ...] = ()  # each a word or a collection of words
    check: Callable[[str], Any] | None = None  # raises ValueError for other text
    least: Any = None
    most: Any = None
    # Of a text of several values that are not all between commas.
    parser: Callable[[str], tuple[Any, ...]] | None = None
    repeated: bool = False  # may be given several times
    key: bool = True  # part of the key of a stored result
    export: bool = True  # another value makes other exports
    file: bool = False  # names a file, whose content is part of the key
    # Whether the option applies, given the others, and the message where it does not, in
    # which {0} stands for all options.
    used_if: Callable[[Any], bool] | None = None
    otherwise: str = "does not apply"
    name: str = ""
    kind: type = str  # of the value, or of each of several
    is_list: bool = False
    raw: Any = None  # its default as it is written
    command: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The allowed words; empty if any text is allowed."""
        return list_words(self.allowed)

    @property
    def default(self) -> Any:
        """Default value, checked and converted like the text of a flag."""
        is_text = isinstance(self.raw, str)
        return self.read(self.raw.format(command=self.command) if is_text else self.raw)

    def read(self, value: Any) -> Any:
        """Value of a flag's text, checked; an `InputError` if it is not allowed."""
        if value is None or self.kind is bool:
            return value
        is_text = isinstance(value, str)
        try:
            if not self.is_list:
                return self._read_one(value)
            if is_text and self.parser is not None:
                return self.parser(value)
            parts = map(str.strip, value.split(",")) if is_text else value
            return tuple(map(self._read_one, parts))
        except (ValueError, TypeError) as error:
            raise InputError(f"--{self.name}={value}: {error}") from error

    def _read_one(self, value: Any) -> Any:
        if self.kind in (int, float):
            return self._read_number(value)
        if self.words and value not in self.words:
            named = f"{show(value)} is not one of {', '.join(self.words)}"
            if not self.file:
                raise ValueError(named)
            if not os.path.exists(value):
                raise ValueError(f"{named}, or a file: there is none of this name")
        if self.check is not None:
            self.check(value)
        return value

    def _read_number(self, value: Any) -> Any:
        is_count = self.kind is int
        most = MAX_COUNT if is_count and self.most is None else self.most
        bounds = (flags.IntegerParser if is_count else flags.FloatParser)(
            self.least, most
        )
        try:
            number = self.kind(ascii_number(str(value)))
        except (ValueError, OverflowError):
            if self.is_list:
                named = f"{show(value)} is not {bounds.syntactic_help}"
                several = f"{bounds.number_name}s, separated by commas"
                raise ValueError(f"{named}; expected {several}") from None
            raise ValueError(f"expected {bounds.syntactic_help}") from None
        # An integer may be beyond all floats.
        if not (is_count or math.isfinite(number)):
            raise ValueError(f"{number} is not a finite number")
        if bounds.is_outside_bounds(number):
            raise ValueError(f"{number} is not {bounds.syntactic_help}")
        return number


def option(default: Any = None, help: str = "", *words: Any, **declared: Any) -> Any:
    """Dataclass field that is a flag; `declared` are further fields of `Declared`."""
    made = Declared(help, words, **declared)
    return dataclasses.field(default=default, metadata={"option": made})


def list_words(words: Iterable[Any]) -> tuple[str, ...]:
    """All words in words, collections of words and `Literal` types, in order."""
    each = ([x] if isinstance(x, str) else get_args(x) or x for x in words)
    return tuple(itertools.chain.from_iterable(each))


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Base of the options of a command (NameOptions), or of a group of shared ones."""

    def __init_subclass__(cls) -> None:
        """Makes a frozen dataclass of a class, and names the command of `NameOptions`."""
        if cls.__name__.endswith("Options"):
            cls.COMMAND = cls.__name__.removesuffix("Options").lower()
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    COMMAND: ClassVar[str] = ""
    # Names of the options that were given, with their default too.
    given: frozenset[str] = dataclasses.field(default=None, compare=False, repr=False)  # pyright: ignore

    def __post_init__(self) -> None:
        """Reads defaults and texts, and notes the names of the options that were given."""
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
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Options of this class from given flags; all others go into its field `beside`."""
        own, beside = {}, {}
        for name, value in given.items():
            (own if name in fields_of(cls) else beside)[name] = value
        more = {"beside": beside} if beside else {}
        return cls(**own, **more, given=frozenset(given))

    def key(self, *names: str) -> dict[str, Any]:
        """Entries of a stored result's key: command, version and the options `names`."""
        own = {name: getattr(self, name) for name in names}
        return {"command": self.COMMAND, "version": __version__, **own}

    def values(self) -> dict[str, Any]:
        """Values of all options by name."""
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
    """Declared options of a class by name: its own first, then its groups' in order."""
    hints = get_type_hints(options)
    order = (
        name for one in options.__mro__ for name in vars(one).get("__annotations__", ())
    )
    every = {one.name: one for one in dataclasses.fields(options) if one.metadata}
    found = {}
    for name in filter(every.__contains__, dict.fromkeys(order)):
        hint = hints[name]
        if isinstance(hint, types.UnionType):  # with None
            hint = get_args(hint)[0]
        is_list = get_origin(hint) is tuple
        kind = get_args(hint)[0] if is_list else hint
        found[name] = dataclasses.replace(
            every[name].metadata["option"],
            name=name,
            kind=str if get_origin(kind) is Literal else kind,
            is_list=is_list,
            raw=every[name].default,
            command=options.COMMAND,
        )
    return found


def again(
    group: type[Group], name: str, default: Any, more: str = "", **other: Any
) -> Any:
    """Dataclass field of an option of `group` with a changed default or declaration."""
    about = fields_of(group)[name]
    made = dataclasses.replace(about, **{"help": about.help + more, **other})
    return dataclasses.field(default=default, metadata={"option": made})


def read_flags(
    options: Iterable[Declared], arguments: Sequence[str], program: str
) -> dict[str, Any]:
    """Values of the given flags: texts, booleans of switches, lists if repeatable."""
    values = flags.FlagValues()
    for one in options:
        define = flags.DEFINE_boolean if one.kind is bool else flags.DEFINE_string
        if one.repeated:
            define = flags.DEFINE_multi_string
        define(one.name, None, one.help, flag_values=values)
    try:
        _, *extra = values(["", *arguments])
    except (flags.Error, ValueError) as error:  # the latter: a value after --no
        text = re.sub(r"\('Non-boolean .*", "expected true or false", str(error))
        text = text.removeprefix("flag ")
        raise InputError(text) from error
    if extra:
        raise InputError(
            f"unexpected argument {extra[0]!r}; every option is a flag, see {program} "
            "--help"
        )
    return {name: values[name].value for name in values if values[name].present}


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
