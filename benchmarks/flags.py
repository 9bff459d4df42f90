"""Flags of the benchmark scripts: the ones they share, and lists with validators.

A script defines its flags on a `FlagValues` of its own, so that importing one defines
nothing on absl's global flags, and several can be imported together.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from bounds.cli.shared.groups import DTYPES, Platform
from bounds.cli.shared.options import define
from bounds.cli.shared.values import LengthsParser, TupleSerializer
from jax_models import WEIGHTINGS
from jax_models.model.mask import MASKS


class IntegersParser(flags.ArgumentParser):
    """Reads whole numbers, separated by commas, from a lower bound on."""

    def __init__(self, lower_bound: int) -> None:
        """Prepares the parser.

        Args:
            lower_bound: The least number that is taken.
        """
        self.lower_bound = lower_bound
        self.syntactic_help = (
            f"whole numbers of at least {lower_bound}, separated by commas"
        )

    def parse(self, argument: str | Sequence[int]) -> tuple[int, ...]:
        """Returns the numbers.

        Raises:
            ValueError: One is no whole number, or too small.
        """
        parts = argument.split(",") if isinstance(argument, str) else argument
        try:
            numbers = tuple(int(part) for part in parts)
        except ValueError:
            raise ValueError(f"expected {self.syntactic_help}") from None
        if min(numbers) < self.lower_bound:
            raise ValueError(f"{min(numbers)} is below {self.lower_bound}")
        return numbers

    def flag_type(self) -> str:
        """Returns the name of the type."""
        return "integers"


def validate_choices(
    values: flags.FlagValues, name: str, choices: tuple[str, ...]
) -> None:
    """Refuses entries of a list flag that are not among the choices."""

    def check(entries: list[str] | None) -> bool:
        for entry in entries or ():
            if entry not in choices:
                raise flags.ValidationError(
                    f"{entry!r} is not one of {', '.join(choices)}"
                )
        if entries is not None and not entries:
            raise flags.ValidationError(f"name at least one of {', '.join(choices)}")
        return True

    flags.register_validator(name, check, flag_values=values)


def benchmark_flags(
    name: str,
    *,
    repeats: int | None = None,
    budget: float | None = None,
    table: bool = False,
    figure: bool = False,
) -> flags.FlagValues:
    """Returns the flags of a new script, with those that all scripts share.

    Args:
        name: The script's, which names the default folder of its store.
        repeats: Default of --repeats, where calls are timed; None leaves it out.
        budget: Default of --budget, seconds for each timing; None leaves it out.
        table: Whether the script makes a table that a page can show (--docs).
        figure: Whether it draws a figure (--figure).
    """
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("out", f"results/{name}", "folder of the store", **common)
    flags.DEFINE_bool("fresh", False, "measure again what the store holds", **common)
    define(values, Platform)
    flags.DEFINE_string(
        "jsonl", None, "file that the rows are written to, one line each", **common
    )
    if repeats is not None:
        flags.DEFINE_integer(
            "repeats", repeats, "timed calls at most", lower_bound=1, **common
        )
    if budget is not None:
        flags.DEFINE_float(
            "budget", budget, "seconds for each timing", lower_bound=0, **common
        )
    if table:
        flags.DEFINE_string("docs", None, "page whose table is replaced", **common)
        flags.DEFINE_alias("page", "docs", **common)
    if figure:
        flags.DEFINE_string(
            "figure", None, "figure to draw, without its suffix", **common
        )
    return values


def define_lengths(
    values: flags.FlagValues, default: str
) -> flags.FlagHolder[tuple[int, ...]]:
    """Adds --lengths, an increasing list or start:stop:count.

    Args:
        values: The script's flags.
        default: As typed.
    """
    holder: Any = flags.DEFINE(
        LengthsParser(),
        "lengths",
        default,
        "lengths n",
        flag_values=values,
        serializer=TupleSerializer(),
    )
    return holder


def define_integers(
    values: flags.FlagValues,
    name: str,
    default: Sequence[int],
    text: str,
    *,
    lower_bound: int = 1,
) -> flags.FlagHolder[tuple[int, ...]]:
    """Adds a flag that lists whole numbers.

    Args:
        values: The script's flags.
        name: The flag's.
        default: Its numbers where it is not given.
        text: Its help.
        lower_bound: The least number that is taken.
    """
    holder: Any = flags.DEFINE(
        IntegersParser(lower_bound),
        name,
        default,
        text,
        flag_values=values,
        serializer=TupleSerializer(),
    )
    return holder


def define_seeds(
    values: flags.FlagValues, default: Sequence[int]
) -> flags.FlagHolder[tuple[int, ...]]:
    """Adds --seeds, those of the random models.

    Args:
        values: The script's flags.
        default: The seeds where it is not given.
    """
    return define_integers(values, "seeds", default, "seeds of models", lower_bound=0)


def define_dtypes(
    values: flags.FlagValues, *default: str
) -> flags.FlagHolder[list[str]]:
    """Adds --dtypes.

    Args:
        values: The script's flags.
        default: The float types where it is not given.
    """
    return define_choices(values, "dtypes", default, DTYPES, "float types")


def define_weightings(
    values: flags.FlagValues, *default: str
) -> flags.FlagHolder[list[str]]:
    """Adds --weightings.

    Args:
        values: The script's flags.
        default: The weightings where it is not given.
    """
    return define_choices(
        values, "weightings", default, tuple(WEIGHTINGS), "weightings"
    )


def define_mask(values: flags.FlagValues) -> flags.FlagHolder[str]:
    """Adds --mask, by default none.

    Args:
        values: The script's flags.
    """
    holder: Any = flags.DEFINE_enum(
        "mask", "none", MASKS, "attention mask", flag_values=values
    )
    return holder


def define_masks(
    values: flags.FlagValues, *default: str
) -> flags.FlagHolder[list[str]]:
    """Adds --masks.

    Args:
        values: The script's flags.
        default: The masks where it is not given.
    """
    return define_choices(values, "masks", default, MASKS, "attention masks")


def define_peer(values: flags.FlagValues) -> flags.FlagHolder[str]:
    """Adds --peer_python.

    Args:
        values: The script's flags.
    """
    default = os.environ.get("PEER_PYTHON", sys.executable)
    holder: Any = flags.DEFINE_string(
        "peer_python",
        default,
        "interpreter with PyTorch; by default $PEER_PYTHON, or this one",
        flag_values=values,
    )
    return holder


def define_choices(
    values: flags.FlagValues,
    name: str,
    default: Sequence[str],
    choices: Sequence[str],
    text: str,
) -> flags.FlagHolder[list[str]]:
    """Adds a flag that lists some of several names.

    Args:
        values: The script's flags.
        name: The flag's.
        default: What it lists where it is not given.
        choices: What it may list.
        text: Its help, which the choices are added to.
    """
    holder: Any = flags.DEFINE_list(
        name,
        list(default),
        f"{text}: some of {', '.join(choices)}",
        flag_values=values,
    )
    validate_choices(values, name, tuple(choices))
    return holder
