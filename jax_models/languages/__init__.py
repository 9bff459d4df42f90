"""Languages as input: samplers with explicit keys, membership, symbols, text files."""

from jax_models.errors import InputError
from jax_models.languages.anbn import AnBn
from jax_models.languages.automaton import (
    Automaton,
    ones_automaton,
    parity_automaton,
    threshold_automaton,
    word_automaton,
)
from jax_models.languages.base import Language
from jax_models.languages.dyck import DyckPrefixes, DyckWords
from jax_models.languages.flip_flop import FlipFlop
from jax_models.languages.majority import Majority
from jax_models.languages.ones import Ones
from jax_models.languages.parity import Parity
from jax_models.languages.parity_source import ParitySource
from jax_models.languages.source import Levels, Source
from jax_models.languages.text import read_text
from jax_models.languages.uniform import UniformStrings

__all__ = [
    "LANGUAGES",
    "AnBn",
    "Automaton",
    "DyckPrefixes",
    "DyckWords",
    "FlipFlop",
    "Language",
    "Levels",
    "Majority",
    "Ones",
    "Parity",
    "ParitySource",
    "Source",
    "UniformStrings",
    "get_language",
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
"""The languages that commands know by name; "random" needs an alphabet besides."""


def get_language(name: str, num_symbols: int | None = None) -> Language:
    """Returns the language of that name.

    Args:
        name: A key of `LANGUAGES`, or "random" for uniform random strings.
        num_symbols: The alphabet of "random"; the others have their own.

    Returns:
        The language.

    Raises:
        InputError: if there is no such language, or "random" comes without an alphabet.
    """
    if name in LANGUAGES:
        return LANGUAGES[name]
    if name != "random":
        raise InputError(
            f"unknown language {name!r}; known are {', '.join(LANGUAGES)}, random"
        )
    if num_symbols is None:
        raise InputError("random strings need the number of symbols to draw from")
    return UniformStrings(num_symbols)
