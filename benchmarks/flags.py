"""Flags of the benchmark scripts: the ones they share, and lists with validators.

A script defines its flags on a `FlagValues` of its own, so that importing one defines
nothing on absl's global flags, and several can be imported together.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from bounds.cli.shared.groups import DTYPES, Platform
from bounds.cli.shared.options import Declared, fields_of
from bounds.numbers.notation import parse_lengths
from jax_models import WEIGHTINGS
from jax_models.model.mask import MASKS


def benchmark_flags(
    name: str,
    *,
    repeats: int | None = None,
    budget: float | None = None,
    table: bool = False,
    figure: bool = False,
) -> flags.FlagValues:
    """Returns the flags that all scripts share, and those that the arguments turn on."""
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("out", f"results/{name}", "folder of the store", **common)
    flags.DEFINE_bool("fresh", False, "measure again what the store holds", **common)
    define_platform(values)
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


class _Parser(flags.ArgumentParser):
    """Reads a flag's text as an option does."""

    def __init__(self, option: Declared):
        self._option = option

    def parse(self, argument: Any) -> Any:
        return self._option.read(argument)


def define_platform(values: flags.FlagValues) -> None:
    """Adds --platform and --compilation_cache, as commands have them."""
    for name, one in fields_of(Platform).items():
        flags.DEFINE(_Parser(one), name, one.default, one.help, values)


def _define_list(
    values: flags.FlagValues, default: Any, text: str, option: Declared
) -> flags.FlagHolder[tuple[Any, ...]]:
    option = dataclasses.replace(option, is_list=True)
    writer = flags.ListSerializer(",")
    parser: Any = _Parser(option)
    holder: Any = flags.DEFINE(
        parser, option.name, default, text, values, serializer=writer
    )
    return holder


def define_lengths(
    values: flags.FlagValues, default: str
) -> flags.FlagHolder[tuple[int, ...]]:
    """Adds --lengths, an increasing list or start:stop:count."""
    option = Declared(name="lengths", parser=parse_lengths, kind=int)
    return _define_list(values, default, "lengths n", option)


def define_integers(
    values: flags.FlagValues,
    name: str,
    default: Sequence[int],
    text: str,
    *,
    lower_bound: int = 1,
) -> flags.FlagHolder[tuple[int, ...]]:
    """Adds a flag that lists whole numbers, each at least `lower_bound`."""
    option = Declared(name=name, kind=int, least=lower_bound)
    return _define_list(values, default, text, option)


def define_seeds(
    values: flags.FlagValues, default: Sequence[int]
) -> flags.FlagHolder[tuple[int, ...]]:
    """Adds --seeds, the seeds of random models."""
    return define_integers(values, "seeds", default, "seeds of models", lower_bound=0)


def define_dtypes(
    values: flags.FlagValues, *default: str
) -> flags.FlagHolder[tuple[str, ...]]:
    """Adds --dtypes, a list of float types."""
    return define_choices(values, "dtypes", default, DTYPES, "float types")


def define_weightings(
    values: flags.FlagValues, *default: str
) -> flags.FlagHolder[tuple[str, ...]]:
    """Adds --weightings, a list of weightings."""
    return define_choices(
        values, "weightings", default, tuple(WEIGHTINGS), "weightings"
    )


def define_mask(values: flags.FlagValues) -> flags.FlagHolder[str]:
    """Adds --mask, one attention mask, none by default."""
    holder: Any = flags.DEFINE_enum(
        "mask", "none", MASKS, "attention mask", flag_values=values
    )
    return holder


def define_masks(
    values: flags.FlagValues, *default: str
) -> flags.FlagHolder[tuple[str, ...]]:
    """Adds --masks, a list of attention masks."""
    return define_choices(values, "masks", default, MASKS, "attention masks")


def define_peer(values: flags.FlagValues) -> flags.FlagHolder[str]:
    """Adds --peer_python, an interpreter that has PyTorch."""
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
    default: Sequence[str] | None,
    choices: Sequence[str],
    text: str,
) -> flags.FlagHolder[tuple[str, ...]]:
    """Adds a flag that lists some of `choices`; its help names all of them."""
    text = f"{text}: some of {', '.join(choices)}"
    option = Declared(name=name, allowed=(choices,))
    return _define_list(values, default, text, option)
