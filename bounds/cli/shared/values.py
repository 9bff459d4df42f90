"""Flags of numbers, each with a range, in ASCII digits; and flags of lengths."""

import itertools
from collections.abc import Sequence

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


def define_count(
    values: flags.FlagValues,
    name: str,
    default: int | None,
    text: str,
    least: int = 1,
    most: int = MAX_COUNT,
) -> None:
    """Adds a flag of an integer from `least` to `most`."""
    parser, writer = CountParser(least, most), flags.ArgumentSerializer[int]()
    flags.DEFINE(parser, name, default, text, flag_values=values, serializer=writer)


def define_number(
    values: flags.FlagValues,
    name: str,
    default: float | None,
    text: str,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Adds a flag of a number from `least` to `most`, where these are given."""
    parser, writer = NumberParser(least, most), flags.ArgumentSerializer[float]()
    flags.DEFINE(parser, name, default, text, flag_values=values, serializer=writer)


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


class LengthsSerializer(flags.ArgumentSerializer):
    """Writes lengths as a comma-separated list."""

    def serialize(self, value: Sequence[int]) -> str:
        """Text that parses to the lengths."""
        return ",".join(map(str, value))


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
