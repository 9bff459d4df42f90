"""Alphabets of formulas and programs: different symbols, their ids in order."""

from collections.abc import Sequence

from jax_models.arguments import expect_kind, expect_sequence
from jax_models.errors import InputError


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
    """Returns an alphabet once its symbols are known to be different names.

    Args:
        alphabet: the symbols in the order of their ids.

    Raises:
        InputError: if there is none, one that is empty or no string, or one twice.
    """
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
