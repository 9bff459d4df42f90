"""Write sampled inputs: strings of a language, as `tokens.npy` of shape (K, N).

`sample.json` beside it holds how they were made.
"""

import dataclasses

from bounds.cli.shared.groups import LANGUAGES, RANDOM, Output, Platform
from bounds.cli.shared.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions(Platform, Output):
    """Options of the command."""

    COMMAND = "sample"

    language: str = option(
        "parity",
        "Language to sample from: {words}, or an automaton's file (docs/notation.md); "
        "random is uniform over --vocab_size symbols.",
        *(LANGUAGES, RANDOM),
        file=True,
    )
    length: int = option(
        64, "Number of tokens N of each string, an end token included.", least=1
    )
    num_inputs: int = option(1, "Number of strings K.", least=1)
    vocab_size: int | None = option(
        None,
        "Number of symbols of random strings (default: 2).",
        least=1,
        used_if=lambda one: one.language == RANDOM,
        otherwise="is for random strings; give --language=random, or leave it out",
    )
    end: bool = option(False, "Let the end token $ stand last.")
