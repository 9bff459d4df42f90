"""From flags to inputs: sampled strings, a file of tokens, or texts."""

import dataclasses
import os
from typing import Any

import numpy as np
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.groups import Inputs
from bounds.cli.shared.options import Group
from bounds.cli.shared.texts import (
    LETTERS,
    open_tokenizer,
    read_letters,
    read_text_whole,
)
from bounds.curves.inputs import (
    GivenInputs,
    InputSource,
    NeighbourInputs,
    sampled_inputs,
)
from jax_models.arguments import INPUT_BYTES, ascii_number, expect_file, read_file
from jax_models.constructions import PRESET_LANGUAGES
from jax_models.languages import LANGUAGES, read_text
from jax_models.run.evaluate import check_tokens

# Symbols of a random model for random inputs, where no flag gives their number.
BITS = 2


def num_symbols(options: Inputs) -> int:
    """Number of symbols that a model needs for the inputs of the flags."""
    tokenizer = open_tokenizer(options)
    if tokenizer is not None:
        return len(tokenizer.names)
    given = read_given(options, None)
    if given is not None:
        return max(1, *(int(sequence.max()) + 1 for sequence in given.sequences))
    language = LANGUAGES.get(options.language or "")
    return BITS if language is None else len(language.symbols)


def load_inputs(options: Inputs, model: jm.Transformer, count: int) -> InputSource:
    """Inputs of the flags; a preset alone has its own inputs, with neighbours."""
    given = read_given(options, model.vocabulary)
    if given is not None:
        sequences = []
        for sequence in given.sequences:
            try:
                check_tokens(model.vocab_size, sequence)
                leave = None if model.padding is None else model.padding.leave
                sequences.append(sequence if leave is None else leave(sequence))
            except jm.InputError as error:
                raise jm.InputError(f"{given.name}: {error}") from error
        return dataclasses.replace(given, sequences=tuple(sequences))
    own = None if options.language else PRESET_LANGUAGES.get(options.preset or "")
    language = own or options.language or "random"
    free = model.substitutable or range(BITS)
    of_texts = model.special is not None or not set(range(BITS)).issubset(free)
    if of_texts and not options.is_given("language"):
        language = "random"  # a checkpoint has the symbols of none of the languages
    samples = sampled_inputs(model, language, count, options.seed)
    return NeighbourInputs(samples) if own else samples


def check_input_flags(options: Group) -> list[str]:
    """The one flag that gives inputs, or none; refuses contradictory flags."""
    names = ("tokens", "text", *LETTERS)
    found = [x for x in names if getattr(options, x, None) is not None]
    if len(found) > 1:
        raise jm.InputError(f"give --{found[0]} or --{found[1]}, not both")
    for name in ("language", "num_inputs") if found else ():
        if options.is_given(name):
            file = getattr(options, found[0])
            raise jm.InputError(f"--{name} samples inputs, but {file} is given")
    return found


def read_given(
    options: Group, vocabulary: tuple[str, ...] | None
) -> GivenInputs | None:
    """Sequences that the flags give, or None.

    Without a tokenizer a text consists of the vocabulary's characters, or of bytes.
    """
    found = check_input_flags(options)
    if not found:
        return None
    file: Any = getattr(options, found[0])
    tokenizer = open_tokenizer(options)
    if tokenizer is not None and found[0] in LETTERS:
        return read_letters(found[0], file, tokenizer)
    if tokenizer is not None and found[0] == "text":
        return read_text_whole(file, tokenizer)
    if found[0] == "text":
        expect_file("text file", file)
        return GivenInputs(file, (read_text(file, vocabulary),))
    return GivenInputs(file, read_tokens(file))


def read_tokens(path: str) -> tuple[Int[np.ndarray, "tokens"], ...]:
    """Reads token sequences, each of at least one token, from a file.

    The file has integers separated by whitespace, one sequence; or is a NumPy file of
    integers [n] or [K, n].
    """
    expect_file("token file", path)
    if os.fspath(path).endswith(".npy"):
        tokens = np.atleast_2d(load_array(path))
    else:
        content = read_file("token file", path, INPUT_BYTES)
        words = content.decode("utf-8-sig", errors="replace").split()
        tokens = np.empty((1, len(words)), np.int64)
        for place, word in enumerate(words):
            try:
                tokens[0, place] = int(ascii_number(word))
            except (ValueError, OverflowError):
                raise jm.InputError(
                    f"{path}: {word[:40]!r} at position {place} is not a token; "
                    "expected integers separated by whitespace"
                ) from None
    if tokens.size == 0:
        raise jm.InputError(f"{path}: no tokens (n = 0); an input has at least one")
    return tuple(tokens)


def load_array(path: str) -> Int[np.ndarray, "*inputs tokens"]:
    """Integers of a NumPy file, one row or several, as int64."""
    try:
        # Not `np.load`, which opens archives and pickles too.
        with open(path, "rb") as file:
            tokens = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of many kinds: the header is parsed as Python
        raise jm.InputError(f"{path}: not a NumPy array file ({error})") from error
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2):
        raise jm.InputError(
            f"{path}: expected integers, one row or several of a length, found "
            f"{tokens.dtype} of shape {list(tokens.shape)}"
        )
    return tokens.astype(np.int64)
