"""Write sampled inputs as a file.

`sample.json` beside it holds how they were made.

    --language=parity --length=64 --num_inputs=4 --out=results/bits
    --language=dyck1 --length=32 --num_inputs=1 --seed=3 --out=results/brackets
"""

import io
from functools import partial

import jax
import numpy as np

from bounds.cli.shared.groups import RANDOM, Output, Platform
from bounds.cli.shared.input_source import BITS
from bounds.cli.shared.options import option
from bounds.cli.shared.runner import Exports, Work
from bounds.curves.measurement import tokens_sha256
from bounds.store.output import write_bytes
from jax_models.languages import LANGUAGES, RegularLanguage, get_language


class SampleOptions(Platform, Output):
    """Options of the command."""

    DOUBLE = False  # the strings of a seed depend on it

    language: str = option(
        "parity",
        "Language to sample from: {words}, or an automaton's file (docs/notation.md); "
        "random is uniform over --vocab_size symbols.",
        *(LANGUAGES, RANDOM),
        file=True,
    )
    length: int = option(64, "Number of tokens N of each string.", least=1)
    num_inputs: int = option(1, "Number of strings K.", least=1)
    vocab_size: int | None = option(
        None,
        "Number of symbols of random strings (default: 2).",
        least=1,
        used_if=lambda one: one.language == RANDOM,
        otherwise="is for random strings; give --language=random, or leave it out",
    )


def plan(options: SampleOptions) -> Work:
    """Work that writes the sampled strings."""
    symbols = options.vocab_size or BITS if options.language == RANDOM else None
    if options.language in (*LANGUAGES, RANDOM):
        language = get_language(options.language, symbols)
    else:
        language = RegularLanguage.read(options.language)
    key, size = jax.random.key(options.seed), (options.length, options.num_inputs)
    tokens = np.asarray(language.sample(key, *size), "<i4")
    content = io.BytesIO()
    np.save(content, tokens)
    record = {
        "distribution": language.distribution,
        "vocabulary": language.vocabulary,
        "tokens_sha256": [tokens_sha256(row) for row in tokens],
    }
    report = f"{size[1]} x {size[0]} tokens, {language.distribution}"
    files = {"tokens.npy": partial(write_bytes, data=content.getvalue())}
    exports = Exports(record, report, files=files)
    return Work(lambda _: exports)
