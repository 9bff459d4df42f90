"""Languages as input: samplers with explicit keys, membership, symbols, text files.

A `Language` is a set of strings with a distribution over those of each length; a `Source`
says what follows each prefix, so that a prediction has an exact cross-entropy.
"""

from collections.abc import Callable

from jax_models.arguments import choose_name, refuse_unread
from jax_models.errors import InputError
from jax_models.languages.anbn import AnBn
from jax_models.languages.automaton import (
    Automaton,
    AutomatonSource,
    ones_automaton,
    parity_automaton,
    threshold_automaton,
    word_automaton,
)
from jax_models.languages.base import Language, Levels, Source
from jax_models.languages.dyck import DyckPrefixes, DyckWords
from jax_models.languages.dyck_source import BoundedDyckSource, DyckSource
from jax_models.languages.flip_flop import FlipFlop
from jax_models.languages.majority import Majority
from jax_models.languages.ones import Ones
from jax_models.languages.parity import Parity, ParitySource
from jax_models.languages.regular import RegularLanguage
from jax_models.languages.text import read_text
from jax_models.languages.uniform import UniformStrings

__all__ = [
    "LANGUAGES",
    "SOURCES",
    "AnBn",
    "Automaton",
    "AutomatonSource",
    "BoundedDyckSource",
    "DyckPrefixes",
    "DyckSource",
    "DyckWords",
    "FlipFlop",
    "Language",
    "Levels",
    "Majority",
    "Ones",
    "Parity",
    "ParitySource",
    "RegularLanguage",
    "Source",
    "UniformStrings",
    "get_language",
    "get_source",
    "ones_automaton",
    "parity_automaton",
    "read_text",
    "threshold_automaton",
    "word_automaton",
]

LANGUAGES: dict[str, Language] = {
    language.name: language
    for language in (
        Parity(),
        DyckWords(1),
        DyckWords(2),
        DyckPrefixes(1),
        DyckPrefixes(2),
        Ones(),
        AnBn(),
        FlipFlop(),
        Majority(),
    )
}
"""The languages that commands know by name; "random" is made by `get_language`."""

SOURCES: dict[str, Callable[[float], Source]] = {
    "parity": ParitySource,
    "dyck1": lambda p: DyckSource(p, num_types=1),
    "dyck2": lambda p: DyckSource(p, num_types=2),
    "dyck2_depth4": lambda p: BoundedDyckSource(p, num_types=2, depth=4),
}
"""The sources that commands know by name, made of their one probability p."""


def get_source(name: str, probability: float) -> Source:
    """Returns the source called `name`.

    Args:
        name: A key of `SOURCES`.
        probability: p: of ending at an even count of ones for PARITY, of an opening
            bracket for the others.

    Returns:
        The source.

    Raises:
        InputError: if there is no such source, or p is not inside (0, 1).
    """
    return SOURCES[choose_name("source", name, [*SOURCES])](probability)


def read_source(name: str, probability: float) -> tuple[Source, str]:
    """Source of a known name or an automaton's file, and text that identifies it."""
    if name in SOURCES:
        return get_source(name, probability), name
    language = RegularLanguage.read(name)
    return language.source(probability), language.text


def get_language(name: str, num_symbols: int | None = None) -> Language:
    """Returns the language called `name`.

    Args:
        name: A key of `LANGUAGES`, or "random" for uniform random strings.
        num_symbols: Size of the alphabet of "random"; the others have their own.

    Returns:
        The language.

    Raises:
        InputError: if there is no such language, "random" comes without a size of at
            least 1, or another with a size.
    """
    if choose_name("language", name, [*LANGUAGES, "random"]) != "random":
        why = f"{name} has symbols of its own"
        refuse_unread("num_symbols", num_symbols, None, why)
        return LANGUAGES[name]
    if num_symbols is None:
        raise InputError("random strings need the number of symbols to draw from")
    return UniformStrings(num_symbols)
