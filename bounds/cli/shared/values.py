"""Parsers of flags: numbers in ASCII digits, each in a range, words, texts, and lengths."""

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import flags

from jax_models.arguments import MAX_COUNT, MAX_LENGTH, ascii_number


class CountParser(flags.IntegerParser):
    """Reads an integer in a range that has both ends."""

    def convert(self, argument: int | str) -> int:
        """The integer."""
        return int(ascii_number(str(argument)))


class NumberParser(flags.FloatParser):
    """Reads a number."""

    def convert(self, argument: float | str) -> float:
        """The number."""
        return float(ascii_number(str(argument)))


class LengthsParser(flags.ArgumentParser):
    """Reads `16,32,64` or `start:stop:count` as increasing lengths.

    The second form is log-spaced with both ends in; lengths that round to the same
    number are taken once.
    """

    syntactic_help = "a comma-separated list, or start:stop:count (log-spaced)"

    def parse(self, argument: str | Sequence[int]) -> tuple[int, ...]:
        """The lengths; ValueError unless they are positive integers that increase."""
        if not isinstance(argument, str):
            return tuple(argument)
        if ":" in argument:
            return _log_spaced(argument)
        lengths = tuple(_whole(part, argument) for part in argument.split(","))
        for shorter, longer in itertools.pairwise(lengths):
            if longer <= shorter:
                raise ValueError(
                    f"lengths must increase, but {longer} follows {shorter}"
                )
        return lengths

    def flag_type(self) -> str:
        """Name of the type."""
        return "lengths"


class TupleSerializer(flags.ArgumentSerializer):
    """Writes several values as a comma-separated list."""

    def serialize(self, value: Any) -> str:
        """Text that parses to the values."""
        return (
            ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        )


class TextParser(flags.ArgumentParser):
    """Reads a text for which a check, if there is one, raises no ValueError."""

    def __init__(self, check: Callable[[str], object] | None = None):
        """Takes any text without a check."""
        self._check = check

    def parse(self, argument: str) -> str:
        """The text itself."""
        if self._check is not None:
            self._check(argument)
        return argument


class WordOrFileParser(flags.ArgumentParser):
    """Reads one of some words, or the name of a file that is there."""

    def __init__(self, words: Sequence[str]):
        """Takes the words."""
        self._words = words

    def parse(self, argument: str) -> str:
        """The text itself; ValueError where it is neither."""
        if argument not in self._words and not os.path.exists(argument):
            raise ValueError(
                f"expected one of {', '.join(self._words)}, or a file: there is none of "
                "this name"
            )
        return argument


class ListParser(flags.ArgumentParser):
    """Reads one text or several between commas, each one of some words or checked."""

    def __init__(
        self, words: Sequence[str] = (), check: Callable[[str], object] | None = None
    ):
        """Takes any texts without words or a check."""
        self._words, self._check = words, check

    def parse(self, argument: str | Sequence[Any]) -> tuple[Any, ...]:
        """The texts; ValueError for one that is refused, or none."""
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
    """Reads integers from 0 to 2^31 - 1 between commas."""

    def __init__(self, what: str = "integers"):
        """Names them in errors by `what`."""
        super().__init__()
        self.syntactic_help = f"{what} from 0 to {MAX_COUNT}, separated by commas"

    def _read(self, entry: Any, among: str) -> int:
        number = int(ascii_number(str(entry)))
        if not 0 <= number <= MAX_COUNT:
            raise ValueError(f"expected {self.syntactic_help}")
        return number


def expect_name(what: str) -> Callable[[str], None]:
    """Check that a text, `what` in words, is not empty."""

    def check(text: str) -> None:
        if not text:
            raise ValueError(f"it is empty; expected {what}")

    return check


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
