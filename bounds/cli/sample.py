"""Write sampled inputs: strings of a language, as `tokens.npy` of shape (K, N).

`sample.json` beside it holds how they were made.
"""

import io

import jax
import numpy as np
from absl import flags

from bounds.cli.shared import flags as shared
from bounds.cli.shared.input_source import BITS
from bounds.cli.shared.platforms import (
    define_platform,
    request_platform,
    require_platform,
)
from bounds.cli.shared.record import Output
from bounds.cli.shared.values import define_count
from bounds.curves.inputs import RANDOM
from bounds.curves.measurement import tokens_sha256
from bounds.store.output import write_bytes, write_json
from jax_models.errors import InputError
from jax_models.languages import LANGUAGES, get_language


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    flags.DEFINE_enum(
        "language",
        "parity",
        (*LANGUAGES, RANDOM),
        "Language to sample from; random is uniform over --vocab_size symbols.",
        flag_values=values,
    )
    for name, default, text in (
        ("length", 64, "Number of tokens N of each string, an end token included."),
        ("num_inputs", 1, "Number of strings K."),
        ("vocab_size", None, "Number of symbols of random strings (default: 2)."),
    ):
        define_count(values, name, default, text)
    flags.DEFINE_boolean(
        "end", False, "Let the end token $ stand last.", flag_values=values
    )
    define_platform(values)
    shared.define_output(values, "sample")
    return values


def run(options: flags.FlagValues) -> None:
    """Sample the strings and write them."""
    if options.vocab_size is not None and options.language != RANDOM:
        raise InputError(
            f"--vocab_size is for random strings, not for {options.language}"
        )
    # Single precision stays: the strings of a seed depend on it.
    request_platform(options)
    require_platform(options)
    symbols = options.vocab_size or BITS if options.language == RANDOM else None
    language = get_language(options.language, symbols)
    strings = language.sample(
        jax.random.key(options.seed),
        options.length,
        options.num_inputs,
        end=options.end,
    )
    tokens = np.asarray(strings, "<i4")
    content = io.BytesIO()
    np.save(content, tokens)
    output = Output.of("sample", options)
    path = output.path("tokens.npy")
    record = output.record()
    record["distribution"] = language.distribution
    record["vocabulary"] = language.vocabulary
    record["tokens_sha256"] = [tokens_sha256(row) for row in tokens]
    with output.exports() as staged:
        write_json(staged.path("sample.json"), record)
        write_bytes(staged.path("tokens.npy"), content.getvalue())
    print(
        f"{path}: {options.num_inputs} x {options.length} tokens, "
        f"{language.distribution}"
    )
